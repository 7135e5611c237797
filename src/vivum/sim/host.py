"""A simulated computer: a processor with its buffers and timer (`processor`), a clock, and one node that runs on it.

Holds its life and death, and carries out the node's effects. New data is pulled only while the interface has room, as
the real driver does.
"""

from collections.abc import Callable

from vivum.core.errors import LimitError
from vivum.core.ids import Endpoint, Incarnation, NodeId
from vivum.core.machine import (
    ChannelClosed,
    ChannelOpened,
    Command,
    Datagram,
    Effect,
    Event,
    Persist,
)
from vivum.core.randomness import RandomSource
from vivum.node.node import Node
from vivum.observe.trace import FrameSent, NodeStarted, NodeStopped, Tracer
from vivum.sim.clock import DriftingClock
from vivum.sim.engine import Network, Processor, Scheduler
from vivum.sim.processor import HostProfile
from vivum.wire.kinds import kind_name

__all__ = ["Host", "HostProfile"]


class Host(Processor):
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
        super().__init__(node_id, scheduler, network, profile, clock, rng, frame_trace)
        self.trace = trace
        self.on_started: Callable[[Host], None] | None = None
        self.on_event: Callable[[Host, Event], None] | None = None
        self.disk: list[bytes] = []
        """Records that were persisted. They survive a crash."""

        self._make_node = make_node

    # Life and death.

    def start(self) -> None:
        """Begin a new life."""
        assert self.node is None, f"{self.endpoint} is already up"
        self._begin()
        self.node = self._make_node(self, self.incarnation)
        # A node that gets its life from a membership service tells so itself, when it has it.
        if self.trace is not None and self.node.member.incarnation:
            self.trace(NodeStarted(self._scheduler.now_ns, *self.node.member))
        if self.on_started is not None:
            self.on_started(self)
        self._go_on(0)

    def crash_after(self, effects: int) -> None:
        """Die between two effects: carry out this many more, and no other. What was asked for before is forgotten."""
        if self.node is not None:
            self._effects_left = effects
            if not effects:
                self.crash()

    @property
    def is_dying(self) -> bool:
        """Whether it will die between two effects that are to come."""
        return self._effects_left is not None

    def crash(self) -> None:
        """End this life without a word. What waits in its buffers is gone; what was persisted stays."""
        if self.node is None:
            return
        self._effects_left = None
        member = self.node.member
        self._end()
        self._network.unlisten_all(self.node_id)
        if self.trace is not None and member.incarnation:
            self.trace(NodeStopped(self._scheduler.now_ns, *member, "crash"))

    @property
    def local_now_ns(self) -> int:
        """The time by this host's clock."""
        return self.clock.local_ns(self._scheduler.now_ns)

    # What reaches the host.

    def submit(self, command: Command) -> bool:
        """Submit a command of the application on this host; return whether it was accepted.

        An application sleeps with its host: it is heard again when the pause is over.
        """
        if self.node is None or self.is_asleep:
            return False
        try:
            self.node.submit(self.local_now_ns, command)
        except LimitError:
            return False
        self._wake_now()
        return True

    def _do(self, effect: Effect) -> None:
        if type(effect) is Persist:
            self.disk.append(effect.record)
        elif isinstance(effect, Event):
            self._tell(effect)

    def _tell(self, event: Event) -> None:
        if type(event) is ChannelOpened:
            self._network.listen(event.channel, self.node_id)
        elif type(event) is ChannelClosed:
            self._network.unlisten(event.channel, self.node_id)
        if self.on_event is not None:
            self.on_event(self, event)

    def _trace_sent(self, datagram: Datagram) -> None:
        assert self.frame_trace is not None
        destination = datagram.destination
        name = str(destination) if type(destination) is Endpoint else f"#{destination}"
        for each in datagram.cut():
            data = each.data
            self.frame_trace(
                FrameSent(self._scheduler.now_ns, self.node_id, self.incarnation, name, kind_name(data), len(data))
            )
