"""A node of a domain on sockets: finds the service or carries one, joins, follows when the service changes.

Design note: `docs/design/runtime.md`. Knows nothing of names and types of topics: `vivum.live` does.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from vivum.core.errors import HostError
from vivum.core.ids import Endpoint, Incarnation, Member
from vivum.core.limits import Limits
from vivum.core.machine import Command, Delivery, Event, InstallView
from vivum.node.build import SERVICE_NODE
from vivum.node.compose import MemberParts, compose_member
from vivum.observe.trace import Tracer
from vivum.protocols.commands import SendConfirmed
from vivum.protocols.discovery.beaconer import EndBeacon, ServiceOutranked, StartBeacon
from vivum.protocols.discovery.finder import ServiceAbsent, ServiceFound, ServiceLost, StartSeeking, TrustService
from vivum.protocols.discovery.rank import ServiceInfo
from vivum.protocols.membership.client.allegiance import ROUND_BITS
from vivum.protocols.membership.client.client import ClientState, MembershipClient
from vivum.protocols.qsm.settings import QsmSettings
from vivum.runtime.boards import BOARD_FRAME_BYTES_MIN, KEPT_BYTES
from vivum.runtime.driver import Driver
from vivum.runtime.environment import NodePort, current_environment
from vivum.runtime.interfaces import PAYLOAD_BYTES_MAX
from vivum.wire.codec import FrameBuilder

CARRY_STEP_NS = 150_000_000
"""How much longer each younger node waits before it carries a service in the place of a lost one."""

TAKEOVER_PATIENCE_NS = 5_000_000_000
"""How long standbys have to take over from a lost service before a node begins a new one."""

FOLLOW_PATIENCE_S = 2.0
"""How long a service of a later term has to tell a node of itself before the node begins a new life there."""

MEETING_PATIENCE_NS = 1_500_000_000
"""How much longer a node waits that is not the one at the port where nodes meet."""

WINDOW_SHARE = 2
"""The window takes one part in so many of the receive buffer: the kernel counts more than the payload of a datagram."""

WINDOW_FRAMES_MIN = 16

LARGE_FRAME_BYTES = 9000
"""Frames larger than any Ethernet takes stay inside this machine."""

SMALL_FRAME_COST_BYTES = 2048
"""What a small datagram takes of a receive buffer, generously: the kernel counts the block that it lies in."""

PACING_QUANTUM_NS = 1_000_000
"""Frames that a rate holds back leave together every so often: a turn of the loop costs more than a frame."""

PENDING_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class HostOptions:
    """Where and how a node takes part. Checked by `vivum.connect`."""

    domain: int
    name: str
    interface: str
    port: int
    seeds: tuple[Endpoint, ...]
    is_meeting_port: bool
    embedded: bool
    multicast: bool
    ttl: int
    buffer_bytes: int
    limits: Limits
    loss: float = 0.0
    """Share of what arrives that is thrown away on purpose."""
    poll_ns: int = 0
    """How long the loop is kept awake for the next small message, where that pays."""
    shared_memory: bool = True
    """Large frames on loopback go through memory that the nodes of this machine share."""


def fitting_settings(payload_bytes: int, receive_buffer_bytes: int, multicast: bool) -> QsmSettings:
    """Size frames by the path and the window by the receive buffer: what is sent at once must fit it.

    Where frames are large, on loopback, there is no link that could be overrun, only the buffers of receivers: the
    window alone holds a sender back, and tokens come as often as the window needs.
    """
    share = receive_buffer_bytes // WINDOW_SHARE
    frame_bytes = max(1472, min(payload_bytes, PAYLOAD_BYTES_MAX, share // WINDOW_FRAMES_MIN))
    frame_bytes = min(frame_bytes, payload_bytes)
    base = QsmSettings()
    if frame_bytes < LARGE_FRAME_BYTES:
        return replace(base, frame_bytes_max=frame_bytes, pacing_quantum_ns=PACING_QUANTUM_NS, multicast=multicast)
    window = max(WINDOW_FRAMES_MIN, share // frame_bytes)
    cache_frames = max(4 * window, KEPT_BYTES // frame_bytes)
    return replace(
        base,
        frame_bytes_max=frame_bytes,
        # Small frames need a token the less often, the more of them may be unstable.
        window_frames=max(base.window_frames, window, min(cache_frames, share // SMALL_FRAME_COST_BYTES)),
        window_bytes=window * frame_bytes,
        cache_frames_max=cache_frames,
        pending_bytes_max=PENDING_BYTES,
        rate_initial=0,
        token_busy_ns_min=300_000,
        token_busy_ns_max=5_000_000,
        multicast=multicast,
    )


class MemberHost:
    """Runs one node on the current event loop."""

    def __init__(
        self,
        options: HostOptions,
        on_delivery: Callable[[Delivery], None],
        on_view: Callable[[InstallView], None],
        on_event: Callable[[Event], None],
        on_settled: Callable[[], None],
        trace: Tracer | None = None,
    ) -> None:
        self.options = options
        self.yielded_ns = 0
        """When a task that sends last let others run."""

        self._on_event = on_event
        self._on_settled = on_settled
        self._room: list[asyncio.Future[None]] = []
        self._follow_soon: ServiceInfo | None = None
        self._was_serving = False
        self._is_patient = False
        self._is_closed = False
        self._loop = asyncio.get_running_loop()
        self._environment = current_environment()
        self.monotonic_ns = self._environment.monotonic_ns
        self._random = self._environment.random()
        self._port = self._open_port()
        self.settings = fitting_settings(
            self._environment.payload_bytes(options.interface), self._port.receive_buffer_bytes, options.multicast
        )
        self._parts = compose_member(
            options.name,
            options.domain,
            self._port.endpoint,
            self._random,
            self.settings,
            options.limits,
            seeds=options.seeds,
            carry_after_ns=self._carry_after_ns(),
            trace=trace,
            builder=self._builder(),
        )
        self._driver = Driver(
            self._parts.node,
            self._port,
            on_delivery=on_delivery,
            on_view=on_view,
            on_event=self._handle,
            on_settled=self._settle,
            poll_ns=options.poll_ns,
        )
        # Hands messages to the node, as `submit`; bound here, since it is called for each that is sent alone.
        self.send: Callable[[Command], None] = self._driver.send

    def start(self) -> None:
        """Begin to look for the service; the rest follows."""
        self._driver.start()
        self._driver.submit(StartSeeking())

    def _open_port(self) -> NodePort:
        options = self.options
        open_at = partial(
            self._environment.open_port,
            options.domain,
            options.interface,
            buffer_bytes=options.buffer_bytes,
            ttl=options.ttl,
            shared_memory=options.shared_memory,
            loss=options.loss,
        )
        if options.is_meeting_port and not options.port:
            try:
                return open_at(port=options.seeds[0].port)
            except HostError:
                # Another node of the domain has it, and so the service, or knows where that is.
                pass
        return open_at(port=options.port)

    def _builder(self) -> FrameBuilder | None:
        """Let large frames be made where nodes of this machine read them."""
        slots = None if self._port.boards is None else self._port.boards.slots
        size = self.settings.frame_bytes_max
        return FrameBuilder(size, slots) if slots is not None and size >= BOARD_FRAME_BYTES_MIN else None

    def _carry_after_ns(self) -> int | None:
        """With seeds only the nodes that are seeds carry a service, the first of them first."""
        options = self.options
        if not options.embedded:
            return None
        if options.seeds:
            if self._port.endpoint not in options.seeds:
                return MEETING_PATIENCE_NS if options.is_meeting_port else None
            return options.seeds.index(self._port.endpoint) * CARRY_STEP_NS
        return 0

    # What is known.

    @property
    def parts(self) -> MemberParts:
        """The machines."""
        return self._parts

    @property
    def client(self) -> MembershipClient:
        """What the node knows of the domain."""
        return self._parts.client

    @property
    def member(self) -> Member | None:
        """This life of this node; None while it has none."""
        return self._parts.client.member

    @property
    def endpoint(self) -> Endpoint:
        """Where the node takes unicast datagrams."""
        return self._port.endpoint

    @property
    def service_info(self) -> ServiceInfo | None:
        """The service that the node belongs to."""
        return self._parts.finder.service

    @property
    def now_ns(self) -> int:
        """The time that the node sees."""
        return self._driver.now_ns

    @property
    def lost_on_purpose(self) -> int:
        """Datagrams that arrived and were thrown away, as the options ask for."""
        return self._port.lost_on_purpose

    @property
    def shared_frames(self) -> tuple[int, int]:
        """Frames written into shared memory here, and frames of others that were gone before they were read."""
        boards = self._port.boards
        return (0, 0) if boards is None else (boards.written, boards.missed)

    @property
    def receive_buffer_bytes(self) -> int:
        """The receive buffer that the system granted."""
        return self._port.receive_buffer_bytes

    # What is asked for.

    def submit(self, command: Command) -> None:
        """Hand a command to the node, and carry out what it causes. Raises what the node raises."""
        self._driver.submit(command)

    def submit_all(self, commands: Sequence[Command]) -> None:
        """Hand over several commands before anything is carried out."""
        node, now_ns = self._parts.node, self._driver.now_ns
        try:
            for command in commands:
                node.submit(now_ns, command)
        finally:
            self._driver.pump()

    @property
    def is_pumping(self) -> bool:
        """Tell whether a callback of this node is running: what was submitted is carried out when it returns."""
        return self._driver.is_pumping

    def wait_for_room(self) -> "asyncio.Future[None]":
        """Return a future that is done when the node has got something out: what was refused may be accepted now."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._room.append(future)
        return future

    def _settle(self) -> None:
        if self._room:
            waiting, self._room = self._room, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)
        serving = self.carries_service
        if serving is not self._was_serving:
            self._was_serving = serving
            if serving:
                self._loop.call_soon(self._speak_for_service)
        self._on_settled()

    # Events of discovery.

    def _handle(self, event: Event) -> None:
        if type(event) is SendConfirmed:
            # One for every batch; the others are rare.
            self._on_event(event)
            return
        match event:
            case ServiceFound(service):
                self._follow_later(service)
            case ServiceAbsent():
                self._loop.call_soon(self._carry_service)
            case ServiceLost(_, has_ended):
                if has_ended:
                    self._parts.carrier.on_service_ended()
                self._rank_by_age()
            case ServiceOutranked(by):
                self._loop.call_soon(self._give_way, by)
        self._on_event(event)

    def _follow_later(self, service: ServiceInfo) -> None:
        # Not from inside the machines that told it: they are in the middle of something.
        if self._follow_soon is None:
            self._loop.call_soon(self._follow)
        self._follow_soon = service

    def _follow(self) -> None:
        service, self._follow_soon = self._follow_soon, None
        if service is None or self._is_closed:
            return
        client = self._parts.client
        is_later = service.term >> ROUND_BITS > client.term >> ROUND_BITS
        if client.member is not None and client.term and is_later and not self._is_patient:
            # A standby that took over tells its nodes itself, and their lives go on: give it time for that.
            self._is_patient = True
            self._loop.call_later(FOLLOW_PATIENCE_S, self._follow_if_needed)
            return
        self._follow_now(service)

    def _follow_if_needed(self) -> None:
        self._is_patient = False
        service = self._parts.finder.service
        if service is not None and not self._is_closed and not self._is_with(service):
            self._follow_now(service)

    def _is_with(self, service: ServiceInfo) -> bool:
        """Tell whether this life of the node was given or taken over by a service."""
        client = self._parts.client
        return client.member is not None and client.follows(service.endpoint) and client.term == service.term

    def _follow_now(self, service: ServiceInfo) -> None:
        now_ns = self._driver.now_ns
        client = self._parts.client
        is_elsewhere = service.endpoint != self.endpoint
        if self._is_with(service):
            if is_elsewhere and self.carries_service:
                self._parts.carrier.end()
            return
        if is_elsewhere:
            self._parts.carrier.end()
        client.serve_by(now_ns, [service.endpoint])
        if client.state is ClientState.IDLE:
            client.start(now_ns)
        # QSM looks at its client when its own time comes: it must not go on with a life that has ended.
        self._parts.qsm.on_timer(now_ns)
        self._driver.pump()

    @property
    def carries_service(self) -> bool:
        """Tell whether the configuration service is in this node."""
        return self._parts.carrier.serving is not None

    def _carry_service(self) -> None:
        finder, carrier = self._parts.finder, self._parts.carrier
        if self._is_closed or finder.service is not None:
            return
        round_ = 0 if not finder.term else (finder.term >> ROUND_BITS) + 1
        carrier.begin(Member(SERVICE_NODE, Incarnation(1)), round_, self._random.randrange(1, 1 << ROUND_BITS))
        self._speak_for_service()

    def _speak_for_service(self) -> None:
        """The service is here, begun or taken over: let all know."""
        if self._is_closed or not self.carries_service:
            return
        self._was_serving = True
        self._driver.submit(StartBeacon())
        info = self._parts.beaconer.info
        assert info is not None, "a service that began has something to tell"
        self._driver.submit(TrustService(info))

    def _give_way(self, by: ServiceInfo) -> None:
        """Another service is to stay. If nodes had joined here, they follow it too, each with a new life."""
        self._parts.carrier.end()
        if not self._is_closed:
            self._driver.submit(TrustService(by))

    def _rank_by_age(self) -> None:
        """The service is gone: the oldest node that is left carries the next one, the others wait a little for it."""
        client = self._parts.client
        aged = sorted(
            {pair for config in client.regions.values() for pair in zip(config.ages, config.members, strict=True)}
        )
        index = next((index for index, (_, member) in enumerate(aged) if member == client.member), len(aged))
        # With a majority of the nodes left a standby takes over. Only if none does, somebody begins anew.
        patience_ns = TAKEOVER_PATIENCE_NS if len(aged) > 2 else 0
        self._parts.finder.carry_after(patience_ns + index * CARRY_STEP_NS)
        if not self.options.multicast:
            self._parts.finder.ask_also(client.endpoints.values())

    # The end.

    async def close(self, leave_s: float) -> None:
        """Leave the domain, as far as that is possible within this time, and close the sockets."""
        if self._is_closed:
            return
        self._is_closed = True
        client = self._parts.client
        try:
            client.leave(self._driver.now_ns)
            self._driver.pump()
            deadline = self._loop.time() + leave_s
            while client.state is not ClientState.LEFT and self._loop.time() < deadline:
                await asyncio.wait([self.wait_for_room()], timeout=0.05)
            if self.carries_service:
                self._driver.submit(EndBeacon())
                self._driver.pump()
        finally:
            self.close_now()

    def close_now(self) -> None:
        """Close the sockets without a word. The others notice by the silence."""
        self._is_closed = True
        self._driver.close()
        for future in self._room:
            if not future.done():
                future.cancel()
        self._room.clear()
