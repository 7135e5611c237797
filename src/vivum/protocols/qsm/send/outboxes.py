"""Messages of many groups that wait for frames, pulled in turn so that groups share frames and none starves the others.

Invariants: no outbox is empty; `_ready` has each group once that has one and is not held back.
"""

from collections import deque
from collections.abc import Sequence

from vivum.core.ids import GroupId
from vivum.wire.codec import HEADER_BYTES, RUN_HEADER_BYTES, FrameBuilder
from vivum.wire.fragments import Outbox
from vivum.wire.layout import LENGTH_BYTES

SPARE_MAX = 64
"""Empty outboxes that are kept: about as many as groups have messages in frames that are sealed together."""

Packed = list[tuple[GroupId, int]]
"""What is in a frame: for each group one past the last message that is wholly in frames now."""


class Outboxes:
    """One outbox for each group."""

    __slots__ = ("_cut_to_fill", "_outboxes", "_ready", "_spare", "_turn_bytes")

    def __init__(self, cut_to_fill: bool = True) -> None:
        """Begin with nothing. With `cut_to_fill` messages are cut so that frames are full."""
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
        """Tell whether anything of a group waits here, were it an empty message."""
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
            return Outbox(group, self._cut_to_fill)
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

    def fill(self, builder: FrameBuilder) -> tuple[Packed, int]:
        """Fill one frame from the groups that wait, in turn; return what is in it and its bytes of messages."""
        packed: Packed = []
        taken = 0
        ready = self._ready
        while ready:
            group = ready[0]
            outbox = self._outboxes[group]
            waiting, was_cut, first = outbox.size, outbox.is_cut, outbox.next_message
            # A group that ended the last frame with a piece of a message ends its turn with the rest of it.
            stop = outbox.fill(builder, rest_only=was_cut and len(ready) > 1)
            if stop > first or outbox.size < waiting:
                packed.append((group, stop))
            taken += waiting - outbox.size
            if not outbox:
                self._drop_first()
            elif outbox.is_cut:
                # The frame is full. The next one begins with the rest, so that few messages are open at receivers;
                # but one that takes many frames shares them with the other groups.
                if was_cut:
                    self._end_turn()
                break
            elif was_cut:
                self._end_turn()
            else:
                self._count_turn(waiting - outbox.size, builder.capacity)
                break
        return packed, taken

    def _drop_first(self) -> None:
        """Nothing is left of the group whose turn it is."""
        # Thousands of groups that are silent now must not keep an empty box each.
        outbox = self._outboxes.pop(self._ready.popleft())
        if len(self._spare) < SPARE_MAX:
            outbox.clear()
            self._spare.append(outbox)
        self._turn_bytes = 0

    def _end_turn(self) -> None:
        self._ready.rotate(-1)
        self._turn_bytes = 0

    def _count_turn(self, taken: int, turn_bytes_max: int) -> None:
        """A frame is full, and something is left of the group whose turn it is: it goes on if it had little yet.

        So the messages that were sent together are together in frames, of which all know at once that they arrived.
        """
        self._turn_bytes += taken
        if self._cut_to_fill or len(self._ready) == 1 or self._turn_bytes >= turn_bytes_max:
            self._end_turn()

    def seal_run(
        self, builder: FrameBuilder, frames_max: int, bytes_max: int, header: tuple[int, ...]
    ) -> tuple[list[bytes], list[Packed], int]:
        """Seal full frames, as `fill` gives them, for less work: they, what is in each, and their bytes of messages.

        Often none: where messages are larger than a frame, or a group has more than it may send in its turn while
        others wait; where messages are cut to fill frames, also whenever others wait.
        """
        if self._cut_to_fill:
            return self._seal_cut(builder.capacity, frames_max, bytes_max, header)
        parts: list[tuple[int, int, list[bytes], int]] = []
        sizes: list[int] = []
        is_alone = len(self._ready) == 1
        turn_left, wanted = builder.capacity - self._turn_bytes, min(bytes_max, frames_max * builder.capacity)
        for group in self._ready:
            outbox = self._outboxes[group]
            part = outbox.next_part(is_alone)
            if part is None or (outbox.size > turn_left and not is_alone):
                break
            parts.append(part)
            sizes.append(outbox.size)
            turn_left = builder.capacity
            wanted -= outbox.size
            if wanted < 0:
                break
        if not parts:
            return [], [], 0
        frames, packed, (last, stop) = builder.seal_runs(parts, frames_max, bytes_max, *header)
        if not frames:
            return [], [], 0
        taken = sum(sizes[:last])
        for _ in range(last):
            self._drop_first()
        outbox = self._outboxes[self._ready[0]]
        size = None
        if is_alone:
            # One run in each frame: what is no header and no length is messages, and none needs to be looked at.
            overhead = len(frames) * (HEADER_BYTES + RUN_HEADER_BYTES) + LENGTH_BYTES * (stop - parts[0][3])
            size = sum(map(len, frames)) - overhead
        outbox.skip_to(stop, size)
        taken += sizes[last] - outbox.size
        if not outbox:
            self._drop_first()
        elif not is_alone:
            self._turn_bytes += sizes[last] - outbox.size
        return frames, packed, taken  # type: ignore[return-value]

    def _seal_cut(
        self, capacity: int, frames_max: int, bytes_max: int, header: tuple[int, ...]
    ) -> tuple[list[bytes], list[Packed], int]:
        if len(self._ready) != 1:
            return [], [], 0
        group = self._ready[0]
        frames, stops, taken = self._outboxes[group].seal_cut(capacity, frames_max, bytes_max, header)
        return frames, [[(group, stop)] for stop in stops], taken
