"""What control messages are made of: field types with their widths, and the base of all messages."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

import msgspec

from vivum.core.limits import Limits
from vivum.wire.layout import GROUP_MAX, U16_MAX, U32_MAX

U16 = Annotated[int, msgspec.Meta(ge=0, le=U16_MAX)]
U32 = Annotated[int, msgspec.Meta(ge=0, le=U32_MAX)]
U64 = Annotated[int, msgspec.Meta(ge=0)]  # msgpack has no wider integer
GroupNumber = Annotated[int, msgspec.Meta(ge=0, le=GROUP_MAX)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
Host = Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z._:-]{1,255}\Z")]
"""An address or a name of a computer: what a socket could be given, so that no peer can make sending fail."""


def fault_of_bounds(bounds: Sequence[int], limits: Limits) -> str | None:
    """Return what is wrong with a list of bounds of ranges, or None."""
    if len(bounds) % 2:
        return "bounds of ranges are odd in number"
    if len(bounds) > 2 * limits.ranges_max:
        return f"{len(bounds) // 2} ranges; at most ranges_max, {limits.ranges_max}, are taken"
    if any(a >= b for a, b in pairwise(bounds)):
        return "bounds of ranges do not increase"
    return None


class ControlMessage(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base of all control messages."""

    def fault(self, limits: Limits) -> str | None:  # noqa: ARG002
        """Return what about the values is impossible in any state, or None."""
        return None
