"""Control messages between the replicas of a log (`docs/design/consensus.md`; names from the Raft paper).

In the header the sender is a replica, the region the group, and the view the log's foundation: frames of another log
are refused before they are looked at. What no single field shows is checked here; what the own log makes of a number,
by the protocol.
"""

from typing import Annotated

import msgspec

from vivum.core.limits import Limits
from vivum.wire.fields import U32, ControlMessage

TERM_MAX = (1 << 62) - 1
"""The highest term and index that are believed: counting on from there still fits 64 bits, in years of trying."""

Term = Annotated[int, msgspec.Meta(ge=0, le=TERM_MAX)]
EntryIndex = Annotated[int, msgspec.Meta(ge=0, le=TERM_MAX)]
Round = Annotated[int, msgspec.Meta(ge=0, le=TERM_MAX)]


class VoteRequest(ControlMessage, frozen=True, tag=60):
    """Asks for a vote in a term (`RequestVote`). As a pre-vote it asks what the answer would be, and changes nothing.

    `is_transfer`: the leader itself asked the candidate to stand, so voters that hear the leader vote all the same.
    """

    term: Term
    last_index: EntryIndex
    last_term: Term
    is_pre: bool
    is_transfer: bool


class Vote(ControlMessage, frozen=True, tag=61):
    """Answers a `VoteRequest`. A pre-vote that is granted has the term that was asked about, any other the voter's."""

    term: Term
    is_pre: bool
    is_granted: bool


class LeaderHeartbeat(ControlMessage, frozen=True, tag=62):
    """Says that the leader lives, and how far the receiver may commit: never past what it is known to have."""

    term: Term
    round: Round
    commit: EntryIndex


class HeartbeatReply(ControlMessage, frozen=True, tag=63):
    """Echoes the round of a heartbeat; with a higher term than the leader's, it ends that leader's term.

    `lost` is not 0 where the leader takes the replica to have more than it can confirm, as after a restart: it is then
    the first entry of which the replica does not know that it agrees. `last_index` is where its log ends.
    """

    term: Term
    round: Round
    lost: EntryIndex
    last_index: EntryIndex


class AppendEntries(ControlMessage, frozen=True, tag=64):
    """Whole batches behind an entry, or one part of a single batch that no frame can hold (`total` is not 0)."""

    term: Term
    round: Round
    previous_index: EntryIndex
    previous_term: Term
    commit: EntryIndex
    offset: U32
    total: U32
    content: bytes

    def fault(self, limits: Limits) -> str | None:  # noqa: ARG002
        """Refuse an empty one, a part that the whole does not have, and an entry before its leader's term."""
        if self.previous_term > self.term:
            return "the entry before is of a later term than the leader"
        return _fault_of_part(self.offset, self.total, self.content)


class AppendReply(ControlMessage, frozen=True, tag=65):
    """Acknowledges all entries to `matched`, which are on disk; or refuses what stood behind entry `refused`.

    `hint` is then the last entry behind which to try again, and `refused` is not 0. `offset` counts the bytes that came
    of the batch behind `matched`, where that comes in parts.
    """

    term: Term
    round: Round
    matched: EntryIndex
    refused: EntryIndex
    hint: EntryIndex
    offset: U32

    def fault(self, limits: Limits) -> str | None:  # noqa: ARG002
        """Refuse a hint that leads nowhere."""
        return "the hint is behind what was refused" if self.hint > self.refused else None


class InstallSnapshot(ControlMessage, frozen=True, tag=66):
    """One part of a snapshot, which has all entries to `index`."""

    term: Term
    round: Round
    index: EntryIndex
    offset: U32
    total: U32
    content: bytes

    def fault(self, limits: Limits) -> str | None:  # noqa: ARG002
        """Refuse what is no part."""
        return _fault_of_part(self.offset, self.total, self.content) if self.total else "a snapshot of no bytes"


class SnapshotReply(ControlMessage, frozen=True, tag=67):
    """Says how many bytes of a snapshot came."""

    term: Term
    round: Round
    index: EntryIndex
    offset: U32


class TimeoutNow(ControlMessage, frozen=True, tag=68):
    """Asks a replica that has everything to stand at once: leadership is handed over."""

    term: Term


def _fault_of_part(offset: int, total: int, content: bytes) -> str | None:
    if not content:
        return "no content"
    if total == 0:
        return "an offset without a total" if offset else None
    return "a part beyond its total" if offset + len(content) > total else None
