"""Messages that are not cut: a sequence like any other, and no more is held than it says."""

from collections.abc import Sequence

import pytest

from vivum.core.errors import DecodeError
from vivum.wire.kinds import Kind

PAYLOADS = [bytes([number]) * (100 + number) for number in range(40)]


def buffers(forms, payloads=PAYLOADS, group=1, **sealing):
    """Seal payloads into frames of one stream, all at the same time."""
    builder, made, at = forms.FrameBuilder(1000), [], 0
    while at < len(payloads):
        at = builder.extend(group, 7, payloads, at)
        made.append(builder.seal(Kind.DATA, 2, 3, 4, 6, 7, len(made), 9, **sealing))
    return made


def packed(forms, made, messages_max=1000, groups=frozenset([1])):
    frames = [frame for data in made for frame in forms.split(data)]
    runs = forms.take_runs(frames, messages_max, groups)
    stop = runs[1][0] if len(runs) > 1 else len(frames)
    index, group, first, flags, run = runs[0]
    assert (index, flags) == (0, 0)
    return stop, group, first, run


def test_it_is_a_sequence_of_the_payloads(forms):
    made = buffers(forms)
    stop, group, first, run = packed(forms, made)
    assert (stop, group, first) == (len(made), 1, 7)
    assert isinstance(run, forms.PackedRun)
    assert isinstance(run, Sequence)
    assert len(run) == 40
    assert run.cut() == list(run) == PAYLOADS
    assert (run[0], run[-1], run[3:5], run[30:]) == (PAYLOADS[0], PAYLOADS[-1], PAYLOADS[3:5], PAYLOADS[30:])
    with pytest.raises(IndexError):
        run[40]
    assert run.payload_bytes == sum(map(len, PAYLOADS))
    assert run.held_bytes == sum(map(len, made))
    assert repr(run) == "PackedRun(40 messages, 4780 bytes)"


def test_pieces_tell_where_the_messages_lie_in_what_was_received_and_padding_is_none_of_them(forms):
    made = buffers(forms, pad_to=1000)
    run = packed(forms, made)[3]
    assert [data for data, _, _ in run.pieces] == made
    found = []
    for data, at, count in run.pieces:
        for _ in range(count):
            size = int.from_bytes(data[at : at + 2], "little")
            found.append(data[at + 2 : at + 2 + size])
            at += 2 + size
    assert found == PAYLOADS
    assert run.payload_bytes == sum(map(len, PAYLOADS))
    run.pieces.clear()
    assert run.cut() == PAYLOADS, "what it relies on cannot be changed"


def test_only_groups_that_were_asked_for_are_left_uncut(forms):
    for groups in (frozenset(), {2}, {0, 2}):
        assert packed(forms, buffers(forms), groups=groups)[3] == PAYLOADS
    assert forms.take_runs(forms.split(buffers(forms)[0]), 1000) == [(0, 1, 7, 0, PAYLOADS[:8])]


def test_messages_are_cut_if_most_of_what_would_be_held_is_not_theirs(forms):
    """Frames that the kernel joined, or padding: else a short message could keep 64 KB in memory."""
    (short,) = buffers(forms, [b"x" * 60])
    assert isinstance(packed(forms, [short])[3], forms.PackedRun)
    (padded,) = buffers(forms, [b"x" * 60], pad_to=130)
    assert packed(forms, [padded])[3] == [b"x" * 60]
    others = buffers(forms, PAYLOADS[:3], group=2)[0]
    assert packed(forms, [short + others])[3] == [b"x" * 60]
    stop, group, _, run = packed(forms, [others + short], groups={1, 2})
    assert (stop, group, run.held_bytes) == (1, 2, len(others) + len(short))


def test_a_buffer_of_several_frames_is_counted_once(forms):
    made = b"".join(buffers(forms))
    run = packed(forms, [made])[3]
    assert (run.held_bytes, run.cut()) == (len(made), PAYLOADS)


def test_one_run_is_extended_by_another(forms):
    one, two = (packed(forms, buffers(forms, each))[3] for each in (PAYLOADS[:10], PAYLOADS[10:]))
    held = one.held_bytes + two.held_bytes
    one.extend(two)
    assert (len(one), one.cut(), one.held_bytes) == (40, PAYLOADS, held)
    assert one.payload_bytes == sum(map(len, PAYLOADS))
    assert two.cut() == PAYLOADS[10:]
    for wrong in ([b"x"], None):
        with pytest.raises(TypeError):
            one.extend(wrong)
    assert len(one) == 40


def test_a_run_is_as_long_as_was_asked_for(forms):
    stop, _, _, run = packed(forms, buffers(forms), messages_max=20)
    assert (stop, len(run)) == (2, 16)


def test_damaged_lengths_are_refused_before_anything_is_packed(forms):
    data = bytearray(buffers(forms)[0])
    data[40 + 14 : 40 + 16] = b"\xff\xff"
    with pytest.raises(DecodeError):
        forms.split(bytes(data))


def test_nobody_else_makes_one(forms):
    with pytest.raises(TypeError, match="made by take_runs"):
        forms.PackedRun()


def frames_of(forms, *parts, sent_ns=(9, 9, 9, 9)):
    """Seal a frame for each list of runs: group, first number, how many."""
    builder, frames = forms.FrameBuilder(1000), []
    for number, runs in enumerate(parts):
        for group, first, count in runs:
            assert builder.extend(group, first, PAYLOADS[:count]) == count
        frames += forms.split(builder.seal(Kind.DATA, 2, 3, 4, 6, 7, number, sent_ns[number]))
    return frames


def shapes(forms, frames, messages_max, packed=frozenset()):
    runs = forms.take_runs(frames, messages_max, packed)
    return [(index, group, first, len(run)) for index, group, first, flags, run in runs]


def test_a_run_goes_on_in_the_next_frame_whatever_else_is_in_both(forms):
    frames = frames_of(forms, [(2, 0, 1), (1, 0, 3)], [(1, 3, 2)], [(1, 5, 2), (2, 1, 1)], [(2, 2, 1), (1, 7, 1)])
    assert shapes(forms, frames, 7) == [(0, 2, 0, 1), (0, 1, 0, 7), (2, 2, 1, 2), (3, 1, 7, 1)]
    assert shapes(forms, frames, 6) == [(0, 2, 0, 1), (0, 1, 0, 5), (2, 1, 5, 2), (2, 2, 1, 2), (3, 1, 7, 1)]
    singles = [(0, 2, 0, 1), (0, 1, 0, 3), (1, 1, 3, 2), (2, 1, 5, 2), (2, 2, 1, 1), (3, 2, 2, 1), (3, 1, 7, 1)]
    assert shapes(forms, frames, 0) == singles
    # What may stay uncut is not cut because something goes on with it, and two that are cut are joined.
    assert shapes(forms, frames, 9, {1, 2}) == [*singles[:4], (2, 2, 1, 2), (3, 1, 7, 1)]


def test_what_was_sealed_at_another_time_is_another_run(forms):
    frames = frames_of(forms, [(1, 0, 3)], [(1, 3, 2)], [(1, 5, 1)], sent_ns=(8, 9, 9))
    assert shapes(forms, frames, 99) == [(0, 1, 0, 3), (1, 1, 3, 3)]


def test_marks_are_never_joined_and_a_list_of_regions_is_no_message(forms):
    marks = forms.GROUP_MAX
    frames = frames_of(forms, [(marks, 5, 1)], [(marks, 6, 1)], [(marks, 3, 1), (1, 0, 2)], [(marks, 3, 1), (1, 2, 2)])
    assert shapes(forms, frames, 99) == [(0, marks, 5, 1), (1, marks, 6, 1), (2, 1, 0, 4)]
    ((*_, run),) = forms.take_runs(frames[2:], 99, {1})
    assert isinstance(run, forms.PackedRun)
    assert run.cut() == PAYLOADS[:2] * 2
    assert run.payload_bytes == 2 * sum(map(len, PAYLOADS[:2]))
    assert [len(each[3]) for each in frames[2].messages()] == [1, 2]


def test_numbers_near_the_end_are_joined_alike_by_both_forms(forms):
    """Ours, by review: the twin looked at every frame of a run where the compiled form looks at the first."""
    builder, frames = forms.FrameBuilder(1000), []
    for number in range(3):
        builder.extend(1, forms.SEQUENCE_MAX - forms.COUNT_MAX + number, [b"x"])
        frames += forms.split(builder.seal(Kind.DATA, 2, 3, 4, 6, 7, number, 9))
    assert [run[0] for run in forms.take_runs(frames, 1000)] == [0]
