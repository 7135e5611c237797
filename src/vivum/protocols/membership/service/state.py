"""The configuration service as a deterministic state machine (`docs/design/membership.md`).

Its state is a function of the calls `join`, `subscribe`, `acknowledge`, `leave` and `close_batch`, in their order: no
time, no randomness, no messages. So it can be replicated by feeding each copy the same log. What each
node was told and which are suspected is kept by `machine`.

Invariants: at most one life of a node at a time; incarnations of a node and epochs only grow; a life that ended
never comes back; a request of a life is applied once, in the order of their numbers; a region view is kept until each
of its members has acknowledged it, or is gone.
"""

from dataclasses import dataclass, field

from vivum.core.ids import Endpoint, Incarnation, Member, NodeId, RegionId
from vivum.core.ranges import RangeSet
from vivum.protocols.membership.group_epochs import GroupEpochs
from vivum.protocols.membership.service.approximate import MergerState, RegionMerger
from vivum.protocols.membership.service.regions import (
    Bounds,
    MemberPlacement,
    Region,
    RegionChanges,
    Regions,
    share_a_group,
)
from vivum.protocols.membership.settings import ServiceSettings
from vivum.wire.layout import U16_MAX
from vivum.wire.membership import ConfigurationChanges, RegionRecord
from vivum.wire.standby import ERAS_MAX

ERA_BITS = 20
"""Epochs of one era, between two take-overs: a million; what is above these bits tells the eras apart."""

ERA_INCARNATIONS = 64
"""Lives of one node in one era, of which the next one may not have heard: its own are counted from above these."""

ERA_REGIONS = 1 << 20
"""The same for regions."""

SALTS = 1 << 15
"""Histories of one domain begin their lives at one of this many numbers: half of all, so that 500 eras can follow."""


@dataclass(slots=True, eq=False)
class Life:
    """One life of one node, from its `Join` to its end."""

    member: Member
    name: str
    endpoint: Endpoint
    age: int
    """Counts the lives of the domain: the order of joining, which ranks members."""

    groups: RangeSet = field(default_factory=RangeSet)
    """The groups after the last request; they take effect with the next epoch."""

    request: int = 0
    answered: int = 0
    """Its last request that took effect: what it is told was applied."""

    moved_epoch: int = 0
    """The epoch in which it entered its region, or left the last one."""

    acknowledged: int = 0
    """The epoch at which it said that it stands."""

    passed: list[RegionRecord] = field(default_factory=list)
    """Region views that it was a member of, that are over, and of which it may not have heard; in order."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A region that went."""

    epoch: int
    region: int
    key: Bounds


class ConfigurationService:
    """The members of the domain, their groups and regions, numbered by epochs."""

    def __init__(self, settings: ServiceSettings | None = None) -> None:
        self.settings = settings or ServiceSettings()
        self.epoch = 0
        # The last epoch before each take-over: what came after it, in the same era, is not of this history.
        self.ends: list[int] = []
        self.lives: dict[NodeId, Life] = {}
        self.regions = Regions()
        self._by_name: dict[str, Life] = {}
        self._former: dict[str, Member] = {}
        self._former_names: dict[Member, str] = {}
        self._by_endpoint: dict[Endpoint, Life] = {}
        self._incarnations: dict[NodeId, Incarnation] = {}
        self._incarnation_floor = 0
        self._next_node = 1
        self._lives_begun = 0
        self._changed: dict[Member, Life | None] = {}
        self._went = GroupEpochs()
        self._went_after_pruning = 0
        self._tombstones: list[Tombstone] = []
        # A node that stopped before this epoch cannot be told what went: it gets everything.
        self._horizon = 0
        self._exact_keys: dict[Bounds, int] = {}
        # While there are, or lately were, more exact regions than regions_max.
        self._merger: RegionMerger | None = None

    # Lives.

    def life_of(self, member: Member) -> Life | None:
        """Find a life, if it is the current one of its node."""
        life = self.lives.get(member.node)
        return life if life is not None and life.member == member else None

    def former_life(self, name: str) -> Member | None:
        """Return which life a process of this name had, if that has ended."""
        return self._former.get(name)

    def name_of_former(self, member: Member) -> str:
        """Return the name of the process that had this life; empty if forgotten or never known."""
        return self._former_names.get(member, "")

    def knew(self, member: Member) -> bool:
        """Return whether this is a life that this service gave or took over, also if it has ended since."""
        return self.life_of(member) is not None or member in self._former_names

    def join(self, name: str, wanted: NodeId, endpoint: Endpoint) -> Life | None:
        """Give a process a node id and a life; the same again if it asks again. None if that ended or no id is left.

        Two processes cannot have one endpoint, so a former life there has died unnoticed: it ends now.
        """
        known = self._by_name.get(name)
        if known is not None:
            return known
        if name in self._former:
            return None
        former = self._by_endpoint.get(endpoint)
        if former is not None:
            self._end(former)
            wanted = wanted or former.member.node
        node = self._choose_node(wanted)
        if node is None:
            return None
        incarnation = Incarnation(max(self._incarnations.get(node, 0), self._incarnation_floor) + 1)
        self._incarnations[node] = incarnation
        self._lives_begun += 1
        life = Life(Member(node, incarnation), name, endpoint, self._lives_begun)
        self.enlist(life)
        return life

    def enlist(self, life: Life) -> None:
        """Enter a life in all lists."""
        self.lives[life.member.node] = self._by_name[life.name] = self._by_endpoint[life.endpoint] = life

    def has_endpoint(self, endpoint: Endpoint) -> bool:
        """Return whether a life has this endpoint."""
        return endpoint in self._by_endpoint

    def knows_name(self, name: str) -> bool:
        """Return whether a process of this name has a life."""
        return name in self._by_name

    def subscribe(self, life: Life, request: int, add: RangeSet, remove: RangeSet) -> bool:
        """Change the groups of a life, if the request is its next one. False if it is out of order or too much."""
        if request <= life.request:
            return True
        if request != life.request + 1:
            return False
        groups = life.groups.copy()
        groups.difference_update(remove)
        groups.update(add)
        if groups.range_count > self.settings.group_ranges_max:
            return False
        life.groups = groups
        life.request = request
        self._changed[life.member] = life
        return True

    def acknowledge(self, life: Life, epoch: int) -> None:
        """Note that a life stands at an epoch: it has seen all region views up to there that it belongs to."""
        assert epoch <= self.epoch, "nobody can stand at an epoch that never was"
        if epoch > life.acknowledged:
            life.acknowledged = epoch
            if life.passed:
                life.passed = [record for record in life.passed if record.view > epoch]

    def leave(self, life: Life) -> None:
        """End a life: it left, or was found dead."""
        assert self.life_of(life.member) is life, "only a current life can end"
        self._end(life)

    def _end(self, life: Life) -> None:
        del self.lives[life.member.node]
        del self._by_name[life.name]
        del self._by_endpoint[life.endpoint]
        self._former[life.name] = life.member
        self._former_names[life.member] = life.name
        if len(self._former) > self.settings.names_max:
            forgotten = self._former.pop(next(iter(self._former)))
            del self._former_names[forgotten]
        self._changed[life.member] = None

    def _choose_node(self, wanted: NodeId) -> NodeId | None:
        """Take the id that is wanted, else one that was never used, else the lowest that is free."""
        if len(self.lives) >= self.settings.nodes_max:
            return None
        if wanted and self._is_free(wanted):
            return wanted
        while self._next_node <= self.settings.nodes_max:
            node = NodeId(self._next_node)
            self._next_node += 1
            if node not in self._incarnations:
                return node
        return next((node for node in sorted(self._incarnations) if self._is_free(node)), None)

    def _is_free(self, node: NodeId) -> bool:
        """Return whether an id is free. Ids above nodes_max never are, so that memory of former lives stays bounded."""
        if node > self.settings.nodes_max:
            return False
        return node not in self.lives and max(self._incarnations.get(node, 0), self._incarnation_floor) < U16_MAX

    # Epochs.

    @property
    def has_changes(self) -> bool:
        """Whether a batch is open."""
        return bool(self._changed)

    def close_batch(self) -> list[Member]:
        """Make one epoch of all changes since the last; return whom it concerns. No epoch if no region changed."""
        touched, self._changed = self._changed, {}
        for life in touched.values():
            if life is not None:
                life.answered = life.request
        epoch = self.epoch + 1
        moves = self._placements_of(touched)
        before = [region.record for region in self.regions.touched_by(moves)]
        changes = self.regions.apply(moves, epoch)
        if not changes.changed and not changes.gone:
            return []
        self.epoch = epoch
        self._keep_passed(before)
        self._note_gone(changes, epoch)
        concerned: dict[Member, None] = {}
        for member in moves:
            life = self.life_of(member)
            if life is not None:
                life.moved_epoch = epoch
                concerned[member] = None
        for region in changes.concerned:
            concerned |= dict.fromkeys(region.members)
        return list(concerned)

    def _keep_passed(self, before: list[RegionRecord]) -> None:
        """Keep the views that are over for those members that may not have heard of them."""
        for record in sorted(before, key=lambda record: record.view):
            region = self.regions.find(RegionId(record.region))
            if region is not None and region.epoch == record.view:
                continue
            for each in record.members:
                life = self.lives.get(NodeId(each.node))
                if life is not None and life.member.incarnation == each.incarnation and life.acknowledged < record.view:
                    life.passed.append(record)

    def overdue(self) -> list[Life]:
        """List the lives for which more views are kept than passed_max: they must be dropped."""
        return [life for life in self.lives.values() if len(life.passed) > self.settings.passed_max]

    def _note_gone(self, changes: RegionChanges, epoch: int) -> None:
        for region in changes.gone:
            self._went.set_groups(region.groups, epoch)
            self._tombstones.append(Tombstone(epoch, region.region, region.key))
        surplus = len(self._tombstones) - self.settings.tombstones_max
        if surplus > 0:
            self._horizon = self._tombstones[surplus - 1].epoch
            del self._tombstones[:surplus]
        self._maybe_prune_went()

    def begin_anew(self, round_: int, salt: int) -> None:
        """Begin a history of its own, in a round that is later than any known here, or in round 0.

        Two that begin at once may know nothing of each other: the salt keeps their lives apart, or a node of one would
        be taken for a node of the other when they meet.
        """
        self._incarnation_floor = salt % SALTS
        if round_:
            self.take_over(round_)

    def take_over(self, round_: int) -> None:
        """Begin the era of a round: its epochs, lives and regions have numbers that no other service can have given."""
        assert round_ > self.epoch >> ERA_BITS, "a later era"
        self.ends = [*self.ends, self.epoch][-ERAS_MAX:]
        lives = (round_ - (self.epoch >> ERA_BITS)) * ERA_INCARNATIONS
        self.epoch = round_ << ERA_BITS
        self._incarnation_floor = min(self._incarnation_floor + lives, U16_MAX - ERA_INCARNATIONS)
        self.regions.next_id = RegionId(max(self.regions.next_id, round_ * ERA_REGIONS))

    def _placements_of(self, touched: dict[Member, Life | None]) -> dict[Member, MemberPlacement | None]:
        """Return where members go: to the region of their exact groups, or to one that covers them and is shared."""
        moves: dict[Member, MemberPlacement | None] = {}
        keys: dict[Bounds, None] = {}
        for member, life in touched.items():
            placed = self.regions.placement_of(member)
            own = tuple(life.groups.bounds()) if life is not None else ()
            if (placed.own_groups if placed is not None else ()) == own:
                continue
            moves[member] = None
            if placed is not None:
                self._count_key(placed.own_groups, -1)
                keys[placed.own_groups] = None
            if life is not None and own:
                moves[member] = MemberPlacement(life.age, life.endpoint, own, own)
                self._count_key(own, +1)
                keys[own] = None
        merger = self._merger
        if merger is None and len(self._exact_keys) > self.settings.regions_max:
            singles = [(number, [key]) for number, key in enumerate(sorted(self._exact_keys))]
            merger = self.begin_merging(MergerState(singles, 0, 0))
            keys.clear()
        if merger is None or not moves:
            return moves
        return self._merged_placements(merger, moves, {key: self._exact_keys.get(key, 0) for key in keys})

    def _count_key(self, key: Bounds, step: int) -> None:
        count = self._exact_keys.get(key, 0) + step
        if count:
            self._exact_keys[key] = count
        else:
            del self._exact_keys[key]

    def begin_merging(self, state: MergerState) -> RegionMerger:
        """Merge regions from now on, beginning with these clusters."""
        self._merger = RegionMerger(self.settings.regions_max, self.settings.waste_max)
        self._merger.restore(state, self._exact_keys)
        return self._merger

    def _merged_placements(
        self, merger: RegionMerger, moves: dict[Member, MemberPlacement | None], counts: dict[Bounds, int]
    ) -> dict[Member, MemberPlacement | None]:
        """Merge, and move also those whose groups did not change but whose region did."""
        left = merger.update(counts)
        others: list[tuple[int, Member, MemberPlacement]] = []
        for cover in set(left.values()):
            region = self.regions.find_cover(cover)
            for member, placed in region.placements.items() if region is not None else ():
                if member not in moves and placed.own_groups in left:
                    others.append((placed.age, member, placed))
        result = dict(moves)
        # By age: which region is made first, and so which id it gets, must not depend on the order of a set.
        for member, placement in [*moves.items(), *((member, placed) for _, member, placed in sorted(others))]:
            if placement is not None:
                result[member] = placement._replace(region_groups=merger.cover_of(placement.own_groups))
        if len(self._exact_keys) <= self.settings.regions_max // 2:
            # All are exact again. Not sooner, or a domain on the brink would begin anew at every other change.
            self._merger = None
        return result

    def _maybe_prune_went(self) -> None:
        """Forget numbers of groups that nobody has: a later member has a region view above all of them."""
        if len(self._went) <= 1024 + 2 * self._went_after_pruning:
            return
        self._went.keep_only(self.regions.groups())
        self._went_after_pruning = len(self._went)

    # What members are told.

    def concern_epoch(self, life: Life) -> int:
        """Return the last epoch that concerns a life; a life below it must be told."""
        region = self.regions.region_of(life.member)
        return life.moved_epoch if region is None else max(life.moved_epoch, region.concern_epoch)

    def base_for(self, life: Life) -> int:
        """Return from which epoch on a life can be told changes alone; 0: it must be told everything."""
        known = life.acknowledged
        return 0 if known < life.moved_epoch or known < self._horizon else known

    def changes_for(
        self, region: Region | None, base: int, passed: tuple[RegionRecord, ...] = ()
    ) -> ConfigurationChanges:
        """Return what to tell members of a region that are at epoch `base` and were in these views meanwhile."""
        if region is None:
            return ConfigurationChanges((), (), (), passed)
        records = tuple(each.record for each in self.regions.near(region, base))
        gone: list[int] = []
        if base:
            for tombstone in reversed(self._tombstones):
                if tombstone.epoch <= base:
                    break
                if share_a_group(tombstone.key, region.key):
                    gone.append(tombstone.region)
        # A number at or below that of the own region's view does not show in any group view.
        went = self._went.above(region.groups, max(base, region.epoch))
        return ConfigurationChanges(records, tuple(gone), tuple(went), passed)
