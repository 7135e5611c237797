"""Messages that wait for frames, pulled in turn so that groups share frames and none starves the others.

`Outboxes.seal` is the only way in which waiting messages come into frames. It decides on the order of groups, and
leaves the packing to `FrameBuilder.seal_parts`. Knows nothing of streams, windows or rates.

Invariants: no outbox is empty; `_ready` has each group once that has one and is not held back.
"""

from collections import deque
from collections.abc import Sequence

from vivum.core.errors import UsageError
from vivum.core.ids import GroupId
from vivum.wire.codec import FrameBuilder, Part, Stops, measure
from vivum.wire.layout import HEADER_BYTES, LENGTH_BYTES, RUN_HEADER_BYTES
from vivum.wire.trains import Train

SPARE_MAX = 64
"""Empty outboxes that are kept: about as many as groups have messages in frames that are sealed together."""

# Many full frames are in a chunk, whatever the size of messages, so that few runs of frames need two.
_CHUNK_MESSAGES = 16_384
_CHUNK_BYTES = 1 << 20

# What a message has around it that is alone in a frame.
_ALONE_BYTES = HEADER_BYTES + RUN_HEADER_BYTES + LENGTH_BYTES


class Outbox:
    """Messages of one group that wait for frames.

    Invariant: `size` is the bytes of all waiting messages that are in no frame yet.
    """

    __slots__ = ("_chunk_bytes", "_chunks", "_cut", "_index", "_next", "_size", "_stop", "group")

    def __init__(self, group: int) -> None:
        self.group = group
        # Lists of bounded length: sealed payloads are let go soon, and there are never many.
        self._chunks: list[list[bytes]] = []
        self._chunk_bytes = 0  # that were put into the last chunk
        self._index = 0  # of the next message in the first chunk
        self._next = 0  # its sequence
        self._stop = 0  # one past the last that waits
        self._cut = 0  # bytes of it that are in frames already
        self._size = 0

    def clear(self) -> None:
        """Forget all that waits."""
        self._chunks.clear()
        self._chunk_bytes = self._index = self._cut = self._size = 0

    @property
    def size(self) -> int:
        """Bytes that wait."""
        return self._size

    def __bool__(self) -> bool:
        return bool(self._chunks)

    @property
    def is_cut(self) -> bool:
        """Whether a message is partly in frames."""
        return self._cut > 0

    def put(self, first_sequence: int, payloads: Sequence[bytes], size: int | None = None) -> None:
        """Queue messages, of which the caller may know the `size` in bytes.

        While others wait, the numbers must go on from theirs.
        """
        if not payloads:
            return
        if not isinstance(payloads, (list, tuple)):
            payloads = list(payloads)
        if not self._chunks and type(payloads) is list and size is not None and len(payloads) <= _CHUNK_MESSAGES:
            # As below, for less work: a batch of one of many groups comes alone.
            self._next, self._stop = first_sequence, first_sequence + len(payloads)
            # A copy: the sender may reuse its list.
            self._chunks.append(payloads[:])
            self._size = self._chunk_bytes = size
            return
        if not self._chunks:
            self._next = self._stop = first_sequence
        elif first_sequence != self._stop:
            raise UsageError(f"message {first_sequence} cannot follow; the next of group {self.group} is {self._stop}")
        self._stop += len(payloads)
        if size is None:
            size = measure(payloads)[0]
        self._size += size
        count = len(payloads)
        if (
            self._chunks
            and self._chunk_bytes + size <= _CHUNK_BYTES
            and len(self._chunks[-1]) + count <= _CHUNK_MESSAGES
        ):
            self._chunks[-1].extend(payloads)
            self._chunk_bytes += size
            return
        for start in range(0, count, _CHUNK_MESSAGES):
            part = payloads[start : start + _CHUNK_MESSAGES]
            self._chunks.append(part if type(part) is list else list(part))
        self._chunk_bytes = size

    def put_all_of(self, other: "Outbox") -> None:
        """Queue what waits in another outbox of the group, which keeps it; behind what waits here, if anything."""
        if not self._chunks:
            self._chunks.extend(chunk.copy() for chunk in other._chunks)
            self._index, self._next, self._stop = other._index, other._next, other._stop
            self._cut, self._size, self._chunk_bytes = other._cut, other._size, other._chunk_bytes
            return
        if other._cut:
            raise UsageError(f"message {other._next} is partly sent; nothing of group {self.group} may wait before it")
        start, first = other._index, other._next
        for chunk in other._chunks:
            self.put(first, chunk[start:])
            first += len(chunk) - start
            start = 0

    @property
    def rest(self) -> int:
        """Bytes of the message that is cut which are in no frame yet."""
        return len(self._chunks[0][self._index]) - self._cut

    def add_rest(self, parts: list[Part]) -> None:
        """Add the rest of the message that is cut, a part of its own."""
        parts.append((self.group, self._next, [self._chunks[0][self._index]], 0, self._cut))

    def add_whole(self, parts: list[Part], bytes_max: int) -> None:
        """Add the messages of which nothing is in frames yet: all, or more than these bytes of frames can take."""
        index = self._index
        first = self._next - index
        if self._cut:
            index += 1
        elif len(self._chunks) == 1:
            parts.append((self.group, first, self._chunks[0], index, 0))
            return
        for chunk in self._chunks:
            if index < len(chunk):
                parts.append((self.group, first, chunk, index, 0))
            bytes_max -= LENGTH_BYTES * (len(chunk) - index)
            if bytes_max < 0:
                break
            first += len(chunk)
            index = 0

    def take_part(self) -> int:
        """Take the first part out, which is wholly in frames; return its bytes."""
        if self._cut:
            size = len(self._chunks[0][self._index]) - self._cut
            self.take(1, 0, size)
        elif len(self._chunks) == 1:
            size = self._size
            self.clear()
        else:
            size = measure(self._chunks[0], self._index)[0]
            self.take(len(self._chunks[0]) - self._index, 0, size)
        return size

    def take(self, count: int, cut: int, size: int) -> None:
        """Take messages out that are wholly in frames, and note how much of the next is; together `size` bytes."""
        self._index += count
        self._next += count
        self._cut = cut
        self._size -= size
        if self._index == len(self._chunks[0]):
            del self._chunks[0]
            self._index = 0


class Outboxes:
    """One outbox for each group."""

    __slots__ = ("_cut_to_fill", "_outboxes", "_ready", "_spare", "_turn_bytes")

    def __init__(self, cut_to_fill: bool = True) -> None:
        """Begin with nothing.

        A message that is larger than a frame is cut across several. With `cut_to_fill` one that would fit the next
        frame is cut too, when a good part of it fits this one: fuller frames, for a join open at every receiver from
        one frame of the group to its next.
        """
        self._cut_to_fill = cut_to_fill
        self._outboxes: dict[GroupId, Outbox] = {}
        self._ready: deque[GroupId] = deque()
        # Of groups that have nothing left, for the next ones: thousands that are sent to in turn come and go.
        self._spare: list[Outbox] = []
        # That the first of them had since its turn began; 0 where it is alone.
        self._turn_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._ready)

    def pending_bytes(self, group: GroupId) -> int:
        """Bytes of a group that wait here."""
        outbox = self._outboxes.get(group)
        return 0 if outbox is None else outbox.size

    def has(self, group: GroupId) -> bool:
        """Return whether anything of a group waits here, were it an empty message."""
        return group in self._outboxes

    def put(
        self, group: GroupId, first: int, payloads: Sequence[bytes], size: int | None = None, *, hold: bool = False
    ) -> None:
        """Queue messages of a group, of which the caller may know the `size`; with `hold` they wait for `release`."""
        if not payloads:
            return
        outbox = self._outboxes.get(group)
        if outbox is None:
            outbox = self._outboxes[group] = self._new(group)
            if not hold:
                self._ready.append(group)
        outbox.put(first, payloads, size)

    def _new(self, group: GroupId) -> Outbox:
        if not self._spare:
            return Outbox(group)
        outbox = self._spare.pop()
        outbox.group = group
        return outbox

    def release(self, group: GroupId) -> None:
        """Let a group that was held back take part."""
        if group in self._outboxes and group not in self._ready:
            self._ready.append(group)

    def groups(self) -> list[GroupId]:
        """List the groups of which something waits."""
        return list(self._outboxes)

    @property
    def next_group(self) -> GroupId:
        """The group whose turn it is."""
        return self._ready[0]

    def take(self, group: GroupId) -> Outbox:
        """Hand over all that waits of a group."""
        if group in self._ready:
            if self._ready[0] == group:
                self._turn_bytes = 0
            self._ready.remove(group)
        return self._outboxes.pop(group)

    def adopt(self, group: GroupId, other: Outbox) -> None:
        """Queue what waits in an outbox of a group behind what waits of it here."""
        outbox = self._outboxes.get(group)
        if outbox is None:
            outbox = self._outboxes[group] = self._new(group)
            self._ready.append(group)
        outbox.put_all_of(other)

    def seal(
        self,
        builder: FrameBuilder,
        frames_max: int,
        bytes_max: int,
        header: tuple[int, ...],
        tail: Sequence[Part] = (),
    ) -> tuple[list[Train], list[Stops], int]:
        """Seal frames of what waits; return them, which messages end where in them, and their bytes of messages.

        Make at most `frames_max` frames, and none once they have `bytes_max` bytes. The builder may have marks, with
        which the first frame begins. What is in `tail` follows the last message. The header is that of the first frame,
        all but its optional fields.
        """
        trains, stops, taken, is_done = self._seal_run(builder, frames_max, bytes_max, header, tail)
        if is_done:
            return trains, [stops], taken
        every, frames, left = [stops], stops.frames, bytes_max - _bytes_of(trains)
        while not is_done and frames < frames_max and left > 0:
            *label, sequence, sent_ns = header
            after = (*label, sequence + frames, sent_ns)
            more, stops, size, is_done = self._seal_run(builder, frames_max - frames, left, after, tail)
            left -= _bytes_of(more)
            frames += stops.frames
            trains += more
            every.append(stops)
            taken += size
        return trains, every, taken

    def _seal_run(
        self,
        builder: FrameBuilder,
        frames_max: int,
        bytes_max: int,
        header: tuple[int, ...],
        tail: Sequence[Part],
    ) -> tuple[list[Train], Stops, int, bool]:
        """Seal frames as long as the order of groups is known before; return also whether nothing is left."""
        parts, begin_parts, frames_max, bytes_max = self._line_up(builder, frames_max, bytes_max, tail)
        trains, stops, (last, index, cut), taken = builder.seal_parts(
            parts, begin_parts, self._cut_to_fill, frames_max, bytes_max, *header
        )
        if not trains:
            return trains, stops, 0, True
        total = in_turn = 0
        ready, outboxes = self._ready, self._outboxes
        for _ in range(min(last, len(parts) - len(tail)) if tail else last):
            outbox = outboxes[ready[0]]
            was_cut = outbox._cut
            size = outbox.take_part()
            total += size
            in_turn += size
            if not outbox._chunks:
                self._drop_first()
                in_turn = 0
            elif was_cut:
                # A group that ended a frame with a piece of a message ends its turn with the rest of it.
                self._end_turn()
                in_turn = 0
        if ready and last < len(parts):
            outbox = outboxes[ready[0]]
            was_cut = outbox.is_cut
            outbox.take(index - parts[last][3], cut, taken)
            total += taken
            if not cut:
                self._count_turn(in_turn + taken, self._turn_of(builder))
            elif was_cut:
                # A message that takes many frames shares them with the other groups. One that was just begun does not:
                # the next frame begins with its rest, so that few messages are open at receivers.
                self._end_turn()
        return trains, stops, total, not ready and last == len(parts)

    def _line_up(
        self, builder: FrameBuilder, frames_max: int, bytes_max: int, tail: Sequence[Part]
    ) -> tuple[list[Part], int, int, int]:
        """Put what waits into the order in which it goes into frames, more than the frames can take.

        Return the parts, those of them in which a frame may begin, and how many frames, and bytes of them, there may
        be: the order holds until the first turn ends that leaves messages of its group behind.
        """
        parts: list[Part] = []
        returning: list[Outbox] = []
        is_alone, is_open = len(self._ready) == 1, True
        begin_parts = before = 0
        turn = self._turn_of(builder)
        turn_left = min(turn - self._turn_bytes, turn - _ALONE_BYTES)
        wanted = min(frames_max * builder.capacity, bytes_max + builder.capacity)
        outboxes, cut_to_fill = self._outboxes, self._cut_to_fill
        for group in self._ready:
            outbox = outboxes[group]
            size = outbox.rest if outbox._cut else outbox._size
            ends_here = is_open and not is_alone and (size >= turn_left or (outbox._cut > 0 and not cut_to_fill))
            if ends_here:
                # Its turn ends before its messages do.
                is_open, begin_parts = False, len(parts)
                if cut_to_fill:
                    # With whole trains: about one more than what is before it fills.
                    bytes_max = min(bytes_max, turn * ((before + turn_left + turn // 2) // turn))
                    wanted = min(wanted, turn + builder.capacity)
                else:
                    wanted = builder.capacity
            if outbox._cut:
                outbox.add_rest(parts)
                returning.append(outbox)
            else:
                outbox.add_whole(parts, wanted)
            if ends_here and cut_to_fill:
                begin_parts = len(parts)
            turn_left = turn - _ALONE_BYTES
            before += size + RUN_HEADER_BYTES
            wanted -= size + RUN_HEADER_BYTES
            if wanted < 0:
                break
        else:
            if is_open and not is_alone and returning:
                # They come again when all others had their turn.
                is_open, begin_parts = False, len(parts)
            for outbox in returning:
                outbox.add_whole(parts, wanted)
            parts += tail
        if is_open:
            return parts, len(parts), frames_max, bytes_max
        # If the first can lose its turn with the first frame, that is the only one.
        return parts, max(1, begin_parts), frames_max if begin_parts else min(1, frames_max), bytes_max

    def _turn_of(self, builder: FrameBuilder) -> int:
        """Return how many bytes of frames a group has before others do: a frame, or a train of small ones."""
        return builder.train_bytes if self._cut_to_fill else builder.capacity

    def _drop_first(self) -> None:
        """Forget the outbox of the group whose turn it is: it is empty."""
        # Thousands of groups that are silent now must not keep an empty box each.
        outbox = self._outboxes.pop(self._ready.popleft())
        if len(self._spare) < SPARE_MAX:
            self._spare.append(outbox)
        self._turn_bytes = 0

    def _end_turn(self) -> None:
        self._ready.rotate(-1)
        self._turn_bytes = 0

    def _count_turn(self, taken: int, turn_bytes_max: int) -> None:
        """Count what a group had of a full frame; it goes on with the next if it had little yet.

        So the messages that were sent together are together in frames, of which all know at once that they arrived.
        """
        self._turn_bytes += taken
        if self._cut_to_fill or len(self._ready) == 1 or self._turn_bytes >= turn_bytes_max:
            self._end_turn()


def _bytes_of(trains: list[Train]) -> int:
    return sum([len(train.data) for train in trains])
