"""A simulated computer: a socket buffer, a processor, a clock, and one node that runs on it.

What it models is what decides speed and loss in the seed documents: handling costs time, what arrives meanwhile waits
in a bounded socket buffer and overflows it, a sleeping process reads nothing. As the real driver does, it drains the
socket into its own bounded memory before it handles anything, handles by priority, and pulls new data only while the
interface has room.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from vivum.core.errors import LimitError
from vivum.core.ids import Endpoint, Incarnation, NodeId
from vivum.core.machine import (
    ChannelClosed,
    ChannelOpened,
    Command,
    Datagram,
    Delivery,
    Effect,
    Event,
    Persist,
)
from vivum.core.randomness import RandomSource
from vivum.core.time import MILLISECOND
from vivum.node.node import Node
from vivum.observe.trace import FrameReceived, FrameSent, NodeStarted, NodeStopped, QueueMeasured, Tracer
from vivum.sim.clock import DriftingClock
from vivum.sim.network import Network, Packet
from vivum.sim.scheduler import Scheduler
from vivum.wire.kinds import kind_name, priority_of

QUANTUM_NS = 1 * MILLISECOND
"""How long a host handles what it has drained before it looks at its socket again (seed 004 allowed 50 ms of I/O)."""

WEIGH_NS = 10 * MILLISECOND
"""How often a host whose work gets dearer with memory looks how much it holds."""


@dataclass(frozen=True, slots=True)
class HostProfile:
    """What a host can do."""

    receive_cost_ns: int
    send_cost_ns: int
    socket_bytes_max: int
    inbox_bytes_max: int
    memory_cost: float = 0.0
    """Share by which handling is dearer for each megabyte that the node holds."""


class Host:
    """One computer with one node, which may die and come back as a new incarnation."""

    def __init__(
        self,
        node_id: NodeId,
        scheduler: Scheduler,
        network: Network,
        profile: HostProfile,
        clock: DriftingClock,
        rng: RandomSource,
        make_node: Callable[["Host", Incarnation], Node],
        trace: Tracer | None,
        frame_trace: Tracer | None,
    ) -> None:
        self.node_id = node_id
        self.endpoint = Endpoint(f"node-{node_id}", 1)
        self.incarnation = Incarnation(0)
        self.profile = profile
        self.trace = trace
        self.frame_trace = frame_trace
        self.node: Node | None = None
        self.slowness = 1
        self.on_started: Callable[[Host], None] | None = None
        self.on_delivery: Callable[[Host, Delivery], None] | None = None
        self.on_event: Callable[[Host, Event], None] | None = None
        self.on_room: Callable[[Host], None] | None = None
        self.disk: list[bytes] = []
        """Records that were persisted. They survive a crash."""

        self._scheduler = scheduler
        self._network = network
        self.clock = clock
        self._make_node = make_node
        self._busy_until_ns = 0
        self._asleep_until_ns = 0
        self._wake_ns: int | None = None
        self._timer_ns: int | None = None
        self._timer_deadline_ns = 0
        self._socket: deque[Packet] = deque()
        self._socket_bytes = 0
        self._socket_bytes_high = 0
        self._inbox: tuple[deque[Packet], ...] = (deque(), deque(), deque())
        self._inbox_bytes = 0
        # Effects that are still carried out before the host dies.
        self._effects_left: int | None = None
        self._weight = 1.0
        self._weighed_ns = -WEIGH_NS
        self.port = network.attach(self, rng)

    # Life and death.

    def start(self) -> None:
        """Begin a new life."""
        assert self.node is None, f"{self.endpoint} is already up"
        self.incarnation = Incarnation(self.incarnation + 1)
        # A new process: a pause of the one before is over.
        self._busy_until_ns = self._asleep_until_ns = self._scheduler.now_ns
        self.node = self._make_node(self, self.incarnation)
        # A node that gets its life from a membership service tells so itself, when it has it.
        if self.trace is not None and self.node.member.incarnation:
            self.trace(NodeStarted(self._scheduler.now_ns, *self.node.member))
        if self.on_started is not None:
            self.on_started(self)
        self._after_handling(0)

    def crash_after(self, effects: int) -> None:
        """Die between two effects: so many more are carried out, and no other."""
        if self.node is not None:
            self._effects_left = effects
            if not effects:
                self.crash()

    def crash(self) -> None:
        """End this life without a word. What waits in its buffers is gone; what was persisted stays."""
        if self.node is None:
            return
        self._effects_left = None
        member, self.node = self.node.member, None
        self._network.unlisten_all(self.node_id)
        self._socket.clear()
        self._socket_bytes = 0
        for queue in self._inbox:
            queue.clear()
        self._inbox_bytes = 0
        self._timer_ns = self._wake_ns = None
        if self.trace is not None and member.incarnation:
            self.trace(NodeStopped(self._scheduler.now_ns, *member, "crash"))

    def pause(self, duration_ns: int) -> None:
        """Sleep, as a process does that is not scheduled: arrivals pile up in the socket buffer."""
        if self.node is None:
            return
        self._asleep_until_ns = max(self._asleep_until_ns, self._scheduler.now_ns + duration_ns)
        self._busy_until_ns = max(self._busy_until_ns, self._asleep_until_ns)

    @property
    def is_asleep(self) -> bool:
        """Tell whether a pause is on."""
        return self.node is not None and self._asleep_until_ns > self._scheduler.now_ns

    def wake_up(self) -> None:
        """End a pause before its time."""
        if self.is_asleep:
            self._busy_until_ns = self._asleep_until_ns = self._scheduler.now_ns
            # A timer that came due meanwhile waits for the end of the pause: set it anew.
            self._timer_ns = None
            self._wake_at(self._scheduler.now_ns)

    @property
    def local_now_ns(self) -> int:
        """The time by this host's clock."""
        return self.clock.local_ns(self._scheduler.now_ns)

    # What reaches the host.

    def submit(self, command: Command) -> bool:
        """Let the application on this host ask something of its node; tell whether it was accepted.

        An application sleeps with its host: it is heard again when the pause is over.
        """
        if self.node is None or self._asleep_until_ns > self._scheduler.now_ns:
            return False
        try:
            self.node.submit(self.local_now_ns, command)
        except LimitError:
            return False
        self._wake_at(max(self._busy_until_ns, self._scheduler.now_ns))
        return True

    def on_arrival(self, packet: Packet) -> None:
        """Take a datagram from the link: handle it if the processor is free, else let it wait in the socket."""
        if self.node is None:
            self._network.drop(self.port, packet, "host down")
            return
        now_ns = self._scheduler.now_ns
        if now_ns >= self._busy_until_ns and not self._inbox_bytes and not self._socket:
            self._after_handling(self._handle(packet))
            return
        size = len(packet.data)
        if self._socket_bytes + size > self.profile.socket_bytes_max:
            self._network.drop(self.port, packet, "socket buffer full")
            return
        self._socket.append(packet)
        self._socket_bytes += size
        if self._socket_bytes > self._socket_bytes_high:
            self._measure_socket()
        self._wake_at(max(self._busy_until_ns, now_ns))

    def _measure_socket(self) -> None:
        self._socket_bytes_high = self._socket_bytes
        if self.frame_trace is not None:
            self.frame_trace(
                QueueMeasured(
                    self._scheduler.now_ns,
                    self.node_id,
                    self.incarnation,
                    "socket",
                    self._socket_bytes,
                    self.profile.socket_bytes_max,
                    "bytes",
                )
            )

    # The processor.

    def _wake_at(self, at_ns: int) -> None:
        if self._wake_ns is None or at_ns < self._wake_ns:
            self._wake_ns = at_ns
            self._scheduler.at(at_ns, self._on_wake, self.incarnation)

    def _on_wake(self, incarnation: Incarnation) -> None:
        now_ns = self._scheduler.now_ns
        if self.node is None or incarnation != self.incarnation or self._wake_ns != now_ns:
            return
        self._wake_ns = None
        if now_ns < self._busy_until_ns:
            self._wake_at(self._busy_until_ns)
            return
        self._drain()
        cost_ns = 0
        for queue in self._inbox:
            while queue and cost_ns < QUANTUM_NS:
                packet = queue.popleft()
                self._inbox_bytes -= len(packet.data)
                cost_ns += self._handle(packet)
        if self._timer_ns is not None and self._timer_ns <= now_ns:
            # Between two quanta of input, or a host with always more to read would never get to its timers.
            self._timer_ns = None
            self.node.on_timer(self.clock.local_ns(now_ns))
        self._after_handling(cost_ns)

    def _drain(self) -> None:
        """Empty the socket into the host's own memory, by priority, as far as that may grow."""
        socket, inbox = self._socket, self._inbox
        while socket and self._inbox_bytes < self.profile.inbox_bytes_max:
            packet = socket.popleft()
            size = len(packet.data)
            self._socket_bytes -= size
            self._inbox_bytes += size
            inbox[priority_of(packet.data)].append(packet)

    def _handle(self, packet: Packet) -> int:
        assert self.node is not None
        now_ns, source, data = self._scheduler.now_ns, packet.source, packet.data
        if self.frame_trace is not None:
            self.frame_trace(
                FrameReceived(now_ns, self.node_id, self.incarnation, str(source), kind_name(data), len(data))
            )
        self.node.on_datagrams(self.clock.local_ns(now_ns), ((source, data),))
        return self._dearer(self.profile.receive_cost_ns)

    def _dearer(self, cost_ns: int) -> int:
        """What a piece of work costs on a host that is slow, or holds much."""
        cost_ns *= self.slowness
        if not self.profile.memory_cost:
            return cost_ns
        now_ns = self._scheduler.now_ns
        if now_ns - self._weighed_ns >= WEIGH_NS:
            assert self.node is not None
            self._weighed_ns = now_ns
            self._weight = 1.0 + self.profile.memory_cost * self.node.held_bytes / 1e6
        return round(cost_ns * self._weight)

    def _after_handling(self, cost_ns: int) -> None:
        """Pull what the node has to say, be busy for as long as all this takes, and see when to go on."""
        node = self.node
        assert node is not None
        now_ns = self._scheduler.now_ns
        done_ns = now_ns + cost_ns
        network, port = self._network, self.port
        idle = port.egress_free_ns <= now_ns
        room_bytes = network.profile.egress_bytes_max if idle else network.egress_room_bytes(port)
        hurried = False
        while output := node.take_output(room_bytes):
            sent_bytes, done_ns = self._carry_out(output, done_ns)
            if self.node is not node:
                return
            if not sent_bytes:
                break
            room_bytes = max(0, room_bytes - sent_bytes)
            if done_ns - now_ns > QUANTUM_NS:
                hurried = True
                break
        if self._busy_until_ns < done_ns:
            self._busy_until_ns = done_ns
        # With room and time left the node has sealed all that it could: no need to ask.
        if self._socket or self._inbox_bytes or ((hurried or room_bytes <= 0) and node.has_data):
            self._wake_when_able(room_bytes)
        self._arm_timer(node)
        if self.on_room is not None:
            self.on_room(self)

    def _carry_out(self, effects: list[Effect], done_ns: int) -> tuple[int, int]:
        """Carry out effects in their order; return the bytes sent, and when the last datagram is handed over."""
        node, cost_ns = self.node, self._dearer(self.profile.send_cost_ns)
        sent_bytes = 0
        for effect in effects:
            if type(effect) is Datagram:
                done_ns += cost_ns
                sent_bytes += len(effect.data)
                if self.frame_trace is not None:
                    self._trace_sent(effect.destination, effect.data)
                self._network.send(self.port, done_ns, effect.destination, effect.data)
            elif type(effect) is Delivery:
                if self.on_delivery is not None:
                    self.on_delivery(self, effect)
            elif type(effect) is Persist:
                self.disk.append(effect.record)
            elif isinstance(effect, Event):
                self._tell(effect)
            if self._effects_left is not None:
                self.crash_after(self._effects_left - 1)
            if self.node is not node:
                # That life is over: by `crash_after`, or by a callback.
                break
        return sent_bytes, done_ns

    def _wake_when_able(self, room_bytes: int) -> None:
        able_ns = max(self._busy_until_ns, self._scheduler.now_ns)
        if room_bytes <= 0 and not self._socket and not self._inbox_bytes:
            # Only new data waits: come back when half of the interface's queue has gone out.
            # Rounded up: a wake-up at this very instant would find no more room, for ever.
            able_ns = max(able_ns, (self._scheduler.now_ns + self.port.egress_free_ns + 1) // 2)
        self._wake_at(able_ns)

    def _tell(self, event: Event) -> None:
        if type(event) is ChannelOpened:
            self._network.listen(event.channel, self.node_id)
        elif type(event) is ChannelClosed:
            self._network.unlisten(event.channel, self.node_id)
        if self.on_event is not None:
            self.on_event(self, event)

    def _trace_sent(self, destination: Endpoint | int, data: bytes) -> None:
        assert self.frame_trace is not None
        name = str(destination) if type(destination) is Endpoint else f"#{destination}"
        self.frame_trace(
            FrameSent(self._scheduler.now_ns, self.node_id, self.incarnation, name, kind_name(data), len(data))
        )

    # Timers.

    def _arm_timer(self, node: Node) -> None:
        deadline_ns = node.next_deadline_ns()
        if deadline_ns is None or (self._timer_ns is not None and deadline_ns >= self._timer_deadline_ns):
            return
        self._timer_deadline_ns = deadline_ns
        self._timer_ns = at_ns = max(self.clock.true_ns(deadline_ns), self._scheduler.now_ns)
        self._scheduler.at(at_ns, self._on_timer, (self.incarnation, at_ns))

    def _on_timer(self, armed: tuple[Incarnation, int]) -> None:
        incarnation, at_ns = armed
        if self.node is None or incarnation != self.incarnation or at_ns != self._timer_ns:
            return
        now_ns = self._scheduler.now_ns
        if now_ns < self._busy_until_ns:
            # Timers fire late on a busy or sleeping host (seed 004, Figures 30 and 31).
            self._timer_ns = self._busy_until_ns
            self._scheduler.at(self._timer_ns, self._on_timer, (incarnation, self._timer_ns))
            return
        self._timer_ns = None
        self.node.on_timer(self.clock.local_ns(now_ns))
        self._after_handling(0)
