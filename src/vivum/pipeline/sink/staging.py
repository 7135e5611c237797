"""What the sink keeps of a query on disk: staged results, and how far they are published.

    FOLDER/staged/UUID.arrow     payloads and topics of one task of one batch
    FOLDER/staged/UUID.digests   a number for each of its rows (`digests`), kept until the next batch is published
    FOLDER/state.json            the last batch: its files, and whether it is published
    FOLDER/lock                  held by who publishes

A batch is *sealed* before its first message is sent: its files are listed in `state.json`. Every publisher of it,
now or after a crash, publishes these files in this order, so that a position means the same message each time; of what
Spark computes when it runs the batch again only rows that were not sealed count (`unsealed`). Invariants: files of a
sealed batch stay until it is published; `state.json` is replaced whole, and on the disk before the next step begins.
"""

import fcntl
import os
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy
import pyarrow
from pyspark.sql import datasource

from vivum.core.errors import HostError
from vivum.pipeline.sink.digests import ALL_BITS, rest_of, row_digests, total_of
from vivum.storage.errors import StorageError
from vivum.storage.segment_files import force_directory, write_whole

FORMAT_OF_STATE = 2
STAGED_SCHEMA = pyarrow.schema([("topic", pyarrow.string()), ("payload", pyarrow.binary())])
_LOCK_POLL_S = 0.05

BATCHES_MAX = 1000
"""Published batches whose digests are kept, to recognise them should Spark begin again at an earlier one."""


@dataclass(frozen=True)
class StagedPart(datasource.WriterCommitMessage):
    """What one task staged; no file where it had no rows."""

    file: str | None
    topics: dict[str, int]
    """How many rows it has of each topic."""

    digest: int = 0
    """One number for all its rows, in any order."""

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(self.topics.values())


class SinkState(msgspec.Struct, frozen=True):
    """The last batch that was sealed."""

    batch: int
    files: tuple[str, ...]
    topics: dict[str, int]
    """How many messages of each topic the files have."""

    begins: dict[str, int]
    """The position of the first of them, in each topic."""

    digests: tuple[str, ...]
    """Files with the digests of all that is sealed of this batch, also of what was published before."""

    is_published: bool
    earlier: dict[int, tuple[int, int]] = {}
    """Rows and digest of batches that were published, this one not among them."""

    format: int = FORMAT_OF_STATE


class SinkFolder:
    """The folder of one query. With `is_private`, made so that only this user can read it."""

    def __init__(self, folder: str, *, is_private: bool = False) -> None:
        self.path = Path(folder)
        self._mode = 0o700 if is_private else 0o777
        self._staged = self.path / "staged"
        self._state = self.path / "state.json"

    def stage(self, batches: Iterator[Any]) -> StagedPart:
        """Write the results of a task, whole and on the disk. Called on executors."""
        name = f"{uuid.uuid4()}.arrow"
        part, digests, topics = self._staged / f"{name}.part", [], Counter[str]()
        try:
            first = next(batches, None)
            if first is None:
                return StagedPart(None, {})
            self._make()
            self._staged.mkdir(exist_ok=True)
            with part.open("wb") as file:
                with pyarrow.ipc.new_file(file, STAGED_SCHEMA) as writer:
                    while first is not None:
                        writer.write_batch(first)
                        digests.append(row_digests(first))
                        for each in first.column("topic").value_counts().to_pylist():
                            topics[each["values"]] += each["counts"]
                        first = next(batches, None)
                file.flush()
                os.fsync(file.fileno())
            found = numpy.concatenate(digests)
            with (self._staged / _digests_of(name)).open("wb") as file:
                file.write(found.tobytes())
                file.flush()
                os.fsync(file.fileno())
            part.rename(self._staged / name)
            force_directory(self._staged)
        except OSError as error:
            raise StorageError(f"cannot stage results in {self._staged}: {error.strerror or error}") from error
        finally:
            with suppress(OSError):
                part.unlink()
        return StagedPart(name, dict(topics), total_of(found))

    def _make(self) -> None:
        self.path.mkdir(self._mode, parents=True, exist_ok=True)

    def read_staged(self, file: str) -> Iterator[Any]:
        """Read back what a task staged."""
        path = self._staged / file
        try:
            with pyarrow.memory_map(str(path)) as mapped, pyarrow.ipc.open_file(mapped) as reader:
                for number in range(reader.num_record_batches):
                    yield reader.get_batch(number)
        except FileNotFoundError:
            raise StorageError(
                f"{path} is not there; the option 'staging' must name a directory that driver and executors share"
            ) from None
        except pyarrow.ArrowInvalid as error:
            raise StorageError(f"{path} is damaged: {error}") from error

    @contextmanager
    def locked(self, timeout_s: float) -> Iterator[None]:
        """Be the only one who publishes for this query: a driver that died may leave a worker that still does."""
        try:
            self._make()
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StorageError(f"cannot write {self.path}: {error.strerror}") from error
        try:
            until = time.monotonic() + timeout_s
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise HostError(
                            f"another process has been publishing from {self.path} for {timeout_s:g} s; stop it first"
                        ) from None
                    time.sleep(_LOCK_POLL_S)
            yield
        finally:
            os.close(handle)

    def state(self) -> SinkState | None:
        """Return how far the query is; None if it has published nothing yet."""
        try:
            found = msgspec.json.decode(self._state.read_bytes(), type=SinkState)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise StorageError(f"cannot read {self._state}: {error}; what is published is not known") from error
        if found.format != FORMAT_OF_STATE:
            raise StorageError(f"{self._state} has format {found.format}, this version reads {FORMAT_OF_STATE}")
        return found

    def seal(self, batch: int, parts: Sequence[StagedPart], after: SinkState | None) -> SinkState:
        """Fix what a batch consists of, in the order of its tasks. `after` is the state before."""
        topics: Counter[str] = Counter()
        for each in parts:
            topics.update(each.topics)
        files = tuple(each.file for each in parts if each.file is not None)
        begins: dict[str, int] = {}
        digests = tuple(map(_digests_of, files))
        earlier: dict[int, tuple[int, int]] = {}
        if after is not None:
            earlier = dict(list(after.earlier.items())[-BATCHES_MAX:])
            if after.batch == batch:
                # What Spark added to a batch goes on behind what was published of it.
                begins = {each: after.begins.get(each, 0) + after.topics.get(each, 0)
                          for each in {*after.begins, *after.topics}}  # fmt: skip
                digests = after.digests + digests
            else:
                known = self.digests(after)
                earlier[after.batch] = len(known), total_of(known)
        return self._write(SinkState(batch, files, dict(sorted(topics.items())), begins, digests, not files, earlier))

    def note_published(self, state: SinkState) -> SinkState:
        """All of it is at its receivers; its files are not needed any more, nor those of tasks that failed."""
        state = self._write(msgspec.structs.replace(state, files=(), is_published=True))
        with suppress(FileNotFoundError):
            for each in self._staged.iterdir():
                if each.name not in state.digests:
                    each.unlink(missing_ok=True)
        return state

    def digests(self, state: SinkState) -> Any:
        """Read a number for each row that is sealed of the last batch."""
        try:
            found = [numpy.frombuffer((self._staged / each).read_bytes(), "uint64") for each in state.digests]
        except OSError as error:
            raise StorageError(
                f"cannot read {self._staged}: {error.strerror}; what is published is not known"
            ) from error
        return numpy.concatenate([*found, numpy.empty(0, "uint64")])

    def unsealed(self, state: SinkState, parts: Sequence[StagedPart]) -> list[StagedPart] | None:
        """Stage the rows that Spark has now and that were not sealed; None if it lacks rows that were."""
        known = self.digests(state)
        if (sum(each.rows for each in parts), sum(each.digest for each in parts) & ALL_BITS) == (
            len(known), total_of(known),
        ):  # fmt: skip
            return []
        names = [each.file for each in parts if each.file is not None]
        new = [numpy.frombuffer((self._staged / _digests_of(each)).read_bytes(), "uint64") for each in names]
        is_new = rest_of(numpy.concatenate([*new, numpy.empty(0, "uint64")]), known)
        if is_new is None:
            return None
        marks = iter(numpy.split(is_new, numpy.cumsum([len(each) for each in new])))
        return [self.stage(self._marked(name, next(marks))) for name in names]

    def _marked(self, file: str, marks: Any) -> Iterator[Any]:
        begin = 0
        for batch in self.read_staged(file):
            chosen = marks[begin : begin + len(batch)]
            begin += len(batch)
            if chosen.any():
                yield batch.filter(pyarrow.array(chosen))

    def discard(self, parts: Sequence[StagedPart | None]) -> None:
        """Delete what was staged, unless it is sealed."""
        state = self.state()
        for each in parts:
            if each is not None and each.file is not None and (state is None or each.file not in state.files):
                (self._staged / each.file).unlink(missing_ok=True)
                (self._staged / _digests_of(each.file)).unlink(missing_ok=True)

    def remove(self) -> None:
        """Delete the folder: the query is over."""
        for folder in (self._staged, self.path):
            with suppress(OSError):
                for each in folder.iterdir():
                    each.unlink(missing_ok=True)
            with suppress(OSError):
                folder.rmdir()

    def _write(self, state: SinkState) -> SinkState:
        try:
            write_whole(self._state, msgspec.json.encode(state))
        except OSError as error:
            raise StorageError(f"cannot write {self._state}: {error.strerror}") from error
        return state


def _digests_of(file: str) -> str:
    return f"{file.removesuffix('.arrow')}.digests"
