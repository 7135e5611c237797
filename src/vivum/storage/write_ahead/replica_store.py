"""The directory of one replica: its promises, its log and its snapshots, on a real disk.

    store = ReplicaStore("state", domain=tag, group=1, replica=3)
    machine = ReplicaMachine(..., stored=store.stored, ...)
    driver = Driver(..., on_persist=lambda effect: store.append(effect.record))

`append` returns when the record is on the disk (`fsync="group"`), or with the kernel (`"none"`); else it raises, and
the store takes nothing any more. Files:

    identity             format, domain, group and replica: whose directory this is
    N.records            records from number N on; only the newest segment grows
    I.snapshot           the state at entry I; written aside, forced, renamed
    *.damaged            what could not be read, kept to be looked at
    lock                 held by the replica (flock)

Invariants: a file that was here before this start is never written to, but for cutting a torn tail off. A segment goes
only when a snapshot that is forced, and a newer segment, have all of it.
"""

import fcntl
import json
import os
import re
from contextlib import suppress
from pathlib import Path

from vivum.core.errors import DecodeError, UsageError
from vivum.protocols.consensus.records import (
    Recovery,
    StoredRecord,
    StoredState,
    checkpoint_record,
    has_snapshot,
    read_stored_record,
)
from vivum.protocols.consensus.snapshot import decode_snapshot
from vivum.storage.errors import CorruptLogError, StorageError
from vivum.storage.growing_file import GrowingFile
from vivum.storage.segment_files import LOCK_FILE, force_directory, write_whole
from vivum.storage.write_ahead.record_format import frame_record, scan_records

STORE_FORMAT = 1
"""Raised when an older Vivum would misread a directory."""

STORE_FSYNC_POLICIES = ("group", "none")
STORE_SEGMENT_BYTES = 64 * 1024 * 1024
"""A segment that is larger is followed by another."""

_IDENTITY = "identity"
_SEGMENT = re.compile(r"([0-9]{20})\.records")
_SNAPSHOT = re.compile(r"([0-9]{20})\.snapshot")


class ReplicaStore:
    """What a replica must never forget. Takes the directory for itself until `close()`."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        domain: int,
        group: int,
        replica: int,
        fsync: str = "group",
        segment_bytes: int = STORE_SEGMENT_BYTES,
    ) -> None:
        if fsync not in STORE_FSYNC_POLICIES:
            raise UsageError(f"fsync={fsync!r} is unknown; policies are {', '.join(STORE_FSYNC_POLICIES)}")
        self.directory = Path(directory)
        self.damage: list[str] = []
        """What could not be read at this start; the replica is then impaired, and gets it from its leader."""

        self.bytes_cut = 0
        """Bytes of a torn tail that were cut off."""

        self._identity = {"format": STORE_FORMAT, "domain": domain, "group": group, "replica": replica}
        self._forces = fsync == "group"
        self._segment_bytes = segment_bytes
        self._file: GrowingFile | None = None
        self._next_number = 0
        self._failed = ""
        self._lock = -1
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            self._check_identity()
            self.stored = self._recover()
        except OSError as error:
            self.close()
            raise self._cannot(error) from error
        except BaseException:
            self.close()
            raise

    # Writing.

    def append(self, record: bytes) -> None:
        """Write a record, and force it if the policy says so. Raises `StorageError`, and takes nothing any more."""
        if self._lock < 0:
            raise UsageError(f"the state {self.directory} is closed")
        if self._failed:
            raise StorageError(f"the state {self.directory} takes nothing any more: {self._failed}; start again")
        try:
            if has_snapshot(record):
                self._append_snapshot(read_stored_record(record))
            else:
                if self._file is None or self._file.size >= self._segment_bytes:
                    self._begin_segment()
                self._write(record)
        except OSError as error:
            # What a failed write or force left behind is not known: only a new start finds out.
            self._failed = error.strerror or str(error)
            raise self._cannot(error) from error

    def _write(self, record: bytes) -> None:
        assert self._file is not None
        self._file.append(memoryview(frame_record(self._next_number, record)))
        self._next_number += 1
        if self._forces:
            self._file.force()

    def _begin_segment(self) -> None:
        """Begin a segment. Its name is on the disk before anything in it is acknowledged."""
        if self._file is not None:
            self._file.force()
            self._file.close()
            self._file = None
        self._file = GrowingFile(self.directory / f"{self._next_number:020}.records")
        force_directory(self.directory)

    def _append_snapshot(self, record: StoredRecord) -> None:
        old = self._segments()
        older = self._snapshots()
        path = self.directory / f"{record.after:020}.snapshot"
        write_whole(path, record.snapshot)
        self._begin_segment()
        self._write(checkpoint_record(record.promises, record.after, record.batches))
        assert self._file is not None
        self._file.force()
        for each in (*old, *older):
            if each != path:
                each.unlink()

    def close(self) -> None:
        """Close everything. May be called again."""
        if self._file is not None:
            with suppress(OSError):
                self._file.force()
            self._file.close()
        if self._lock >= 0:
            os.close(self._lock)
        self._file, self._lock = None, -1

    # Opening.

    def _take_lock(self) -> None:
        self._lock = os.open(self.directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"another process has the state {self.directory}; stop it or choose another") from None

    def _check_identity(self) -> None:
        path = self.directory / _IDENTITY
        try:
            found = json.loads(path.read_bytes())
        except FileNotFoundError:
            if self._segments() or self._snapshots():
                raise CorruptLogError(
                    f"{self.directory} has the state of a replica and no file {_IDENTITY}; nobody knows whose it is"
                ) from None
            write_whole(path, json.dumps(self._identity).encode())
            return
        except ValueError:
            raise CorruptLogError(f"{path} cannot be read; restore it, or give the replica a new id") from None
        if not isinstance(found, dict) or found.keys() != self._identity.keys():
            raise CorruptLogError(f"{path} is not the identity of a replica; choose another directory")
        if found["format"] != STORE_FORMAT:
            raise StorageError(
                f"{self.directory} has format {found['format']}, this Vivum reads {STORE_FORMAT}; update Vivum"
            )
        if found != self._identity:
            raise UsageError(
                f"{self.directory} belongs to replica {found['replica']} of group {found['group']} in domain "
                f"{found['domain']:08x}, not to replica {self._identity['replica']} of group "
                f"{self._identity['group']} in domain {self._identity['domain']:08x}; choose another directory"
            )

    def _found(self, pattern: re.Pattern[str]) -> list[Path]:
        return sorted(self.directory / name for name in os.listdir(self.directory) if pattern.fullmatch(name))

    def _segments(self) -> list[Path]:
        return self._found(_SEGMENT)

    def _snapshots(self) -> list[Path]:
        return self._found(_SNAPSHOT)

    def _recover(self) -> StoredState:
        """Add up what is here; cut a torn tail; begin anew behind damage."""
        recovery, lost, segments = Recovery(), list[bytes](), self._segments()
        number: int | None = None
        for path in segments:
            first = int(path.stem)
            content = path.read_bytes()
            if lost or self.damage or (number is not None and first != number):
                if not self.damage:
                    self.damage.append(f"{self.directory}: records {number} to {first - 1} are missing")
                lost += self._all_of(content)
                continue
            scanned = scan_records(content, 0, first)
            number = scanned.next_number if scanned.records else first
            self._take(recovery, path, scanned.records, lost)
            if scanned.lost:
                self.damage.append(f"{path} is damaged at byte {scanned.damaged_at}; whole records are behind")
                lost += scanned.lost
            elif scanned.stop < len(content):
                if path != segments[-1]:
                    self.damage.append(f"{path} ends with {len(content) - scanned.stop} bytes that are no record")
                else:
                    self._cut(path, scanned.stop, len(content))
        self._next_number = max([number or 0, *[int(path.stem) + 1 for path in segments]])
        state = self._finish(recovery, lost)
        if self.damage:
            self._begin_anew(state, segments, lost)
        return state

    def _take(self, recovery: Recovery, path: Path, records: list[bytes], lost: list[bytes]) -> None:
        for at, record in enumerate(records):
            try:
                recovery.take(read_stored_record(record))
            except DecodeError as error:
                self.damage.append(f"{path}: record {at} makes no sense: {error}")
                lost += records[at:]
                return

    @staticmethod
    def _all_of(content: bytes) -> list[bytes]:
        scanned = scan_records(content)
        return scanned.records + scanned.lost

    def _cut(self, path: Path, stop: int, size: int) -> None:
        self.bytes_cut += size - stop
        with path.open("r+b") as file:
            file.truncate(stop)
            os.fsync(file.fileno())

    def _finish(self, recovery: Recovery, lost: list[bytes]) -> StoredState:
        snapshot = b""
        snapshots = self._snapshots()
        if snapshots:
            snapshot = snapshots[-1].read_bytes()
            try:
                decode_snapshot(snapshot)
            except DecodeError as error:
                self.damage.append(f"{snapshots[-1]} is damaged: {error}")
                snapshots[-1].rename(snapshots[-1].with_suffix(".damaged"))
                snapshot = b""
        known = [read_stored_record(each) for each in lost if self._is_readable(each)]
        if self.damage:
            recovery.impair(known)
        try:
            return recovery.finish(snapshot)
        except DecodeError as error:
            # Without the snapshot in front of it the log is of no use.
            self.damage.append(f"{self.directory}: {error}")
            recovery.impair(known)
            return recovery.finish_without_log()

    @staticmethod
    def _is_readable(record: bytes) -> bool:
        try:
            read_stored_record(record)
        except DecodeError:
            return False
        return True

    def _begin_anew(self, state: StoredState, segments: list[Path], lost: list[bytes]) -> None:
        """Write what is good, and that something was lost, into a new segment; put the old ones aside."""
        self._next_number += len(lost)
        self._begin_segment()
        base = 0 if state.image is None else state.image.index
        self._write(checkpoint_record(state.promises, base, state.batches))
        assert self._file is not None
        self._file.force()
        for path in segments:
            path.rename(path.with_suffix(".damaged"))
        force_directory(self.directory)

    def _cannot(self, error: OSError) -> StorageError:
        cause = error.strerror or str(error)
        return StorageError(
            f"cannot write the state {self.directory}: {cause}; the replica stops, and nothing that was not written is "
            "acknowledged: make room, or choose a directory that can be written, and start it again"
        )
