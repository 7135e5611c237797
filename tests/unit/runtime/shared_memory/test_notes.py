"""Notes and complaints: what is malformed names nothing."""

from random import Random

from vivum.runtime.shared_memory.notes import (
    COMPLAINT_MARK,
    MARK,
    NOTE_FRAMES_MAX,
    NOTE_MARK,
    local_address,
    pack_complaint,
    pack_note,
    unpack_complaint,
    unpack_note,
)
from vivum.wire.codec import VERSION

KEY = 0x0123_4567_89AB_CDEF


def test_notes_and_complaints_are_read_as_they_were_made() -> None:
    for count in range(1, NOTE_FRAMES_MAX + 1):
        stamps = Random(count).randbytes(8 * count)
        assert unpack_note(pack_note(KEY, stamps)) == (KEY, stamps)
    assert unpack_complaint(pack_complaint(KEY)) == KEY


def test_no_frame_looks_like_one() -> None:
    assert MARK[0] != VERSION
    assert {NOTE_MARK[:1], COMPLAINT_MARK[:1]} == {MARK}


def test_what_is_malformed_is_none() -> None:
    note = pack_note(KEY, bytes(16))
    long = pack_note(KEY, bytes(8 * (NOTE_FRAMES_MAX + 1)))
    for bad in (b"", NOTE_MARK, note[:-1], note + b"\0", note[:16], long, pack_complaint(KEY), b"\0" + note[1:]):
        assert unpack_note(bad) is None
    for bad in (b"", COMPLAINT_MARK, pack_complaint(KEY)[:-1], pack_complaint(KEY) + b"\0", note):
        assert unpack_complaint(bad) is None


def test_the_address_that_all_can_see_does_not_tell_the_key() -> None:
    addresses = {local_address(key) for key in range(1000)}
    assert len(addresses) == 1000
    assert all(address.startswith(b"\0vivum-memory-") and len(address) == 30 for address in addresses)
    assert b"%016x" % KEY not in local_address(KEY)
