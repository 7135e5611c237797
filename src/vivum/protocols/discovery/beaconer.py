"""The side of a configuration service: tells where it is, and notices another service of the same domain.

Design note: `docs/design/runtime.md`, "Discovery". Lives in the node of the service, beside its machine.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vivum.core.ids import Channel, Endpoint
from vivum.core.machine import ChannelOpened, Command, Datagram, Effect, Event, Priority
from vivum.core.time import SECOND
from vivum.protocols.discovery.finder import BEACON_CHANNEL
from vivum.protocols.discovery.rank import ServiceInfo, info_of, is_own_word
from vivum.protocols.discovery.settings import DiscoverySettings
from vivum.protocols.membership.service.state import ConfigurationService
from vivum.wire.codec import Frame
from vivum.wire.control import encode_control
from vivum.wire.directory import Beacon, Farewell, Seek
from vivum.wire.gate import Gate
from vivum.wire.kinds import Kind

COUNTED_NS = 4 * SECOND
"""A life counts for the rank of its service if it was heard within this time. As `service_silence_ns` of the clients:
a majority that the service did not hear for longer may have gone over to a standby, and must not be called back."""

ROUSED_NS = 3 * SECOND
"""A life that was silent for this long is asked for a sign of life while it still counts. Idle clients speak every 2 to
3 s, but put that off whenever the service speaks to them."""


@dataclass(frozen=True, slots=True)
class StartBeacon(Command):
    """Begin to announce the service."""


@dataclass(frozen=True, slots=True)
class EndBeacon(Command):
    """Announce that the service ends."""


@dataclass(frozen=True, slots=True)
class ServiceOutranked(Event):
    """Another service of the domain ranks higher: this one must give way, and its nodes follow the other."""

    by: ServiceInfo


class Beaconer:
    """Speaks for the service that is carried here, while there is one."""

    kinds = frozenset({Kind.DISCOVERY})
    commands: frozenset[type[Command]] = frozenset({StartBeacon, EndBeacon})
    transport = ""
    has_data = False

    def __init__(
        self,
        endpoint: Endpoint,
        gate: Gate,
        service: Callable[[], tuple[ConfigurationService, int] | None],
        heard_since: Callable[[int], int],
        *,
        multicast: bool,
        dedicated: bool,
        seeds: Sequence[Endpoint] = (),
        rouse: Callable[[int], None] = lambda _: None,
        settings: DiscoverySettings | None = None,
    ) -> None:
        """Prepare. `service` returns the configuration service that is carried here and its term, if there is one,
        `heard_since` from how many lives it heard something since a time; `rouse` makes it ask the others.
        """
        self.endpoint = endpoint
        self._heard_since = heard_since
        self._rouse = rouse
        self._gate = gate
        self._service = service
        self._multicast = multicast
        self._dedicated = dedicated
        self._seeds = tuple(each for each in seeds if each != endpoint)
        self._settings = settings or DiscoverySettings()
        self._now_ns = 0
        self._started_ns = 0
        self._next_ns: int | None = None
        self._to_all = False
        self._is_ending = False
        self._outranked_by: ServiceInfo | None = None
        # Who had joined here when that was noticed: by the time of telling them the service may have ended.
        self._followers: list[Endpoint] = []
        self._answers: dict[Endpoint | Channel, None] = {}
        self.effects: list[Effect] = []

    @property
    def info(self) -> ServiceInfo | None:
        """The service as it stands now; None if there is none here."""
        found = self._service()
        if found is None or self._next_ns is None:
            return None
        _, term = found
        # Only those who speak count: one that slept while its nodes went elsewhere must not call them back.
        lives = self._heard_since(self._now_ns - COUNTED_NS)
        return ServiceInfo(self.endpoint, self._dedicated, lives, term, self._started_ns)

    def _listeners(self) -> list[Endpoint]:
        found = self._service()
        return [] if found is None else [life.endpoint for life in found[0].lives.values()]

    def submit(self, now_ns: int, command: Command) -> None:
        """Begin, or end."""
        if isinstance(command, EndBeacon):
            self._is_ending = self._service() is not None
            self._next_ns = None
            return
        self._now_ns = self._started_ns = self._next_ns = now_ns
        self._outranked_by = None
        if self._multicast:
            self.effects.append(ChannelOpened(BEACON_CHANNEL))

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        """Take a frame of kind DISCOVERY."""
        body = self._gate.decode(now_ns, source, frame)
        if isinstance(body, Seek | Beacon):
            self.on_message(now_ns, body, is_own_word(source, body))

    def on_message(self, now_ns: int, body: Seek | Beacon, is_own_word: bool) -> None:
        """Answer who seeks; look at the rank of who else claims to be the service."""
        self._now_ns = now_ns
        own = self.info
        if own is None:
            return
        if isinstance(body, Seek):
            if is_own_word:
                self._answers[Endpoint(body.host, body.port)] = None
            return
        rival = info_of(body)
        if rival.endpoint == self.endpoint:
            return
        if is_own_word and rival.rank > own.rank:
            self._outranked_by = rival
            self._followers = self._listeners()
            self.effects.append(ServiceOutranked(rival))
        else:
            # It may not have heard of us: it will give way, or tell us itself that it need not.
            self._answers[rival.endpoint] = None

    def next_deadline_ns(self) -> int | None:
        """Return when the next beacon is due."""
        return self._next_ns

    def on_timer(self, now_ns: int) -> None:
        """Beacon, if it is time."""
        self._now_ns = now_ns
        if self._next_ns is not None and now_ns >= self._next_ns:
            if self._service() is None:
                self._next_ns = None
                return
            self._next_ns = now_ns + self._settings.beacon_ns
            self._to_all = True
            self._rouse(now_ns - ROUSED_NS)

    def make_frames(self, room_bytes: int) -> list[Datagram]:  # noqa: ARG002
        """Make the frames that are due. All is control: it does not wait for room."""
        if self._is_ending:
            self._is_ending = False
            return self._farewell()
        if not self._answers and not self._to_all and self._outranked_by is None:
            return []
        told: dict[Endpoint | Channel, None] = {}
        info = self._outranked_by or self.info
        if self._outranked_by is not None:
            # Those who came to us need not wait for its next beacon, or may not hear it.
            told = dict.fromkeys(self._followers)
            self._outranked_by = None
            self._followers = []
        elif self._to_all:
            # To the seeds too: a node that starts there and finds nobody must hear that somebody is here.
            told = self._all()
        told |= self._answers
        self._to_all = False
        self._answers.clear()
        if info is None:
            return []
        data = encode_control(Kind.DISCOVERY, self._gate.domain, 0, 0, 0, 0, self._now_ns, info.to_beacon())
        return [Datagram(where, data, Priority.CONTROL) for where in told]

    def _all(self) -> dict[Endpoint | Channel, None]:
        if self._multicast:
            return {BEACON_CHANNEL: None}
        return dict.fromkeys([*self._listeners(), *self._seeds])

    def _farewell(self) -> list[Datagram]:
        body = Farewell(*self.endpoint)
        data = encode_control(Kind.DISCOVERY, self._gate.domain, 0, 0, 0, 0, self._now_ns, body)
        return [Datagram(where, data, Priority.CONTROL) for where in self._all()]
