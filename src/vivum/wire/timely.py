"""Control messages of lateral error correction (`docs/design/ricochet.md`).

A stream is all frames of one life into one group. `TimelyNak` and `TimelyReport` go to the sender of the streams that
they are about, and name its life; `TimelyProgress` is about streams of the header's sender.
"""

from struct import Struct
from typing import Annotated

import msgspec

from vivum.core.limits import Limits
from vivum.wire.fields import U16, U64, ControlMessage, GroupNumber, fault_of_bounds
from vivum.wire.layout import FRAME_BYTES_MAX, SEQUENCE_MAX

NAME = Struct("<IHIQI")
"""A frame as a repair names it: sender, incarnation, group, number, CRC-32 of the whole frame."""

NAMES_MAX = 32
"""The most frames in one XOR."""

STREAMS_MAX = 64
"""The most streams that one control message is about."""

REPAIR_ROOM = 64
"""What an XOR has around the longest of its frames, besides their names."""


class LateralRepair(ControlMessage, frozen=True, tag=101):
    """The XOR of frames, each padded with zeros to the longest, and the names of these frames, packed."""

    names: Annotated[bytes, msgspec.Meta(min_length=NAME.size, max_length=NAMES_MAX * NAME.size)]
    data: Annotated[bytes, msgspec.Meta(max_length=FRAME_BYTES_MAX)]

    def fault(self, limits: Limits) -> str | None:  # noqa: ARG002
        """Refuse a torn name, and a frame that is named twice."""
        if len(self.names) % NAME.size:
            return "the last name is torn"
        frames = [name[:4] for name in NAME.iter_unpack(self.names)]
        return "names a frame twice" if len(set(frames)) < len(frames) else None


class TimelyAsk(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Asks for frames of a stream, as bounds of ranges; without any, asks where the stream begins for this member."""

    group: GroupNumber
    bounds: tuple[U64, ...] = ()


class StreamState(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Frames `first <= n < stop` of a stream can be had by the member that is told; `first` begins with `message`.

    Of the messages from `needs` on, which it has not reported, those below `message` can no longer be had.
    """

    group: GroupNumber
    needs: U64
    first: U64
    message: U64
    stop: U64


class TimelyNak(ControlMessage, frozen=True, tag=102):
    """Asks a sender, of this life, for frames of some of its streams."""

    incarnation: U16
    asks: Annotated[tuple[TimelyAsk, ...], msgspec.Meta(min_length=1, max_length=STREAMS_MAX)]

    def fault(self, limits: Limits) -> str | None:
        """Refuse what is not a set of ranges."""
        return next((wrong for ask in self.asks if (wrong := fault_of_bounds(ask.bounds, limits))), None)


class TimelyProgress(ControlMessage, frozen=True, tag=103):
    """Tells a member, of this life, how far streams of the header's sender go, and what it can have of them."""

    incarnation: U16
    streams: Annotated[tuple[StreamState, ...], msgspec.Meta(min_length=1, max_length=STREAMS_MAX)]

    def fault(self, limits: Limits) -> str | None:  # noqa: ARG002
        """Refuse an end before the beginning, and numbers that no frame or message can have."""
        for each in self.streams:
            if each.stop < each.first or each.message < each.needs:
                return "numbers do not increase"
            if max(each.stop, each.message) > SEQUENCE_MAX:
                return "a number is over the highest"
        return None


class TimelyReport(ControlMessage, frozen=True, tag=104):
    """Reports to a sender, of this life, below which frame of some of its streams nothing is left to deliver.

    Pairs of group and frame.
    """

    incarnation: U16
    prefixes: Annotated[tuple[tuple[GroupNumber, U64], ...], msgspec.Meta(min_length=1, max_length=STREAMS_MAX)]
