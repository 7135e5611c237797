"""Marks: what a sender tells receivers inside its stream, as messages of a group that no topic has.

BEGIN names the streams that must be delivered before this one, END says that no frame follows, SLOW states the policy
for slow members, VIEW tells a group view that the region view does not show.
"""

import msgspec

from vivum.core.ids import GroupId, RegionId, ViewNumber
from vivum.protocols.commands import SlowMembers
from vivum.wire.codec import GROUP_MAX, Frame

MARKS = GroupId(GROUP_MAX)
"""The group of BEGIN and END marks; no topic gets this number."""

END = b"end"
_SLOW = {policy: b"slow members: " + policy.name.lower().encode() for policy in SlowMembers}
SLOW_MARKS = {mark: policy for policy, mark in _SLOW.items()}

BEGIN_MARK = 0
END_MARK = 2
SLOW_MARK = 4
VIEW_MARK = 6
"""The numbers of marks tell what they are. None follows another, so that each mark is a run of its own."""

ViewMark = tuple[GroupId, int, ViewNumber]
"""From this message of this group on, messages were accepted in this view of the group."""

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(list[tuple[int, int]])
_view_decoder = msgspec.msgpack.Decoder(tuple[int, int, int])


def begin_mark(before: list[tuple[RegionId, ViewNumber]]) -> bytes:
    """Make the mark with which a stream begins: the streams that must be delivered first."""
    return _encode(before)


def slow_mark(policy: SlowMembers) -> bytes:
    """Make the mark that tells what to do about slow members from now on."""
    return _SLOW[policy]


def view_mark(mark: ViewMark) -> bytes:
    """Make the mark of a group view that a region view does not show."""
    return _encode(mark)


def streams_before(frame: Frame) -> list[tuple[int, int]]:
    """Read the mark of a stream's first frame. What a peer got wrong there counts as no mark."""
    for group, first, _, payloads in frame.messages():
        if group == MARKS and first == 0:
            try:
                return _decoder.decode(payloads[0])
            except (msgspec.MsgspecError, RecursionError):
                return []
    return []


def decode_view_mark(mark: bytes) -> tuple[int, int, int] | None:
    """Read a VIEW mark; None if a peer got it wrong."""
    try:
        return _view_decoder.decode(mark)
    except (msgspec.MsgspecError, RecursionError):
        return None
