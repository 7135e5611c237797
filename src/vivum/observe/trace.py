"""Typed trace records: what happened, where and when.

A part that can be traced holds `trace: Tracer | None`. Tracing costs one `is None` when it is off:

    if self.trace is not None:
        self.trace(MessageDelivered(now_ns, ...))

Records are what the checkers of `vivum.checkers` read, what the simulator's trace hash covers, and (as one wide table
with a column for each field name) what `vivum.storage` writes for Spark. A field name therefore means the
same and has the same type in every record that has it; a test checks this.

A message is known everywhere by `(group, sender, sender_incarnation, sequence)`.
"""

from hashlib import blake2b
from typing import Protocol, get_args

import msgspec


class Record(msgspec.Struct, frozen=True, gc=False, tag_field="kind"):
    """Base of all trace records: when, and at which life of which node."""

    time_ns: int
    node: int
    incarnation: int


class NodeStarted(Record, frozen=True, gc=False, tag="node_started"):
    """A life of a node began."""


class NodeStopped(Record, frozen=True, gc=False, tag="node_stopped"):
    """A life of a node ended, by a crash or on purpose; `cause` says which."""

    cause: str


class FaultInjected(Record, frozen=True, gc=False, tag="fault_injected"):
    """The simulator or a test began or ended a fault; `cause` says which. Node 0 when it concerns many."""

    cause: str


class GroupJoined(Record, frozen=True, gc=False, tag="group_joined"):
    """The node takes messages of the group from now on."""

    group: int


class GroupNamed(Record, frozen=True, gc=False, tag="group_named"):
    """The group belongs to the topic of this name from now on, and promises what the entry of this guarantee says. It
    comes before all else of the group at that life. Groups of simulated protocols have no names."""

    group: int
    topic: str
    guarantee: str


class GroupLeft(Record, frozen=True, gc=False, tag="group_left"):
    """The node takes no messages of the group any more."""

    group: int


class ViewInstalled(Record, frozen=True, gc=False, tag="view_installed"):
    """The node goes on in a new view of a group. Members are `"node.incarnation"`, oldest first."""

    group: int
    view: int
    members: tuple[str, ...]


class MessageSent(Record, frozen=True, gc=False, tag="message_sent"):
    """The node accepted a message from its application. `digest` is the CRC-32 of the payload."""

    group: int
    sequence: int
    view: int
    digest: int


class MessageDelivered(Record, frozen=True, gc=False, tag="message_delivered"):
    """The node handed a message to its application, in this view. `sent_ns` is by the sender's clock."""

    group: int
    sender: int
    sender_incarnation: int
    sequence: int
    view: int
    digest: int
    sent_ns: int


class MessagesStable(Record, frozen=True, gc=False, tag="messages_stable"):
    """The sender's messages `sequence <= n < stop` were confirmed, as its guarantee means that."""

    group: int
    sequence: int
    stop: int


class MessagesFailed(Record, frozen=True, gc=False, tag="messages_failed"):
    """The sender was told that `sequence <= n < stop` may not have reached a node (0: anybody); `cause` says why."""

    group: int
    sequence: int
    stop: int
    receiver: int
    cause: str


class MessagesLost(Record, frozen=True, gc=False, tag="messages_lost"):
    """The receiver was told that it will never get `sequence <= n < stop`, or could not read them; the stream goes on
    behind them."""

    group: int
    sender: int
    sender_incarnation: int
    sequence: int
    stop: int


class MessagesSkipped(Record, frozen=True, gc=False, tag="messages_skipped"):
    """The receiver left `sequence <= n < stop` out: it had others under the same keys. The stream goes on behind."""

    group: int
    sender: int
    sender_incarnation: int
    sequence: int
    stop: int


class KeyDelivered(Record, frozen=True, gc=False, tag="key_delivered"):
    """The message that the node handed to its application had a key; `key` is 63 bits of the key's BLAKE2b digest."""

    group: int
    sender: int
    sender_incarnation: int
    sequence: int
    key: int


class FrameSent(Record, frozen=True, gc=False, tag="frame_sent"):
    """A datagram left the node, to `"host:port"` or `"#channel"`. `frame` names the kind of its first frame."""

    destination: str
    frame: str
    bytes: int


class FrameReceived(Record, frozen=True, gc=False, tag="frame_received"):
    """A datagram reached the node. `source` is `"host:port"`."""

    source: str
    frame: str
    bytes: int


class FrameDropped(Record, frozen=True, gc=False, tag="frame_dropped"):
    """A datagram was lost on its way to the node, or refused there; `cause` says why."""

    source: str
    frame: str
    bytes: int
    cause: str


class QueueMeasured(Record, frozen=True, gc=False, tag="queue_measured"):
    """A queue reached a new high. `unit` is what depth and limit count."""

    queue: str
    depth: int
    limit: int
    unit: str


class NodeMeasured(Record, frozen=True, gc=False, tag="node_measured"):
    """What a live node sent since the record of this kind before, and lost on its way in on purpose. `ring_ns` is the
    last round of the slowest ring that it leads, 0 if it leads none. Simulated nodes record each datagram instead."""

    datagrams: int
    datagram_bytes: int
    repairs: int
    repair_bytes: int
    datagrams_lost: int
    ring_ns: int


class LeaderElected(Record, frozen=True, gc=False, tag="leader_elected"):
    """The replica leads a term of its group's log from now on."""

    group: int
    term: int


class BatchAppended(Record, frozen=True, gc=False, tag="batch_appended"):
    """The entries `index <= n < stop` stand at the end of the replica's log; what stood there or behind is gone."""

    group: int
    term: int
    index: int
    stop: int
    digest: int


class BatchCommitted(Record, frozen=True, gc=False, tag="batch_committed"):
    """The replica learnt that the entries `index <= n < stop` are committed, and applies them."""

    group: int
    term: int
    index: int
    stop: int
    digest: int


class StateSaved(Record, frozen=True, gc=False, tag="state_saved"):
    """The replica took a snapshot of all entries to `index`; `digest` is the CRC-32 of the application's part."""

    group: int
    term: int
    index: int
    digest: int


class StateRestored(Record, frozen=True, gc=False, tag="state_restored"):
    """The replica's log begins anew behind `index`, from a snapshot or from nothing (0): at a start, or installed."""

    group: int
    term: int
    index: int
    digest: int


class CommandApplied(Record, frozen=True, gc=False, tag="command_applied"):
    """The replica's application ran command `sequence` of a client, as entry `index`. `digest`: the answer's CRC-32."""

    group: int
    index: int
    client: int
    sequence: int
    digest: int


class CommandIssued(Record, frozen=True, gc=False, tag="command_issued"):
    """A client gave a command away for the first time. The node is the client."""

    group: int
    client: int
    sequence: int


class CommandAnswered(Record, frozen=True, gc=False, tag="command_answered"):
    """A client got the answer of a command; `digest` is its CRC-32."""

    group: int
    client: int
    sequence: int
    digest: int


class ReadIssued(Record, frozen=True, gc=False, tag="read_issued"):
    """A client asked to read; `sequence` counts its reads."""

    group: int
    client: int
    sequence: int


class ReadAnswered(Record, frozen=True, gc=False, tag="read_answered"):
    """A client read the state as entry `index` left it; `digest` is the CRC-32 of that entry's answer, 0 for none."""

    group: int
    client: int
    sequence: int
    index: int
    digest: int


class KeyOperationIssued(Record, frozen=True, gc=False, tag="key_operation_issued"):
    """A client of a key-value store began an operation: get, put, delete or swap (compare-and-set). `key`, `value` and
    `expected` are 63 bits of digests, 0 where there is none; `sequence` counts the client's operations."""

    group: int
    client: int
    sequence: int
    operation: str
    key: int
    value: int
    expected: int


class KeyOperationAnswered(Record, frozen=True, gc=False, tag="key_operation_answered"):
    """The operation was answered. `outcome`: done, or failed for a swap that found something else. `value` is what a
    get or a swap found; `revision` that of the change, or of the store."""

    group: int
    client: int
    sequence: int
    outcome: str
    value: int
    revision: int


class WatchBegan(Record, frozen=True, gc=False, tag="watch_began"):
    """A client watches all keys of a store, from behind a revision."""

    group: int
    client: int
    revision: int


class KeyChangeSeen(Record, frozen=True, gc=False, tag="key_change_seen"):
    """A watcher of all keys was told what a revision changed; `value` is 0 if the key was deleted."""

    group: int
    client: int
    revision: int
    key: int
    value: int


class LeaseAsked(Record, frozen=True, gc=False, tag="lease_asked"):
    """A client asked to keep a lease."""

    group: int
    lease: int


class LeaseKept(Record, frozen=True, gc=False, tag="lease_kept"):
    """What was asked last was granted: the lease holds for `lasts_ns` from some moment since then."""

    group: int
    lease: int
    lasts_ns: int


class LeaseOver(Record, frozen=True, gc=False, tag="lease_over"):
    """A client was told that its lease is over; it had not revoked it."""

    group: int
    lease: int


class LockTaken(Record, frozen=True, gc=False, tag="lock_taken"):
    """A client holds a lock from now on, with this fencing token."""

    group: int
    key: int
    token: int


class LockReleased(Record, frozen=True, gc=False, tag="lock_released"):
    """The client does not rely on the lock any more: it gives it back, or its lease may be over."""

    group: int
    key: int
    token: int


TraceRecord = (
    NodeStarted
    | NodeStopped
    | FaultInjected
    | GroupJoined
    | GroupNamed
    | GroupLeft
    | ViewInstalled
    | MessageSent
    | MessageDelivered
    | MessagesStable
    | MessagesFailed
    | MessagesLost
    | MessagesSkipped
    | KeyDelivered
    | FrameSent
    | FrameReceived
    | FrameDropped
    | QueueMeasured
    | NodeMeasured
    | LeaderElected
    | BatchAppended
    | BatchCommitted
    | StateSaved
    | StateRestored
    | CommandApplied
    | CommandIssued
    | CommandAnswered
    | ReadIssued
    | ReadAnswered
    | KeyOperationIssued
    | KeyOperationAnswered
    | WatchBegan
    | KeyChangeSeen
    | LeaseAsked
    | LeaseKept
    | LeaseOver
    | LockTaken
    | LockReleased
)
"""The one list of records."""

RECORD_TYPES: dict[str, type[Record]] = {str(each.__struct_config__.tag): each for each in get_args(TraceRecord)}
"""Every type of record by its kind."""


class Tracer(Protocol):
    """Anything that takes records: a sink, or a function that hands them to several."""

    def __call__(self, record: TraceRecord) -> None:
        """Take one record."""
        ...


_HASH_CHUNK_BYTES = 65_536
"""Bytes hashed at a time: a call for each record would cost more than the hashing."""


class HashTrace:
    """A sink that keeps only a digest: two runs did the same exactly when their digests are equal."""

    __slots__ = ("_buffer", "_digest", "_encode_into", "count")

    def __init__(self) -> None:
        self._digest = blake2b(digest_size=16)
        self._encode_into = msgspec.msgpack.Encoder().encode_into
        self._buffer = bytearray()
        self.count = 0

    def __call__(self, record: TraceRecord) -> None:
        """Add one record to the digest."""
        self.count += 1
        self._encode_into(record, self._buffer, -1)
        if len(self._buffer) >= _HASH_CHUNK_BYTES:
            self._digest.update(self._buffer)
            self._buffer.clear()

    def hexdigest(self) -> str:
        """Return the digest of all records so far, in their order."""
        self._digest.update(self._buffer)
        self._buffer.clear()
        return self._digest.hexdigest()
