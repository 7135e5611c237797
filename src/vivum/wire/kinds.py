"""The one list of frame kinds."""

from enum import IntEnum
from typing import NamedTuple

from vivum.core.machine import Priority


class Kind(IntEnum):
    """What a frame is. The number travels in the header and never changes its meaning."""

    DATA = 1
    RESENT = 2
    NAK = 4
    ACK = 5
    HEARTBEAT = 6
    TOKEN = 7
    MEMBERSHIP = 8
    CONFIGURATION = 10
    REPLICA = 11
    SPREAD = 12
    DISCOVERY = 20
    DIRECTORY = 21
    TOPICS = 22
    UNREPAIRED = 23
    SURVEY = 24
    CONSENSUS = 25
    ENTRIES = 26
    REQUEST = 30
    ANSWER = 31
    GROUP_DATA = 40
    LATERAL = 41
    GROUP_WORD = 42


class KindInfo(NamedTuple):
    """What the manual and the priority queues need to know of a kind."""

    priority: Priority
    has_messages: bool
    meaning: str


KINDS: dict[Kind, KindInfo] = {
    Kind.DATA: KindInfo(Priority.DATA, True, "New messages, packed"),
    Kind.RESENT: KindInfo(Priority.REPAIR, True, "A data frame again, from its sender or from a node that cached it"),
    Kind.NAK: KindInfo(Priority.CONTROL, False, "Asks for missing frames"),
    Kind.ACK: KindInfo(Priority.CONTROL, False, "Tells what has been received"),
    Kind.HEARTBEAT: KindInfo(Priority.CONTROL, False, "Tells how far a stream has come, while it is idle"),
    Kind.TOKEN: KindInfo(Priority.CONTROL, False, "Circulates in a ring and collects the state of its members"),
    Kind.MEMBERSHIP: KindInfo(
        Priority.CONTROL, False, "To the configuration service: joins, leaves, subscriptions, suspicions"
    ),
    Kind.CONFIGURATION: KindInfo(Priority.CONTROL, False, "From the configuration service: places, views, probes"),
    Kind.REPLICA: KindInfo(Priority.CONTROL, False, "Between the configuration service and its standbys: its state"),
    Kind.SPREAD: KindInfo(
        Priority.DATA, True, "New messages for several regions at once, with the number of the frame in each"
    ),
    Kind.DISCOVERY: KindInfo(Priority.CONTROL, False, "Who looks for the configuration service, and where it is"),
    Kind.DIRECTORY: KindInfo(Priority.CONTROL, False, "To the directory of topics: names to enter, patterns to list"),
    Kind.TOPICS: KindInfo(Priority.CONTROL, False, "From the directory of topics: groups of names, lists of topics"),
    Kind.UNREPAIRED: KindInfo(Priority.DATA, True, "New messages, packed, that nobody will send again"),
    Kind.SURVEY: KindInfo(Priority.CONTROL, False, "Asks a node what it does, and tells it"),
    Kind.CONSENSUS: KindInfo(Priority.CONTROL, False, "Between replicas of a log: votes, heartbeats, acknowledgements"),
    Kind.ENTRIES: KindInfo(Priority.DATA, False, "From the leader of a replicated log: its entries, its snapshots"),
    Kind.REQUEST: KindInfo(Priority.DATA, False, "From a client of a replicated log: commands, queries"),
    Kind.ANSWER: KindInfo(Priority.DATA, False, "To a client of a replicated log: answers, and who leads"),
    Kind.GROUP_DATA: KindInfo(Priority.DATA, True, "New messages of one group, numbered by sender and group"),
    Kind.LATERAL: KindInfo(Priority.REPAIR, False, "From receiver to receiver: the XOR of frames that it names"),
    Kind.GROUP_WORD: KindInfo(
        Priority.CONTROL, False, "Between senders and receivers of streams by group: reports, progress, requests"
    ),
}

# Both tables are indexed by the kind byte of an unchecked datagram, so they cover all 256 values.
_PRIORITIES = [Priority.DATA] * 256
_NAMES = [f"kind {number}" for number in range(256)]
for _kind, _info in KINDS.items():
    _PRIORITIES[_kind] = _info.priority
    _NAMES[_kind] = _kind.name


def priority_of(data: bytes) -> Priority:
    """Return the priority that a received datagram claims, before anything about it is checked."""
    return _PRIORITIES[data[1]] if len(data) > 1 else Priority.DATA


def kind_name(data: bytes) -> str:
    """Name the kind that a datagram claims to be, for traces."""
    return _NAMES[data[1]] if len(data) > 1 else "empty"
