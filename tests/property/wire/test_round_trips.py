"""What is packed comes out again, cut to pieces or not; what is damaged never does harm."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from property.wire.wire_strategies import BUFFERS, GOOD_BUFFERS, damaged
from vivum.core.errors import DecodeError
from vivum.core.ids import Incarnation, Member, NodeId
from vivum.core.limits import Limits
from vivum.observe.counters import Counters
from vivum.wire import _codec_twin, codec
from vivum.wire.control import CONTROL_TYPES, decode_control
from vivum.wire.fragments import Joiner
from vivum.wire.kinds import Kind
from vivum.wire.layout import HEADER_BYTES, LENGTH_BYTES, RUN_HEADER_BYTES
from vivum.wire.outboxes import Outboxes
from vivum.wire.trains import address

FORMS = [_codec_twin, codec] if codec.COMPILED else [_codec_twin]
LABEL = (Kind.DATA, 1, 2, 3, 4, 5, 6, 7)
SENDER = Member(NodeId(1), Incarnation(1))
MESSAGES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.binary(max_size=80)), max_size=30)


@pytest.mark.parametrize("form", FORMS)
@given(messages=MESSAGES, capacity=st.integers(64, 300), pad=st.booleans())
def test_messages_come_out_as_they_went_in(form, messages, capacity, pad):
    builder = form.FrameBuilder(capacity)
    buffer, taken = b"", []
    for message in messages:
        if not builder.append(*message):
            buffer += builder.seal(Kind.DATA, 1, 2, 3, 4, 5, 6, 7, 8, capacity if pad else 0)
            if not builder.append(*message):
                assert len(message[2]) > capacity - 56
                continue
        taken.append(message)
    buffer += builder.seal(Kind.DATA, 1, 2, 3, 4, 5, 6, 7)
    out = [
        (group, first + index, payload)
        for frame in form.split(buffer)
        for group, first, _, payloads in frame.messages()
        for index, payload in enumerate(payloads)
    ]
    assert out == taken


@pytest.mark.parametrize("form", FORMS)
@given(
    puts=st.lists(st.tuples(st.integers(1, 2), st.lists(st.integers(0, 400), max_size=5)), max_size=8),
    capacity=st.integers(64, 300),
    cut_to_fill=st.booleans(),
)
def test_messages_of_any_size_are_cut_and_joined(form, puts, capacity, cut_to_fill):
    waiting = Outboxes(cut_to_fill)
    sent, got = {1: [], 2: []}, {1: [], 2: []}
    builder = form.FrameBuilder(capacity)
    counters = Counters()
    joiner = Joiner(Limits(), counters)
    for group, sizes in puts:
        payloads = [bytes([len(sent[group]) + index]) * size for index, size in enumerate(sizes)]
        waiting.put(group, len(sent[group]), payloads)
        sent[group] += payloads
        if waiting:
            receive(form, seal(waiting, builder)[0], joiner, got)
    while waiting:
        # Both groups in one frame, each with whatever fragment it is at.
        receive(form, seal(waiting, builder)[0], joiner, got)
    assert got == {group: list(enumerate(payloads)) for group, payloads in sent.items()}
    assert len(joiner.joins) == joiner.bytes_reserved == counters.joins_refused == 0


@pytest.mark.parametrize("form", FORMS)
@given(
    sizes=st.lists(st.one_of(st.integers(0, 60), st.integers(0, 2000)), min_size=1, max_size=30),
    capacity=st.one_of(st.integers(64, 200), st.sampled_from([1472, 60_000])),
    cut_to_fill=st.booleans(),
)
def test_each_frame_of_one_busy_group_is_one_run_and_sealing_tells_what_is_whole(form, sizes, capacity, cut_to_fill):
    payloads = [bytes([index]) * size for index, size in enumerate(sizes)]
    waiting, builder, got = Outboxes(cut_to_fill), form.FrameBuilder(capacity), {1: []}
    joiner = Joiner(Limits(), Counters())
    waiting.put(1, 0, payloads)
    while waiting:
        frame, ((ends,),), _ = seal(waiting, builder)
        assert len(receive(form, frame, joiner, got)) == 1
        assert ends == {1: len(got[1])}
        if waiting and cut_to_fill:
            # A length, a total, and just not an eighth: less is left of a frame, if more waits. Or the next is short.
            assert capacity - len(frame) < capacity // 8 + 6
    assert got == {1: list(enumerate(payloads))}


def bare(form, data):
    """Return what is in a frame but its length and its padding."""
    (frame,) = form.split(data)
    stop = max((frame.body_start, *ends_of_runs(frame)))
    return (frame.sequence, data[:2], data[4:stop])


def ends_of_runs(frame):
    at = HEADER_BYTES
    for _, _, _, payloads in frame.messages():
        at += RUN_HEADER_BYTES + sum(LENGTH_BYTES + len(each) for each in payloads)
        yield at


@pytest.mark.parametrize("form", FORMS)
@given(
    puts=st.lists(
        st.lists(
            st.tuples(st.integers(1, 3), st.lists(st.one_of(st.integers(0, 60), st.integers(0, 3000)), max_size=12)),
            max_size=4,
        ),
        max_size=4,
    ),
    capacity=st.one_of(st.integers(64, 200), st.sampled_from([1472, 9000])),
    frames_max=st.integers(1, 9),
    cut_to_fill=st.booleans(),
)
def test_frames_sealed_together_are_those_that_are_sealed_one_by_one(form, puts, capacity, frames_max, cut_to_fill):
    both = alone, together = Outboxes(cut_to_fill), Outboxes(cut_to_fill)
    builder = form.FrameBuilder(capacity)
    sent = {1: 0, 2: 0, 3: 0}
    for step in [*puts, []]:
        for group, sizes in step:
            # Small frames come in trains, and a turn is what of a train is sealed at once: with several groups each has
            # more in a row together than one by one. The next test is about those.
            group = 1 if cut_to_fill else group
            payloads = [bytes([index]) * size for index, size in enumerate(sizes)]
            for waiting in both:
                waiting.put(group, sent[group], payloads)
            sent[group] += len(payloads)
        trains, stops, taken = together.seal(builder, frames_max, 1 << 30, LABEL)
        frames = [piece.data for each in address(trains, [None]) for piece in each.cut()]
        assert len(frames) <= frames_max
        single = [seal(alone, builder, number) for number in range(len(frames))]
        ends = [each for part in stops for each in by_frame(part)]
        assert [(bare(form, frame), each) for frame, ((each,),), _ in single] == [
            (bare(form, frame), each) for frame, each in zip(frames, ends, strict=True)
        ]
        assert sum(size for _, _, size in single) == taken
        assert [alone.pending_bytes(group) for group in sent] == [together.pending_bytes(group) for group in sent]
    while alone or together:
        # Both are at the same place, and go on alike.
        assert seal(alone, builder) == seal(together, builder)


@pytest.mark.parametrize("form", FORMS)
@given(
    puts=st.lists(
        st.lists(st.tuples(st.integers(1, 3), st.lists(st.integers(0, 3000), max_size=12)), max_size=4), max_size=4
    ),
    capacity=st.one_of(st.integers(64, 200), st.sampled_from([1472, 9000])),
    frames_max=st.integers(1, 200),
    bytes_max=st.one_of(st.integers(1, 10_000), st.just(1 << 30)),
)
def test_groups_that_share_trains_come_whole_and_in_order(form, puts, capacity, frames_max, bytes_max):
    waiting, builder, joiner = Outboxes(), form.FrameBuilder(capacity), Joiner(Limits(), Counters())
    sent, got, number = {1: [], 2: [], 3: []}, {1: [], 2: [], 3: []}, 0
    steps = iter(puts)
    while (step := next(steps, None)) is not None or waiting:
        for group, sizes in step or ():
            payloads = [bytes([(len(sent[group]) + index) % 256]) * size for index, size in enumerate(sizes)]
            waiting.put(group, len(sent[group]), payloads)
            sent[group] += payloads
        trains, stops, _ = waiting.seal(builder, frames_max, bytes_max, (*LABEL[:-2], number, LABEL[-1]))
        frames = [piece.data for each in address(trains, [None]) for piece in each.cut()]
        assert len(frames) == sum(each.frames for each in stops) <= frames_max
        for frame in frames:
            assert form.split(frame)[0].sequence == number
            number += 1
            receive(form, frame, joiner, got)
        for each in stops:
            for group, stop in each.between(0, each.frames).items():
                assert len(got[group]) >= stop
    assert got == {group: list(enumerate(payloads)) for group, payloads in sent.items()}


@given(
    sizes=st.lists(st.integers(0, 150), min_size=1, max_size=30),
    capacity=st.integers(64, 200),
    cut_to_fill=st.booleans(),
    lost=st.sets(st.integers(0, 60)),
)
def test_what_is_not_in_a_lost_frame_comes_whole(sizes, capacity, cut_to_fill, lost):
    payloads = [bytes([index]) * size for index, size in enumerate(sizes)]
    waiting, builder, got = Outboxes(cut_to_fill), codec.FrameBuilder(capacity), {1: []}
    joiner = Joiner(Limits(), Counters())
    waiting.put(1, 0, payloads)
    touched, number = set(), 0
    while waiting:
        frame, _, _ = seal(waiting, builder)
        if number in lost:
            for _, first, _, pieces in codec.split(frame)[0].messages():
                touched |= set(range(first, first + len(pieces)))
        else:
            receive(codec, frame, joiner, got)
        number += 1
    assert got[1] == [(number, payload) for number, payload in enumerate(payloads) if number not in touched]


def seal(waiting, builder, number=0):
    """Seal one frame; return it, what ends in it, and its bytes of messages."""
    (train,), stops, taken = waiting.seal(builder, 1, 1, (*LABEL[:6], LABEL[6] + number, 7))
    return train.data, list(map(by_frame, stops)), taken


def by_frame(stops):
    return [stops.between(number, number + 1) for number in range(stops.frames)]


def receive(form, data, joiner, got):
    (frame,) = form.split(data)
    runs = frame.messages()
    for group, first, flags, payloads in runs:
        if flags:
            first, payloads = joiner.add(SENDER, group, first, flags, payloads)
        got[group] += [(first + index, payload) for index, payload in enumerate(payloads)]
    return runs


@settings(max_examples=120)
@pytest.mark.parametrize("form", FORMS)
@given(data=st.one_of(damaged(GOOD_BUFFERS), BUFFERS))
def test_any_buffer_is_split_or_refused_and_split_ones_are_used_up(form, data):
    try:
        frames = form.split(data)
    except DecodeError:
        return
    assert b"".join(frame.to_bytes() for frame in frames) == data
    for frame in frames:
        used = sum(14 + sum(2 + len(payload) for payload in run[3]) for run in frame.messages())
        assert used <= frame.length - 40


LIMITS = Limits(message_bytes_max=50, joins_open_max=3, join_bytes_max=100)
FRAGMENTS = st.tuples(
    st.integers(1, 2),
    st.integers(0, 4),
    st.integers(0, 3),
    st.sampled_from([1 << 30, 1 << 31, 3 << 30]),
    st.integers(0, 60),
    st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=3),
)


@given(st.lists(FRAGMENTS, max_size=60))
def test_no_fragments_take_a_joiner_past_its_limits(fragments):
    counters = Counters()
    joiner = Joiner(LIMITS, counters)
    for node, group, sequence, flags, total, pieces in fragments:
        payloads = pieces.copy()
        if flags & 1 << 31 and not (flags & 1 << 30 and len(pieces) == 1):
            payloads[-1] = total.to_bytes(4, "little") + pieces[-1]
        first, whole = joiner.add(Member(NodeId(node), Incarnation(1)), group, sequence, flags, payloads)
        assert sequence <= first <= sequence + 1
        assert first + len(whole) <= sequence + len(pieces)
        assert all(len(message) <= LIMITS.message_bytes_max for message in whole)
        assert len(joiner.joins) <= LIMITS.joins_open_max
        assert joiner.bytes_reserved <= LIMITS.join_bytes_max
        held = sum(len(part) for join in joiner.joins.values() for part in join.pieces)
        assert held <= joiner.bytes_reserved
    for node in (1, 2):
        joiner.forget(Member(NodeId(node), Incarnation(1)))
    assert len(joiner.joins) == joiner.bytes_reserved == 0


ANYTHING = st.recursive(
    st.one_of(
        st.integers(-(2**63), 2**64 - 1),
        st.text(max_size=5),
        st.binary(max_size=50),
        st.none(),
        st.booleans(),
    ),
    lambda inner: st.lists(inner, max_size=6),
    max_leaves=12,
)


@settings(max_examples=300)
@given(
    st.sampled_from(sorted(CONTROL_TYPES)),
    st.one_of(
        st.binary(max_size=40),
        st.tuples(st.integers(0, 17), st.lists(ANYTHING, max_size=5)).map(
            lambda pair: msgspec.msgpack.encode([pair[0], *pair[1]])
        ),
    ),
)
def test_any_body_of_a_control_frame_is_read_or_refused(kind, body):
    (frame,) = codec.split(codec.seal_control(kind, 1, 2, 3, 4, 5, 6, 7, body))
    try:
        message = decode_control(frame)
    except DecodeError:
        return
    assert type(message) in CONTROL_TYPES[kind]
    assert message.fault(Limits()) is None
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message)) == message
