"""The codec in plain Python, for where the compiled one was not built. Format: `docs/design/wire.md`.

Same names as `_codec.pyx` and same behaviour to the byte and to the error; change both or neither. Read this
one first: the compiled module is the same program with pointers. Types and meanings of both are told here.
"""

from typing import TYPE_CHECKING, final

from vivum.wire import refusals
from vivum.wire._arguments import bytes_of, require
from vivum.wire._frames_twin import Frame, PackedRun, consecutive, single_frames, split, split_trains, take_runs
from vivum.wire._relabel_twin import relabel, resend
from vivum.wire._window_twin import SequenceWindow, measure
from vivum.wire.layout import (
    BEYOND,
    CAPACITY_MIN,
    COUNT_MAX,
    DUPLICATE,
    FLAG_CONTINUES,
    FLAG_MORE,
    FRAME_BYTES_MAX,
    GROUP_MAX,
    HEADER,
    HEADER_BYTES,
    KNOWN_KINDS,
    LENGTH,
    LENGTH_BYTES,
    MESSAGE_KINDS,
    NEW,
    RUN_HEADER,
    RUN_HEADER_BYTES,
    SEQUENCE_MAX,
    TOTAL,
    TOTAL_BYTES,
    U16_MAX,
    U32_MAX,
    U64_MAX,
    VERSION,
    WINDOW_MAX,
    WORTHWHILE_PART,
)
from vivum.wire.trains import Train, couple, frames_in_train

if TYPE_CHECKING:
    from vivum.wire._frame_bytes import FrameMemory

__all__ = [
    "BEYOND",
    "CAPACITY_MIN",
    "COUNT_MAX",
    "DUPLICATE",
    "FLAG_CONTINUES",
    "FLAG_MORE",
    "FRAME_BYTES_MAX",
    "GROUP_MAX",
    "HEADER_BYTES",
    "NEW",
    "RUN_HEADER_BYTES",
    "SEQUENCE_MAX",
    "VERSION",
    "WINDOW_MAX",
    "Frame",
    "FrameBuilder",
    "PackedRun",
    "SequenceWindow",
    "Stops",
    "consecutive",
    "measure",
    "relabel",
    "resend",
    "seal_control",
    "single_frames",
    "split",
    "split_trains",
    "take_runs",
]

Buffer = bytes | bytearray | memoryview
Part = tuple[int, int, list[bytes], int, int]

_CONTROL_KINDS = KNOWN_KINDS - MESSAGE_KINDS


def _header(
    kinds: frozenset[int],
    length: int,
    kind: int,
    domain: int,
    sender: int,
    incarnation: int,
    region: int,
    view: int,
    sequence: int,
    sent_ns: int,
    key_epoch: int,
) -> bytes:
    require(kind, "kind", 0, 255)
    if kind not in kinds:
        raise refusals.wrong_kind(int(kind), kinds is MESSAGE_KINDS)
    require(domain, "domain", 0, U32_MAX)
    require(sender, "sender", 0, U32_MAX)
    require(incarnation, "incarnation", 0, U16_MAX)
    require(region, "region", 0, U32_MAX)
    require(view, "view", 0, U32_MAX)
    require(sequence, "sequence", 0, SEQUENCE_MAX)
    require(sent_ns, "sent_ns", 0, U64_MAX)
    require(key_epoch, "key_epoch", 0, U16_MAX)
    return HEADER.pack(VERSION, kind, length, domain, sender, incarnation, key_epoch, region, view, sequence, sent_ns)


@final
class Stops:
    """Which messages end in which of the frames that were sealed together. Only `seal_parts` makes it."""

    __slots__ = ("_endings", "frames")

    frames: int
    """How many frames there are."""

    _endings: list[list[tuple[int, int]]]

    def __init__(self) -> None:
        raise refusals.made_by_seal_parts()

    def between(self, start: int, stop: int) -> dict[int, int]:
        """Return, for each group with messages in the frames `start <= n < stop`, where they end there.

        That is one past the last message that is wholly in frames then. The first frame is number 0.
        """
        return {group: end for runs in self._endings[max(start, 0) : max(stop, 0)] for group, end in runs}


@final
class FrameBuilder:
    """A frame of messages under construction, used again for the next one after `seal`.

    A method that raises leaves it as it was. Payloads may be any bytes-like object and are copied at once.
    """

    __slots__ = ("_body", "_capacity", "_count", "_run", "_run_count", "_run_group", "_run_next")

    def __init__(self, capacity: int, memory: "FrameMemory | None" = None) -> None:  # noqa: ARG002 - used compiled
        """Prepare for frames of up to `capacity` bytes. Large ones are sealed in the memory, while it has room."""
        self._capacity = require(capacity, "capacity", CAPACITY_MIN, FRAME_BYTES_MAX)
        self._reset()

    def _reset(self) -> None:
        self._body = bytearray()
        self._count = 0
        # The open run: offset of its header in the body (-1: none is open), group, messages in it, and
        # the sequence that continues it. A run that ends with the beginning of a message is not open.
        self._run = -1
        self._run_group = self._run_count = self._run_next = 0

    @property
    def capacity(self) -> int:
        """Bytes that the frame may have: the path's datagram payload; `CAPACITY_MIN` to `FRAME_BYTES_MAX`."""
        return self._capacity

    @property
    def train_bytes(self) -> int:
        """Bytes of the longest train of such frames."""
        return self._capacity * frames_in_train(self._capacity)

    @property
    def size(self) -> int:
        """Bytes that the frame has now, header included."""
        return HEADER_BYTES + len(self._body)

    @property
    def count(self) -> int:
        """Messages and fragments in the frame."""
        return self._count

    @property
    def empty(self) -> bool:
        """Whether there is no message yet."""
        return self._count == 0

    def _continues(self, group: int, sequence: int) -> bool:
        return (
            self._run >= 0 and group == self._run_group and sequence == self._run_next and self._run_count < COUNT_MAX
        )

    def _put(self, group: int, sequence: int, payload: bytes) -> bool:
        body = self._body
        left = self._capacity - HEADER_BYTES - len(body)
        if self._continues(group, sequence):
            if len(payload) > left - LENGTH_BYTES:
                return False
            self._run_count += 1
            LENGTH.pack_into(body, self._run + 12, self._run_count)
        else:
            if len(payload) > left - RUN_HEADER_BYTES - LENGTH_BYTES:
                return False
            self._run = len(body)
            self._run_group = group
            self._run_count = 1
            body += RUN_HEADER.pack(group, sequence, 1)
        body += LENGTH.pack(len(payload))
        body += payload
        self._count += 1
        self._run_next = sequence + 1
        return True

    def _save(self) -> tuple[int, int, int, int, int, int]:
        return len(self._body), self._count, self._run, self._run_group, self._run_count, self._run_next

    def _restore(self, state: tuple[int, int, int, int, int, int]) -> None:
        size, self._count, self._run, self._run_group, self._run_count, self._run_next = state
        del self._body[size:]
        if self._run >= 0:
            LENGTH.pack_into(self._body, self._run + 12, self._run_count)

    def append(self, group: int, sequence: int, payload: Buffer) -> bool:
        """Put one message in; False, and nothing changed, if it does not fit (now, or ever).

        It continues the open run if it is the next message of the same group, else it opens a run. A run is open
        until another opens or it ends with the beginning of a message.
        """
        require(group, "group", 0, GROUP_MAX)
        require(sequence, "sequence", 0, SEQUENCE_MAX)
        return self._put(group, sequence, bytes_of(payload, "payload"))

    def extend(self, group: int, first_sequence: int, payloads: list[bytes] | tuple[bytes, ...], start: int = 0) -> int:
        """Put in as many as fit, from index `start` on; return the index of the first that did not.

        `payloads[i]` has sequence `first_sequence + i`, whatever `start` is: go on with the returned index.
        """
        require(group, "group", 0, GROUP_MAX)
        require(first_sequence, "first_sequence", 0, SEQUENCE_MAX)
        if not isinstance(payloads, (list, tuple)):
            raise refusals.not_a_list(payloads)
        stop = len(payloads)
        index = require(start, "start", 0, stop)
        if stop:
            require(first_sequence, "first_sequence", 0, SEQUENCE_MAX - (stop - 1))
        before = self._save()
        try:
            while index < stop and self._put(group, first_sequence + index, bytes_of(payloads[index], "payload")):
                index += 1
        except BaseException:
            self._restore(before)
            raise
        return index

    def append_fragment(self, group: int, sequence: int, flags: int, payload: Buffer, total: int | None = None) -> None:
        """Put in one piece of a message that is cut. The first, and only it, needs `total`.

        The first (`FLAG_MORE` alone) continues the open run as `append` does, and ends it. Any other opens a run.
        Raises `UsageError` if there is no room: `vivum.wire.fragments` cuts to measure.
        """
        require(group, "group", 0, GROUP_MAX)
        require(sequence, "sequence", 0, SEQUENCE_MAX)
        require(flags, "flags", 0, U32_MAX)
        if flags == 0 or flags & GROUP_MAX:
            raise refusals.wrong_flags(flags)
        if (total is not None) != (flags == FLAG_MORE):
            raise refusals.wrong_total(flags == FLAG_MORE)
        head = b""
        if total is not None:
            require(total, "total", 1, U32_MAX)
            head = TOTAL.pack(total)
        piece = bytes_of(payload, "payload")
        if not piece:
            raise refusals.empty_fragment()
        # Only the beginning of a message can be behind others in a run.
        goes_on = flags == FLAG_MORE and self._continues(group, sequence)
        needed = (0 if goes_on else RUN_HEADER_BYTES) + LENGTH_BYTES + len(head) + len(piece)
        left = self._capacity - self.size
        if needed > left:
            raise refusals.no_room(needed, left)
        body = self._body
        if goes_on:
            tag, first, count = RUN_HEADER.unpack_from(body, self._run)
            RUN_HEADER.pack_into(body, self._run, tag | FLAG_MORE, first, count + 1)
        else:
            self._run = len(body)
            self._run_group = group
            self._run_count = 1
            body += RUN_HEADER.pack(group | flags, sequence, 1)
        body += LENGTH.pack(len(head) + len(piece))
        body += head
        body += piece
        self._count += 1
        self._run_next = sequence + 1
        if flags & FLAG_MORE:
            self._run = -1

    def room(self, group: int, sequence: int) -> int:
        """Return the largest payload that `append` would take now, or -1 if not even an empty one."""
        require(group, "group", 0, GROUP_MAX)
        require(sequence, "sequence", 0, SEQUENCE_MAX)
        left = self._capacity - self.size - LENGTH_BYTES
        if not self._continues(group, sequence):
            left -= RUN_HEADER_BYTES
        return max(left, -1)

    def seal(
        self,
        kind: int,
        domain: int,
        sender: int,
        incarnation: int,
        region: int,
        view: int,
        sequence: int,
        sent_ns: int,
        key_epoch: int = 0,
        pad_to: int = 0,
    ) -> bytes:
        """Return the frame, zero-padded to `pad_to` bytes if it is shorter, and begin the next one.

        `pad_to` is at most the capacity. A frame without messages is allowed: it fills a number.
        """
        size = max(self.size, pad_to) if isinstance(pad_to, int) and pad_to <= self._capacity else self.size
        header = _header(
            MESSAGE_KINDS, size, kind, domain, sender, incarnation, region, view, sequence, sent_ns, key_epoch
        )
        require(pad_to, "pad_to", 0, self._capacity)
        frame = (header + self._body).ljust(size, b"\0")
        self._reset()
        return frame

    def seal_parts(
        self,
        parts: list[Part],
        begin_parts: int,
        cut_to_fill: bool,
        frames_max: int,
        bytes_max: int,
        kind: int,
        domain: int,
        sender: int,
        incarnation: int,
        region: int,
        view: int,
        sequence: int,
        sent_ns: int,
    ) -> tuple[list[Train], Stops, tuple[int, int, int], int]:
        """Seal parts in turn into frames of rising `sequence`, the last of them partly filled if the parts end.

        What was appended before begins the first frame. A message that is larger than a frame is cut; with
        `cut_to_fill` also one that does not fit the rest of a frame, if its beginning fills an eighth of it. Then a
        frame before another is padded too: they make a train (`wire.trains`), which is one object.

        Make at most `frames_max` frames, none once they have `bytes_max` bytes, and begin none behind the first
        `begin_parts` parts. Return the frames as trains; which messages end where; where to go on: index of a part, of
        a message in it, and the bytes of it that are in frames; and the bytes of messages that were taken from that
        part.

        A message that is not bytes raises `TypeError` if it would be in the first frame, else it ends the run.
        """
        if type(parts) is not list:
            raise refusals.not_a_list(parts)
        for part in parts:
            _check_part(part)
        require(begin_parts, "begin_parts", 0, U64_MAX)
        require(cut_to_fill, "cut_to_fill", 0, 1)
        require(frames_max, "frames_max", 0, U64_MAX)
        require(bytes_max, "bytes_max", 0, U64_MAX)
        _header(MESSAGE_KINDS, 0, kind, domain, sender, incarnation, region, view, sequence, sent_ns, 0)
        frames: list[bytes] = []
        packed: list[list[tuple[int, int]]] = []
        number = made = taken = 0
        while number < len(parts) and parts[number][3] == len(parts[number][2]):
            number += 1
        index, cut = parts[number][3:] if number < len(parts) else (0, 0)
        while len(frames) < frames_max and made < bytes_max and sequence <= SEQUENCE_MAX:
            if not self._count and number >= min(begin_parts, len(parts)):
                break
            frame_before, before = self._save(), (number, index, cut, taken)
            runs: list[tuple[int, int]] = []
            is_full = False
            try:
                while number < len(parts) and not is_full:
                    group, first = parts[number][:2]
                    is_full, stop, cut, size = self._fill(parts[number], index, cut, cut_to_fill == 1)
                    if stop > index or size:
                        if runs and runs[-1][0] == group:
                            runs.pop()
                        runs.append((group, first + stop))
                    index, taken = stop, taken + size
                    if not is_full:
                        number, taken = number + 1, 0
                        index, cut = parts[number][3:] if number < len(parts) else (0, 0)
            except Exception:
                self._restore(frame_before)
                if not frames:
                    raise
                number, index, cut, taken = before
                break
            may_follow = len(frames) + 1 < frames_max and made + self.size < bytes_max and number < begin_parts
            pad_to = self.capacity if cut_to_fill and is_full and may_follow else 0
            frames.append(self.seal(kind, domain, sender, incarnation, region, view, sequence, sent_ns, pad_to=pad_to))
            packed.append(runs)
            made += len(frames[-1])
            sequence += 1
        stops = Stops.__new__(Stops)
        stops.frames, stops._endings = len(frames), packed
        return couple(frames, self._capacity), stops, (number, index, cut), taken

    def _fill(self, part: Part, index: int, cut: int, cut_to_fill: bool) -> tuple[bool, int, int, int]:
        """Put in what fits of a part; return whether the frame is full, where to go on, and the bytes taken."""
        group, first, payloads = part[:3]
        taken = 0
        if cut:
            # The rest of a message opens a run.
            piece = payloads[index][cut:]
            room = self._capacity - self.size - RUN_HEADER_BYTES - LENGTH_BYTES
            if room <= 0:
                return True, index, cut, 0
            if len(piece) > room:
                self.append_fragment(group, first + index, FLAG_CONTINUES | FLAG_MORE, piece[:room])
                return True, index, cut + room, room
            self.append_fragment(group, first + index, FLAG_CONTINUES, piece)
            taken += len(piece)
            index += 1
        while index < len(payloads):
            payload = payloads[index]
            if not isinstance(payload, bytes):
                raise refusals.not_bytes("payload", payload)
            if not self._put(group, first + index, payload):
                break
            taken += len(payload)
            index += 1
        else:
            return False, index, 0, taken
        fits_alone = len(payload) <= self._capacity - HEADER_BYTES - RUN_HEADER_BYTES - LENGTH_BYTES
        room = self.room(group, first + index) - TOTAL_BYTES
        is_worthwhile = room >= self._capacity // WORTHWHILE_PART or not self._count
        if room <= 0 or not is_worthwhile or (fits_alone and not cut_to_fill):
            return True, index, 0, taken
        self.append_fragment(group, first + index, FLAG_MORE, payload[:room], len(payload))
        return True, index, room, taken + room


def _check_part(part: Part) -> None:
    if type(part) is not tuple or len(part) != 5:
        raise refusals.not_a_part(part)
    group, first_sequence, payloads, start, cut = part
    require(group, "group", 0, GROUP_MAX)
    require(first_sequence, "first_sequence", 0, SEQUENCE_MAX)
    if type(payloads) is not list:
        raise refusals.not_a_list(payloads)
    require(start, "start", 0, len(payloads))
    if payloads:
        require(first_sequence, "first_sequence", 0, SEQUENCE_MAX - (len(payloads) - 1))
    # What is cut has something left.
    payload = payloads[start] if start < len(payloads) else None
    require(cut, "cut", 0, max(0, len(payload) - 1) if isinstance(payload, bytes) else 0)


def seal_control(
    kind: int,
    domain: int,
    sender: int,
    incarnation: int,
    region: int,
    view: int,
    sequence: int,
    sent_ns: int,
    body: Buffer,
    key_epoch: int = 0,
) -> bytes:
    """Make a control frame around an encoded body; `vivum.wire.control` encodes bodies."""
    fields = (kind, domain, sender, incarnation, region, view, sequence, sent_ns, key_epoch)
    _header(_CONTROL_KINDS, 0, *fields)
    content = bytes_of(body, "body")
    require(len(content), "length of body", 0, FRAME_BYTES_MAX - HEADER_BYTES)
    return _header(_CONTROL_KINDS, HEADER_BYTES + len(content), *fields) + content
