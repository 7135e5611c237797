"""The compiled codec and its twin agree on every input: same results, same errors, same words."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from property.wire.wire_strategies import (
    BUFFERS,
    FLAGS,
    GROUPS,
    PAYLOADS,
    SEQUENCES,
    U16,
    U32,
    U64,
    outcome,
    split_outcome,
)
from vivum.core.errors import UsageError
from vivum.wire import _codec_twin
from vivum.wire.kinds import Kind
from vivum.wire.layout import FLAG_CONTINUES, FLAG_MORE, GROUP_MAX
from vivum.wire.spread import LIST_SEQUENCE, SpreadList
from vivum.wire.trains import address

_codec = pytest.importorskip("vivum.wire._codec", reason="the compiled codec was not built")

# Numbers that callers may get wrong.
ANY = st.one_of(
    st.integers(-2, 70),
    st.integers(-(2**70), 2**70),
    st.sampled_from([2**16, 2**30, 2**32, 2**64 - 1, 2**64]),
)
WRONG = st.sampled_from([None, 1.5, "1", b"1", True])
KINDS = st.one_of(st.sampled_from([1, 1, 1, 2, 4]), ANY)
BYTES_LIKE = st.one_of(PAYLOADS, PAYLOADS.map(bytearray), PAYLOADS.map(memoryview), st.sampled_from([None, "text", 5]))
LISTS = st.one_of(st.lists(PAYLOADS, max_size=6), st.lists(BYTES_LIKE, max_size=6), st.lists(PAYLOADS).map(tuple))


@settings(max_examples=700)
@given(BUFFERS)
def test_splitting_agrees(data):
    assert split_outcome(_codec, data) == split_outcome(_codec_twin, data)


@settings(max_examples=60)
@given(BUFFERS, st.sampled_from([bytearray, memoryview]))
def test_splitting_other_buffers_agrees(data, form):
    assert split_outcome(_codec, form(data)) == split_outcome(_codec_twin, form(data))


@settings(max_examples=30)
@given(BUFFERS)
def test_splitting_agrees_at_every_length(data):
    for stop in range(len(data)):
        assert split_outcome(_codec, data[:stop]) == split_outcome(_codec_twin, data[:stop])


HEADERS = st.tuples(U32, U32, U16, U32, U32, SEQUENCES, U64)
LOOSE_HEADERS = st.one_of(HEADERS, st.tuples(*[st.one_of(U16, U16, U16, ANY, WRONG)] * 7))
STEPS = st.one_of(
    st.tuples(st.just("append"), st.tuples(GROUPS, SEQUENCES, PAYLOADS)),
    st.tuples(st.just("append"), st.tuples(st.just(1), st.integers(0, 3), PAYLOADS)),
    st.tuples(st.just("append"), st.tuples(ANY, ANY, BYTES_LIKE)),
    st.tuples(st.just("extend"), st.tuples(st.just(1), st.integers(0, 3), st.lists(PAYLOADS, max_size=6))),
    st.tuples(st.just("extend"), st.tuples(st.one_of(GROUPS, ANY), st.one_of(SEQUENCES, ANY), LISTS, ANY)),
    st.tuples(st.just("append_fragment"), st.tuples(st.just(1), st.integers(0, 3), st.just(FLAG_MORE), PAYLOADS, U16)),
    st.tuples(st.just("append_fragment"), st.tuples(st.just(1), st.integers(0, 3), FLAGS, PAYLOADS)),
    st.tuples(st.just("append_fragment"), st.tuples(GROUPS, SEQUENCES, FLAGS, PAYLOADS)),
    st.tuples(st.just("append_fragment"), st.tuples(GROUPS, SEQUENCES, FLAGS, BYTES_LIKE, st.one_of(st.none(), ANY))),
    st.tuples(st.just("append_fragment"), st.tuples(ANY, ANY, ANY, BYTES_LIKE, st.one_of(st.none(), ANY, WRONG))),
    st.tuples(st.just("room"), st.tuples(st.one_of(GROUPS, ANY, WRONG), st.one_of(SEQUENCES, ANY, WRONG))),
    st.tuples(st.just("seal"), st.tuples(st.just(1), HEADERS, U16, st.one_of(st.just(0), ANY))),
    st.tuples(st.just("seal"), st.tuples(KINDS, LOOSE_HEADERS, st.one_of(U16, ANY, WRONG), st.one_of(ANY, WRONG))),
)


@settings(max_examples=500)
@given(st.one_of(st.sampled_from([64, 100, 300]), ANY, WRONG), st.lists(STEPS, max_size=12))
def test_packing_agrees(capacity, steps):
    made = outcome(_codec_twin.FrameBuilder, capacity)
    compiled = outcome(_codec.FrameBuilder, capacity)
    if made[0] != "returned":
        assert made == compiled
        return
    twin, compiled = made[1], compiled[1]
    for name, arguments in steps:
        if name == "seal":
            kind, header, *rest = arguments
            arguments = (kind, *header, *rest)
        assert outcome(getattr(compiled, name), *arguments) == outcome(getattr(twin, name), *arguments)
        assert (compiled.size, compiled.count, compiled.empty) == (twin.size, twin.count, twin.empty)
        assert [compiled.room(1, number) for number in range(5)] == [twin.room(1, number) for number in range(5)]
    sealed = twin.seal(1, 2, 3, 4, 5, 6, 7, 8)
    assert compiled.seal(1, 2, 3, 4, 5, 6, 7, 8) == sealed
    assert split_outcome(_codec_twin, sealed)[0] == "returned", "a builder makes only frames that receivers take"


CONSECUTIVE = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "extend", "begin", "go on", "end", "seal"]), st.booleans(), PAYLOADS
    ),
    max_size=20,
)


@settings(max_examples=300)
@given(st.sampled_from([64, 100, 300, 1472]), CONSECUTIVE)
def test_packing_of_one_group_in_order_agrees(capacity, steps):
    """Numbers go on most of the time, so that runs with flags at both ends come about."""
    forms = [_codec_twin.FrameBuilder(capacity), _codec.FrameBuilder(capacity)]
    sequence = 0
    for name, goes_on, payload in steps:
        sequence += goes_on
        outcomes = []
        for form in forms:
            match name:
                case "append":
                    outcomes.append(outcome(form.append, 1, sequence, payload))
                case "extend":
                    outcomes.append(outcome(form.extend, 1, sequence, [payload, b"", None][: len(payload) % 4]))
                case "begin":
                    outcomes.append(outcome(form.append_fragment, 1, sequence, FLAG_MORE, payload, 500))
                case "go on":
                    flags = FLAG_MORE | FLAG_CONTINUES
                    outcomes.append(outcome(form.append_fragment, 1, sequence, flags, payload))
                case "end":
                    outcomes.append(outcome(form.append_fragment, 1, sequence, FLAG_CONTINUES, payload))
                case "seal":
                    outcomes.append(outcome(form.seal, 1, 2, 3, 4, 5, 6, 7, 8))
            outcomes[-1] += (form.size, form.count, form.room(1, sequence), form.room(1, sequence + 1))
        assert outcomes[0] == outcomes[1]
    sealed = [form.seal(1, 2, 3, 4, 5, 6, 7, 8) for form in forms]
    assert sealed[0] == sealed[1]
    assert split_outcome(_codec, sealed[0]) == split_outcome(_codec_twin, sealed[0])
    assert split_outcome(_codec_twin, sealed[0])[0] == "returned", "a builder makes only frames that receivers take"


# Few groups and numbers, so that parts go on with each other's runs.
MESSAGES = st.lists(st.one_of(PAYLOADS, st.integers(0, 700).map(bytes)), max_size=20)
PARTS = st.tuples(st.integers(0, 2), st.integers(0, 30), MESSAGES, st.just(0), st.integers(0, 3))
LOOSE_PARTS = st.tuples(
    st.one_of(GROUPS, ANY),
    st.one_of(SEQUENCES, ANY),
    st.one_of(MESSAGES, LISTS),
    st.one_of(st.integers(0, 3), ANY),
    st.one_of(st.integers(0, 9), ANY),
)


def sealed(made):
    """Turn what `seal_parts` gave into values that can be compared."""
    if made[0] != "returned":
        return made
    trains, stops, place, taken = made[1]
    return made[0], trains, by_frame(stops), stops.between(0, stops.frames), place, taken


def by_frame(stops):
    return [stops.between(number, number + 1) for number in range(stops.frames)]


def sound(part):
    group, first, payloads, start, cut = part
    return group, first, payloads, start, min(cut, max(0, len(payloads[0]) - 1)) if payloads else 0


@settings(max_examples=500)
@given(
    st.sampled_from([64, 100, 300]),
    st.one_of(
        st.lists(PARTS.map(sound), max_size=6), st.lists(st.one_of(PARTS.map(sound), LOOSE_PARTS, ANY), max_size=4), ANY
    ),
    st.one_of(st.integers(0, 6), ANY),
    st.one_of(st.integers(0, 1), st.booleans(), ANY),
    st.one_of(st.integers(0, 99), ANY),
    st.one_of(st.integers(0, 2000), ANY),
    KINDS,
    LOOSE_HEADERS,
    st.one_of(st.none(), st.binary(max_size=8)),
)
def test_sealing_parts_agrees(capacity, parts, begin, cut_to_fill, frames_max, bytes_max, kind, header, mark):
    arguments = (parts, begin, cut_to_fill, frames_max, bytes_max, kind, *header)
    twin, compiled = _codec_twin.FrameBuilder(capacity), _codec.FrameBuilder(capacity)
    if mark is not None:
        for form in (twin, compiled):
            form.append(1, 1, mark)
    made = sealed(outcome(twin.seal_parts, *arguments))
    assert sealed(outcome(compiled.seal_parts, *arguments)) == made
    assert (compiled.size, compiled.count) == (twin.size, twin.count)
    if made[0] != "returned":
        assert twin.count == (mark is not None), "a call that raises leaves the builder as it was"
    label = (1, 2, 3, 4, 5, 6, 7, 8)
    assert compiled.seal(*label) == twin.seal(*label)


@pytest.mark.parametrize("form", [_codec_twin, _codec])
def test_a_message_that_is_not_bytes_ends_the_run_or_raises_if_it_comes_first(form):
    builder, label = form.FrameBuilder(100), (1, 2, 3, 4, 5, 6, 7, 8)
    payloads = [bytes(40), bytes(5), bytearray(3)]
    trains, stops, place, taken = builder.seal_parts([(1, 0, payloads, 0, 0)], 1, False, 9, 9999, *label)
    assert (len(trains), by_frame(stops), place, taken) == (1, [{1: 1}], (0, 1, 0), 40)
    with pytest.raises(TypeError, match="payload must be bytes, not bytearray"):
        builder.seal_parts([(1, 0, payloads, 1, 0)], 1, False, 9, 9999, *label)
    assert builder.empty


@settings(max_examples=200)
@given(
    st.sampled_from([64, 100, 300]),
    st.lists(PARTS.map(sound), max_size=6),
    st.integers(1, 9),
    st.booleans(),
)
def test_frames_sealed_together_are_those_that_are_sealed_one_by_one(capacity, parts, frames_max, cut_to_fill):
    for form in (_codec_twin, _codec):
        label, builder = (1, 2, 3, 4, 5, 6), form.FrameBuilder(capacity)
        together = builder.seal_parts(parts, len(parts), cut_to_fill, frames_max, 1 << 30, *label, 7, 8)
        frames, packed, left, gone = [], [], parts, 0
        place = together[2]
        for number in range(frames_max):
            made = builder.seal_parts(left, len(left), cut_to_fill, 1, 1 << 30, *label, 7 + number, 8)
            frames += frames_of(made[0])
            packed += by_frame(made[1])
            part, index, cut = made[2]
            place = (gone + part, index, cut)
            gone, left = gone + part, left[part:]
            if left:
                left = [(*left[0][:3], index, cut), *left[1:]]
        assert (by_frame(together[1]), together[2]) == (packed, place)
        for start in range(len(packed)):
            ends = {}
            for stop in range(start, len(packed)):
                ends |= packed[stop]
                assert together[1].between(start, stop + 1) == ends
        for one, many in zip(frames, frames_of(together[0]), strict=True):
            assert many[:2] + many[4:] == one[:2] + one[4:] + bytes(len(many) - len(one))
            assert len(many) == len(one) or (cut_to_fill and len(many) == capacity), "padded: another follows"


def frames_of(trains):
    return [piece.data for each in address(trains, [None]) for piece in each.cut()]


@st.composite
def alike_frames(draw):
    """Frames of a stream or two, many of which go on where the last one ended, and some with several groups."""
    builder, made, numbers = _codec_twin.FrameBuilder(300), [], {0: 0, 1: 0, GROUP_MAX: LIST_SEQUENCE - 2}
    group = 0
    for sequence in range(draw(st.integers(1, 8))):
        for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
            builder.append(GROUP_MAX, LIST_SEQUENCE, draw(st.binary(max_size=8)))
        for part in range(draw(st.sampled_from([1, 1, 1, 0, 2, 3]))):
            # Most begin with the group with which the one before ended.
            group = draw(st.sampled_from([0, 1, 1, GROUP_MAX] if part else [group, group, group, 0, 1]))
            payloads = draw(st.lists(st.binary(max_size=8), min_size=1, max_size=4))
            builder.extend(group, numbers[group], payloads)
            if draw(st.sampled_from([False, False, False, True])):
                builder.append_fragment(group, numbers[group] + len(payloads), FLAG_MORE, b"piece", 99)
            numbers[group] += len(payloads) + draw(st.sampled_from([0, 0, 0, 1]))
        kind = draw(st.sampled_from([Kind.DATA, Kind.DATA, Kind.DATA, Kind.RESENT]))
        label = draw(st.sampled_from([(3, 4, 5, 6)] * 6 + [(2, 4, 5, 6), (3, 2, 5, 6), (3, 4, 2, 6), (3, 4, 5, 2)]))
        number = sequence + draw(st.sampled_from([0, 0, 0, 1]))
        made.append(builder.seal(kind, 1, *label, number, draw(st.sampled_from([7, 7, 7, 8]))))
    return made


@settings(max_examples=400)
@given(alike_frames(), st.one_of(st.integers(0, 12), ANY, WRONG), st.one_of(st.integers(0, 12), ANY, WRONG))
def test_taking_frames_together_agrees(buffers, start, messages_max):
    twin, compiled = ([form.split(data)[0] for data in buffers] for form in (_codec_twin, _codec))
    assert outcome(_codec.consecutive, compiled, start) == outcome(_codec_twin.consecutive, twin, start)
    taken = outcome(_codec_twin.take_runs, twin, messages_max)
    assert outcome(_codec.take_runs, compiled, messages_max) == taken
    if taken[0] == "returned":
        runs = taken[1]
        singles = [run for frame in twin for run in behind_list(frame)]
        assert pieces(run[1:] for run in runs) == pieces(singles), "all messages, each once, in their order"
        assert all(len(run[4]) <= max(messages_max, most_messages(twin)) for run in runs)
        assert [run[:4] for run in runs] == beginnings(twin, messages_max)


@st.composite
def trains(draw):
    """A buffer as the kernel joins it: frames of a stream, most of the same length, some of which do not follow."""
    made, size, sequence, sent_ns = [], draw(st.integers(64, 120)), draw(st.sampled_from([0, 9, 2**64 - 8])), 7
    for _ in range(draw(st.integers(1, 12))):
        builder = _codec_twin.FrameBuilder(120)
        builder.extend(draw(st.sampled_from([1, 1, 1, GROUP_MAX])), LIST_SEQUENCE, draw(st.lists(PAYLOADS, max_size=3)))
        kind, length = (
            draw(st.sampled_from([Kind.DATA] * 5 + [Kind.RESENT])),
            draw(st.sampled_from([size] * 5 + [0, 120])),
        )
        label = (1, 2, draw(st.sampled_from([3] * 9 + [4])), 5, 6, min(sequence, 2**64 - 2), sent_ns)
        made.append(builder.seal(kind, *label, draw(st.sampled_from([0] * 9 + [1])), length))
        sequence += draw(st.sampled_from([1] * 9 + [0, 2]))
        sent_ns += draw(st.sampled_from([0] * 9 + [1]))
    if draw(st.booleans()):
        made.insert(draw(st.integers(0, len(made))), _codec_twin.seal_control(Kind.ACK, 1, 2, 3, 5, 6, 0, 7, b"body"))
    return b"".join(made)


def looks(frame):
    """All that a frame, or several of a train, tells."""
    names = ("kind", "length", "size", "count", "domain", "sender", "incarnation", "key_epoch", "region", "view")
    more = ("sequence", "stop", "sent_ns", "start", "body_start", "body_stop", "stream")
    told = {name: getattr(frame, name) for name in (*names, *more)}
    return told, frame.messages(), frame.body(), frame.to_bytes(), repr(frame)


@settings(max_examples=400)
@given(trains(), st.data())
def test_trains_that_stay_together_are_their_frames(data, drawn):
    twin, compiled = _codec_twin.split_trains(data), _codec.split_trains(data)
    assert list(map(looks, compiled)) == list(map(looks, twin))
    for form, joined in ((_codec_twin, twin), (_codec, compiled)):
        singles = form.split(data)
        assert list(map(looks, form.single_frames(joined))) == list(map(looks, singles))
        assert form.single_frames(singles) is singles
        assert form.take_runs(joined, 99, frozenset(), 999) == form.take_runs(singles, 99, frozenset(), 999)
        at = 0
        for train in joined:
            bounds = st.integers(train.sequence - 1, train.stop + 1)
            start, stop = drawn.draw(bounds), drawn.draw(bounds)
            if train.sequence <= start < stop <= train.stop:
                part = train.part(start, stop)
                wanted = singles[at + start - train.sequence : at + stop - train.sequence]
                assert list(map(looks, part.cut())) == list(map(looks, wanted))
                assert (part.count, part.to_bytes()) == (stop - start, b"".join(each.to_bytes() for each in wanted))
            else:
                with pytest.raises(UsageError):
                    train.part(start, stop)
            at += train.count


@settings(max_examples=200)
@given(BUFFERS)
def test_splitting_trains_refuses_what_splitting_refuses(data):
    split = split_outcome(_codec_twin, data)
    for form in (_codec_twin, _codec):
        taken = outcome(form.split_trains, data)
        if split[0] != "returned":
            assert taken == split
        else:
            assert list(map(looks, form.single_frames(taken[1]))) == list(map(looks, form.split(data)))


def pieces(runs):
    """Return every message with its group, its number and the flags of its run."""
    return [(group, first + at, flags, each) for group, first, flags, part in runs for at, each in enumerate(part)]


def behind_list(frame):
    """Leave out the list of regions, which is one message with a number of its own at the beginning."""
    runs = frame.messages()
    return runs[1:] if [(*run[:3], len(run[3])) for run in runs[:1]] == [(GROUP_MAX, LIST_SEQUENCE, 0, 1)] else runs


def most_messages(frames):
    return max((len(run[3]) for frame in frames for run in frame.messages()), default=0)


def beginnings(frames, messages_max):
    """Return where runs begin, found in another way: by the counts of one frame and the one before."""
    found, length, before = [], 0, None
    for index, frame in enumerate(frames):
        for place, (group, first, flags, payloads) in enumerate(behind_list(frame)):
            goes_on = place == 0 and before == (index - 1, group, first, flags, frame.sent_ns) and not flags
            if not goes_on or group == GROUP_MAX or length + len(payloads) > messages_max:
                found.append((index, group, first, flags))
                length = 0
            length += len(payloads)
            before = (index, group, first + len(payloads), flags, frame.sent_ns)
    return found


def described(taken):
    """Turn runs that were not cut into all that they tell."""
    if taken[0] != "returned":
        return taken
    found = []
    for *rest, run in taken[1]:
        if isinstance(run, list):
            found.append((*rest, run))
        else:
            shown = (len(run), run.payload_bytes, run.held_bytes, run.pieces, run.cut(), list(run), repr(run))
            found.append((*rest, shown, run[-1], run[1:]))
    return found


@settings(max_examples=400)
@given(st.one_of(alike_frames(), alike_frames().map(lambda made: [b"".join(made)])), st.integers(0, 12))
def test_taking_frames_together_without_cutting_agrees(buffers, messages_max):
    twin, compiled = ([frame for data in buffers for frame in form.split(data)] for form in (_codec_twin, _codec))
    cut = pieces(run[1:] for run in _codec_twin.take_runs(twin, messages_max))
    for packed in ({0}, {1}, {0, 1}, {GROUP_MAX}, frozenset()):
        taken = outcome(_codec_twin.take_runs, twin, messages_max, packed)
        assert described(outcome(_codec.take_runs, compiled, messages_max, packed)) == described(taken)
        assert pieces(run[1:] for run in taken[1]) == cut
        assert all(run[1] in packed or isinstance(run[4], list) for run in taken[1])
        if not packed & {0, 1}:
            assert [run[:4] for run in taken[1]] == beginnings(twin, messages_max)


@given(KINDS, LOOSE_HEADERS, BYTES_LIKE, st.one_of(U16, ANY, WRONG))
def test_control_frames_agree(kind, header, body, key_epoch):
    arguments = (kind, *header, body, key_epoch)
    assert outcome(_codec.seal_control, *arguments) == outcome(_codec_twin.seal_control, *arguments)


@settings(max_examples=100)
@given(st.one_of(BUFFERS, BUFFERS.map(bytearray), BYTES_LIKE))
def test_resending_agrees(frame):
    assert outcome(_codec.resend, frame) == outcome(_codec_twin.resend, frame)


@st.composite
def spread_frames(draw):
    """A frame for several regions, most often one that is right, and a region view to look for."""
    regions = sorted(draw(st.sets(st.one_of(st.integers(0, 9), U32), min_size=1, max_size=8)))
    entries = [(region, draw(st.one_of(st.integers(0, 3), U32)), draw(SEQUENCES)) for region in regions]
    listed = bytearray(SpreadList([entry[:2] for entry in entries]).encode([entry[2] for entry in entries]))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 3]))):
        listed[draw(st.integers(0, len(listed) - 1))] = draw(st.integers(0, 255))
    builder = _codec_twin.FrameBuilder(400)
    builder.append(draw(st.sampled_from([GROUP_MAX, GROUP_MAX, GROUP_MAX, 5])), LIST_SEQUENCE, bytes(listed))
    builder.append(1, 0, draw(PAYLOADS))
    data = bytearray(builder.seal(Kind.SPREAD, *draw(HEADERS)))
    if draw(st.sampled_from([False, False, True])):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    wanted = draw(st.one_of(st.sampled_from(entries).map(lambda entry: entry[:2]), st.tuples(U16, st.integers(0, 3))))
    return bytes(data), wanted


@settings(max_examples=500)
@given(spread_frames())
def test_relabelling_agrees_and_gives_frames_that_receivers_take(case):
    data, wanted = case
    verdict = outcome(_codec.relabel, data, *wanted)
    assert verdict == outcome(_codec_twin.relabel, data, *wanted)
    if verdict[0] == "returned" and verdict[1] is not None and outcome(_codec_twin.split, data)[0] == "returned":
        (before,), (after,) = _codec_twin.split(data), _codec_twin.split(verdict[1])
        assert (after.kind, after.region, after.view) == (Kind.DATA, *wanted)
        assert after.messages() == before.messages()


@given(st.one_of(BUFFERS, BUFFERS.map(bytearray), BYTES_LIKE), st.one_of(U32, ANY, WRONG), st.one_of(U32, ANY, WRONG))
def test_relabelling_anything_agrees(frame, region, view):
    assert outcome(_codec.relabel, frame, region, view) == outcome(_codec_twin.relabel, frame, region, view)


@given(
    st.one_of(st.integers(0, 3), ANY, WRONG),
    st.one_of(st.integers(1, 200), ANY, WRONG),
    st.lists(
        st.tuples(
            st.sampled_from(["add", "add", "add", "add_run", "announce", "missing", "skip_to", "__contains__"]),
            st.one_of(st.integers(0, 20), st.integers(0, 300), ANY, WRONG),
            st.one_of(st.integers(0, 300), ANY, WRONG),
        ),
        max_size=40,
    ),
)
def test_windows_agree(first, capacity, steps):
    made, compiled = (
        outcome(_codec_twin.SequenceWindow, first, capacity),
        outcome(_codec.SequenceWindow, first, capacity),
    )
    if made[0] != "returned":
        assert made == compiled
        return
    twin, compiled = made[1], compiled[1]
    for name, number, stop in steps:
        arguments = (number, stop) if name == "add_run" else (number,)
        assert outcome(getattr(compiled, name), *arguments) == outcome(getattr(twin, name), *arguments)
        assert repr(compiled) == repr(twin)


@given(
    st.one_of(st.lists(BYTES_LIKE, max_size=8), st.lists(st.binary(max_size=30), max_size=8).map(tuple), WRONG),
    st.one_of(st.integers(0, 9), ANY, WRONG),
    st.one_of(st.none(), st.integers(0, 9), ANY, WRONG),
)
def test_measuring_agrees(payloads, start, stop):
    assert outcome(_codec.measure, payloads, start, stop) == outcome(_codec_twin.measure, payloads, start, stop)
