"""A simulated host carries effects out in their order, and can die between any two of them."""

from collections.abc import Callable, Sequence

import pytest

from effects import MemoryTrace
from vivum.core.ids import Channel, Endpoint, GroupId, Incarnation, Member, NodeId, ViewNumber
from vivum.core.machine import ChannelOpened, Command, Datagram, Delivery, Effect, Event, Persist
from vivum.core.randomness import RandomSource
from vivum.node.node import Node
from vivum.observe.counters import Counters
from vivum.observe.trace import FrameSent, NodeStopped
from vivum.protocols.commands import SendConfirmed
from vivum.sim.clock import DriftingClock
from vivum.sim.engine import Network, Scheduler
from vivum.sim.host import Host, HostProfile
from vivum.sim.network import LinkProfile
from vivum.wire.codec import Frame
from vivum.wire.gate import Gate
from vivum.wire.kinds import Kind

GROUP = GroupId(7)
PEER = Endpoint("node-2", 1)
EVENT = SendConfirmed(GROUP, 0, 1)


class Do(Command):
    """Asks the protocol for its effects."""

    def __init__(self, effects: Sequence[Effect]) -> None:
        self.effects = effects


class Scripted:
    """A protocol that causes what it is told to."""

    transport = ""
    kinds: frozenset[Kind] = frozenset()
    commands: frozenset[type[Command]] = frozenset({Do})
    has_data = False

    def __init__(self) -> None:
        self.effects: list[Effect] = []

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        raise AssertionError("takes no frames")

    def submit(self, now_ns: int, command: Command) -> None:
        assert isinstance(command, Do)
        self.effects += command.effects

    def on_timer(self, now_ns: int) -> None:
        pass

    def next_deadline_ns(self) -> int | None:
        return None

    def make_frames(self, room_bytes: int) -> list[Datagram]:
        return []


class Desk:
    """One host whose node does as it is told, and all that it did, in order."""

    def __init__(self) -> None:
        self.scheduler, self.trace = Scheduler(), MemoryTrace()
        self.done: list[object] = []
        self.network = Network(self.scheduler, LinkProfile(1_000_000_000, 1000, 0, 100_000, 100_000))
        self.host = Host(
            NodeId(1),
            self.scheduler,
            self.network,
            HostProfile(0, 0, 100_000, 100_000),
            DriftingClock(),
            RandomSource(1),
            self._make_node,
            self.trace,
            self._on_frame_trace,
        )
        self.host.on_delivery = lambda _, delivery: self.done.append(delivery.first_sequence)
        self.host.on_event = lambda _, event: self.done.append(event)
        self.host.start()

    def _make_node(self, host: Host, incarnation: Incarnation) -> Node:
        member, counters = Member(host.node_id, incarnation), Counters()
        return Node(member, Gate(1, counters, member), [Scripted()], counters)

    def _on_frame_trace(self, record: object) -> None:
        if isinstance(record, FrameSent):
            self.done.append(record.bytes)
            # What was on disk when it was sent.
            self.done.append(tuple(self.host.disk))

    def do(self, *effects: Effect) -> None:
        assert self.host.submit(Do(effects))
        self.scheduler.run_until(self.scheduler.now_ns + 1_000_000)


def delivery(number: int) -> Delivery:
    return Delivery(GROUP, Member(NodeId(2), Incarnation(1)), number, [b"x"], ViewNumber(1), 0)


def datagram(size: int) -> Datagram:
    return Datagram(PEER, bytes(size))


SCRIPT: tuple[Effect, ...] = (
    delivery(1),
    Persist(b"a"),
    datagram(10),
    EVENT,
    Persist(b"b"),
    Persist(b"c"),
    datagram(11),
    datagram(12),
    delivery(2),
    ChannelOpened(Channel(3)),
    datagram(13),
)

TRACES: tuple[list[object], ...] = (
    [1],
    [],
    [10, (b"a",)],
    [EVENT],
    [],
    [],
    [11, (b"a", b"b", b"c")],
    [12, (b"a", b"b", b"c")],
    [2],
    [ChannelOpened(Channel(3))],
    [13, (b"a", b"b", b"c")],
)
"""What each effect of the script leaves: a delivery its number, a datagram its size and the disk below it."""


def test_effects_are_carried_out_in_their_order() -> None:
    desk = Desk()
    desk.do(*SCRIPT)
    assert desk.done == [each for left in TRACES for each in left]
    assert desk.host.disk == [b"a", b"b", b"c"]


@pytest.mark.parametrize("count", range(len(SCRIPT) + 1))
def test_a_host_dies_between_any_two_effects_and_keeps_what_it_wrote(count: int) -> None:
    desk = Desk()
    assert desk.host.submit(Do(SCRIPT))
    desk.host.crash_after(count)
    assert (desk.host.node is None) == (count == 0)
    desk.scheduler.run_until(desk.scheduler.now_ns + 1_000_000)
    assert desk.host.node is None
    assert desk.done == [each for left in TRACES[:count] for each in left]
    written = [each.record for each in SCRIPT[:count] if isinstance(each, Persist)]
    assert desk.host.disk == written
    assert [type(each) for each in desk.trace.records].count(NodeStopped) == 1
    # The next life finds the disk, and none of the effects that were left.
    before = list(desk.done)
    desk.host.start()
    desk.scheduler.run_until(desk.scheduler.now_ns + 1_000_000)
    assert (desk.done, desk.host.disk) == (before, written)
    desk.do(Persist(b"d"), delivery(3))
    assert desk.done == [*before, 3]
    assert desk.host.disk == [*written, b"d"]


def test_the_effects_before_a_death_are_counted_over_several_outputs() -> None:
    desk = Desk()
    desk.host.crash_after(3)
    desk.do(delivery(1), delivery(2))
    assert desk.host.node is not None
    desk.do(delivery(3), delivery(4))
    assert desk.host.node is None
    assert desk.done == [1, 2, 3]


@pytest.mark.parametrize("does", [lambda host: host.crash(), lambda host: (host.crash(), host.start())])
def test_a_host_that_dies_in_a_callback_does_nothing_more_of_that_life(does: Callable[[Host], object]) -> None:
    desk = Desk()

    def on_event(host: Host, event: Event) -> None:
        desk.done.append(event)
        does(host)

    desk.host.on_event = on_event
    desk.do(delivery(1), EVENT, Persist(b"late"), datagram(10), delivery(2))
    assert desk.done == [1, EVENT]
    assert desk.host.disk == []
