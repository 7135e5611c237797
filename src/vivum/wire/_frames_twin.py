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
    TOTAL,
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
    """One frame inside a received buffer, made and validated by `split`. Immutable; compared by identity.

    Or several of a train, made by `split_trains`: then `count` says how many. They follow each other, were sealed at
    the same time, and have the same length but for the last, which may be shorter.
    """

    kind: Kind
    length: int
    """Bytes of the whole frame, header and padding included; of several, of each but the last."""

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
    """Number of the frame in its stream; of several, of the first."""

    sent_ns: int
    """Sender's clock when the frame was sealed."""

    data: bytes
    """The whole buffer that the frame is in. Holding a frame holds all of it."""

    start: int
    """Offset of the frame in `data`."""

    count: int
    """How many frames there are."""

    size: int
    """Bytes of all of them."""

    @property
    def stop(self) -> int:
        """One past the number of the last frame."""
        return self.sequence + self.count

    def part(self, start: int, stop: int) -> "Frame":
        """Return the frames `start <= n < stop` of these, at least one, by their numbers."""
        if not self.sequence <= start < stop <= self.stop:
            raise refusals.no_part(start, stop)
        return self if stop - start == self.count else self._part(start - self.sequence, stop - self.sequence)

    def _part(self, first: int, end: int) -> "Frame":
        size = min(end * self.length, self.size) - first * self.length
        length = min(self.length, size)
        sequence, start = self.sequence + first, self.start + first * self.length
        return msgspec.structs.replace(
            self, length=length, sequence=sequence, start=start, count=end - first, size=size
        )

    def compact(self) -> "Frame":
        """Return the same frames in a buffer of their own, if they would hold one of more than twice their size."""
        if 2 * self.size >= len(self.data):
            return self
        return msgspec.structs.replace(self, data=self.to_bytes(), start=0)

    def cut(self) -> "list[Frame]":
        """Return the frames one by one."""
        return [self] if self.count == 1 else [self._part(number, number + 1) for number in range(self.count)]

    @property
    def body_start(self) -> int:
        """Offset of the body in `data`."""
        return self.start + HEADER_BYTES

    @property
    def body_stop(self) -> int:
        """Offset of the first byte of `data` behind this frame."""
        return self.start + self.size

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
        for frame in self.cut():
            data, at, stop = frame.data, frame.body_start, frame.body_stop
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
        which = f"#{self.sequence}" if self.count < 2 else f"#{self.sequence} to #{self.stop - 1}"
        return (
            f"Frame({self.kind.name} {which} of {self.sender}.{self.incarnation}"
            f" in region {self.region} view {self.view}, {self.size} bytes)"
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
                1,
                length,
            )
        )
        at += length
    return frames


def split_trains(data: Buffer) -> list[Frame]:
    """Cut a received buffer as `split` does, but leave together what follows each other in a train.

    So that nothing is done for each frame of it in Python; `Frame.cut` returns them one by one.
    """
    trains: list[Frame] = []
    for frame in split(data):
        train = trains[-1] if trains else None
        if train is not None and frame.kind in MESSAGE_KINDS and _follows(train, frame):
            trains[-1] = msgspec.structs.replace(train, count=train.count + 1, size=train.size + frame.length)
        else:
            trains.append(frame)
    return trains


def _follows(train: Frame, frame: Frame) -> bool:
    """Return whether a frame is the next of a train: as its last, which was full, with the next number."""
    is_alike = (frame.kind, frame.domain, frame.key_epoch, frame.stream, frame.sequence, frame.sent_ns) == (
        train.kind,
        train.domain,
        train.key_epoch,
        train.stream,
        train.stop,
        train.sent_ns,
    )
    return is_alike and frame.length <= train.length and train.size == train.count * train.length


def single_frames(frames: list[Frame]) -> list[Frame]:
    """Return the frames of a list one by one: the list itself, if none of it has several."""
    if all(frame.count == 1 for frame in frames):
        return frames
    return [single for frame in frames for single in frame.cut()]


def consecutive(frames: list[Frame], start: int = 0) -> int:
    """Count what follows each other in one stream from index `start` on, all of one kind; 0 past the end."""
    stop = len(frames)
    index = require(start, "start", 0, stop)
    if index == stop:
        return 0
    before = frames[index]
    index += 1
    while index < stop:
        frame = frames[index]
        if (frame.kind, frame.stream, frame.sequence) != (before.kind, before.stream, before.stop):
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


def _packed_run(frames: list[Frame], payloads: list[bytes]) -> PackedRun | None:
    """Make a run of messages that are not cut; None if most of what it would hold is not its own."""
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


class _Taking:
    """The work of `take_runs`: the run under way, and those before it."""

    def __init__(self, frames: list[Frame], messages_max: int, packed: Set[int], joined_max: int) -> None:
        frames = self.frames = single_frames(frames)
        self.found = [_behind_list(frame)[1] for frame in frames]
        self.messages_max, self.packed, self.joined_max = messages_max, packed, joined_max
        self.runs: list[tuple[int, int, int, int, list[bytes] | PackedRun]] = []
        # The run under way, None if there is none: its messages, its frames, the first of them and its place, its
        # group, the number of its first message, the flag of its first, and whether it could be left uncut.
        self.payloads: list[bytes] | None = None
        self.span: list[Frame] = []
        self.index = self.group = self.first = self.flags = 0
        self.is_whole = False

    def begin(self, at: int, group: int, first: int, flags: int) -> None:
        self.end(0)
        self.payloads, self.span = [], [self.frames[at]]
        self.index, self.group, self.first, self.flags = at, group, first, flags & FLAG_CONTINUES
        self.is_whole = not flags and group in self.packed and len(self.found[at]) == 1

    def end(self, flags: int) -> None:
        """End the run under way, whose last message may go on elsewhere."""
        if self.payloads is None:
            return
        run = _packed_run(self.span, self.payloads) if self.is_whole else None
        self.runs.append((self.index, self.group, self.first, self.flags | flags, run or self.payloads))
        self.payloads = None

    def has_room(self, count: int) -> bool:
        return self.payloads is not None and len(self.payloads) + count <= self.messages_max

    def goes_on(self, at: int) -> bool:
        """Return whether a frame begins with what goes on with the run under way."""
        if self.payloads is None or self.group == GROUP_MAX or not self.found[at]:
            return False
        group, first, flags, payloads = self.found[at][0]
        may_be_cut = self.joined_max > 0 and group not in self.packed
        return (
            (group, first) == (self.group, self.first + len(self.payloads))
            and self.frames[at].sent_ns == self.frames[at - 1].sent_ns
            and self.has_room(len(payloads))
            and (may_be_cut or not (self.flags or flags))
            and not flags & FLAG_CONTINUES
            # Those that may stay uncut are not joined with others.
            and (group not in self.packed or (len(self.found[at]) == 1) == (len(self.found[self.index]) == 1))
        )

    def pieces_of(self, at: int, group: int, sequence: int) -> tuple[list[bytes], int, bool]:
        """Find the pieces of a message with which the frames behind one begin.

        Return them, the last of these frames, and whether it has the last of the pieces.
        """
        pieces: list[bytes] = []
        for stop in range(at + 1, len(self.frames) if self.joined_max else 0):
            runs = self.found[stop]
            if not runs or self.frames[stop].sent_ns != self.frames[at].sent_ns:
                break
            found, first, flags, payloads = runs[0]
            if (found, first) != (group, sequence) or not flags & FLAG_CONTINUES:
                break
            is_last = len(payloads) > 1 or not flags & FLAG_MORE
            if not is_last and len(runs) > 1:
                break
            pieces.append(payloads[0])
            if is_last:
                return pieces, stop, True
        return pieces, at + len(pieces), False

    def take(self, at: int, is_begun: bool) -> tuple[int, bool]:
        """Take a frame, of which the first piece may have been taken before.

        Return which comes next, and whether its first piece has been taken.
        """
        if not self.found[at]:
            self.end(0)
        goes_on = is_begun or self.goes_on(at)
        for place, (group, first, flags, payloads) in enumerate(self.found[at]):
            is_last = place + 1 == len(self.found[at])
            is_piece = flags & FLAG_CONTINUES and flags & FLAG_MORE and len(payloads) == 1
            if goes_on:
                if not is_begun:
                    self.span.append(self.frames[at])
            else:
                self.begin(at, group, first, flags)
            assert self.payloads is not None
            self.payloads += payloads[is_begun : -1 if flags & FLAG_MORE else len(payloads)]
            if flags & FLAG_MORE:
                return_to = self.take_cut(at, group, first + len(payloads) - 1, payloads[-1], is_piece, is_last)
                if return_to != (at, False):
                    return return_to
            goes_on = is_begun = False
        return at + 1, False

    def take_cut(
        self, at: int, group: int, sequence: int, piece: bytes, is_piece: int, is_last: bool
    ) -> tuple[int, bool]:
        """Take the last message of a run, which goes on elsewhere, with as much of it as there is.

        Return which frame comes next, and whether its first piece has been taken; this one and False if there is no
        more of it.
        """
        assert self.payloads is not None
        pieces, stop, is_ended = self.pieces_of(at, group, sequence) if is_last else ([], at, False)
        more = b"".join(pieces)
        size = len(piece) + len(more)
        total = size
        if not is_piece:
            size -= TOTAL_BYTES
            (total,) = TOTAL.unpack_from(piece)
        is_sound = bool(pieces) and total <= self.joined_max
        if is_ended and is_sound and size == total and self.has_room(len(self.found[stop][0][3])):
            self.payloads.append((piece if is_piece else piece[TOTAL_BYTES:]) + more)
            return stop, True
        if not is_ended and is_sound and (is_piece or size < total):
            self.payloads.append(piece + more)
            self.end(FLAG_MORE)
            return stop + 1, False
        self.payloads.append(piece)
        self.end(FLAG_MORE)
        return at, False


def take_runs(
    frames: list[Frame], messages_max: int, packed: Set[int] = frozenset(), joined_max: int = 0
) -> list[tuple[int, int, int, int, list[bytes] | PackedRun]]:
    """Take the messages of frames out, in runs, each with the index of its first frame before it.

    Frames count one by one there, also those of a train.

    Runs are as `Frame.messages` gives them, but the list with which a SPREAD frame begins is left out. Where the first
    run of a frame goes on with the last of the frame before, both sealed at the same time, they are one, of no more
    than `messages_max` messages if it is of several. Messages of up to `joined_max` bytes that were cut between such
    frames are joined as far as their pieces are there, so that only the first and the last of a run may be pieces; with
    0 pieces stay as they are, and are in runs of their own. Runs of group `GROUP_MAX` are never joined.

    Messages of a group in `packed` are not cut where frames have nothing else in them, unless that would hold on to
    more than twice their bytes. Of such a group, frames that have nothing else are not joined with others.
    """
    require(messages_max, "messages_max", 0, U64_MAX)
    require(joined_max, "joined_max", 0, U64_MAX)
    taking = _Taking(frames, messages_max, packed, joined_max)
    at, is_begun = 0, False
    while at < len(taking.frames):
        at, is_begun = taking.take(at, is_begun)
    taking.end(0)
    return taking.runs
