"""A whole node on sockets: opens the port, sizes the settings to it, drives the node, closes.

Design note: `docs/design/runtime.md`. Makes no decisions: `vivum.node.domain` decides where the node belongs, and
`vivum.live` knows names and types of topics.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from vivum.core.errors import HostError
from vivum.core.ids import Endpoint, GroupId, Member
from vivum.core.limits import Limits
from vivum.core.machine import Command, Delivery, Event, InstallView
from vivum.core.time import SECOND
from vivum.node.compose import MemberParts, compose_member
from vivum.node.domain import DomainLeft, JoinDomain, LeaveDomain, TrustNetwork, WayIn
from vivum.node.sizing import fitting_settings
from vivum.observe.counters import Counters
from vivum.observe.trace import Tracer
from vivum.protocols.discovery.finder import BEACON_CHANNEL
from vivum.protocols.discovery.rank import ServiceInfo
from vivum.protocols.membership.client.client import MembershipClient
from vivum.runtime.driver import Driver
from vivum.runtime.environment import NodePort, current_environment
from vivum.runtime.heap import HeapReserve
from vivum.runtime.shared_memory.memory import KEPT_FRAMES_BYTES
from vivum.runtime.turns import SenderTurns

PROBE_AGAIN_S = 0.25
"""How often a node that waits for its network probes it."""

CLOSE_GRACE_S = 1.0
"""How much longer than the node itself the host waits for it to leave, so that a stopped driver cannot hang it."""


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
    """Share of what arrives that is dropped on purpose."""
    poll_ns: int = 0
    """How long to keep the loop awake for the next small message."""
    shared_memory: bool = True
    """Send large frames on loopback through memory that the nodes of this machine share."""
    awaits_network: bool = False
    """No multicast has been heard on the interface yet. Carry no service until one is."""


class MemberHost:
    """Runs one node on the current event loop."""

    def __init__(
        self,
        options: HostOptions,
        on_delivery: Callable[[Delivery], None],
        on_view: Callable[[InstallView], None],
        on_event: Callable[[Event], None],
        on_settled: Callable[[], None],
        on_failed: Callable[[Exception], None],
        trace: Tracer | None = None,
    ) -> None:
        self.options = options
        self._on_event = on_event
        self._on_settled = on_settled
        self._room: list[asyncio.Future[None]] = []
        self._is_closed = False
        self._loop = asyncio.get_running_loop()
        self._left: asyncio.Future[None] = self._loop.create_future()
        self._probing: asyncio.TimerHandle | None = None
        self._heap: HeapReserve | None = None
        self._environment = current_environment()
        payload_bytes = self._environment.payload_bytes(options.interface)
        self._port = self._open_port()
        self.settings = fitting_settings(
            payload_bytes, self._port.receive_buffer_bytes, KEPT_FRAMES_BYTES, options.multicast
        )
        shared = self._port.shared_memory
        self._parts = compose_member(
            options.name,
            options.domain,
            self._port.endpoint,
            self._environment.random(),
            self.settings,
            options.limits,
            WayIn(options.seeds, options.embedded, options.is_meeting_port, options.awaits_network),
            trace=trace,
            builder=None if shared is None else shared.builder(self.settings.frame_bytes_max),
        )
        self._driver = Driver(
            self._parts.node,
            self._port,
            on_delivery=on_delivery,
            on_view=on_view,
            on_event=self._handle,
            on_settled=self._settle,
            on_failed=on_failed,
            poll_ns=options.poll_ns,
        )
        # Like `submit`, for messages. Bound here because it is called for each message that is sent alone.
        self.send: Callable[[Command], bool] = self._driver.send
        self.sender_turns = SenderTurns(self._loop.time, self._driver)
        """Tells tasks that send when they must yield."""

    def start(self) -> None:
        """Join the domain; events report progress."""
        self._heap = self._environment.reserve_heap()
        self._driver.start()
        self._driver.submit(JoinDomain())
        if self.options.awaits_network:
            self._probe_again()

    def _open_port(self) -> NodePort:
        options = self.options
        open_at = partial(
            self._environment.open_port,
            options.domain,
            options.interface,
            buffer_bytes=options.buffer_bytes,
            ttl=options.ttl,
            multicast=options.multicast,
            shared_memory=options.shared_memory,
            loss=options.loss,
        )
        if options.is_meeting_port and not options.port:
            try:
                return open_at(port=options.seeds[0].port)
            except HostError:
                # Another node of the domain has the port: it carries the service, or knows where that is.
                pass
        port = open_at(port=options.port)
        if options.multicast:
            try:
                # Fail here, where the caller sees it, rather than in the driver.
                port.listen(BEACON_CHANNEL)
            except HostError:
                port.close()
                raise
        return port

    def _probe_again(self) -> None:
        """Probe the network until it works."""
        options = self.options
        if self._is_closed or not self._parts.domain.awaits_network:
            return
        try:
            is_heard = self._environment.hears_multicast(options.domain, options.interface, probes=1)
        except HostError:
            # Too few descriptors for the test.
            is_heard = False
        if is_heard:
            self._driver.submit(TrustNetwork())
        else:
            self._probing = self._loop.call_later(PROBE_AGAIN_S, self._probe_again)

    # What is known.

    @property
    def parts(self) -> MemberParts:
        """The machines of the node."""
        return self._parts

    @property
    def client(self) -> MembershipClient:
        """The membership client, which has what the node knows of the domain."""
        return self._parts.client

    @property
    def member(self) -> Member | None:
        """This life of this node; None while it has none."""
        return self._parts.client.member

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint for unicast datagrams."""
        return self._port.endpoint

    @property
    def service_info(self) -> ServiceInfo | None:
        """The service that the node follows."""
        return self._parts.domain.service

    @property
    def carries_service(self) -> bool:
        """Whether the configuration service is in this node."""
        return self._parts.domain.carries_service

    @property
    def now_ns(self) -> int:
        """The time that the node sees."""
        return self._driver.now_ns

    @property
    def counters(self) -> Counters:
        """The counters of the node, with those of its driver and its port."""
        counters, shared = self._parts.counters, self._port.shared_memory
        counters.datagrams_dropped = self._driver.dropped
        counters.datagrams_unsendable = self._port.unsendable
        counters.shared_notes_refused = 0 if shared is None else shared.strangers_refused
        return counters

    @property
    def lost_on_purpose(self) -> int:
        """Arrived datagrams that were dropped on purpose."""
        return self._port.lost_on_purpose

    @property
    def shared_frames(self) -> tuple[int, int]:
        """Frames written into shared memory here, and frames of others that were overwritten before they were read."""
        shared = self._port.shared_memory
        return (0, 0) if shared is None else (shared.frames_sent, shared.frames_missed)

    @property
    def receive_buffer_bytes(self) -> int:
        """The receive buffer that the system granted."""
        return self._port.receive_buffer_bytes

    # Commands.

    def submit(self, command: Command) -> None:
        """Hand a command to the node; carry out what it causes. Raises what the node raises."""
        self._driver.submit(command)

    def submit_all(self, commands: Sequence[Command]) -> None:
        """Submit several commands, then carry out what they cause."""
        node, now_ns = self._parts.node, self._driver.now_ns
        self._driver.end_run()
        try:
            for command in commands:
                node.submit(now_ns, command)
        finally:
            self._driver.pump()

    @property
    def is_pumping(self) -> bool:
        """Whether a callback of this node is running; what it submits is carried out when it returns."""
        return self._driver.is_pumping

    def next_sequence(self, group: GroupId) -> int:
        """Return the number that the next own message of a group gets, in this life."""
        return self._parts.node.next_sequence(group)

    def collect(self, group: GroupId, hand_over: Callable[[], None]) -> int:
        """Let the application collect messages of a group for the rest of this turn (`Driver.collect`).

        Return how many bytes of them the node is sure to take; if it is 0, none are to be collected.
        """
        room = self._parts.node.room_bytes(group)
        if room:
            self._driver.collect(hand_over)
        return room

    def end_run(self) -> None:
        """Hand over what is being collected."""
        self._driver.end_run()

    def wait_for_room(self) -> "asyncio.Future[None]":
        """Return a future that is done when the node has sent something, so that a refused send may be accepted."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._room.append(future)
        return future

    # From the node.

    def _handle(self, event: Event) -> None:
        if type(event) is DomainLeft and not self._left.done():
            self._left.set_result(None)
        self._on_event(event)

    def _settle(self) -> None:
        if self._room:
            self._make_room()
        self._on_settled()

    def _make_room(self) -> None:
        waiting, self._room = self._room, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    # The end.

    async def close(self, leave_s: float) -> None:
        """Leave the domain, if that is possible within this time, and close the sockets."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._driver.submit(LeaveDomain(round(leave_s * SECOND)))
            await asyncio.wait([self._left], timeout=leave_s + CLOSE_GRACE_S)
        finally:
            self.close_now()

    def close_now(self) -> None:
        """Close the sockets without leaving. Other nodes notice the silence."""
        self._is_closed = True
        self._driver.close()
        # Programs may keep references to closed nodes and topics: free what was sent, and its memory.
        self._parts.qsm.release()
        if self._heap is not None:
            self._heap.release()
        if self._probing is not None:
            self._probing.cancel()
        # Tasks that wait for room try again, and are told that the node is closed.
        self._make_room()
        if not self._left.done():
            self._left.cancel()
