"""The way in, in plain Python: buffers cut into frames, frames into messages. `_codec_twin` exports it.

Same names as `_frames.pyx` and same behaviour to the byte and to the error; change both or neither.
"""

from collections.abc import Iterator, Sequence, Set
from typing import final, overload

import msgspec

from vivum.wire import refusals
from vivum.wire._arguments import require
from vivum.wire.kinds import Kind
from vivum.wire.layout import (
    FLAG_CONTINUES,
    FLAG_MORE,
    FRAME_BYTES_MAX,
    GROUP_MAX,
    HEADER,
    HEADER_BYTES,
    KNOWN_KINDS,
    LENGTH_BYTES,
    MESSAGE_KINDS,
    RUN_HEADER,
    RUN_HEADER_BYTES,
    SEQUENCE_MAX,
    TOTAL_BYTES,
    U64_MAX,
    VERSION,
)
from vivum.wire.refusals import BodyFault
from vivum.wire.spread import LIST_SEQUENCE

Buffer = bytes | bytearray | memoryview
Run = tuple[int, int, int, list[bytes]]

_FLAGS = FLAG_CONTINUES | FLAG_MORE
_KIND_OF = {int(kind): kind for kind in Kind}


@final
class Frame(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One frame inside a received buffer, made and validated by `split`. Immutable; compared by identity."""

    kind: Kind
    length: int
    """Bytes of the whole frame, header and padding included."""

    domain: int
    """Tag of the domain's name; the gate compares it."""

    sender: int
    """Node id of the sender that numbered the frame."""

    incarnation: int
    """Life of that sender."""

    key_epoch: int
    """0: not sealed."""

    region: int
    """Region of the stream, or the group where a protocol numbers by group."""

    view: int
    """View of that region."""

    sequence: int
    """Number of the frame in its stream."""

    sent_ns: int
    """Sender's clock when the frame was sealed."""

    data: bytes
    """The whole buffer that the frame is in. Holding a frame holds all of it."""

    start: int
    """Offset of the frame in `data`."""

    @property
    def body_start(self) -> int:
        """Offset of the body in `data`."""
        return self.start + HEADER_BYTES

    @property
    def body_stop(self) -> int:
        """Offset of the first byte of `data` behind this frame."""
        return self.start + self.length

    @property
    def stream(self) -> tuple[int, int, int, int]:
        """Name of the stream: sender, incarnation, region, view."""
        return (self.sender, self.incarnation, self.region, self.view)

    def messages(self) -> list[Run]:
        """Copy out all runs: group, sequence of the first, flags, payloads. Cannot fail.

        With `FLAG_CONTINUES` the first payload is not the beginning of its message, with `FLAG_MORE` the last is not
        its end: a `Joiner` takes such runs.
        """
        runs: list[Run] = []
        if self.kind not in MESSAGE_KINDS:
            return runs
        data, at, stop = self.data, self.body_start, self.body_stop
        while stop - at >= RUN_HEADER_BYTES:
            tag, first, count = RUN_HEADER.unpack_from(data, at)
            if count == 0:
                break
            at += RUN_HEADER_BYTES
            payloads = []
            for _ in range(count):
                size = data[at] | data[at + 1] << 8
                at += LENGTH_BYTES
                payloads.append(data[at : at + size])
                at += size
            runs.append((tag & GROUP_MAX, first, tag & _FLAGS, payloads))
        return runs

    def body(self) -> bytes:
        """Copy the body out, padding included."""
        return self.data[self.body_start : self.body_stop]

    def to_bytes(self) -> bytes:
        """Return the whole frame, without a copy when it is all of `data`."""
        return self.data[self.start : self.body_stop]

    def __repr__(self) -> str:
        return (
            f"Frame({self.kind.name} #{self.sequence} of {self.sender}.{self.incarnation}"
            f" in region {self.region} view {self.view}, {self.length} bytes)"
        )


def _check_body(data: bytes, at: int, stop: int) -> None:
    while stop - at >= RUN_HEADER_BYTES:
        run_at = at
        tag, first, count = RUN_HEADER.unpack_from(data, at)
        if count == 0:
            break
        flags = tag & _FLAGS
        if first > SEQUENCE_MAX - (count - 1):
            raise refusals.bad_body(BodyFault.SEQUENCE, run_at)
        at += RUN_HEADER_BYTES
        size = 0
        for _ in range(count):
            if stop - at < LENGTH_BYTES:
                raise refusals.bad_body(BodyFault.TORN, run_at)
            size = data[at] | data[at + 1] << 8
            at += LENGTH_BYTES
            if stop - at < size:
                raise refusals.bad_body(BodyFault.TORN, run_at)
            at += size
        if flags:
            front = run_at + RUN_HEADER_BYTES
            if flags & FLAG_CONTINUES and data[front] | data[front + 1] << 8 == 0:
                raise refusals.bad_body(BodyFault.FRAGMENT, run_at)
            if flags & FLAG_MORE and size <= (0 if flags & FLAG_CONTINUES and count == 1 else TOTAL_BYTES):
                raise refusals.bad_body(BodyFault.FRAGMENT, run_at)
    if data.count(0, at, stop) != stop - at:
        raise refusals.bad_body(BodyFault.PADDING, at)


def split(data: Buffer) -> list[Frame]:
    """Cut a received buffer into its frames, all of them checked to the last byte.

    Raises `VersionError` or another `DecodeError` for the whole buffer if any frame in it is bad. What is not
    `bytes` is copied once, since callers use their receive buffers again.
    """
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise refusals.not_bytes_like("data", data)
    if type(data) is not bytes:
        data = bytes(data)
    if not data:
        raise refusals.empty_buffer()
    frames = []
    at, total = 0, len(data)
    while at < total:
        left = total - at
        if data[at] != VERSION:
            raise refusals.wrong_version(data[at], at)
        if left < HEADER_BYTES:
            raise refusals.torn_header(at, left)
        _, kind, length, domain, sender, incarnation, epoch, region, view, sequence, sent_ns = HEADER.unpack_from(
            data, at
        )
        if kind not in KNOWN_KINDS:
            raise refusals.unknown_kind(kind, at)
        if not HEADER_BYTES <= length <= min(left, FRAME_BYTES_MAX):
            raise refusals.wrong_length(length, at, left)
        if sequence > SEQUENCE_MAX:
            raise refusals.frame_sequence(at)
        if kind in MESSAGE_KINDS:
            _check_body(data, at + HEADER_BYTES, at + length)
        frames.append(
            Frame(
                _KIND_OF[kind],
                length,
                domain,
                sender,
                incarnation,
                epoch,
                region,
                view,
                sequence,
                sent_ns,
                data,
                at,
            )
        )
        at += length
    return frames


def consecutive(frames: list[Frame], start: int = 0) -> int:
    """Count the frames from index `start` on that follow each other in one stream, all of one kind; 0 past the end."""
    stop = len(frames)
    index = require(start, "start", 0, stop)
    if index == stop:
        return 0
    before = frames[index]
    index += 1
    while index < stop:
        frame = frames[index]
        if (frame.kind, frame.stream, frame.sequence) != (before.kind, before.stream, before.sequence + 1):
            break
        before = frame
        index += 1
    return index - start


@final
class PackedRun(Sequence[bytes]):
    """Messages that were not cut, for code that keeps them as they are and needs no object for each.

    A sequence of payloads like any other, which cuts anew for every look: a caller that wants to have the messages
    calls `cut` once. It keeps what was received in memory. Only `take_runs` makes one.
    """

    __slots__ = ("_count", "_pieces", "held_bytes", "payload_bytes")

    payload_bytes: int
    """Bytes of all messages."""

    held_bytes: int
    """Bytes that are kept in memory by this."""

    _count: int
    _pieces: list[tuple[bytes, int, int]]

    def __init__(self) -> None:
        raise refusals.made_by_take_runs()

    @property
    def pieces(self) -> list[tuple[bytes, int, int]]:
        """For each frame: what was received, where the length of its first message is in there, how many it has.

        They lie one behind the other, each behind its length of two bytes, and were checked by `split`.
        """
        return list(self._pieces)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.cut())

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        return self.cut()[index]

    def cut(self) -> list[bytes]:
        """Copy the messages out."""
        payloads = []
        for data, at, count in self._pieces:
            for _ in range(count):
                size = data[at] | data[at + 1] << 8
                at += LENGTH_BYTES
                payloads.append(data[at : at + size])
                at += size
        return payloads

    def extend(self, other: "PackedRun") -> None:
        """Add the messages of another run behind those of this."""
        if type(other) is not PackedRun:
            raise TypeError("a packed run is extended by another")
        self._pieces += other._pieces
        self.payload_bytes += other.payload_bytes
        self.held_bytes += other.held_bytes
        self._count += other._count

    def __repr__(self) -> str:
        return f"PackedRun({self._count} messages, {self.payload_bytes} bytes)"


def _behind_list(frame: Frame) -> tuple[int, list[Run]]:
    """Copy the messages out of `data`, without a list of regions if there is one; return where they begin."""
    found = frame.messages()
    if found and found[0][:3] == (GROUP_MAX, LIST_SEQUENCE, 0) and len(found[0][3]) == 1:
        return frame.body_start + RUN_HEADER_BYTES + LENGTH_BYTES + len(found[0][3][0]), found[1:]
    return frame.body_start, found


def _packed_run(frames: list[Frame], found: Run, packed: Set[int]) -> PackedRun | None:
    """Make a run of messages that are not cut; None if that was not asked for or cannot be.

    It cannot be if the frames have others in them too, or most of what it would hold is not its own.
    """
    group, _, flags, payloads = found
    if flags or group not in packed or any(len(_behind_list(frame)[1]) != 1 for frame in frames):
        return None
    run = PackedRun.__new__(PackedRun)
    run._pieces = []
    run.payload_bytes, run._count = sum(map(len, payloads)), len(payloads)
    run.held_bytes = 0
    before = None
    for frame in frames:
        begin = _behind_list(frame)[0]
        run._pieces.append((frame.data, begin + RUN_HEADER_BYTES, RUN_HEADER.unpack_from(frame.data, begin)[2]))
        if frame.data is not before:
            before = frame.data
            run.held_bytes += len(before)
    return run if run.payload_bytes >= run.held_bytes // 2 else None


def take_runs(
    frames: list[Frame], messages_max: int, packed: Set[int] = frozenset()
) -> list[tuple[int, int, int, int, list[bytes] | PackedRun]]:
    """Take the messages of frames out, in runs, each with the index of its first frame before it.

    Runs are as `Frame.messages` gives them, but the list with which a SPREAD frame begins is left out. Where the first
    run of a frame goes on with the last of the frame before, both without flags and sealed at the same time, they are
    one, of no more than `messages_max` messages if it is of several. Runs of group `GROUP_MAX` are never joined.
    Messages of a group in `packed` are not cut where frames have nothing else in them, unless that would hold on to
    more than twice their bytes. Of such a group, frames that have nothing else are not joined with others.
    """
    require(messages_max, "messages_max", 0, U64_MAX)
    # Runs with all frames that they are of, and the index of the first.
    spans: list[tuple[int, list[Frame], Run]] = []
    before: list[Run] = []
    for at, frame in enumerate(frames):
        _, found = _behind_list(frame)
        rest = found
        if found and before and frame.sent_ns == frames[at - 1].sent_ns:
            _, span, (group, first, flags, payloads) = spans[-1]
            more = found[0][3]
            if (
                # Numbers of marks are no sequence, and pieces of messages are joined by others.
                not (group == GROUP_MAX or flags)
                and found[0][:3] == (group, first + len(payloads), 0)
                and len(payloads) + len(more) <= messages_max
                # Those that may stay uncut are not joined with others.
                and (group not in packed or (len(found) == 1) == (len(before) == 1))
            ):
                payloads += more
                span.append(frame)
                rest = found[1:]
        spans += [(at, [frame], run) for run in rest]
        before = found
    return [(at, *run[:3], _packed_run(span, run, packed) or run[3]) for at, span, run in spans]
