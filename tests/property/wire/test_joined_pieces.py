"""Messages that were cut between frames: joining them where frames are taken is the same as joining piece by piece."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivum.core.ids import Incarnation, Member, NodeId
from vivum.core.limits import Limits
from vivum.observe.counters import Counters
from vivum.wire import _codec_twin, codec
from vivum.wire.fragments import Joiner
from vivum.wire.kinds import Kind
from vivum.wire.layout import HEADER_BYTES, RUN_HEADER_BYTES
from vivum.wire.trains import address

if not codec.COMPILED:
    pytest.skip("the compiled codec was not built, or VIVUM_PURE=1 is set", allow_module_level=True)

from vivum.wire import _codec

SENDER = Member(NodeId(3), Incarnation(4))


@st.composite
def cut_frames(draw):
    """Frames of a stream whose messages are often larger than a frame; some are lost, some say a wrong total."""
    builder = _codec_twin.FrameBuilder(draw(st.sampled_from([64, 80, 100, 300])))
    made, numbers, sent_ns = [], {0: 0, 1: 5}, 7
    for _ in range(draw(st.integers(1, 3))):
        parts = []
        for group in draw(st.lists(st.sampled_from([0, 0, 0, 1]), min_size=1, max_size=3)):
            sizes = draw(st.lists(st.sampled_from([0, 1, 9, 30, 31, 80, 250]), min_size=1, max_size=6))
            payloads = [bytes([(numbers[group] + at) % 256]) * size for at, size in enumerate(sizes)]
            parts.append((group, numbers[group], payloads, 0, 0))
            numbers[group] += len(payloads)
        header = (Kind.DATA, 1, *SENDER, 5, 6, len(made), sent_ns)
        trains = builder.seal_parts(parts, len(parts), True, 9999, 1 << 20, *header)[0]
        made += [piece.data for each in address(trains, [None]) for piece in each.cut()]
        sent_ns += draw(st.integers(0, 1))
    for at in draw(st.sets(st.integers(0, len(made) - 1), max_size=2)):
        made[at] = None
    frames = [data for data in made if data]
    for at in draw(st.sets(st.integers(0, max(0, len(frames) - 1)), max_size=1)) if frames else ():
        frames[at] = changed(frames[at])
    return frames


def changed(data):
    """Let the last message of a frame's first run, if it is the beginning of one, say another total."""
    (frame,) = _codec_twin.split(data)
    runs = frame.messages()
    if (
        len(runs) != 1
        or not runs[0][2] & codec.FLAG_MORE
        or (runs[0][2] & codec.FLAG_CONTINUES and len(runs[0][3]) == 1)
    ):
        return data
    at = HEADER_BYTES + RUN_HEADER_BYTES + sum(2 + len(each) for each in runs[0][3][:-1]) + 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def messages_of(runs, limits):
    """Give runs to a joiner, as a stream does; return whole messages with their numbers, and the refusals."""
    counters = Counters()
    joiner, found = Joiner(limits, counters), []
    for _, group, first, flags, payloads in runs:
        start, whole = joiner.add(SENDER, group, first, flags, payloads) if flags else (first, payloads)
        found += [(group, start + at, bytes(each)) for at, each in enumerate(whole)]
    return found, counters.joins_refused


def gapless(form, made):
    """Split frames, and return those that follow each other in lists of their own: nobody takes others together."""
    parts = []
    for data in made:
        (frame,) = form.split(data)
        if parts and parts[-1][-1].sequence + 1 == frame.sequence:
            parts[-1].append(frame)
        else:
            parts.append([frame])
    return parts


@settings(max_examples=600)
@given(cut_frames(), st.integers(1, 20), st.sampled_from([1, 100, 1000]), st.sampled_from([(), (0,), (0, 1)]))
def test_joining_where_frames_are_taken_gives_what_joining_piece_by_piece_gives(made, most, joined_max, packed):
    limits, groups = Limits(message_bytes_max=joined_max), frozenset(packed)
    twin, compiled = (gapless(form, made) for form in (_codec_twin, _codec))
    singles = [(0, *run) for part in twin for frame in part for run in frame.messages()]
    joined = [run for part in twin for run in _codec_twin.take_runs(part, most, groups, joined_max)]
    messages, refused = messages_of(singles, limits)
    found, found_refused = messages_of(joined, limits)
    assert found == messages
    # Who joins piece by piece sees a little more of what was lost: that another message began meanwhile.
    assert found_refused == refused if len(twin) == 1 else found_refused <= refused
    same = [run for part in compiled for run in _codec.take_runs(part, most, groups, joined_max)]
    assert [(*run[:4], list(run[4])) for run in same] == [(*run[:4], list(run[4])) for run in joined]
    assert [type(run[4]).__name__ for run in same] == [type(run[4]).__name__ for run in joined]


@pytest.mark.parametrize("form", [_codec_twin, _codec])
def test_frames_that_were_sealed_together_are_one_run_with_at_most_two_pieces(form):
    payloads = [bytes([number]) * 1000 for number in range(60)]
    trains, stops, *_ = form.FrameBuilder(1472).seal_parts(
        [(1, 0, payloads, 0, 0)], 1, True, 99, 1 << 20, Kind.DATA, 1, *SENDER, 5, 6, 0, 9
    )
    (data,) = [train.data for train in trains]
    train = form.split(data)
    assert form.take_runs(train, 1000, frozenset(), 1000) == [(0, 1, 0, 0, payloads)]
    assert form.take_runs(form.split_trains(data), 1000, frozenset(), 1000) == [(0, 1, 0, 0, payloads)]
    # What the first and the last of these frames lack came before, and comes later.
    ((_, group, first, flags, run),) = form.take_runs(train[1:-1], 1000, frozenset(), 1000)
    assert (group, flags) == (1, codec.FLAG_CONTINUES | codec.FLAG_MORE)
    assert run[1:-1] == payloads[first + 1 : first + len(run) - 1]
    assert len(run) > 50
    assert stops.frames == len(train) == trains[0].frames


@pytest.mark.parametrize("form", [_codec_twin, _codec])
def test_pieces_of_a_large_message_are_one_piece_for_the_joiner(form):
    payload = bytes(range(256)) * 400
    trains = form.FrameBuilder(1472).seal_parts(
        [(1, 0, [payload, b"x"], 0, 0)], 1, True, 99, 1 << 20, Kind.DATA, 1, *SENDER, 5, 6, 0, 9
    )[0]
    train = form.split(b"".join([train.data for train in trains]))
    third = len(train) // 3
    parts = [train[:third], train[third : 2 * third], train[2 * third :]]
    runs = [run for part in parts for run in form.take_runs(part, 1000, frozenset(), 1 << 20)]
    assert [(len(run[4]), run[3]) for run in runs] == [
        (1, codec.FLAG_MORE),
        (1, codec.FLAG_CONTINUES | codec.FLAG_MORE),
        (2, codec.FLAG_CONTINUES),
    ]
    assert messages_of(runs, Limits()) == ([(1, 0, payload), (1, 1, b"x")], 0)
    assert form.take_runs(train, 1000, frozenset(), len(payload)) == [(0, 1, 0, 0, [payload, b"x"])]
    # What is over the limit is left in pieces, for the joiner to refuse.
    over = form.take_runs(train, 1000, frozenset(), len(payload) - 1)
    assert messages_of(over, Limits(message_bytes_max=len(payload) - 1)) == ([(1, 1, b"x")], 1)
