"""Messages of many groups that wait for frames, pulled in turn so that groups share frames and none starves the others.

Invariants: no outbox is empty; `_ready` has each group once that has one and is not held back.
"""

from collections import deque
from collections.abc import Sequence

from vivum.core.ids import GroupId
from vivum.wire.codec import FrameBuilder
from vivum.wire.fragments import Outbox

Packed = list[tuple[GroupId, int]]
"""What is in a frame: for each group one past the last message that is wholly in frames now."""


class Outboxes:
    """One outbox for each group."""

    __slots__ = ("_cut_to_fill", "_outboxes", "_ready")

    def __init__(self, cut_to_fill: bool = True) -> None:
        """Begin with nothing. With `cut_to_fill` messages are cut so that frames are full."""
        self._cut_to_fill = cut_to_fill
        self._outboxes: dict[GroupId, Outbox] = {}
        self._ready: deque[GroupId] = deque()

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
            outbox = self._outboxes[group] = Outbox(group, self._cut_to_fill)
            if not hold:
                self._ready.append(group)
        outbox.put(first, payloads, size)

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
            self._ready.remove(group)
        return self._outboxes.pop(group)

    def adopt(self, group: GroupId, other: Outbox) -> None:
        """Queue what waits in an outbox of a group behind what waits of it here."""
        outbox = self._outboxes.get(group)
        if outbox is None:
            outbox = self._outboxes[group] = Outbox(group, self._cut_to_fill)
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
            waiting, was_cut = outbox.size, outbox.is_cut
            # A group that ended the last frame with a piece of a message ends its turn with the rest of it.
            packed.append((group, outbox.fill(builder, rest_only=was_cut and len(ready) > 1)))
            taken += waiting - outbox.size
            if not outbox:
                ready.popleft()
                # Thousands of groups that are silent now must not keep an empty box each.
                del self._outboxes[group]
            elif outbox.is_cut:
                # The frame is full. The next one begins with the rest, so that few messages are open at receivers;
                # but one that takes many frames shares them with the other groups.
                if was_cut:
                    ready.rotate(-1)
                break
            else:
                ready.rotate(-1)
                if not was_cut:
                    break
        return packed, taken

    def seal_run(
        self, builder: FrameBuilder, frames_max: int, bytes_max: int, header: tuple[int, ...]
    ) -> tuple[list[bytes], list[Packed], int]:
        """Seal full frames if one group alone waits: they, what is in each, and their bytes of messages. Often none."""
        if len(self._ready) != 1:
            return [], [], 0
        group = self._ready[0]
        outbox = self._outboxes[group]
        waiting = outbox.size
        frames, stops = outbox.seal_run(builder, frames_max, bytes_max, header)
        return frames, [[(group, stop)] for stop in stops], waiting - outbox.size
