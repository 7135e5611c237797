"""A frame for several regions becomes an ordinary frame of each."""

import pytest

from vivum.core.errors import UsageError
from vivum.wire.kinds import Kind
from vivum.wire.layout import GROUP_MAX, HEADER_BYTES
from vivum.wire.spread import LIST_SEQUENCE, SpreadList, varint

HEADER = (2, 3, 4, 6, 7, 8, 9)  # domain, sender, incarnation, region, view, sequence, sent_ns


def test_numbers_take_seven_bits_a_byte():
    assert [varint(number) for number in (0, 1, 127, 128, 300)] == [b"\0", b"\x01", b"\x7f", b"\x80\x01", b"\xac\x02"]

    for shift in range(0, 64, 7):
        for number in ((1 << shift) - 1, 1 << shift, (1 << shift) + 1):
            written = varint(number)
            assert sum((byte & 0x7F) << 7 * place for place, byte in enumerate(written)) == number
            assert all(byte >= 0x80 for byte in written[:-1])
            assert written[-1] < 0x80


def spread_frame(forms, entries, *, group=GROUP_MAX, count=1, cut=0):
    """A frame for several regions as the sender makes it, but for what a test wants to be wrong."""
    listed = SpreadList([entry[:2] for entry in entries]).encode([entry[2] for entry in entries])
    builder = forms.FrameBuilder(1000)
    builder.append(group, LIST_SEQUENCE, listed[: len(listed) - cut])
    builder.append(7, 0, b"message")
    data = bytearray(builder.seal(Kind.SPREAD, *HEADER))
    data[HEADER_BYTES + 12 : HEADER_BYTES + 14] = count.to_bytes(2, "little")
    return bytes(data)


ENTRIES = [(0, 1, 0), (3, 200, 5), (4, 2**32 - 1, 2**40), (2**32 - 1, 7, 2**64 - 2)]


def test_a_frame_for_several_regions_becomes_the_frame_of_each(forms):
    data = spread_frame(forms, ENTRIES)
    (spread,) = forms.split(data)
    for region, view, sequence in ENTRIES:
        own = forms.relabel(data, region, view)
        (frame,) = forms.split(own)
        assert (frame.kind, frame.region, frame.view, frame.sequence) == (Kind.DATA, region, view, sequence)
        assert (frame.domain, frame.sender, frame.incarnation) == (spread.domain, spread.sender, spread.incarnation)
        assert (frame.sent_ns, frame.key_epoch, frame.body()) == (spread.sent_ns, spread.key_epoch, spread.body())
        assert forms.relabel(bytearray(data), region, view) == own
    assert forms.relabel(data, 3, 201) is None
    assert forms.relabel(data, 5, 200) is None


def test_a_list_that_is_torn_or_missing_is_for_nobody(forms):
    for cut in range(1, 30):
        assert forms.relabel(spread_frame(forms, ENTRIES, cut=cut), 2**32 - 1, 7) is None
    assert forms.relabel(spread_frame(forms, ENTRIES, group=6), 3, 200) is None
    assert forms.relabel(spread_frame(forms, ENTRIES, count=0), 3, 200) is None
    assert forms.relabel(forms.FrameBuilder(100).seal(Kind.SPREAD, *HEADER), 3, 200) is None
    # The number behind which there is none, and numbers of more than 64 bits.
    for number in (2**64 - 1, 2**64, 2**70):
        assert forms.relabel(spread_frame(forms, [(3, 200, number), (9, 1, 1)]), 3, 200) is None
    # A list that says that it is longer than its frame.
    torn = bytearray(spread_frame(forms, ENTRIES))
    torn[HEADER_BYTES + 14 : HEADER_BYTES + 16] = b"\xff\xff"
    assert forms.relabel(bytes(torn), 3, 200) is None


def test_only_one_whole_frame_for_several_regions_can_be_relabelled(forms):
    data = spread_frame(forms, ENTRIES)
    wrong = [b"", data[:-1], data + data, b"\x02" + data[1:], forms.relabel(data, 3, 200), forms.resend(data)]
    for each in wrong:
        with pytest.raises(UsageError, match="one whole SPREAD frame"):
            forms.relabel(each, 3, 200)
    with pytest.raises(UsageError, match="region is 4294967296"):
        forms.relabel(data, 2**32, 200)
    with pytest.raises(TypeError, match="view must be an int"):
        forms.relabel(data, 3, None)
