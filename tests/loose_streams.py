"""Streams without a network: what a sender seals, as frames that a receiver can be given one by one."""

from collections.abc import Callable, Iterable, Set
from typing import Any

from effects import deliveries
from vivum.core.ids import Channel, GroupId, Incarnation, Member, NodeId, RegionId, ViewNumber
from vivum.core.limits import Limits
from vivum.core.machine import Effect
from vivum.observe.counters import Counters
from vivum.protocols.membership.region_config import RegionConfig
from vivum.protocols.streams.region_sender import RegionSender
from vivum.protocols.streams.sender_fifo import SenderFifo
from vivum.protocols.streams.settings import StreamSettings
from vivum.protocols.streams.stream_receiver import StreamReceiver
from vivum.wire.codec import Frame, FrameBuilder, resend, split
from vivum.wire.fragments import Joiner
from vivum.wire.kinds import Kind

ALICE = Member(NodeId(1), Incarnation(1))
ONE, TWO, THREE = GroupId(1), GroupId(2), GroupId(3)


def config(region: int = 1, view: int = 1, nodes: int = 3, groups: tuple[int, ...] = (1, 10)) -> RegionConfig:
    members = tuple(Member(NodeId(node), Incarnation(1)) for node in range(1, nodes + 1))
    return RegionConfig(RegionId(region), ViewNumber(view), Channel(region), members, tuple(range(nodes)), groups, {})


def make_sender(region: int = 1, view: int = 1, next_frame: int = 0, **settings: Any) -> RegionSender:
    """Make a sender whose window is open, unless the settings say otherwise."""
    made = StreamSettings(**{"window_initial_frames": 1 << 20, **settings})
    return RegionSender(config(region, view), (Channel(region),), made, next_frame)


def make_receiver(region: int = 1, view: int = 1) -> StreamReceiver:
    """Make what another node has of Alice's stream."""
    return StreamReceiver(ALICE, RegionId(region), ViewNumber(view), StreamSettings(), Counters(), 0)


def make_fifo(
    barred: dict[int, int] | None = None,
    behind: set[SenderFifo] | None = None,
    packed: Set[int] = frozenset(),
    known_epoch: Callable[[], int] = lambda: 1 << 64,
    limits: Limits | None = None,
) -> SenderFifo:
    counters = Counters()
    joiner = Joiner(limits or Limits(), counters)
    barred = {} if barred is None else barred
    return SenderFifo(ALICE, joiner, counters, barred, set() if behind is None else behind, packed, known_epoch)


def seal(sender: RegionSender, before: tuple[RegionSender, ...] = (), now_ns: int = 0, bytes_max: int = 1472) -> Frame:
    """Let a sender seal one frame."""
    header = (Kind.DATA, 1, *ALICE, *sender.key)
    (train,) = sender.seal(FrameBuilder(bytes_max), now_ns, header, 1, bytes_max, before)
    data = train.data
    (frame,) = split(data)
    return frame


def seal_all(sender: RegionSender, before: tuple[RegionSender, ...] = (), bytes_max: int = 1472) -> list[Frame]:
    frames = []
    while sender.can_seal:
        frames.append(seal(sender, before, bytes_max=bytes_max))
    return frames


def frames_of(count: int, region: int = 1, view: int = 1, group: GroupId = ONE, first: int = 0) -> list[Frame]:
    """Make a stream of so many frames, each with one message of one group, and its end."""
    sender = make_sender(region, view)
    frames = []
    for number in range(first, first + count):
        sender.feed(group, number, [b"%d" % number], ViewNumber(view))
        frames.append(seal(sender))
    sender.close(0)
    return [*frames, seal(sender)]


def again(frame: Frame) -> Frame:
    """Make the repair of a frame."""
    (repair,) = split(resend(frame.to_bytes()))
    return repair


def delivered(effects: Iterable[Effect]) -> list[tuple[int, int]]:
    """List group and sequence of all messages, in order."""
    return [
        (each.group, each.first_sequence + index) for each in deliveries(effects) for index in range(len(each.payloads))
    ]
