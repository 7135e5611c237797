"""Control messages of QSM: what its tokens carry, and what goes with them (`docs/design/qsm.md`).

All are about the region view in the header. A stream is named by the life of its sender.
"""

from typing import Annotated

import msgspec

from vivum.core.limits import Limits
from vivum.wire.fields import U16, U32, U64, ControlMessage, fault_of_bounds
from vivum.wire.layout import U32_MAX, U64_MAX
from vivum.wire.rings import RingToken

NOBODY = U64_MAX
"""The prefix of nobody: what a minimum over no members is."""


class StreamRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a token says of one sender's stream.

    Decided at the top and carried down: below `stable` every member that is waited for has everything, so the sender
    may forget; below `floor` nobody will ask any more, so caches may forget; below `confirmed` every member has
    delivered everything, those included that are not waited for. Collected on the way: `stop` is one past the highest
    number known, `closed` tells that it is final, `prefix` is the lowest prefix of members that are waited for and
    `slowest` whose it is, `runner_up` the lowest of all others, `behind` the lowest of those below `stable`;
    `delivered` is the lowest number below which a member has delivered everything.
    `slow` is what the sender wants to be done about slow members. `reach` and `lacking` are there when feedback of more
    than a prefix is wanted: below `reach` every member has all frames but those that one of them is `lacking`.
    """

    sender: U32
    incarnation: U16
    stable: U64
    floor: U64
    stop: U64
    closed: bool
    prefix: U64
    slowest: U32
    runner_up: U64
    behind: U64
    slow: U16 = 0
    reach: U64 = 0
    lacking: tuple[U64, ...] = ()
    confirmed: U64 = 0
    delivered: U64 = NOBODY


class RepairRequest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A node's request for frames of a stream. A member that serves some of them removes those from the request.

    `tried` tells that the partition which should cache them was asked in vain, `age` for how many whole rounds the
    request has been in this ring: after one, every member has seen it.
    """

    node: U32
    sender: U32
    incarnation: U16
    bounds: tuple[U64, ...]
    tried: bool = False
    age: U16 = 0


class RateVote(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What members say of the frames a second that they can take, all senders together.

    The lowest, the sum, and how many said anything; `allowed` is what the region decided last, carried down.
    `buffer_bytes` is the smallest window that fits the receive buffer of a member, 0 if nobody told.
    """

    lowest: U64 = 0
    total: U64 = 0
    voices: U32 = 0
    allowed: U64 = 0
    buffer_bytes: U64 = 0


NO_VOTE = RateVote()


class Token(RingToken, frozen=True, tag=4):
    """Circulates in one ring of the region view and collects the state of its members.

    The envelope is the ring's; what follows is the payload, which only QSM reads.
    """

    rate: RateVote
    streams: tuple[StreamRecord, ...]
    requests: tuple[RepairRequest, ...]

    def fault(self, limits: Limits) -> str | None:
        """Refuse records whose numbers contradict each other."""
        for each in self.streams:
            if not each.confirmed <= each.floor <= each.stable <= each.stop:
                return "confirmed, floor, stable and stop of a stream do not increase"
            wrong = fault_of_bounds(each.lacking, limits) if each.lacking else None
            if wrong is not None:
                return wrong
        for request in self.requests:
            wrong = fault_of_bounds(request.bounds, limits) if request.bounds else "asks for nothing"
            if wrong is not None:
                return wrong
        return None


class RegionReport(ControlMessage, frozen=True, tag=21):
    """Reports a stream's state in a region to its sender: what is stable, what all lack, how fast to go.

    `incarnation` is the life of that sender; `stable`, `floor` and `confirmed` are as in `StreamRecord`; `sharers` is
    how many send, and `buffer_bytes` the smallest window that fits the buffer of a member, which these share, 0 if that
    is not known; `beyond` are ranges above `stable` that every member has too, where such feedback is wanted.
    """

    incarnation: U16
    stable: U64
    floor: U64
    missing: tuple[U64, ...]
    rate: U64
    sharers: Annotated[int, msgspec.Meta(ge=1, le=U32_MAX)] = 1
    beyond: tuple[U64, ...] = ()
    confirmed: U64 = 0
    buffer_bytes: U64 = 0

    def fault(self, limits: Limits) -> str | None:
        """Refuse what is not a set of ranges, and a floor above what is stable."""
        if not self.confirmed <= self.floor <= self.stable:
            return "confirmed, floor and stable do not increase"
        return fault_of_bounds(self.missing, limits) or fault_of_bounds(self.beyond, limits)


class StreamProgress(ControlMessage, frozen=True, tag=22):
    """Reports to a region how far the header's own stream goes, while it is idle and not all is stable."""

    stop: U64
    closed: bool
