"""Look for the configuration service, watch it, and look again when it is gone.

Design note: `docs/design/runtime.md`, "Discovery". Only reports: a service was found (`ServiceFound`) or lost
(`ServiceLost`), or nobody answers and this node is the one to carry a service (`ServiceAbsent`). Its owner decides what
follows (`vivum.node.domain`).

Invariants: `service` is None exactly while seeking; a beacon is believed only from its own domain (the gate), and only
from the endpoint that it names. What others say of a service is a hint.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from vivum.core.deadlines import Deadlines
from vivum.core.ids import Channel, Endpoint
from vivum.core.machine import ChannelOpened, Command, Datagram, Effect, Event, Priority
from vivum.protocols.discovery.rank import ServiceInfo, info_of, is_own_word
from vivum.protocols.discovery.settings import DiscoverySettings
from vivum.wire.codec import Frame
from vivum.wire.control import encode_control
from vivum.wire.directory import Beacon, Farewell, Seek
from vivum.wire.fields import ControlMessage
from vivum.wire.gate import Gate
from vivum.wire.kinds import Kind

HINTS_MAX = 8
"""Endpoints named by others that are asked within the shortest time between two questions. Further ones are not."""

LATENESS_FACTOR = 8
"""A node whose own timers are late waits this many times their delay longer before it takes silence for absence."""

BEACON_CHANNEL = Channel(0)
"""The well-known channel of a domain. Regions number theirs from 1."""


@dataclass(frozen=True, slots=True)
class StartSeeking(Command):
    """Begin to look for the service."""


@dataclass(frozen=True, slots=True)
class TrustService(Command):
    """Treat this service as found: this node's process carries it."""

    service: ServiceInfo


@dataclass(frozen=True, slots=True)
class ServiceFound(Event):
    """The domain has this service. Reported again when a service of higher rank replaces it."""

    service: ServiceInfo


@dataclass(frozen=True, slots=True)
class ServiceLost(Event):
    """The service was silent for too long, or said farewell: the node looks for another one."""

    service: ServiceInfo
    has_ended: bool


@dataclass(frozen=True, slots=True)
class ServiceAbsent(Event):
    """Nobody answers, and of all nodes that look this one should carry a service. Reported once in each search."""


class Finder:
    """Finds the service for one node."""

    kinds = frozenset({Kind.DISCOVERY})
    commands: frozenset[type[Command]] = frozenset({StartSeeking, TrustService})
    transport = ""
    has_data = False

    def __init__(
        self,
        endpoint: Endpoint,
        gate: Gate,
        rng: Random,
        *,
        multicast: bool,
        seeds: Sequence[Endpoint] = (),
        carry_after_ns: int | None = 0,
        settings: DiscoverySettings | None = None,
    ) -> None:
        """Prepare. `carry_after_ns` is added to the wait before this node carries a service; None means never."""
        self.service: ServiceInfo | None = None
        self.term = 0
        self.is_held_back = False
        """Whether this node would not carry a service now in any case, so that others need not wait for it."""

        self._endpoint = endpoint
        self._gate = gate
        self._rng = rng
        self._multicast = multicast
        self._seeds = tuple(each for each in seeds if each != endpoint)
        self._acquaintances: tuple[Endpoint, ...] = ()
        self._carry_after_ns = carry_after_ns
        self._settings = settings or DiscoverySettings()
        self._timers: Deadlines[str] = Deadlines()
        self._now_ns = 0
        self._started_ns = 0
        self._seek_ns = 0
        self._elder_until_ns = 0
        # The largest delay of a timer in this search.
        self._late_ns = 0
        # Endpoints that others named lately as those of a service, and that were asked.
        self._hints: set[Endpoint] = set()
        self._due: list[tuple[Endpoint | Channel, ControlMessage]] = []
        self.effects: list[Effect] = []

    def submit(self, now_ns: int, command: Command) -> None:
        """Begin to look, or trust a service."""
        self._now_ns = now_ns
        match command:
            case StartSeeking():
                if self._multicast:
                    self.effects.append(ChannelOpened(BEACON_CHANNEL))
                self._become_seeking()
            case TrustService(service):
                self._become_found(service)

    def carry_after(self, delay_ns: int) -> None:
        """Set how much longer than others this node waits before it carries a service."""
        if self._carry_after_ns is not None:
            self._carry_after_ns = delay_ns
            if "carry" in self._timers:
                self._timers.set("carry", self._patient_until_ns())

    def ask_also(self, endpoints: Iterable[Endpoint]) -> None:
        """Ask these nodes too, besides the seeds, from the next question on: one of them may know more."""
        self._acquaintances = tuple(each for each in endpoints if each != self._endpoint and each not in self._seeds)

    def lose_service(self, now_ns: int) -> None:
        """Look for another service: the one that was found is gone."""
        self._now_ns = now_ns
        if self.service is not None:
            self._become_bereft(self.service, False)

    # States.

    def _become_seeking(self) -> None:
        self.service = None
        self._started_ns = self._now_ns
        self._seek_ns = self._settings.seek_ns_min
        self._elder_until_ns = self._late_ns = 0
        self._timers.cancel("watch")
        self._timers.set("seek", self._now_ns)
        if self._carry_after_ns is not None:
            self._timers.set("carry", self._patient_until_ns())

    def _become_found(self, service: ServiceInfo) -> None:
        known = self.service
        # Another term at the same endpoint: its process was restarted, and knows nobody.
        is_news = known is None or (known.endpoint, known.term) != (service.endpoint, service.term)
        self.service = service
        self.term = max(self.term, service.term)
        self._timers.cancel("seek")
        self._timers.cancel("carry")
        if service.endpoint == self._endpoint:
            # A node does not hear its own beacons.
            self._timers.cancel("watch")
        else:
            self._timers.set("watch", self._now_ns + self._settings.silence_ns_max)
        if is_news:
            self.effects.append(ServiceFound(service))

    def _become_bereft(self, service: ServiceInfo, has_ended: bool) -> None:
        self.effects.append(ServiceLost(service, has_ended))
        self._become_seeking()

    # Frames.

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        """Take a frame of kind DISCOVERY."""
        body = self._gate.decode(now_ns, source, frame)
        if isinstance(body, Seek | Beacon | Farewell):
            self.on_message(now_ns, body, is_own_word(source, body))

    def on_message(self, now_ns: int, body: Seek | Beacon | Farewell, is_own_word: bool) -> None:
        """Handle a message; `is_own_word` says whether its sender speaks of itself."""
        self._now_ns = now_ns
        if not is_own_word:
            if isinstance(body, Beacon):
                self._on_hint(Endpoint(body.host, body.port))
        elif isinstance(body, Beacon):
            self._on_beacon(info_of(body))
        elif isinstance(body, Seek):
            self._on_seek(body)
        elif self.service is not None and self.service.endpoint == (body.host, body.port):
            self._become_bereft(self.service, True)

    def _on_beacon(self, info: ServiceInfo) -> None:
        known = self.service
        if known is not None and known.endpoint == self._endpoint:
            # This node carries the service: its beaconer knows its rank, and decides whether it gives way.
            return
        if known is None or info.endpoint == known.endpoint or info.rank > known.rank:
            self._become_found(info)

    def _on_hint(self, endpoint: Endpoint) -> None:
        """Ask a service that another node named: only the service itself is believed."""
        known = self.service
        is_news = endpoint != self._endpoint and (known is None or known.endpoint not in (endpoint, self._endpoint))
        if is_news and endpoint not in self._hints and len(self._hints) < HINTS_MAX:
            if not self._hints:
                self._timers.set("hints", self._now_ns + self._settings.seek_ns_min)
            self._hints.add(endpoint)
            self._due.append((endpoint, self._question(direct=True)))

    def _on_seek(self, body: Seek) -> None:
        seeker = Endpoint(body.host, body.port)
        if seeker == self._endpoint:
            return
        if self.service is not None:
            if body.direct:
                self._due.append((seeker, self.service.to_beacon()))
        elif body.willing and (body.started_ns, seeker) < (self._started_ns, self._endpoint):
            self._elder_until_ns = self._started_ns + self._settings.elder_patience_ns

    # Time.

    def next_deadline_ns(self) -> int | None:
        """Return when something will be due."""
        return self._timers.next_ns()

    def on_timer(self, now_ns: int) -> None:
        """Ask again, stop waiting for an answer, or note that beacons are missing."""
        self._now_ns = now_ns
        late_ns = now_ns - (self._timers.next_ns() or now_ns)
        self._late_ns = max(self._late_ns, late_ns)
        for what in self._timers.take_due(now_ns):
            match what:
                case "seek":
                    self._seek()
                case "carry":
                    # If this node is late, so are those that would answer.
                    until_ns = max(self._elder_until_ns, self._patient_until_ns() + LATENESS_FACTOR * self._late_ns)
                    if now_ns < until_ns:
                        self._timers.set("carry", until_ns)
                    else:
                        self.effects.append(ServiceAbsent())
                case "hints":
                    self._hints.clear()
                case "watch":
                    assert self.service is not None, "only a service that was found is watched"
                    if late_ns > self._settings.beacon_ns:
                        # This node slept: the service's beacons lie unread in its socket.
                        self._timers.set("watch", now_ns + self._settings.silence_ns_max // 2)
                    else:
                        self._become_bereft(self.service, False)

    def _patient_until_ns(self) -> int:
        return self._started_ns + self._settings.patience_ns + (self._carry_after_ns or 0)

    def _seek(self) -> None:
        if self._multicast:
            self._due.append((BEACON_CHANNEL, self._question(direct=False)))
        for seed in (*self._seeds, *self._acquaintances):
            self._due.append((seed, self._question(direct=True)))
        # At random, so that nodes that were started together do not all ask at once.
        self._timers.set("seek", self._now_ns + self._seek_ns + int(self._seek_ns * self._rng.random() / 4))
        self._seek_ns = min(2 * self._seek_ns, self._settings.seek_ns_max)

    def _question(self, *, direct: bool) -> Seek:
        willing = self._carry_after_ns is not None and not self.is_held_back
        return Seek(*self._endpoint, self._started_ns, willing, direct)

    # Output.

    def make_frames(self, room_bytes: int) -> list[Datagram]:  # noqa: ARG002
        """Make the frames that are due. All is control: it does not wait for room."""
        made = []
        for where, body in self._due:
            data = encode_control(Kind.DISCOVERY, self._gate.domain, 0, 0, 0, 0, self._now_ns, body)
            made.append(Datagram(where, data, Priority.CONTROL))
        self._due.clear()
        return made
