"""Requests for repair at one member of a region view: asked, served, and carried up and down between rings.

A request goes round in the ring of the node that asks, since the holders of a frame may stand there. What the ring
does not have goes up with the result of its round, and down into the partition that caches it. What that partition
cannot give either is marked as tried, and ends at the top, where the sender is told to send to all.
"""

from collections.abc import Iterable, Mapping

from vivum.core.ids import Incarnation, Member, NodeId
from vivum.core.limits import Limits
from vivum.core.ranges import RangeSet
from vivum.protocols.qsm.recovery.aggregate import narrowed, without
from vivum.protocols.qsm.recovery.holders import partitions_below, split_by_partition
from vivum.protocols.qsm.recovery.repaired_stream import RepairedStream
from vivum.protocols.qsm.settings import QsmSettings
from vivum.protocols.rings.placement import Placement
from vivum.wire.codec import Frame
from vivum.wire.tokens import RepairRequest

REQUESTS_MAX = 256
"""Requests that one token carries: some 20 bytes each, so that a token stays a small control frame."""


class RepairDesk:
    """What a member asks for, gives, and passes on. Repairs wait in `repairs` until they are sent."""

    def __init__(self, me: Member, placement: Placement, levels: int, settings: QsmSettings, limits: Limits) -> None:
        self.repairs: list[tuple[NodeId, Frame]] = []
        self._me = me
        self._placement = placement
        self._settings = settings
        self._ranges_max = limits.ranges_max
        self._below = [partitions_below(placement, level, me.node) for level in range(levels)]
        # For each level: requests on their way up to the ring above, and down into the ring itself.
        self._upward: list[list[RepairRequest]] = [[] for _ in range(levels)]
        self._downward: list[list[RepairRequest]] = [[] for _ in range(levels)]

    # In the ring of nodes.

    def serve(self, requests: Iterable[RepairRequest], streams: Mapping[Member, RepairedStream]) -> list[RepairRequest]:
        """Send frames that somebody in the ring asks for and this node holds; keep the rest of the requests.

        Nobody serves its own frames here: a sender needs its link for what is new, and sends again to all what no
        holder could give.
        """
        left = []
        room = self._settings.repairs_per_token_max
        for request in requests:
            if request.node == self._me.node:
                continue
            stream = streams.get(Member(NodeId(request.sender), Incarnation(request.incarnation)))
            served = RangeSet()
            if stream is not None:
                for frame in stream.serve(request.bounds, room):
                    self.repairs.append((NodeId(request.node), frame))
                    served.add(frame.sequence)
                    room -= 1
            rest = without(request, served, self._ranges_max) if served else request
            if rest is not None:
                left.append(rest)
        return left

    def ask(
        self, now_ns: int, requests: Iterable[RepairRequest], streams: Mapping[Member, RepairedStream]
    ) -> tuple[list[RepairRequest], int]:
        """Ask in a passing token for what this node misses; return how many frames were found lost since the last."""
        before: dict[tuple[int, int], list[RepairRequest]] = {}
        for request in requests:
            if request.node == self._me.node:
                before.setdefault((request.sender, request.incarnation), []).append(request)
        mine: list[RepairRequest] = []
        lost = 0
        room = self._settings.asked_frames_max
        for sender, stream in streams.items():
            if stream.is_unwanted:
                continue
            old = before.get(sender, [])
            left = RangeSet()
            for request in old:
                left.update(RangeSet.from_bounds(request.bounds))
            wanted, newly_lost = stream.request(now_ns, left, self._ranges_max, room)
            lost += newly_lost
            room -= wanted.count()
            # What is still wanted keeps its age; what is new begins to go round.
            for request in old:
                kept = wanted.intersection(RangeSet.from_bounds(request.bounds))
                if kept:
                    mine.append(narrowed(request, kept, self._ranges_max))
                    wanted.difference_update(kept)
            if wanted:
                mine.append(RepairRequest(self._me.node, *sender, tuple(wanted.bounds())))
        return mine, lost

    # Between rings.

    def take_upward(self, level: int) -> list[RepairRequest]:
        """Hand over what a ring could not give, for the ring above."""
        taken, self._upward[level] = self._upward[level], []
        return taken

    def take_downward(self, level: int) -> list[RepairRequest]:
        """Hand over what is to go round in a ring."""
        taken, self._downward[level] = self._downward[level], []
        return taken

    def take_down(self, level: int, requests: Iterable[RepairRequest]) -> list[RepairRequest]:
        """Take requests for what the partitions below us cache; the rest goes on."""
        left = []
        for request in requests:
            if request.tried:
                left.append(request)
                continue
            mine, others = split_by_partition(request.bounds, self._placement, self._below[level - 1])
            if mine:
                self._downward[level - 1].append(narrowed(request, mine, self._ranges_max, age=0))
            if others:
                left.append(narrowed(request, others, self._ranges_max))
        del self._downward[level - 1][REQUESTS_MAX:]
        return left

    def seen_by_all(self, level: int, requests: Iterable[RepairRequest]) -> list[RepairRequest]:
        """Pick the requests that went all the way round. Younger ones go on: those before the asker may help."""
        seen = []
        for request in requests:
            if request.age or request.tried:
                seen.append(request)
                continue
            # No use to go round again for what is not cached in this ring.
            mine, others = split_by_partition(request.bounds, self._placement, self._below[level])
            if mine:
                self._downward[level].append(narrowed(request, mine, self._ranges_max, age=1))
            if others:
                seen.append(narrowed(request, others, self._ranges_max))
        return seen

    def send_up(self, level: int, requests: Iterable[RepairRequest]) -> None:
        """Keep what a ring could not give until the ring above takes it."""
        for request in requests:
            if request.tried:
                self._upward[level].append(request)
                continue
            mine, others = split_by_partition(request.bounds, self._placement, self._below[level])
            for part, tried in ((mine, True), (others, False)):
                if part:
                    self._upward[level].append(narrowed(request, part, self._ranges_max, tried=tried, age=0))
        del self._upward[level][REQUESTS_MAX:]
