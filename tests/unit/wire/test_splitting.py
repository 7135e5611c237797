import struct

import pytest

from vivum.core.errors import DecodeError, VersionError
from vivum.wire.kinds import KINDS, Kind
from vivum.wire.layout import FLAG_CONTINUES, FLAG_MORE, FRAME_BYTES_MAX, HEADER_BYTES, SEQUENCE_MAX

HEADER = struct.Struct("<BBHIIHHIIQQ")
DEFAULTS = {
    "version": 1,
    "kind": 1,
    "length": None,
    "domain": 2,
    "sender": 3,
    "incarnation": 4,
    "key_epoch": 5,
    "region": 6,
    "view": 7,
    "sequence": 8,
    "sent_ns": 9,
}


def frame_bytes(body=b"", **fields):
    """Write a frame by hand, so that the reader is tested against the document and not against our writer."""
    values = {**DEFAULTS, **fields}
    if values["length"] is None:
        values["length"] = HEADER_BYTES + len(body)
    return HEADER.pack(*values.values()) + body


def run_bytes(group, first, *payloads, flags=0, count=None):
    count = len(payloads) if count is None else count
    packed = b"".join(struct.pack("<H", len(payload)) + payload for payload in payloads)
    return struct.pack("<IQH", group | flags, first, count) + packed


def test_header_fields_are_where_the_document_says(forms):
    (frame,) = forms.split(frame_bytes())
    assert (frame.kind, frame.length, frame.domain, frame.sender) == (Kind.DATA, 40, 2, 3)
    assert (frame.incarnation, frame.key_epoch, frame.region, frame.view) == (4, 5, 6, 7)
    assert (frame.sequence, frame.sent_ns) == (8, 9)
    assert frame.stream == (3, 4, 6, 7)
    assert (frame.start, frame.body_start, frame.body_stop) == (0, 40, 40)
    assert frame.kind is Kind.DATA
    assert repr(frame) == "Frame(DATA #8 of 3.4 in region 6 view 7, 40 bytes)"


def test_runs_of_many_groups_come_out_in_order(forms):
    body = run_bytes(1, 10, b"a", b"", b"ccc") + run_bytes(2**30 - 1, SEQUENCE_MAX, b"d") + run_bytes(1, 13, b"e")
    (frame,) = forms.split(frame_bytes(body))
    assert frame.messages() == [
        (1, 10, 0, [b"a", b"", b"ccc"]),
        (2**30 - 1, SEQUENCE_MAX, 0, [b"d"]),
        (1, 13, 0, [b"e"]),
    ]
    assert frame.body() == body


def test_fragments_keep_their_flags(forms):
    body = run_bytes(1, 5, b"\x09\0\0\0x", flags=FLAG_MORE) + run_bytes(1, 5, b"y", flags=FLAG_MORE | FLAG_CONTINUES)
    body += run_bytes(1, 5, b"z", flags=FLAG_CONTINUES)
    (frame,) = forms.split(frame_bytes(body))
    assert [flags for _, _, flags, _ in frame.messages()] == [
        FLAG_MORE,
        FLAG_MORE | FLAG_CONTINUES,
        FLAG_CONTINUES,
    ]


def test_flags_are_about_the_ends_of_a_run(forms):
    """`docs/design/wire.md`, Fragments: the rest of 7, all of 8, the beginning of 9 with the length of the whole."""
    body = run_bytes(1, 7, b"rest", b"", b"\x0a\0\0\0b", flags=FLAG_CONTINUES | FLAG_MORE)
    body += run_bytes(2, 7, b"rest", b"", flags=FLAG_CONTINUES) + run_bytes(3, 7, b"", b"\x0a\0\0\0b", flags=FLAG_MORE)
    (frame,) = forms.split(frame_bytes(body))
    assert frame.messages() == [
        (1, 7, FLAG_CONTINUES | FLAG_MORE, [b"rest", b"", b"\x0a\0\0\0b"]),
        (2, 7, FLAG_CONTINUES, [b"rest", b""]),
        (3, 7, FLAG_MORE, [b"", b"\x0a\0\0\0b"]),
    ]


def test_joined_frames_are_cut_apart(forms):
    first = frame_bytes(run_bytes(1, 0, b"one"), sequence=1)
    second = frame_bytes(b"\x91\x07", kind=Kind.MEMBERSHIP, sequence=0)
    third = frame_bytes(run_bytes(1, 1, b"two"), sequence=2, kind=Kind.RESENT)
    data = first + second + third
    frames = forms.split(data)
    assert [frame.to_bytes() for frame in frames] == [first, second, third]
    assert [frame.start for frame in frames] == [0, len(first), len(first) + len(second)]
    assert all(frame.data is data for frame in frames)
    assert frames[1].body() == b"\x91\x07"
    assert frames[1].messages() == []


def test_a_frame_that_is_all_of_its_buffer_is_not_copied(forms):
    data = frame_bytes(run_bytes(1, 0, b"one"))
    assert forms.split(data)[0].to_bytes() is data


@pytest.mark.parametrize("form", [bytearray, memoryview])
def test_other_buffers_are_copied_once_so_that_they_can_be_used_again(forms, form):
    original = frame_bytes(run_bytes(1, 0, b"one"))
    buffer = bytearray(original)
    (frame,) = forms.split(form(buffer))
    buffer[:] = bytes(len(buffer))
    assert frame.messages() == [(1, 0, 0, [b"one"])]
    assert type(frame.data) is bytes


def test_frames_cannot_be_changed_or_made(forms):
    (frame,) = forms.split(frame_bytes())
    for name in ("kind", "length", "start", "data", "sequence", "body_start", "extra"):
        with pytest.raises(AttributeError):
            setattr(frame, name, 1)
    with pytest.raises(TypeError):
        forms.Frame()


@pytest.mark.parametrize("size", [0, 1, 13, 14, 15, 27, 28, 100])
def test_padding_of_zeros_is_ignored(forms, size):
    body = run_bytes(1, 0, b"one") + bytes(size)
    (frame,) = forms.split(frame_bytes(body))
    assert frame.messages() == [(1, 0, 0, [b"one"])]


@pytest.mark.parametrize("size", [1, 13, 14, 15, 27, 28, 100])
def test_padding_with_any_other_byte_is_refused(forms, size):
    for place in range(size):
        padding = bytearray(size)
        padding[place] = 1
        if size >= 14 and place in (12, 13):
            continue  # these are the count: not padding then, but a run
        with pytest.raises(DecodeError, match="not zero"):
            forms.split(frame_bytes(run_bytes(1, 0, b"one") + padding))


def test_a_data_frame_may_be_empty(forms):
    assert forms.split(frame_bytes())[0].messages() == []


def test_an_empty_buffer_is_refused(forms):
    with pytest.raises(DecodeError, match="empty buffer"):
        forms.split(b"")


@pytest.mark.parametrize("version", [0, 2, 255])
def test_another_version_is_refused_whatever_follows(forms, version):
    for data in (bytes([version]), bytes([version]) + b"\xff" * 100, frame_bytes(version=version)):
        with pytest.raises(VersionError, match=f"version {version}; this build speaks version 1"):
            forms.split(data)


def test_an_unknown_kind_is_refused(forms):
    for kind in set(range(256)) - set(KINDS):
        with pytest.raises(DecodeError, match=f"unknown kind {kind}"):
            forms.split(frame_bytes(kind=kind))


@pytest.mark.parametrize("length", [0, 1, 39, 41, 65507, 65508, 65535])
def test_a_length_that_cannot_be_is_refused(forms, length):
    with pytest.raises(DecodeError, match="states a length"):
        forms.split(frame_bytes(length=length))


def test_a_length_over_the_largest_datagram_is_refused_even_if_the_bytes_are_there(forms):
    with pytest.raises(DecodeError, match="states a length of 65508"):
        forms.split(frame_bytes(bytes(FRAME_BYTES_MAX + 1 - HEADER_BYTES)))
    assert forms.split(frame_bytes(bytes(FRAME_BYTES_MAX - HEADER_BYTES)))[0].length == FRAME_BYTES_MAX


def test_a_frame_cut_at_any_byte_is_refused(forms):
    data = frame_bytes(run_bytes(1, 0, b"one", b"two") + run_bytes(2, 0, b"three"))
    for stop in range(len(data)):
        with pytest.raises(DecodeError):
            forms.split(data[:stop])


def test_a_body_cut_at_any_byte_is_refused_or_ends_between_runs(forms):
    """The header's length is made to agree, so that only the walk over the runs can notice."""
    first = run_bytes(1, 0, b"one", b"two")
    body = first + run_bytes(2, 0, b"three")
    for stop in range(len(body)):
        if stop in (0, len(first)):
            assert forms.split(frame_bytes(body[:stop]))
        else:
            with pytest.raises(DecodeError):
                forms.split(frame_bytes(body[:stop]))


def test_bytes_after_the_last_frame_are_refused(forms):
    data = frame_bytes(run_bytes(1, 0, b"one"))
    for tail in (b"\0", b"\x01", b"\x01\x01", data[:39], bytes(100)):
        with pytest.raises(DecodeError):
            forms.split(data + tail)


def test_one_bad_frame_refuses_the_whole_buffer(forms):
    good = frame_bytes(run_bytes(1, 0, b"one"))
    with pytest.raises(DecodeError, match=f"frame at {len(good)} "):
        forms.split(good + frame_bytes(kind=200) + good)


def test_a_message_that_reaches_into_the_next_frame_is_refused(forms):
    overlapping = bytearray(frame_bytes(run_bytes(1, 0, b"one")))
    overlapping[HEADER_BYTES + 14] = 4
    with pytest.raises(DecodeError, match="past the end of its frame"):
        forms.split(bytes(overlapping) + frame_bytes(run_bytes(1, 1, b"two")))


@pytest.mark.parametrize("count", [2, 3, 65535])
def test_a_count_of_more_messages_than_there_are_is_refused(forms, count):
    with pytest.raises(DecodeError, match="past the end of its frame"):
        forms.split(frame_bytes(run_bytes(1, 0, b"one", count=count)))


@pytest.mark.parametrize(
    ("flags", "payloads"),
    [
        (FLAG_MORE, [b""]),
        (FLAG_MORE, [b"1234"]),
        (FLAG_MORE, [b"12345", b"1234"]),
        (FLAG_CONTINUES, [b""]),
        (FLAG_CONTINUES, [b"", b"1"]),
        (FLAG_MORE | FLAG_CONTINUES, [b""]),
        (FLAG_MORE | FLAG_CONTINUES, [b"", b"12345"]),
        (FLAG_MORE | FLAG_CONTINUES, [b"1", b"1234"]),
        (FLAG_MORE | FLAG_CONTINUES, [b"1", b"12345", b""]),
    ],
)
def test_a_fragment_must_carry_something(forms, flags, payloads):
    good = run_bytes(1, 0, b"one")
    with pytest.raises(DecodeError, match=f"messages at {HEADER_BYTES + len(good)}: a fragment carries nothing"):
        forms.split(frame_bytes(good + run_bytes(1, 1, *payloads, flags=flags)))


@pytest.mark.parametrize(
    ("flags", "payloads"),
    [
        (FLAG_MORE, [b"12345"]),
        (FLAG_MORE, [b"", b"12345"]),
        (FLAG_CONTINUES, [b"1"]),
        (FLAG_CONTINUES, [b"1", b""]),
        (FLAG_MORE | FLAG_CONTINUES, [b"1"]),
        (FLAG_MORE | FLAG_CONTINUES, [b"1", b"12345"]),
        (FLAG_MORE | FLAG_CONTINUES, [b"1", b"", b"12345"]),
    ],
)
def test_a_fragment_of_one_byte_is_enough(forms, flags, payloads):
    (frame,) = forms.split(frame_bytes(run_bytes(1, 0, *payloads, flags=flags)))
    assert frame.messages() == [(1, 0, flags, payloads)]


@pytest.mark.parametrize("flags", [FLAG_MORE, FLAG_CONTINUES, FLAG_MORE | FLAG_CONTINUES])
def test_a_run_with_flags_is_refused_where_it_is_torn(forms, flags):
    run = run_bytes(1, 0, b"12345", b"12345", flags=flags)
    for stop in range(1, len(run)):
        with pytest.raises(DecodeError, match=r"past the end of its frame|not zero"):
            forms.split(frame_bytes(run[:stop]))


def test_numbers_of_messages_end_at_the_highest(forms):
    assert forms.split(frame_bytes(run_bytes(1, SEQUENCE_MAX - 1, b"a", b"b")))
    for first in (SEQUENCE_MAX, SEQUENCE_MAX + 1):
        with pytest.raises(DecodeError, match="go past"):
            forms.split(frame_bytes(run_bytes(1, first, b"a", b"b")))


def test_the_number_of_a_frame_ends_at_the_highest(forms):
    assert forms.split(frame_bytes(sequence=SEQUENCE_MAX))[0].sequence == SEQUENCE_MAX
    with pytest.raises(DecodeError, match="sequence 2"):
        forms.split(frame_bytes(sequence=SEQUENCE_MAX + 1))


def test_bodies_of_control_frames_are_not_walked(forms):
    assert forms.split(frame_bytes(b"\xff" * 20, kind=Kind.NAK))[0].body() == b"\xff" * 20


@pytest.mark.parametrize("data", [None, 5, "text", [1], object()])
def test_what_is_not_a_buffer_is_the_callers_mistake(forms, data):
    with pytest.raises(TypeError, match="must be bytes"):
        forms.split(data)
