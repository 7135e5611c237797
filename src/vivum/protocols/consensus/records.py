"""What a replica persists: the records of `Persist` effects, and what they amount to at the next start.

A record has the replica's promises (term, vote, whether it is impaired), says where the log is cut, and has the batches
behind; or a snapshot, with the batches behind that. So the newest record alone has the promises that hold.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from vivum.core.errors import DecodeError
from vivum.core.ids import NodeId
from vivum.protocols.consensus.batch import BatchKind, EntryBatch, seal_batch, split_batches
from vivum.protocols.consensus.configuration import ReplicaConfiguration
from vivum.protocols.consensus.snapshot import SnapshotImage, decode_snapshot

_HEAD = Struct("<B3xIQQQQQ")
RECORD_HEAD_BYTES = _HEAD.size
_ENTRIES, _SNAPSHOT, _CHECKPOINT = 1, 2, 3

NOBODY = NodeId(0)
"""No replica: who got no vote, or leads nobody."""


class Impairment(NamedTuple):
    """What a replica may have acknowledged and lost: entries up to an index, in terms up to one."""

    last_index: int
    term: int


class Promises(NamedTuple):
    """What a replica must never forget: its term, whom it voted for in it, and what it lost."""

    term: int = 0
    vote: NodeId = NOBODY
    impairment: Impairment | None = None


class StoredRecord(NamedTuple):
    """A record, read: `after` is the entry behind which `batches` stand; with `begins`, the log begins there anew."""

    promises: Promises
    after: int
    batches: list[EntryBatch]
    snapshot: bytes
    begins: bool


@dataclass(slots=True)
class StoredState:
    """What a replica finds at its start. Nothing, for one that never was."""

    promises: Promises = field(default_factory=Promises)
    image: SnapshotImage | None = None
    batches: list[EntryBatch] = field(default_factory=list)

    @property
    def last_index(self) -> int:
        """The last entry that it has."""
        if self.batches:
            return self.batches[-1].last
        return self.image.index if self.image is not None else 0

    @property
    def foundation(self) -> int:
        """Which log this is: the checksum of the founders' configuration; 0 while it is not known."""
        if self.image is not None:
            return self.image.foundation
        return self.batches[0].checksum if self.batches else 0


def founding_record(configuration: ReplicaConfiguration) -> bytes:
    """Make the first record of every founder's log."""
    first = seal_batch(BatchKind.CONFIGURATION, 1, 0, 0, configuration.encode())
    return entries_record(Promises(), 0, [first])


def entries_record(promises: Promises, after: int, batches: Iterable[EntryBatch]) -> bytes:
    """Make the record of batches behind an entry."""
    return b"".join([_head(_ENTRIES, promises, after, 0), *[each.data for each in batches]])


def checkpoint_record(promises: Promises, after: int, batches: Iterable[EntryBatch]) -> bytes:
    """Make the record with which a log begins anew, behind a snapshot or damage: none before it is needed."""
    return b"".join([_head(_CHECKPOINT, promises, after, 0), *[each.data for each in batches]])


def snapshot_record(promises: Promises, index: int, snapshot: bytes, batches: Iterable[EntryBatch]) -> bytes:
    """Make the record of a snapshot, and of the batches behind it."""
    return b"".join([_head(_SNAPSHOT, promises, index, len(snapshot)), snapshot, *[each.data for each in batches]])


def _head(kind: int, promises: Promises, after: int, snapshot_bytes: int) -> bytes:
    lost_index, lost_term = promises.impairment or (0, 0)
    # An impairment of nothing is still one: the term is then not 0, or one is added to the index.
    lost_index += promises.impairment is not None
    return _HEAD.pack(kind, promises.vote, promises.term, after, lost_index, lost_term, snapshot_bytes)


def read_stored_record(data: bytes) -> StoredRecord:
    """Read a record, or raise a `DecodeError`."""
    if len(data) < RECORD_HEAD_BYTES:
        raise DecodeError(f"a record of {len(data)} bytes; expected a head of {RECORD_HEAD_BYTES}")
    kind, vote, term, after, lost_index, lost_term, snapshot_bytes = _HEAD.unpack_from(data)
    if kind not in (_ENTRIES, _SNAPSHOT, _CHECKPOINT) or (kind == _SNAPSHOT) != bool(snapshot_bytes):
        raise DecodeError(f"a record of unknown kind {kind}; a newer Vivum may have made it")
    impairment = Impairment(lost_index - 1, lost_term) if lost_index else None
    stop = RECORD_HEAD_BYTES + snapshot_bytes
    batches = list(split_batches(data[stop:]))
    snapshot = data[RECORD_HEAD_BYTES:stop]
    return StoredRecord(Promises(term, NodeId(vote), impairment), after, batches, snapshot, kind != _ENTRIES)


class Recovery:
    """Adds records up, oldest first. The first one says behind which entry the log begins."""

    def __init__(self) -> None:
        self.promises = Promises()
        self._base: int | None = None
        self._batches: list[EntryBatch] = []
        self._image: SnapshotImage | None = None

    def take(self, record: StoredRecord) -> None:
        """Add a record; raises `DecodeError`, and changes nothing, where it does not fit those before it."""
        image = decode_snapshot(record.snapshot) if record.snapshot else None
        if record.begins or self._base is None:
            base, kept = record.after, list[EntryBatch]()
        else:
            base, kept = self._base, [each for each in self._batches if each.last <= record.after]
            last = kept[-1].last if kept else base
            if last != record.after:
                raise DecodeError(f"a record follows entry {record.after}; the log has {base} and then to {last}")
        _check_chain(record.after, record.batches)
        self._base, self._batches = base, kept + record.batches
        self.promises = record.promises
        if image is not None:
            self._image = image

    def impair(self, lost: Iterable[StoredRecord]) -> None:
        """Note records that are whole, and behind one that is damaged: what they tell must be had again.

        The promises of the newest one hold. Nothing else of them is used.
        """
        index, newest = self._batches[-1].last if self._batches else 0, self.promises
        for record in lost:
            index = max(index, record.batches[-1].last if record.batches else record.after)
            newest = record.promises
            if newest.impairment is not None:
                index = max(index, newest.impairment.last_index)
        self.promises = newest._replace(impairment=Impairment(index, newest.term))

    def finish_without_log(self) -> StoredState:
        """Return the promises alone, where the log is of no use: an impaired replica begins with nothing."""
        last = self._batches[-1].last if self._batches else 0
        lost = self.promises.impairment
        assert lost is not None
        return StoredState(self.promises._replace(impairment=Impairment(max(lost.last_index, last), lost.term)))

    def finish(self, snapshot: bytes = b"") -> StoredState:
        """Return what all records amount to, with a snapshot that was kept beside them."""
        image = decode_snapshot(snapshot) if snapshot else self._image
        start = 0 if image is None else image.index
        if image is None and self._base:
            raise DecodeError(f"the log begins behind entry {self._base}, and the snapshot in front of it is missing")
        batches = [each for each in self._batches if each.last > start]
        if batches and batches[0].first != start + 1:
            raise DecodeError(f"the log goes on with entry {batches[0].first} behind a snapshot to {start}")
        return StoredState(self.promises, image, batches)


def _check_chain(after: int, batches: Sequence[EntryBatch]) -> None:
    for batch in batches:
        if batch.first != after + 1:
            raise DecodeError(f"{batch} stands behind entry {after}")
        after = batch.last


def has_snapshot(record: bytes) -> bool:
    """Return whether a record has a snapshot."""
    return record[0] == _SNAPSHOT


def recover(records: Iterable[bytes]) -> StoredState:
    """Return what records amount to: none of them is damaged."""
    recovery = Recovery()
    for record in records:
        recovery.take(read_stored_record(record))
    return recovery.finish()
