"""When a simulated host does what: its socket buffer, its processor, its memory for input, and its timer.

What arrives while the processor is busy waits in a bounded socket buffer and overflows it; handling costs time; a
sleeping process reads nothing. As the real driver does, the processor drains the socket into its own bounded memory
before it handles anything, and handles by priority.

Carries out the node's effects in their order; what only a `Host` can do (a disk, channels, dying) that does.

`_engine.pyx` has this class compiled, with the same behaviour to the nanosecond; change both or neither. `engine`
chooses.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vivum.core.ids import Endpoint, Incarnation, NodeId
from vivum.core.machine import Datagram, Delivery, Effect
from vivum.core.randomness import RandomSource
from vivum.core.time import MILLISECOND
from vivum.node.node import Node
from vivum.observe.trace import FrameReceived, QueueMeasured, Tracer
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


class Processor:
    """The base of a host: decides when arrivals, timers and the node's output have their turn."""

    def __init__(
        self,
        node_id: NodeId,
        scheduler: Scheduler,
        network: Network,
        profile: HostProfile,
        clock: DriftingClock,
        rng: RandomSource,
        frame_trace: Tracer | None,
    ) -> None:
        self.node_id = node_id
        self.endpoint = Endpoint(f"node-{node_id}", 1)
        self.incarnation = Incarnation(0)
        self.profile = profile
        self.clock = clock
        self.frame_trace = frame_trace
        self.node: Node | None = None
        self.slowness = 1
        self.on_room: Callable[[Any], None] | None = None
        self.on_delivery: Callable[[Any, Delivery], None] | None = None
        # Effects that are still carried out before the host dies.
        self._effects_left: int | None = None
        self._scheduler = scheduler
        self._network = network
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
        self._weight = 1.0
        self._weighed_ns = -WEIGH_NS
        self.port = network.attach(self, rng)

    # Life and sleep.

    def _begin(self) -> None:
        """Begin a new life: a pause of the process before is over."""
        self.incarnation = Incarnation(self.incarnation + 1)
        self._busy_until_ns = self._asleep_until_ns = self._scheduler.now_ns

    def _end(self) -> None:
        """End this life: what waits in its buffers is gone, and nothing is due any more."""
        self.node = None
        self._socket.clear()
        self._socket_bytes = 0
        for queue in self._inbox:
            queue.clear()
        self._inbox_bytes = 0
        self._timer_ns = self._wake_ns = None

    def pause(self, duration_ns: int) -> None:
        """Sleep, as a process does that is not scheduled: arrivals pile up in the socket buffer."""
        if self.node is None:
            return
        self._asleep_until_ns = max(self._asleep_until_ns, self._scheduler.now_ns + duration_ns)
        self._busy_until_ns = max(self._busy_until_ns, self._asleep_until_ns)

    @property
    def is_asleep(self) -> bool:
        """Return whether a pause is on."""
        return self.node is not None and self._asleep_until_ns > self._scheduler.now_ns

    def wake_up(self) -> None:
        """End a pause before its time."""
        if self.is_asleep:
            self._busy_until_ns = self._asleep_until_ns = self._scheduler.now_ns
            # A timer that came due meanwhile waits for the end of the pause: set it anew.
            self._timer_ns = None
            self._wake_at(self._scheduler.now_ns)

    # Arrivals.

    def on_arrival(self, packet: Packet) -> None:
        """Handle a datagram from the link if the processor is free; otherwise queue it in the socket."""
        if self.node is None:
            self._network.drop(self.port, packet, "host down")
            return
        now_ns = self._scheduler.now_ns
        if now_ns >= self._busy_until_ns and not self._inbox_bytes and not self._socket:
            self._go_on(self._handle(packet))
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

    # Handling.

    def _wake_at(self, at_ns: int) -> None:
        if self._wake_ns is None or at_ns < self._wake_ns:
            self._wake_ns = at_ns
            self._scheduler.at(at_ns, self._on_wake, self.incarnation)

    def _wake_now(self) -> None:
        """Come back as soon as the processor is free: the node has something new to say."""
        self._wake_at(max(self._busy_until_ns, self._scheduler.now_ns))

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
        self._go_on(cost_ns)

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
        """Return what a piece of work costs on a host that is slow, or holds much."""
        cost_ns *= self.slowness
        if not self.profile.memory_cost:
            return cost_ns
        now_ns = self._scheduler.now_ns
        if now_ns - self._weighed_ns >= WEIGH_NS:
            assert self.node is not None
            self._weighed_ns = now_ns
            self._weight = 1.0 + self.profile.memory_cost * self.node.held_bytes / 1e6
        return round(cost_ns * self._weight)

    # After handling.

    def _go_on(self, cost_ns: int) -> None:
        """Carry out the node's output, be busy for as long as it takes, and schedule the next step."""
        node = self.node
        assert node is not None
        now_ns = self._scheduler.now_ns
        done_ns = now_ns + cost_ns
        room_bytes = self._network.egress_room_bytes(self.port)
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
            if type(effect) is Delivery:
                if self.on_delivery is not None:
                    self.on_delivery(self, effect)
            elif type(effect) is Datagram:
                sent_bytes += len(effect.data)
                if self.frame_trace is not None:
                    self._trace_sent(effect)
                for each in effect.cut():
                    done_ns += cost_ns
                    self._network.send(self.port, done_ns, each.destination, each.data)
            else:
                self._do(effect)
            if self._effects_left is not None:
                self.crash_after(self._effects_left - 1)
            if self.node is not node:
                # That life is over: by `crash_after`, or by a callback.
                break
        return sent_bytes, done_ns

    # Abstract, all three: `sim.host.Host` has the disk, the channels and the lives that they are about.

    def _do(self, effect: Effect) -> None:
        """Carry out an effect that is neither a delivery nor a datagram."""
        raise NotImplementedError

    def _trace_sent(self, datagram: Datagram) -> None:
        """Trace a datagram that leaves."""
        raise NotImplementedError

    def crash_after(self, effects: int) -> None:
        """Die between two effects: carry out this many more, and no other."""
        raise NotImplementedError

    def _wake_when_able(self, room_bytes: int) -> None:
        able_ns = max(self._busy_until_ns, self._scheduler.now_ns)
        if room_bytes <= 0 and not self._socket and not self._inbox_bytes:
            # Only new data waits: come back when half of the interface's queue has gone out.
            # Rounded up: a wake-up at this very instant would find no more room, for ever.
            able_ns = max(able_ns, (self._scheduler.now_ns + self.port.egress_free_ns + 1) // 2)
        self._wake_at(able_ns)

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
        self._go_on(0)
