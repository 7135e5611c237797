"""Frames rebuilt from XORs: what this node has is taken out, and what is left is the one that it lacks.

An XOR that lacks several frames is kept, and gets shorter as others of them come, by whatever way. If all that one
lacks is also lacking in another, the difference of both is left in the other.

What is rebuilt is a guess until its CRC-32 is that of the name: then it is handed out, else refused and counted.

Invariants: every XOR that is kept lacks at least two frames; none of these is in the history; `_lacking` has exactly
the frames that kept XORs lack. Nothing grows past its limit.
"""

from collections.abc import Callable
from zlib import crc32

from vivum.observe.counters import Counters
from vivum.protocols.ricochet.bins import FrameId
from vivum.wire.xor import xor_all


class _Kept:
    """An XOR that lacks several frames, with their checksums."""

    __slots__ = ("data", "lacks")

    def __init__(self, data: bytes, lacks: dict[FrameId, int]) -> None:
        self.data = data
        self.lacks = lacks


class Rebuilder:
    """The recent frames of one node, and XORs that wait for more."""

    __slots__ = ("_bytes", "_bytes_max", "_counters", "_frames", "_frames_max", "_kept", "_kept_max", "_lacking")

    def __init__(self, frames_max: int, bytes_max: int, kept_max: int, counters: Counters) -> None:
        self._frames_max = frames_max
        self._bytes_max = bytes_max
        self._kept_max = kept_max
        self._counters = counters
        self._frames: dict[FrameId, bytes] = {}
        self._bytes = 0
        # In the order in which they came.
        self._kept: dict[int, _Kept] = {}
        self._lacking: dict[FrameId, dict[int, None]] = {}

    @property
    def held_bytes(self) -> int:
        """Bytes that are kept."""
        return self._bytes + sum(len(kept.data) for kept in self._kept.values())

    @property
    def kept_count(self) -> int:
        """How many XORs wait for more."""
        return len(self._kept)

    def clear(self) -> None:
        """Forget everything."""
        self._frames.clear()
        self._bytes = 0
        self._kept.clear()
        self._lacking.clear()

    def add(self, name: FrameId, data: bytes) -> list[tuple[FrameId, bytes]]:
        """Take a frame of this node's; return those that can be rebuilt by that."""
        rebuilt: list[tuple[FrameId, bytes]] = []
        self._add(name, data, rebuilt)
        return rebuilt

    def on_repair(
        self, names: dict[FrameId, int], data: bytes, is_needed: Callable[[FrameId], bool]
    ) -> list[tuple[FrameId, bytes]]:
        """Take an XOR of frames with these checksums; return what can be rebuilt.

        A frame that is not in the history, and is not needed either, was there and was forgotten: such an XOR is
        of no use.
        """
        frames = self._frames
        lacks = [name for name in names if name not in frames]
        if not lacks or not all(map(is_needed, lacks)):
            self._counters.lateral_wasted += 1
            return []
        rebuilt: list[tuple[FrameId, bytes]] = []
        self._settle(_Kept(data, dict(names)), rebuilt)
        return rebuilt

    def _add(self, name: FrameId, data: bytes, rebuilt: list[tuple[FrameId, bytes]]) -> None:
        if name in self._frames:
            return
        self._frames[name] = data
        self._bytes += len(data)
        while len(self._frames) > self._frames_max or self._bytes > self._bytes_max:
            oldest = next(iter(self._frames))
            self._bytes -= len(self._frames.pop(oldest))
        for key in list(self._lacking.get(name, ())):
            kept = self._kept.get(key)
            if kept is None or name not in kept.lacks:
                continue
            self._drop(key)
            self._settle(kept, rebuilt)

    def _settle(self, kept: _Kept, rebuilt: list[tuple[FrameId, bytes]]) -> None:
        """Rebuild the frame that an XOR lacks, or keep it for later if it lacks several."""
        # Of a frame that is being added other XORs may not have heard yet.
        had = [name for name in kept.lacks if name in self._frames]
        if any(len(self._frames[name]) > len(kept.data) for name in had):
            self._counters.lateral_refused += 1
            return
        if had:
            kept.data = xor_all([kept.data, *(self._frames[name] for name in had)])
            kept.lacks = {name: crc for name, crc in kept.lacks.items() if name not in self._frames}
        self._reduce(kept)
        if not kept.lacks:
            self._counters.lateral_wasted += 1
            return
        if len(kept.lacks) > 1:
            self._keep(kept)
            return
        ((name, crc),) = kept.lacks.items()
        data = kept.data[: int.from_bytes(kept.data[2:4], "little")]
        if any(kept.data[len(data) :]) or crc32(data) != crc:
            self._counters.lateral_refused += 1
            return
        rebuilt.append((name, data))
        self._add(name, data, rebuilt)

    def _reduce(self, kept: _Kept) -> None:
        """Take out of an XOR what kept ones lack, as long as one lacks nothing else."""
        is_shorter = True
        while is_shorter and len(kept.lacks) > 1:
            is_shorter = False
            for key in {key: None for name in kept.lacks for key in self._lacking.get(name, ())}:
                other = self._kept[key]
                if other.lacks.items() <= kept.lacks.items() and len(other.lacks) < len(kept.lacks):
                    kept.lacks = {name: crc for name, crc in kept.lacks.items() if name not in other.lacks}
                    kept.data = xor_all([kept.data, other.data])
                    is_shorter = True
                    break

    def _keep(self, kept: _Kept) -> None:
        if self._kept_max == 0:
            self._counters.lateral_wasted += 1
            return
        key = next(reversed(self._kept)) + 1 if self._kept else 0
        self._counters.lateral_kept += 1
        self._kept[key] = kept
        for name in kept.lacks:
            self._lacking.setdefault(name, {})[key] = None
        if len(self._kept) > self._kept_max:
            self._counters.lateral_wasted += 1
            self._drop(next(iter(self._kept)))

    def _drop(self, key: int) -> None:
        kept = self._kept.pop(key)
        for name in kept.lacks:
            keys = self._lacking[name]
            del keys[key]
            if not keys:
                del self._lacking[name]
