"""XOR of frames in plain Python; `vivum.wire.xor` chooses between this and `_xor.pyx`. Change both or neither."""

from collections.abc import Sequence

from vivum.wire import refusals
from vivum.wire.layout import FRAME_BYTES_MAX


def xor_all(parts: Sequence[bytes]) -> bytes:
    """Return the XOR of some byte strings, each padded with zeros to the longest."""
    if not isinstance(parts, (list, tuple)):
        raise refusals.not_a_list(parts)
    total, longest = 0, 0
    for part in parts:
        if type(part) is not bytes:
            raise refusals.not_bytes("part", part)
        if len(part) > FRAME_BYTES_MAX:
            raise refusals.out_of_range("len(part)", len(part), 0, FRAME_BYTES_MAX)
        total ^= int.from_bytes(part, "little")
        longest = max(longest, len(part))
    return total.to_bytes(longest, "little")
