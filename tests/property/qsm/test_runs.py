"""What is done for several frames at once is what would be done for each of them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effects import deliveries, events
from loose_streams import ALICE, ONE, THREE, TWO, again, config, make_fifo, make_sender, seal
from vivum.core.ids import Channel, Endpoint, Incarnation, Member, NodeId, ViewNumber
from vivum.core.limits import Limits
from vivum.core.machine import Datagram, Effect
from vivum.observe.counters import Counters
from vivum.protocols.qsm.recovery.repaired_stream import RepairedStream
from vivum.protocols.qsm.region import RegionMember
from vivum.protocols.qsm.send.sender import Sender
from vivum.protocols.qsm.settings import QsmSettings
from vivum.protocols.streams.region_sender import RegionSender
from vivum.protocols.streams.runs import ReceiveRoute, take_run
from vivum.protocols.streams.sender_fifo import SenderFifo
from vivum.protocols.streams.stream_receiver import StreamReceiver
from vivum.wire.codec import Frame, FrameBuilder, split, split_trains
from vivum.wire.kinds import Kind
from vivum.wire.tokens import RegionReport
from vivum.wire.trains import Train

BOB = Member(NodeId(2), Incarnation(1))
HOME = Endpoint("alice", 1)


def make_route(nodes: int, **settings: Any) -> tuple[ReceiveRoute, Counters]:
    """Make what node 2 has of Alice's stream, and all that its frames come to."""
    fifo, counters = make_fifo(), Counters()
    region = RegionMember(config(nodes=nodes), BOB, QsmSettings(**settings), Limits(), counters, fifo.add, 0)
    stream = region.stream_of(ALICE, 0)
    assert stream is not None
    return (region, stream, fifo, HOME), counters


def take_one(route: ReceiveRoute, now_ns: int, frame: Frame, effects: list[Effect]) -> None:
    region, stream, fifo, _ = route
    if region.on_data(now_ns, stream, frame):
        fifo.deliver(effects)


def messages(effects: list[Effect]) -> list[tuple[int, int, bytes, int, int]]:
    return [
        (each.group, each.first_sequence + index, payload, each.view, each.sent_ns)
        for each in deliveries(effects)
        for index, payload in enumerate(each.payloads)
    ]


def state(stream: StreamReceiver, fifo: SenderFifo) -> tuple[object, ...]:
    shared = ("window", "_placement", "_settings", "_counters")
    others = ("held", "cache", "_asked", "_expected", "_expected_before")
    # Delays are judged by the last frame of those that came together: the others may have waited for it.
    delays = ("_delay_low_ns", "_delay_sum_ns")
    names = {*StreamReceiver.__slots__, *RepairedStream.__slots__}.difference(shared, others, delays)
    kept = {name: getattr(stream, name) for name in names}
    window = (stream.window.prefix, stream.window.stop, stream.window.held, tuple(stream.window.missing(99)))
    held = sorted(number for frame in stream.held.values() for number in range(frame.sequence, frame.stop))
    return kept, window, held, stream.cache.numbers, fifo.is_broken, fifo.expected


FEEDS = st.lists(
    st.tuples(st.sampled_from([ONE, ONE, ONE, TWO, THREE]), st.lists(st.integers(0, 90), max_size=5)),
    min_size=1,
    max_size=12,
)


def frames_of_feeds(feeds: list[tuple[Any, list[int]]], ends: bool, at_once: int) -> list[Frame]:
    sender, counts = make_sender(frame_bytes_max=300), {ONE: 0, TWO: 0, THREE: 0}
    frames: list[Frame] = []
    builder, header = FrameBuilder(300), (Kind.DATA, 1, *ALICE, *sender.key)
    for now_ns, (group, sizes) in enumerate(feeds):
        sender.feed(group, counts[group], [bytes([now_ns]) * size for size in sizes], ViewNumber(1))
        counts[group] += len(sizes)
        while sender.can_seal:
            # Several have the same time, as those of one turn have.
            for train in sender.seal(builder, now_ns // 3, header, at_once, 1 << 20):
                frames += split(train.data)
    if ends:
        sender.close(0)
        frames.append(seal(sender, now_ns=99))
    return frames


@given(FEEDS, st.booleans(), st.sampled_from([1, 3, 20]), st.sampled_from([3, 30]), st.data())
def test_frames_that_arrive_together_are_taken_as_if_one_by_one(
    feeds: list[tuple[Any, list[int]]], ends: bool, at_once: int, nodes: int, data: st.DataObject
) -> None:
    frames = frames_of_feeds(feeds, ends, at_once)
    for _ in range(data.draw(st.integers(0, 4))):
        if not frames:
            return
        # Lost, late, twice, or repaired.
        place = data.draw(st.integers(0, len(frames) - 1))
        frame = frames.pop(place) if data.draw(st.booleans()) else frames[place]
        if data.draw(st.booleans()):
            late = again(frame) if data.draw(st.booleans()) else frame
            frames.insert(data.draw(st.integers(0, len(frames))), late)
    (single, single_counters), (joint, joint_counters) = make_route(nodes), make_route(nodes)
    one_by_one: list[Effect] = []
    together: list[Effect] = []
    now_ns, index = 0, 0
    while index < len(frames):
        now_ns += 1000
        batch = frames[index : index + data.draw(st.integers(1, 30))]
        index += len(batch)
        for frame in batch:
            take_one(single, now_ns, frame, one_by_one)
        if data.draw(st.booleans()):
            # As the kernel joins them.
            batch = split_trains(b"".join([frame.to_bytes() for frame in batch]))
        at = 0
        while at < len(batch):
            taken = take_run({batch[at].stream: joint}, now_ns, HOME, batch, at, together)
            for frame in batch[at].cut() if not taken else ():
                take_one(joint, now_ns, frame, together)
            at += taken or 1
        assert messages(together) == messages(one_by_one)
        assert events(together) == events(one_by_one)
        assert state(*joint[1:3]) == state(*single[1:3])
        assert joint_counters == single_counters


def sent_by(
    sending: Sender,
    effects: list[Effect],
    stream: RegionSender,
    steps: list[tuple[Any, list[int], int, int]],
    groups: dict[Any, int],
) -> list[Any]:
    told: list[Any] = []
    for now_ns, (group, sizes, room_bytes, confirmed) in enumerate(steps):
        payloads = [bytes([now_ns]) * size for size in sizes]
        groups[group] += len(payloads)
        sending.accept(group, payloads, sum(sizes), (stream,), ViewNumber(1))
        datagrams: list[Datagram] = []
        sending.make_data(now_ns, 1, ALICE, datagrams, room_bytes)
        stable = min(confirmed, stream.next_frame)
        sending.on_report(now_ns, stream, RegionReport(1, stable, stable, (), 0, confirmed=stable))
        told.append((sending.has_data, sending.waiting_bytes, stream.waiting_bytes, stream.heartbeat_at_ns))
        told.append((list(effects), stream.next_frame, stream.window_bytes, stream.room()))
        # Trains go to one destination after the other, and single frames each to all.
        for where in stream.destinations:
            told.append([one.data for each in datagrams if each.destination == where for one in each.cut()])
        told.append([stream.resend((number, number + 1), now_ns << 40, 1) for number in kept_by(stream)])
        effects.clear()
    return told


def kept_by(stream: RegionSender) -> range:
    return range(stream.floor, stream.next_frame)


STEPS = st.lists(
    st.tuples(
        st.sampled_from([ONE, ONE, ONE, TWO]),
        st.lists(st.one_of(st.integers(0, 3000), st.integers(9000, 30_000)), max_size=40),
        st.sampled_from([0, 1, 30_000, 1 << 20]),
        st.integers(0, 40),
    ),
    min_size=1,
    max_size=8,
)


seal_many = RegionSender.seal


def seal_one(
    stream: RegionSender, builder: FrameBuilder, now_ns: int, header: tuple[int, ...], _: int, *others: Any
) -> list[Train]:
    return seal_many(stream, builder, now_ns, header, 1, *others)


@pytest.mark.plain
@given(STEPS, st.sampled_from([50_000, 200_000, 1 << 20]), st.sampled_from([8, 512]), st.sampled_from([1, 2]))
def test_frames_that_are_sealed_together_are_those_that_would_be_sealed_one_by_one(
    steps: list[tuple[Any, list[int], int, int]], window_bytes: int, window_frames: int, destinations: int
) -> None:
    told = []
    for together in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not together:
                patch.setattr(RegionSender, "seal", seal_one)
            settings = QsmSettings(frame_bytes_max=10_000, window_bytes=window_bytes, window_frames=window_frames)
            effects: list[Effect] = []
            sending = Sender(settings, Limits(), Counters(), effects)
            stream = sending.open(config(), tuple(map(Channel, range(destinations))))
            told.append(sent_by(sending, effects, stream, steps, {ONE: 0, TWO: 0}))
    assert told[0] == told[1]
