import pytest

from vivum.core.errors import UsageError
from vivum.wire.kinds import KINDS, Kind
from vivum.wire.layout import (
    CAPACITY_MIN,
    COUNT_MAX,
    FLAG_CONTINUES,
    FLAG_MORE,
    FRAME_BYTES_MAX,
    GROUP_MAX,
    HEADER_BYTES,
    SEQUENCE_MAX,
)

HEADER = (2, 3, 4, 6, 7, 8, 9)  # domain, sender, incarnation, region, view, sequence, sent_ns


def runs_of(forms, builder):
    (frame,) = forms.split(builder.seal(Kind.DATA, *HEADER))
    return frame.messages()


def test_a_new_builder_has_its_header_and_nothing_else(forms):
    builder = forms.FrameBuilder(1472)
    assert (builder.capacity, builder.size, builder.count, builder.empty) == (1472, HEADER_BYTES, 0, True)


def test_consecutive_messages_of_one_group_share_a_run(forms):
    builder = forms.FrameBuilder(1472)
    assert builder.append(1, 10, b"a")
    assert builder.size == HEADER_BYTES + 14 + 2 + 1
    assert builder.append(1, 11, b"b")
    assert builder.size == HEADER_BYTES + 14 + 2 * (2 + 1)
    assert (builder.count, builder.empty) == (2, False)
    assert runs_of(forms, builder) == [(1, 10, 0, [b"a", b"b"])]


@pytest.mark.parametrize(("group", "sequence"), [(2, 11), (1, 12), (1, 10), (1, 9)])
def test_another_group_or_number_opens_a_run(forms, group, sequence):
    builder = forms.FrameBuilder(1472)
    builder.append(1, 10, b"a")
    builder.append(group, sequence, b"b")
    assert runs_of(forms, builder) == [(1, 10, 0, [b"a"]), (group, sequence, 0, [b"b"])]


def test_a_frame_of_a_busy_group_is_one_run(forms):
    builder = forms.FrameBuilder(1472)
    builder.append_fragment(1, 7, FLAG_CONTINUES, b"rest")
    assert builder.room(1, 8) == 1472 - HEADER_BYTES - 14 - 2 - 4 - 2
    builder.append(1, 8, b"a")
    assert builder.extend(1, 9, [b"b", b"c"]) == 2
    builder.append_fragment(1, 11, FLAG_MORE, b"begin", total=10)
    assert (builder.count, builder.size) == (5, HEADER_BYTES + 14 + 5 * 2 + 4 + 3 + 4 + 5)
    assert runs_of(forms, builder) == [
        (1, 7, FLAG_CONTINUES | FLAG_MORE, [b"rest", b"a", b"b", b"c", b"\x0a\0\0\0begin"])
    ]


def test_the_beginning_of_a_message_can_follow_the_rest_of_another(forms):
    builder = forms.FrameBuilder(100)
    builder.append_fragment(1, 7, FLAG_CONTINUES, b"rest")
    builder.append_fragment(1, 8, FLAG_MORE, b"b", total=10)
    assert runs_of(forms, builder) == [(1, 7, FLAG_CONTINUES | FLAG_MORE, [b"rest", b"\x0a\0\0\0b"])]


@pytest.mark.parametrize(("group", "sequence"), [(2, 8), (1, 9), (1, 7), (1, 6)])
def test_a_piece_of_another_group_or_number_opens_a_run(forms, group, sequence):
    builder = forms.FrameBuilder(1472)
    builder.append(1, 7, b"a")
    builder.append_fragment(group, sequence, FLAG_MORE, b"b", total=10)
    assert runs_of(forms, builder) == [(1, 7, 0, [b"a"]), (group, sequence, FLAG_MORE, [b"\x0a\0\0\0b"])]


@pytest.mark.parametrize("flags", [FLAG_CONTINUES, FLAG_CONTINUES | FLAG_MORE])
def test_what_goes_on_with_a_message_opens_a_run(forms, flags):
    builder = forms.FrameBuilder(1472)
    builder.append(1, 7, b"a")
    builder.append_fragment(1, 8, flags, b"b")
    assert runs_of(forms, builder) == [(1, 7, 0, [b"a"]), (1, 8, flags, [b"b"])]


@pytest.mark.parametrize("flags", [FLAG_MORE, FLAG_CONTINUES | FLAG_MORE])
def test_nothing_follows_a_piece_with_more_to_come_in_its_run(forms, flags):
    builder = forms.FrameBuilder(1472)
    builder.append_fragment(1, 7, flags, b"abcde", total=10 if flags == FLAG_MORE else None)
    assert builder.room(1, 8) == 1472 - builder.size - 16
    builder.append(1, 8, b"b")
    assert [run[1:3] for run in runs_of(forms, builder)] == [(7, flags), (8, 0)]


def test_a_beginning_that_does_not_fit_the_open_run_changes_nothing(forms):
    builder = forms.FrameBuilder(100)
    builder.append(1, 0, b"x" * 30)
    with pytest.raises(UsageError, match="needs 15 bytes and the frame has 14 left"):
        builder.append_fragment(1, 1, FLAG_MORE, b"y" * 9, total=500)
    assert builder.room(1, 1) == 12
    builder.append_fragment(1, 1, FLAG_MORE, b"y" * 8, total=500)
    assert builder.size == 100
    assert runs_of(forms, builder) == [(1, 0, FLAG_MORE, [b"x" * 30, b"\xf4\x01\0\0" + b"y" * 8])]


def test_extend_with_a_wrong_payload_leaves_the_rest_of_a_message_as_it_was(forms):
    builder = forms.FrameBuilder(1472)
    builder.append_fragment(1, 7, FLAG_CONTINUES, b"rest")
    with pytest.raises(TypeError, match="payload must be bytes"):
        builder.extend(1, 8, [b"a", None])
    builder.append(1, 8, b"b")
    assert runs_of(forms, builder) == [(1, 7, FLAG_CONTINUES, [b"rest", b"b"])]


def test_a_sealed_frame_leaves_no_run_open(forms):
    builder = forms.FrameBuilder(1472)
    builder.append_fragment(1, 7, FLAG_CONTINUES, b"rest")
    builder.seal(Kind.DATA, *HEADER)
    builder.append_fragment(1, 8, FLAG_MORE, b"b", total=10)
    assert [run[1:3] for run in runs_of(forms, builder)] == [(8, FLAG_MORE)]


def test_a_full_run_is_followed_by_another(forms):
    builder = forms.FrameBuilder(FRAME_BYTES_MAX)
    messages = (FRAME_BYTES_MAX - HEADER_BYTES - 14) // 2
    assert messages < COUNT_MAX, "a frame has no place for more messages than one run can count"
    assert builder.extend(1, 0, [b""] * COUNT_MAX) == messages


def test_what_does_not_fit_changes_nothing(forms):
    builder = forms.FrameBuilder(100)
    builder.append(1, 0, b"x" * 30)
    before = builder.size
    assert builder.room(1, 1) == 12
    assert not builder.append(1, 1, b"y" * 13)
    assert (builder.size, builder.count) == (before, 1)
    assert builder.append(1, 1, b"y" * 12)
    assert builder.size == 100
    assert builder.room(1, 2) == -1
    assert not builder.append(1, 2, b"")
    assert runs_of(forms, builder) == [(1, 0, 0, [b"x" * 30, b"y" * 12])]


def test_room_knows_whether_a_run_continues(forms):
    builder = forms.FrameBuilder(100)
    assert builder.room(1, 0) == 100 - HEADER_BYTES - 16
    builder.append(1, 0, b"")
    assert builder.room(1, 1) == 100 - HEADER_BYTES - 16 - 2
    assert builder.room(1, 2) == builder.room(2, 1) == 100 - HEADER_BYTES - 16 - 16


def test_extend_takes_what_fits_and_tells_where_to_go_on(forms):
    builder = forms.FrameBuilder(100)
    payloads = [b"%010d" % number for number in range(10)]
    frames, index = [], 0
    while index < len(payloads):
        index = builder.extend(7, 1000, payloads, index)
        frames.append(runs_of(forms, builder))
    assert frames[0] == [(7, 1000, 0, payloads[:3])]
    assert frames[1] == [(7, 1003, 0, payloads[3:6])]
    assert frames[-1] == [(7, 1009, 0, payloads[9:])]


def test_extend_continues_an_open_run_and_takes_tuples_and_buffers(forms):
    builder = forms.FrameBuilder(1472)
    builder.append(1, 0, b"a")
    assert builder.extend(1, 1, (b"b", bytearray(b"c"), memoryview(b"xdx")[1:2])) == 3
    assert builder.extend(1, 4, []) == 0
    assert runs_of(forms, builder) == [(1, 0, 0, [b"a", b"b", b"c", b"d"])]


def test_extend_with_a_wrong_payload_changes_nothing(forms):
    builder = forms.FrameBuilder(1472)
    builder.append(1, 0, b"a")
    for payloads in ([b"b", b"c", "d"], (b"b", None)):
        with pytest.raises(TypeError, match="payload must be bytes"):
            builder.extend(1, 1, payloads)
        assert (builder.size, builder.count) == (HEADER_BYTES + 17, 1)
    builder.append(1, 1, b"b")
    assert runs_of(forms, builder) == [(1, 0, 0, [b"a", b"b"])]


def test_the_first_fragment_states_the_length_of_the_whole(forms):
    builder = forms.FrameBuilder(100)
    builder.append_fragment(5, 6, FLAG_MORE, b"abc", total=1000)
    assert builder.count == 1
    assert runs_of(forms, builder) == [(5, 6, FLAG_MORE, [b"\xe8\x03\0\0abc"])]


@pytest.mark.parametrize(
    ("flags", "payload", "total", "reason"),
    [
        (0, b"a", None, "flags are 0x0"),
        (1, b"a", None, "flags are 0x1"),
        (FLAG_MORE | 1, b"a", 5, "flags are 0x80000001"),
        (FLAG_MORE, b"a", None, "needs `total`"),
        (FLAG_CONTINUES, b"a", 5, "first fragment of a message alone"),
        (FLAG_MORE | FLAG_CONTINUES, b"a", 5, "first fragment of a message alone"),
        (FLAG_CONTINUES, b"", None, "at least one byte"),
        (FLAG_MORE, b"", 5, "at least one byte"),
        (FLAG_MORE, b"a" * 41, 500, "needs 61 bytes and the frame has 60 left"),
        (FLAG_CONTINUES, b"a" * 45, None, "needs 61 bytes and the frame has 60 left"),
        (FLAG_MORE, b"a", 0, "total is 0"),
        (FLAG_MORE, b"a", 2**32, "total is 4294967296"),
    ],
)
def test_a_wrong_fragment_is_refused_and_changes_nothing(forms, flags, payload, total, reason):
    builder = forms.FrameBuilder(100)
    with pytest.raises(UsageError, match=reason):
        builder.append_fragment(1, 1, flags, payload, total)
    assert builder.empty
    assert builder.size == HEADER_BYTES


def test_sealing_pads_with_zeros_and_begins_again(forms):
    builder = forms.FrameBuilder(200)
    builder.append(1, 0, b"abc")
    data = builder.seal(Kind.DATA, *HEADER, key_epoch=5, pad_to=150)
    assert len(data) == 150
    (frame,) = forms.split(data)
    assert (frame.domain, frame.sender, frame.incarnation, frame.region) == (2, 3, 4, 6)
    assert (frame.view, frame.sequence, frame.sent_ns, frame.key_epoch) == (7, 8, 9, 5)
    assert frame.messages() == [(1, 0, 0, [b"abc"])]
    assert builder.empty
    assert builder.append(1, 1, b"d")
    assert len(builder.seal(Kind.DATA, *HEADER, pad_to=10)) == HEADER_BYTES + 17
    assert forms.split(builder.seal(Kind.DATA, *HEADER))[0].messages() == []


@pytest.mark.parametrize(
    ("place", "name", "most"),
    [
        (1, "domain", 2**32 - 1),
        (2, "sender", 2**32 - 1),
        (3, "incarnation", 2**16 - 1),
        (4, "region", 2**32 - 1),
        (5, "view", 2**32 - 1),
        (6, "sequence", SEQUENCE_MAX),
        (7, "sent_ns", 2**64 - 1),
        (8, "key_epoch", 2**16 - 1),
        (9, "pad_to", 100),
    ],
)
def test_a_header_field_out_of_range_is_refused_and_the_messages_stay(forms, place, name, most):
    builder = forms.FrameBuilder(100)
    builder.append(1, 0, b"abc")
    good = [Kind.DATA, *HEADER, 0, 0]
    for value in (-1, most + 1, 2**80):
        fields = good.copy()
        fields[place] = value
        with pytest.raises(UsageError, match=f"{name} is {value}; expected 0 to {most}"):
            builder.seal(*fields)
        assert builder.count == 1
    fields = good.copy()
    fields[place] = "1"
    with pytest.raises(TypeError, match=f"{name} must be an int, not str"):
        builder.seal(*fields)
    good[place] = most
    assert builder.seal(*good)


def test_messages_are_sealed_only_as_kinds_that_carry_them(forms):
    for kind in set(range(256)) - {Kind.DATA, Kind.RESENT, Kind.UNREPAIRED}:
        with pytest.raises(UsageError, match="one that carries messages"):
            forms.FrameBuilder(100).seal(kind, *HEADER)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((-1, 0, b""), "group is -1"),
        ((GROUP_MAX + 1, 0, b""), f"group is {GROUP_MAX + 1}"),
        ((0, -1, b""), "sequence is -1"),
        ((0, SEQUENCE_MAX + 1, b""), f"sequence is {SEQUENCE_MAX + 1}"),
    ],
)
def test_a_wrong_group_or_number_is_refused(forms, arguments, reason):
    builder = forms.FrameBuilder(100)
    with pytest.raises(UsageError, match=reason):
        builder.append(*arguments)
    with pytest.raises(UsageError, match=reason.replace("sequence", "first_sequence")):
        builder.extend(*arguments[:2], [b""])
    with pytest.raises(UsageError, match=reason):
        builder.room(*arguments[:2])
    assert builder.empty


def test_extend_refuses_numbers_and_indices_that_go_too_far(forms):
    builder = forms.FrameBuilder(100)
    with pytest.raises(UsageError, match="first_sequence"):
        builder.extend(1, SEQUENCE_MAX, [b"", b""])
    for start in (-1, 3):
        with pytest.raises(UsageError, match="start is"):
            builder.extend(1, 0, [b"", b""], start)
    with pytest.raises(TypeError, match="list or a tuple"):
        builder.extend(1, 0, iter([b""]))
    assert builder.extend(1, SEQUENCE_MAX - 1, [b"", b""]) == 2


@pytest.mark.parametrize("payload", ["text", None, 5, [1], memoryview(b"abcd")[::2]])
def test_a_payload_must_be_contiguous_bytes(forms, payload):
    builder = forms.FrameBuilder(100)
    with pytest.raises(TypeError, match="payload must be bytes"):
        builder.append(1, 0, payload)
    with pytest.raises(TypeError, match="payload must be bytes"):
        builder.append_fragment(1, 0, FLAG_CONTINUES, payload)


@pytest.mark.parametrize("capacity", [-1, 0, CAPACITY_MIN - 1, FRAME_BYTES_MAX + 1, 2**70])
def test_a_capacity_that_no_frame_can_have_is_refused(forms, capacity):
    with pytest.raises(UsageError, match="capacity is"):
        forms.FrameBuilder(capacity)


def test_a_control_frame_carries_its_body(forms):
    data = forms.seal_control(Kind.NAK, *HEADER, b"body", key_epoch=5)
    (frame,) = forms.split(data)
    assert (frame.kind, frame.body(), frame.key_epoch, frame.sequence) == (Kind.NAK, b"body", 5, 8)


def test_a_control_frame_has_a_control_kind_and_a_body_that_fits(forms):
    control = [kind for kind, info in KINDS.items() if not info.has_messages]
    for kind in range(256):
        if kind in control:
            assert forms.seal_control(kind, *HEADER, b"")
        else:
            with pytest.raises(UsageError, match="is a control kind"):
                forms.seal_control(kind, *HEADER, b"")
    assert len(forms.seal_control(Kind.NAK, *HEADER, bytes(FRAME_BYTES_MAX - HEADER_BYTES))) == FRAME_BYTES_MAX
    with pytest.raises(UsageError, match="length of body"):
        forms.seal_control(Kind.NAK, *HEADER, bytes(FRAME_BYTES_MAX - HEADER_BYTES + 1))
    with pytest.raises(TypeError, match="body must be bytes"):
        forms.seal_control(Kind.NAK, *HEADER, "text")


def test_a_resent_frame_differs_in_its_kind_alone(forms):
    builder = forms.FrameBuilder(100)
    builder.append(1, 0, b"abc")
    data = builder.seal(Kind.DATA, *HEADER)
    again = forms.resend(data)
    assert [place for place in range(len(data)) if data[place] != again[place]] == [1]
    assert forms.split(again)[0].kind is Kind.RESENT
    assert forms.resend(again) is again
    assert forms.resend(bytearray(data)) == again


def test_only_one_whole_frame_of_messages_can_be_resent(forms):
    builder = forms.FrameBuilder(100)
    data = builder.seal(Kind.DATA, *HEADER)
    wrong = [b"", data[:-1], data + data, b"\x02" + data[1:], forms.seal_control(Kind.NAK, *HEADER, b"")]
    for each in wrong:
        with pytest.raises(UsageError, match="one whole frame of messages"):
            forms.resend(each)
