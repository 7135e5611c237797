"""The whole state of the configuration service as bytes, for a standby that begins with nothing.

What can be derived is not written: owners of names and endpoints, which regions are neighbours, records of views that
are there, which clusters of regions go best together. A service that was read behaves as the one that was written,
whatever it is asked next.
"""

import msgspec

from vivum.core.errors import DecodeError
from vivum.core.ids import Endpoint, Incarnation, Member, NodeId, RegionId
from vivum.core.ranges import RangeSet
from vivum.protocols.membership.service.approximate import MergerState
from vivum.protocols.membership.service.regions import Bounds, MemberPlacement, Region
from vivum.protocols.membership.service.state import ConfigurationService, Life, Tombstone
from vivum.protocols.membership.settings import ServiceSettings
from vivum.wire.membership import RegionRecord


class _LifeState(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    node: int
    incarnation: int
    name: str
    host: str
    port: int
    age: int
    groups: Bounds
    request: int
    answered: int
    moved_epoch: int
    acknowledged: int
    passed: list[int]
    """Which of the records of views that are over."""


class _RegionState(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    region: int
    epoch: int
    concern_epoch: int
    key: Bounds
    members: list[tuple[int, int, Bounds]]
    """Node, incarnation, own groups; the rest is that of the life, or of one that ended in the open batch."""

    ages: list[tuple[int, str, int]]


class _State(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    settings: ServiceSettings
    epoch: int
    ends: list[int]
    lives: list[_LifeState]
    records: list[RegionRecord]
    regions: list[_RegionState]
    next_region: int
    former: list[tuple[str, int, int]]
    incarnations: list[tuple[int, int]]
    incarnation_floor: int
    next_node: int
    lives_begun: int
    changed: list[tuple[int, int]]
    went: tuple[list[int], list[int]]
    went_after_pruning: int
    tombstones: list[tuple[int, int, Bounds]]
    horizon: int
    exact_keys: list[tuple[Bounds, int]]
    merger: MergerState | None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_State).decode


def write_state(service: ConfigurationService) -> bytes:
    """Write the state of a service."""
    records: dict[tuple[int, int], int] = {}
    kept: list[RegionRecord] = []
    for life in service.lives.values():
        for record in life.passed:
            if records.setdefault((record.region, record.view), len(kept)) == len(kept):
                kept.append(record)
    state = _State(
        service.settings,
        service.epoch,
        list(service.ends),
        [_life_state(life, records) for life in service.lives.values()],
        kept,
        [_region_state(region) for region in service.regions.all()],
        service.regions.next_id,
        [(name, *member) for name, member in service._former.items()],
        list(service._incarnations.items()),
        service._incarnation_floor,
        service._next_node,
        service._lives_begun,
        [(member.node, member.incarnation) for member in service._changed],
        service._went.state(),
        service._went_after_pruning,
        [(each.epoch, each.region, each.key) for each in service._tombstones],
        service._horizon,
        list(service._exact_keys.items()),
        None if service._merger is None else service._merger.state(),
    )
    return _encode(state)


def _life_state(life: Life, records: dict[tuple[int, int], int]) -> _LifeState:
    passed = [records[record.region, record.view] for record in life.passed]
    numbers = (life.request, life.answered, life.moved_epoch, life.acknowledged)
    return _LifeState(*life.member, life.name, *life.endpoint, life.age, tuple(life.groups.bounds()), *numbers, passed)


def _region_state(region: Region) -> _RegionState:
    members: list[tuple[int, int, Bounds]] = []
    ages: list[tuple[int, str, int]] = []
    for age, member in region.by_age:
        placement = region.placements[member]
        members.append((*member, placement.own_groups))
        ages.append((age, *placement.endpoint))
    return _RegionState(region.region, region.epoch, region.concern_epoch, region.key, members, ages)


def read_state(content: bytes) -> ConfigurationService:
    """Make a service of what `write_state` wrote, with its settings, or raise a `DecodeError`."""
    try:
        state = _decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"state of the configuration service: {error}") from None
    service = ConfigurationService(state.settings)
    service.epoch = state.epoch
    service.ends = list(state.ends)
    for each in state.lives:
        service.enlist(_life(each, state.records))
    for region in state.regions:
        _add_region(service, region)
    service.regions.finish_restoring(RegionId(state.next_region))
    service._former = {name: _member(node, incarnation) for name, node, incarnation in state.former}
    service._former_names = {member: name for name, member in service._former.items()}
    service._incarnations = {NodeId(node): Incarnation(incarnation) for node, incarnation in state.incarnations}
    service._incarnation_floor = state.incarnation_floor
    service._next_node = state.next_node
    service._lives_begun = state.lives_begun
    changed = [_member(node, incarnation) for node, incarnation in state.changed]
    service._changed = {member: service.life_of(member) for member in changed}
    service._went.restore(*state.went)
    service._went_after_pruning = state.went_after_pruning
    service._tombstones = [Tombstone(epoch, region_id, key) for epoch, region_id, key in state.tombstones]
    service._horizon = state.horizon
    service._exact_keys = dict(state.exact_keys)
    if state.merger is not None:
        if sorted(key for _, keys in state.merger.clusters for key in keys) != sorted(service._exact_keys):
            raise DecodeError("state of the configuration service: clusters are not those of its exact regions")
        service.begin_merging(state.merger)
    return service


def _member(node: int, incarnation: int) -> Member:
    return Member(NodeId(node), Incarnation(incarnation))


def _life(state: _LifeState, records: list[RegionRecord]) -> Life:
    if any(index >= len(records) for index in state.passed):
        raise DecodeError("state of the configuration service: a view that is over is not there")
    return Life(
        _member(state.node, state.incarnation),
        state.name,
        Endpoint(state.host, state.port),
        state.age,
        RangeSet.from_bounds(state.groups),
        state.request,
        state.answered,
        state.moved_epoch,
        state.acknowledged,
        [records[index] for index in state.passed],
    )


def _add_region(service: ConfigurationService, state: _RegionState) -> None:
    placements: dict[Member, MemberPlacement] = {}
    for (node, incarnation, own), (age, host, port) in zip(state.members, state.ages, strict=True):
        placements[_member(node, incarnation)] = MemberPlacement(age, Endpoint(host, port), state.key, own)
    service.regions.restore(RegionId(state.region), state.epoch, state.concern_epoch, state.key, placements)
