"""The list with which a SPREAD frame begins: of every region that it is for, the view, and its number in that stream.

Numbers of 7 bits a byte, the lowest first; regions rise, and each is told as its distance from the one before. So an
entry takes some six bytes, and a frame for forty regions keeps five sixths of its room. `relabel` reads it.
"""

from collections.abc import Sequence

LIST_SEQUENCE = 3
"""The number of the list among the marks of a stream, behind those that a stream makes itself."""

ENTRY_BYTES = 6
"""What an entry takes in a domain that has run for days: one byte, two and three."""

ENTRY_BYTES_MAX = 14
"""What an entry takes at most in a domain of 2 million regions and 256 million views, up to frame 2^49."""


def varint(number: int) -> bytes:
    """Write a number of 7 bits a byte, the lowest first."""
    if number < 0x80:
        return bytes((number,))
    # Written out for the usual sizes: this is done for every region of every frame.
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    if number < 0x20_0000:
        return bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14))
    return bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80)) + varint(number >> 14)


class SpreadList:
    """Writes the lists of frames that go to the same region views. What never changes is written once."""

    __slots__ = ("_heads",)

    def __init__(self, keys: Sequence[tuple[int, int]]) -> None:
        """Take the regions, which must rise, with their views."""
        before = 0
        self._heads: list[bytes] = []
        for region, view in keys:
            assert region > before or not self._heads, "regions rise"
            self._heads.append(varint(region - before) + varint(view))
            before = region

    def encode(self, sequences: Sequence[int]) -> bytes:
        """Write the list of a frame that has these numbers."""
        return b"".join([head + varint(each) for head, each in zip(self._heads, sequences, strict=True)])
