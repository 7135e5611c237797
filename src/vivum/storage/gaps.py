"""Gaps: what is known to be missing in a log, as rows of a topic of the log itself.

A recorder writes them (what was sent while nobody recorded, what its node missed, what the disk was too slow for), and
a reader that may go on without rows that are lost puts one in their place. So whatever reads a log by `/**` counts what
is missing with the means that it has for counting messages.
"""

import msgspec

from vivum.storage.runs import RecordedRun

GAPS_TOPIC = "/vivum/gaps"
"""The topic of gaps. Nobody sends in it: recorders leave out what is below `/vivum`."""

NOT_RECORDED = "not recorded"
"""Nobody recorded: the recorder was not running."""

MISSED = "missed"
"""The recorder's node was not given it."""

REFUSED = "refused"
"""The recorder got it, and could not keep it: too much waited for the disk."""

LOST = "lost"
"""It was in the log, and cannot be read any more: `first` and `count` are offsets."""


class Gap(msgspec.Struct, array_like=True, frozen=True):
    """Messages that are not in the log: `count` from number `first` on, of one sender in one topic.

    Where nobody knows which and how many, `topic` is empty, `count` is 0, and the times say between when.
    """

    what: str
    topic: str = ""
    sender: int = 0
    incarnation: int = 0
    first: int = 0
    count: int = 0
    since_ns: int = 0
    until_ns: int = 0
    text: str = ""


def encode_gap(gap: Gap) -> bytes:
    """Encode a gap as the payload of a row."""
    return msgspec.msgpack.encode(gap)


def gap_run(gap: Gap, now_ns: int) -> RecordedRun:
    """Make the run of one message that tells of a gap."""
    return RecordedRun(GAPS_TOPIC, 0, 0, 0, 0, now_ns, now_ns, [encode_gap(gap)])
