"""Repair bins: which frames go into one XOR, when it is made, and to whom it goes.

A node has bins for each region of which members share groups with it: frames of all these groups and of all senders
go into the same bins (seed 000, Figure 2). Of a group's copies a region gets its share by size. Several bins are
filled in turn, so that frames which follow each other are in different XORs.

What is spent is the same however full a bin is: an XOR of half as many frames goes to half as many members.
"""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from vivum.core.ids import Member, RegionId
from vivum.protocols.membership.region_config import RegionConfig
from vivum.protocols.ricochet.settings import TimelySettings

FrameId = tuple[int, int, int, int]
"""Sender, incarnation, group, number."""


class BinFrame(NamedTuple):
    """A frame in a bin, and how many members of the region are to get it, on average, if the bin is full.

    For this frame it is full with `frames_max` frames: groups may differ in that.
    """

    name: FrameId
    data: bytes
    share: float
    frames_max: int


class Repair(NamedTuple):
    """An XOR that is due: these frames, to this member."""

    target: Member
    frames: tuple[BinFrame, ...]


class RegionBins:
    """The bins for the members of one region."""

    __slots__ = ("_bins", "_counted", "_rng", "_since_ns", "_turn", "_width", "config", "targets")

    def __init__(self, config: RegionConfig, me: Member, rng: Random, now_ns: int) -> None:
        self.config = config
        self.targets = tuple(member for member in config.members if member != me)
        self._rng = rng
        self._bins: list[tuple[int, list[BinFrame]]] = [(now_ns, [])]
        self._turn = 0
        # How many bins are filled in turn; for measuring the rate: since when, how many frames.
        self._width = 1
        self._since_ns = now_ns
        self._counted = 0

    def add(self, now_ns: int, frame: BinFrame, settings: TimelySettings) -> list[Repair]:
        """Put a frame into the bin whose turn it is; return what is due if that is full."""
        self._counted += 1
        if self._turn >= self._width:
            self._turn = 0
            self._fit(now_ns, frame.frames_max, settings)
        index = self._turn
        self._turn += 1
        while index >= len(self._bins):
            self._bins.append((now_ns, []))
        since_ns, frames = self._bins[index]
        if not frames:
            since_ns = now_ns
        frames.append(frame)
        self._bins[index] = (since_ns, frames)
        # The smallest that any frame in it asks for is enough.
        is_full = len(frames) >= frame.frames_max or len(frames) >= min(each.frames_max for each in frames)
        return self._empty(index) if is_full else []

    def close_before(self, time_ns: int) -> list[Repair]:
        """Return what is due of bins that were begun before a time, however full they are."""
        due: list[Repair] = []
        for index, (since_ns, frames) in enumerate(self._bins):
            if frames and since_ns <= time_ns:
                due += self._empty(index)
        return due

    @property
    def is_empty(self) -> bool:
        """Whether no frame waits."""
        return not any(frames for _, frames in self._bins)

    def _fit(self, now_ns: int, frames_max: int, settings: TimelySettings) -> None:
        """Fill as many bins in turn as are full within `fill_ns` at the present rate."""
        elapsed_ns = now_ns - self._since_ns
        if self._counted < frames_max or not elapsed_ns:
            return
        width = round(self._counted * settings.fill_ns / (elapsed_ns * frames_max))
        self._width = max(1, min(width, settings.stride))
        self._since_ns, self._counted = now_ns, 0

    def _empty(self, index: int) -> list[Repair]:
        since_ns, frames = self._bins[index]
        self._bins[index] = (since_ns, [])
        # One draw for all: on average each frame goes to its share of members, and the XOR to the most of these.
        chance, size = self._rng.random(), len(frames)
        counts = [int(frame.share * min(1.0, size / frame.frames_max) + chance) for frame in frames]
        most = max(counts)
        if not most:
            return []
        config, targets = self.config, self.targets
        due = []
        for place, target in enumerate(self._rng.sample(targets, min(most, len(targets)))):
            # Not what it sent itself, nor of groups that it did not ask for.
            chosen = tuple(
                frame
                for frame, count in zip(frames, counts, strict=True)
                if count > place and frame.name[:2] != target and not config.lacks_group(target, frame.name[2])
            )
            if chosen:
                due.append(Repair(target, chosen))
        return due


class RepairBins:
    """The bins of one node, by region."""

    __slots__ = ("_by_region", "_rng", "_settings", "copies", "frames_max")

    def __init__(self, settings: TimelySettings, rng: Random) -> None:
        self._settings = settings
        self._rng = rng
        self._by_region: dict[RegionId, RegionBins] = {}
        self.frames_max = settings.repair_frames
        self.copies: float = settings.repair_copies

    def of(self, now_ns: int, config: RegionConfig, me: Member) -> RegionBins:
        """Return the bins for a region's members, of this view of it. What waits of an older view is dropped."""
        bins = self._by_region.get(config.region)
        if bins is None or bins.config is not config:
            bins = self._by_region[config.region] = RegionBins(config, me, self._rng, now_ns)
        return bins

    def add(
        self,
        now_ns: int,
        bins: RegionBins,
        name: FrameId,
        data: bytes,
        share: float,
        repair: tuple[int, float] | None = None,
    ) -> list[Repair]:
        """Put a frame into a region's bins; `share` is the region's part of the group. Return what is due by that.

        `repair` is the (r, c) of its group, if it has its own.
        """
        frames_max, copies = repair or (self.frames_max, self.copies)
        return bins.add(now_ns, BinFrame(name, data, share * copies, frames_max), self._settings)

    def close_old(self, now_ns: int) -> list[Repair]:
        """Return what is due because it has waited for long enough."""
        before_ns = now_ns - self._settings.fill_ns
        return [each for bins in self._by_region.values() for each in bins.close_before(before_ns)]

    @property
    def is_empty(self) -> bool:
        """Whether no frame waits in any bin."""
        return all(bins.is_empty for bins in self._by_region.values())

    def keep_only(self, regions: Sequence[RegionId]) -> None:
        """Forget bins of other regions."""
        self._by_region = {region: self._by_region[region] for region in regions if region in self._by_region}

    def clear(self) -> None:
        """Forget everything."""
        self._by_region.clear()
