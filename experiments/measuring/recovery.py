"""What one perturbed node misses, for how long it misses it, and how long it is behind the others.

A frame is missed from the moment when the node knows that it is lost, since others of its stream have come. It is
repaired when it has come after all, and given up when the node ends its life without it, to begin anew: then it is told
that it lost messages. The node is behind while it lacks frames that the others do not wait for any more, or is in no
view.
"""

from collections.abc import Iterable

from experiments.measuring.numbers import Numbers
from vivum.core.ids import Member
from vivum.core.ranges import RangeSet
from vivum.core.time import MILLISECOND
from vivum.protocols.qsm.machine import QsmMachine
from vivum.protocols.qsm.recovery.repaired_stream import RepairedStream
from vivum.protocols.streams.region_sender import RegionSender, ViewKey

RANGES_MAX = 4096
"""Gaps that are followed at once in a stream."""

Sending = Iterable[tuple[Member, ViewKey, RegionSender]]
"""Who sends what: each stream with its sender and its region view."""


class RecoveryLog:
    """What one node missed."""

    def __init__(self) -> None:
        self.behind_samples = 0
        self.frames_missed = 0
        self.frames_repaired = 0
        self.frames_given_up = 0
        self.lives_ended = 0
        self._repair_ns = 0
        self._repair_ns_max = 0
        self._samples = 0
        self._member: Member | None = None
        # For each stream: what is missing, in the order in which it was noticed, and since when.
        self._open: dict[RepairedStream, list[tuple[int, RangeSet]]] = {}

    def sample(self, now_ns: int, machine: QsmMachine, sending: Sending) -> None:
        """Look at a node, and at all that is sent."""
        self._samples += 1
        self.behind_samples += any(_is_behind(machine, *each) for each in sending)
        member = machine.member
        if member is not None and member != self._member:
            self.lives_ended += self._member is not None
            self._member = member
        streams = {stream for region in machine.regions.values() for stream in region.streams.values()}
        for stream in self._open.keys() - streams:
            self.frames_given_up += sum(missing.count() for _, missing in self._open.pop(stream))
        for stream in streams:
            self._look_at(now_ns, stream)

    def _look_at(self, now_ns: int, stream: RepairedStream) -> None:
        missing = RangeSet.from_bounds(stream.feedback(RANGES_MAX)[1])
        before = self._open.get(stream)
        if not missing and before is None:
            return
        still, new = [], missing.copy()
        for since_ns, lacked in before or ():
            left = lacked.intersection(missing)
            if repaired := lacked.count() - left.count():
                self.frames_repaired += repaired
                self._repair_ns += repaired * (now_ns - since_ns)
                self._repair_ns_max = max(self._repair_ns_max, now_ns - since_ns)
            new.difference_update(left)
            if left:
                still.append((since_ns, left))
        if new:
            self.frames_missed += new.count()
            still.append((now_ns, new))
        if still:
            self._open[stream] = still
        else:
            del self._open[stream]

    def sum_up(self, seconds: float, frames: float, events: int) -> Numbers:
        """Sum up; `frames` were sent meanwhile, and the node was perturbed so many times."""
        behind_ms = 1000 * seconds * self.behind_samples / self._samples
        numbers = {
            "missed_share": self.frames_missed / frames if frames else 0.0,
            "given_up_share": self.frames_given_up / frames if frames else 0.0,
            "behind_ms_each": behind_ms / events if events else 0.0,
            "lives_ended": float(self.lives_ended),
        }
        if self.frames_repaired:
            numbers["recover_ms_mean"] = self._repair_ns / self.frames_repaired / MILLISECOND
            numbers["recover_ms_max"] = self._repair_ns_max / MILLISECOND
        return numbers


def _is_behind(machine: QsmMachine, sender: Member, key: ViewKey, stream: RegionSender) -> bool:
    if stream.closed or not stream.first:
        return False
    region = machine.regions.get(key)
    mine = None if region is None else region.streams.get(sender)
    return mine is None or mine.window.prefix < stream.first
