"""A batch: consecutive entries of one term, the unit in which the log is kept, sent, persisted and acknowledged.

The bytes are made once, by the leader that appends the batch, and stay the same on the wire, in memory and on the disk
of every replica; so does their checksum. What is done for each entry is done by `struct` and slices, in C.

Invariants: a batch has at least one entry, and only batches of commands have more than one; the first index is 1, and
every term at least 1 but that of the founders' configuration, which is 0.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import accumulate, pairwise
from struct import Struct, unpack_from
from struct import pack as pack_numbers
from zlib import crc32

from vivum.core.errors import DecodeError
from vivum.wire.consensus import TERM_MAX

_HEADER = Struct("<IBxxxQIIQQQQQ")
BATCH_HEADER_BYTES = _HEADER.size
_CHECKSUM_BYTES = 4
_LENGTH_BYTES = 4

COMMANDS_MAX = 65_536
"""Commands of one batch: bounds what a batch of empty ones makes of a frame."""


class BatchKind(IntEnum):
    """What the entries of a batch are. The numbers are on the wire and on disks, and never change their meaning."""

    NOOP = 0
    COMMANDS = 1
    CONFIGURATION = 2
    OPEN_SESSION = 3


_KINDS = {int(kind): kind for kind in BatchKind}


class EntryBatch:
    """One batch, with its header read. Made by `seal_batch` and `split_batches` alone, so it is always valid."""

    __slots__ = ("client", "data", "first", "heard", "kind", "last", "sequence", "term", "time_ns")

    def __init__(self, data: bytes, header: tuple[int, ...], kind: BatchKind) -> None:
        _, _, self.first, count, _, self.term, self.time_ns, self.client, self.sequence, self.heard = header
        self.last = self.first + count - 1
        self.kind = kind
        self.data = data

    @property
    def checksum(self) -> int:
        """The CRC-32 of all behind it: what tells two batches apart."""
        return int.from_bytes(self.data[:_CHECKSUM_BYTES], "little")

    @property
    def count(self) -> int:
        """The number of entries."""
        return self.last - self.first + 1

    @property
    def body(self) -> bytes:
        """What is behind the header."""
        return self.data[BATCH_HEADER_BYTES:]

    def commands(self) -> list[bytes]:
        """Cut the body into its commands."""
        data, count = self.data, self.last - self.first + 1
        lengths = unpack_from(f"<{count}I", data, BATCH_HEADER_BYTES)
        stops = accumulate(lengths, initial=BATCH_HEADER_BYTES + _LENGTH_BYTES * count)
        return [data[start:stop] for start, stop in pairwise(stops)]

    def __repr__(self) -> str:
        return f"<{self.kind.name} {self.first}..{self.last} of term {self.term}>"


def seal_batch(
    kind: BatchKind,
    first: int,
    term: int,
    time_ns: int,
    body: bytes = b"",
    count: int = 1,
    client: int = 0,
    sequence: int = 0,
    heard: int = 0,
) -> EntryBatch:
    """Make a batch whose first entry has this index."""
    header = (0, kind, first, count, len(body), term, time_ns, client, sequence, heard)
    content = _HEADER.pack(*header)[_CHECKSUM_BYTES:] + body
    return EntryBatch(crc32(content).to_bytes(_CHECKSUM_BYTES, "little") + content, header, kind)


def pack_commands(commands: Sequence[bytes]) -> bytes:
    """Make the body of a batch of commands."""
    return pack_numbers(f"<{len(commands)}I", *map(len, commands)) + b"".join(commands)


def unpack_commands(content: bytes, count: int) -> list[bytes] | None:
    """Cut what `pack_commands` made into commands; None if they do not fill it."""
    head = _LENGTH_BYTES * count
    if len(content) < head:
        return None
    stops = list(accumulate(unpack_from(f"<{count}I", content), initial=head))
    if stops[-1] != len(content):
        return None
    return [content[start:stop] for start, stop in pairwise(stops)]


def packed_bytes(commands: Sequence[bytes]) -> int:
    """Return how many bytes a batch of these commands has."""
    return BATCH_HEADER_BYTES + _LENGTH_BYTES * len(commands) + sum(map(len, commands))


def split_batches(content: bytes) -> Iterator[EntryBatch]:
    """Cut what came from a peer or a disk into batches; raises `DecodeError` where that cannot be.

    Checks each batch by itself; what it says of its place in a log is for the log to check.
    """
    at, size = 0, len(content)
    while at < size:
        if size - at < BATCH_HEADER_BYTES:
            raise DecodeError(f"batch at {at} has {size - at} bytes; expected a header of {BATCH_HEADER_BYTES}")
        header = _HEADER.unpack_from(content, at)
        checksum, number, first, count, body_bytes, term, *rest = header
        stop = at + BATCH_HEADER_BYTES + body_bytes
        if stop > size:
            raise DecodeError(f"batch at {at} states {body_bytes} bytes; {size - at - BATCH_HEADER_BYTES} are there")
        data = content if at == 0 and stop == size else content[at:stop]
        if crc32(memoryview(data)[_CHECKSUM_BYTES:]) != checksum:
            raise DecodeError(f"batch at {at} does not have its checksum")
        kind = _KINDS.get(number)
        if kind is None:
            raise DecodeError(f"batch at {at} has unknown kind {number}; a newer Vivum may have made it")
        if max(first + count, term, *rest) > TERM_MAX or not first or not count:
            raise DecodeError(f"batch at {at} has a number that no log has")
        if kind is BatchKind.COMMANDS:
            lengths_bytes = _LENGTH_BYTES * count
            if count > COMMANDS_MAX or lengths_bytes > body_bytes:
                raise DecodeError(f"batch at {at} states {count} commands; they do not fit")
            if sum(unpack_from(f"<{count}I", data, BATCH_HEADER_BYTES)) + lengths_bytes != body_bytes:
                raise DecodeError(f"batch at {at}: its commands do not fill it")
        elif count != 1:
            raise DecodeError(f"batch at {at}: {kind.name} with {count} entries")
        yield EntryBatch(data, header, kind)
        at = stop
