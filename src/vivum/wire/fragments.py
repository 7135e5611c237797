"""Messages in pieces: cut on the way out, joined on the way in (`docs/design/wire.md`, Fragments).

Knows frames under construction and runs of messages, nothing of streams: whoever feeds a `Joiner` has put the
frames of each sender in order first.

Invariants of a `Joiner`: at most `joins_open_max` joins are open; the lengths that their first fragments
stated add up to `bytes_reserved`, at most `join_bytes_max`; each holds fewer bytes than was stated for it.
"""

from collections.abc import Sequence

from vivum.core.errors import UsageError
from vivum.core.ids import Member
from vivum.core.limits import Limits
from vivum.observe.counters import Counters
from vivum.wire.codec import FLAG_CONTINUES, FLAG_MORE, FrameBuilder, measure, seal_cut
from vivum.wire.layout import HEADER_BYTES, LENGTH_BYTES, RUN_HEADER_BYTES, TOTAL, TOTAL_BYTES

FRAGMENT_OVERHEAD_BYTES = RUN_HEADER_BYTES + LENGTH_BYTES

# A first fragment goes into a frame that has other messages already only if it gets this part of it: smaller
# ones cost a total, a join and a Python object on every receiver for little.
_WORTHWHILE_PART = 8

# So many full frames are in a chunk that most are sealed by one call, whatever the size of messages.
_CHUNK_MESSAGES = 16_384
_CHUNK_BYTES = 1 << 20


class Outbox:
    """Messages of one group that wait for frames. Those larger than a frame are cut across several.

    A sender pulls: it hands over a builder when it may send, seals what came into it, and begins again.
    With `cut_to_fill` a message that would fit the next frame is cut too, when a good part of it fits this one:
    fuller frames, for a join open at every receiver from one frame of the group to its next.

    Invariant: `size` is the bytes of all waiting messages that are in no frame yet.
    """

    __slots__ = ("_chunk_bytes", "_chunks", "_cut", "_cut_to_fill", "_index", "_next", "_size", "_stop", "group")

    def __init__(self, group: int, cut_to_fill: bool = False) -> None:
        self.group = group
        self._cut_to_fill = cut_to_fill
        # Lists of bounded length: sealed payloads are let go soon, and there are never many.
        self._chunks: list[list[bytes]] = []
        self._chunk_bytes = 0  # that were put into the last chunk
        self._index = 0  # of the next message in the first chunk
        self._next = 0  # its sequence
        self._stop = 0  # one past the last that waits
        self._cut = 0  # bytes of it that are in frames already
        self._size = 0

    def clear(self) -> None:
        """Forget all that waits: another group may have this outbox."""
        self._chunks.clear()
        self._chunk_bytes = self._index = self._cut = self._size = 0

    @property
    def size(self) -> int:
        """Bytes that wait."""
        return self._size

    def __bool__(self) -> bool:
        return bool(self._chunks)

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
            # A copy: whoever sends may use the list again.
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
    def is_cut(self) -> bool:
        """Tell whether a message is partly in frames: the rest must come first in the next frame."""
        return self._cut > 0

    def fill(self, builder: FrameBuilder, rest_only: bool = False) -> int:
        """Move what fits into a frame; return one past the last message that is wholly in frames.

        An empty builder always gets something if anything waits; seal it when `fill` returns. With `rest_only` only
        the rest of a message that was cut goes in: then another outbox may have its turn.
        """
        while self._chunks and not (rest_only and not self._cut):
            chunk = self._chunks[0]
            if not self._cut:
                stop = builder.extend(self.group, self._next - self._index, chunk, self._index)
                self._size -= measure(chunk, self._index, stop)[0]
                self._next += stop - self._index
                self._index = stop
            if self._index < len(chunk):
                if not self._cut_into(builder, chunk[self._index]):
                    break
                self._next += 1
                self._index += 1
            if self._index == len(chunk):
                del self._chunks[0]
                self._index = 0
        return self._next

    def next_part(self, is_alone: bool) -> tuple[int, int, list[bytes], int] | None:
        """Tell what is next for `FrameBuilder.seal_runs`: all that waits, but where this is alone a part may do.

        None if it is not for that: where messages are cut, or nothing waits.
        """
        if self._cut or self._cut_to_fill or not (self._chunks if is_alone else len(self._chunks) == 1):
            return None
        return self.group, self._next - self._index, self._chunks[0], self._index

    def seal_cut(
        self, capacity: int, frames_max: int, bytes_max: int, header: tuple[int, ...]
    ) -> tuple[list[bytes], list[int], int]:
        """Seal full frames, as `fill` would with `cut_to_fill`, for less work; often none, when little waits.

        Return them, for each one past the last message that is wholly in frames, and their bytes of messages.
        """
        if not self._chunks:
            return [], [], 0
        chunk, index, least = self._chunks[0], self._index, capacity // _WORTHWHILE_PART
        first = self._next - index
        frames, ends = seal_cut(
            capacity, least, self.group, first, chunk, index, self._cut, frames_max, bytes_max, *header
        )
        if not frames:
            return [], [], 0
        self._index, cut = ends[-1]
        taken = measure(chunk, index, self._index)[0] - self._cut + cut
        self._cut = cut
        self._size -= taken
        self._next = first + self._index
        return frames, [first + stop for stop, _ in ends], taken

    def skip_to(self, index: int, size: int | None = None) -> None:
        """Take those out of the first chunk that are sealed, up to this index; the caller may know their `size`."""
        chunk = self._chunks[0]
        self._size -= measure(chunk, self._index, index)[0] if size is None else size
        self._next += index - self._index
        self._index = index
        if index == len(chunk):
            del self._chunks[0]
            self._index = 0

    @property
    def next_message(self) -> int:
        """The number of the first that is not wholly in frames."""
        return self._next

    def _cut_into(self, builder: FrameBuilder, payload: bytes) -> bool:
        """Put the next piece of a message in that did not fit; tell whether it was the last."""
        done, total = self._cut, len(payload)
        if done:
            # What goes on with a message opens a run.
            room = builder.capacity - builder.size - FRAGMENT_OVERHEAD_BYTES
        else:
            room = builder.room(self.group, self._next) - TOTAL_BYTES
            fits_alone = total <= builder.capacity - HEADER_BYTES - FRAGMENT_OVERHEAD_BYTES
            if fits_alone and not self._cut_to_fill:
                return False
            if not builder.empty and room < builder.capacity // _WORTHWHILE_PART:
                return False
        if room <= 0:
            return False
        piece = memoryview(payload)[done : done + room]
        is_last = done + len(piece) == total
        flags = (FLAG_CONTINUES if done else 0) | (0 if is_last else FLAG_MORE)
        builder.append_fragment(self.group, self._next, flags, piece, total=None if done else total)
        self._size -= len(piece)
        self._cut = 0 if is_last else done + len(piece)
        return is_last


class _Join:
    """One message under way."""

    __slots__ = ("pieces", "received", "sequence", "total")

    def __init__(self, sequence: int, total: int) -> None:
        self.sequence = sequence
        self.total = total
        self.received = 0
        self.pieces: list[bytes] = []


class Joiner:
    """Makes whole messages of fragments that come in order for each sender and group.

    Nothing that a peer sends raises. A message whose fragments are over a limit or out of order is given up
    and counted once in `joins_refused`; the messages after it are not affected.
    """

    __slots__ = ("_bytes_reserved", "_counters", "_joins", "_limits", "_refused")

    def __init__(self, limits: Limits, counters: Counters) -> None:
        self._limits = limits
        self._counters = counters
        self._joins: dict[tuple[Member, int], _Join] = {}
        self._bytes_reserved = 0
        # Which message was refused last, so that its later fragments are not counted again. Bounded: the
        # oldest goes, and the worst is a refusal that counts twice.
        self._refused: dict[tuple[Member, int], int] = {}

    @property
    def open_count(self) -> int:
        """How many messages are under way."""
        return len(self._joins)

    @property
    def bytes_reserved(self) -> int:
        """How many bytes those will have."""
        return self._bytes_reserved

    def add(
        self, sender: Member, group: int, first_sequence: int, flags: int, payloads: list[bytes]
    ) -> tuple[int, list[bytes]]:
        """Take a run that has flags; return its whole messages and the sequence of the first of them.

        A message that ends here is the first of them, or, if it cannot be made whole, passed over: the sequence is
        then one past it, also when nothing whole follows.
        """
        key = (sender, group)
        start, stop = 0, len(payloads)
        joined = None
        if flags & FLAG_CONTINUES:
            is_last = stop > 1 or not flags & FLAG_MORE
            joined = self._continue(key, first_sequence, is_last, payloads[0])
            if not is_last:
                return first_sequence, []
            if joined is None:
                start = 1
        elif key in self._joins:
            self._give_up(key)
        if flags & FLAG_MORE:
            stop -= 1
            self._begin(key, first_sequence + stop, payloads[stop])
        whole = payloads[start:stop]
        if joined is not None:
            whole[0] = joined
        return first_sequence + start, whole

    def forget(self, sender: Member, group: int | None = None) -> None:
        """Drop what is under way from a sender, in one group or in all; it is not counted."""
        keys = self._joins.keys() | self._refused.keys() if group is None else [(sender, group)]
        for key in keys:
            if key[0] == sender:
                self._refused.pop(key, None)
                if key in self._joins:
                    self._close(key)

    def forget_below(self, sender: Member, group: int, sequence: int) -> None:
        """Drop the message that is under way if its number is below: its rest will not come. It is not counted."""
        key = (sender, group)
        if self._refused.get(key, sequence) < sequence:
            del self._refused[key]
        join = self._joins.get(key)
        if join is not None and join.sequence < sequence:
            self._close(key)

    def _begin(self, key: tuple[Member, int], sequence: int, payload: bytes) -> None:
        limits = self._limits
        (total,) = TOTAL.unpack_from(payload)
        piece = payload[TOTAL_BYTES:]
        if (
            total > limits.message_bytes_max
            or len(piece) >= total
            or len(self._joins) >= limits.joins_open_max
            or self._bytes_reserved + total > limits.join_bytes_max
        ):
            self._refuse(key, sequence)
            return
        join = self._joins[key] = _Join(sequence, total)
        join.pieces.append(piece)
        join.received = len(piece)
        self._bytes_reserved += total

    def _continue(self, key: tuple[Member, int], sequence: int, is_last: bool, piece: bytes) -> bytes | None:
        join = self._joins.get(key)
        if join is None:
            self._refuse(key, sequence)
            return None
        received = join.received + len(piece)
        if sequence != join.sequence:
            self._give_up(key)
            self._refuse(key, sequence)
            return None
        if received != join.total if is_last else received >= join.total:
            self._give_up(key)
            return None
        join.pieces.append(piece)
        join.received = received
        if not is_last:
            return None
        self._close(key)
        return b"".join(join.pieces)

    def _close(self, key: tuple[Member, int]) -> _Join:
        join = self._joins.pop(key)
        self._bytes_reserved -= join.total
        return join

    def _give_up(self, key: tuple[Member, int]) -> None:
        self._refuse(key, self._close(key).sequence)

    def _refuse(self, key: tuple[Member, int], sequence: int) -> None:
        if self._refused.pop(key, None) != sequence:
            self._counters.joins_refused += 1
        self._refused[key] = sequence
        if len(self._refused) > self._limits.joins_open_max:
            del self._refused[next(iter(self._refused))]
