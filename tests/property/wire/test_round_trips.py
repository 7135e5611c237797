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
from vivum.wire.fragments import Joiner, Outbox
from vivum.wire.kinds import Kind

FORMS = [_codec_twin, codec] if codec.COMPILED else [_codec_twin]
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
    outboxes = {group: Outbox(group, cut_to_fill) for group in (1, 2)}
    sent, got = {1: [], 2: []}, {1: [], 2: []}
    builder = form.FrameBuilder(capacity)
    counters = Counters()
    joiner = Joiner(Limits(), counters)
    for group, sizes in puts:
        payloads = [bytes([len(sent[group]) + index]) * size for index, size in enumerate(sizes)]
        outboxes[group].put(len(sent[group]), payloads)
        sent[group] += payloads
        outboxes[group].fill(builder)
        receive(form, builder, joiner, got)
    while outboxes[1] or outboxes[2]:
        # Both groups in one frame, each with whatever fragment it is at.
        for outbox in outboxes.values():
            outbox.fill(builder)
        receive(form, builder, joiner, got)
    assert got == {group: list(enumerate(payloads)) for group, payloads in sent.items()}
    assert joiner.open_count == joiner.bytes_reserved == counters.joins_refused == 0


@pytest.mark.parametrize("form", FORMS)
@given(
    sizes=st.lists(st.one_of(st.integers(0, 60), st.integers(0, 2000)), min_size=1, max_size=30),
    capacity=st.one_of(st.integers(64, 200), st.sampled_from([1472, 60_000])),
    cut_to_fill=st.booleans(),
)
def test_each_frame_of_one_busy_group_is_one_run_and_fill_tells_what_is_whole(form, sizes, capacity, cut_to_fill):
    payloads = [bytes([index]) * size for index, size in enumerate(sizes)]
    outbox, builder, got = Outbox(1, cut_to_fill), form.FrameBuilder(capacity), {1: []}
    joiner = Joiner(Limits(), Counters())
    outbox.put(0, payloads)
    while outbox:
        told = outbox.fill(builder)
        assert not builder.empty, "an outbox that waits must make progress"
        unused = capacity - builder.size
        assert len(receive(form, builder, joiner, got)) == 1
        assert len(got[1]) == told
        if outbox and cut_to_fill:
            # A length, a total, and just not an eighth: less is left of a frame, if more waits. Or the next is short.
            assert unused < capacity // 8 + 6
    assert got == {1: list(enumerate(payloads))}


@pytest.mark.parametrize("form", FORMS)
@given(
    puts=st.lists(st.lists(st.one_of(st.integers(0, 60), st.integers(0, 3000)), max_size=12), max_size=4),
    capacity=st.one_of(st.integers(64, 200), st.sampled_from([1472, 9000])),
    frames_max=st.integers(1, 9),
)
def test_frames_of_cut_messages_sealed_together_are_those_that_are_sealed_one_by_one(form, puts, capacity, frames_max):
    label = (Kind.DATA, 1, 2, 3, 4, 5)
    alone, together, builder = Outbox(1, cut_to_fill=True), Outbox(1, cut_to_fill=True), form.FrameBuilder(capacity)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vivum.wire.fragments.seal_cut", form.seal_cut)
        sent = number = 0
        for sizes in [*puts, []]:
            payloads = [bytes([index]) * size for index, size in enumerate(sizes)]
            for outbox in (alone, together):
                outbox.put(sent, payloads)
            sent += len(payloads)
            made, stops, taken = together.seal_cut(capacity, frames_max, 1 << 30, (*label, number, 7))
            before = alone.size
            for frame, told in zip(made, stops, strict=True):
                assert alone.fill(builder) == told
                assert builder.seal(*label, number, 7) == frame
                number += 1
            assert alone.size == together.size == before - taken
            # What is left is for a frame that is not full: the usual way.
            assert alone.fill(builder) == together.fill(other := form.FrameBuilder(capacity))
            assert builder.seal(*label, number, 7) == other.seal(*label, number, 7)
            assert (alone.size, alone.is_cut) == (together.size, together.is_cut)
            number += 1


@given(
    sizes=st.lists(st.integers(0, 150), min_size=1, max_size=30),
    capacity=st.integers(64, 200),
    cut_to_fill=st.booleans(),
    lost=st.sets(st.integers(0, 60)),
)
def test_what_is_not_in_a_lost_frame_comes_whole(sizes, capacity, cut_to_fill, lost):
    payloads = [bytes([index]) * size for index, size in enumerate(sizes)]
    outbox, builder, got = Outbox(1, cut_to_fill), codec.FrameBuilder(capacity), {1: []}
    joiner = Joiner(Limits(), Counters())
    outbox.put(0, payloads)
    touched, number = set(), 0
    while outbox:
        outbox.fill(builder)
        if number in lost:
            for _, first, _, pieces in seal_and_split(codec, builder):
                touched |= set(range(first, first + len(pieces)))
        else:
            receive(codec, builder, joiner, got)
        number += 1
    assert got[1] == [(number, payload) for number, payload in enumerate(payloads) if number not in touched]


def seal_and_split(form, builder):
    (frame,) = form.split(builder.seal(Kind.DATA, 1, 2, 3, 4, 5, 6, 7))
    return frame.messages()


def receive(form, builder, joiner, got):
    runs = seal_and_split(form, builder)
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
        assert joiner.open_count <= LIMITS.joins_open_max
        assert joiner.bytes_reserved <= LIMITS.join_bytes_max
        held = sum(len(part) for join in joiner._joins.values() for part in join.pieces)
        assert held <= joiner.bytes_reserved
    for node in (1, 2):
        joiner.forget(Member(NodeId(node), Incarnation(1)))
    assert joiner.open_count == joiner.bytes_reserved == 0


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
