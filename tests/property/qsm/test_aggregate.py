"""What a token says of a stream is what an oracle says that asks every member."""

from hypothesis import given
from hypothesis import strategies as st

from vivum.core.ranges import RangeSet
from vivum.protocols.qsm.recovery.aggregate import beyond, is_held_back, merge
from vivum.protocols.qsm.recovery.holders import partition_of, partitions_below, split_by_partition
from vivum.protocols.rings.placement import place
from vivum.wire.tokens import NOBODY, StreamRecord

STABLE = 10


def record(
    node: int, prefix: int, stable: int = STABLE, stop: int = 0, closed: bool = False, held: int = 0
) -> StreamRecord:
    """What one member says, as `RegionMember` puts it; so many frames it has not delivered."""
    stop, delivered = max(stop, prefix, stable), max(0, prefix - held)
    if prefix < stable:
        return StreamRecord(1, 1, stable, 0, stop, closed, NOBODY, 0, NOBODY, prefix, delivered=delivered)
    return StreamRecord(1, 1, stable, 0, stop, closed, prefix, node, NOBODY, NOBODY, delivered=delivered)


prefixes = st.lists(st.integers(0, 30), min_size=1, max_size=8)


@given(prefixes, st.data())
def test_merged_records_say_what_an_oracle_says_in_any_order_and_tree(found: list[int], data: st.DataObject) -> None:
    parts = [record(node, prefix) for node, prefix in enumerate(found, 1)]
    while len(parts) > 1:
        one = parts.pop(data.draw(st.integers(0, len(parts) - 1)))
        other = parts.pop(data.draw(st.integers(0, len(parts) - 1)))
        parts.append(merge(one, other))
    (merged,) = parts
    waited_for = sorted(prefix for prefix in found if prefix >= STABLE)
    behind = [prefix for prefix in found if prefix < STABLE]
    assert merged.prefix == (waited_for[0] if waited_for else NOBODY)
    assert merged.runner_up == (waited_for[1] if len(waited_for) > 1 else NOBODY)
    assert merged.behind == min(behind, default=NOBODY)
    assert merged.stop == max(*found, STABLE)
    if waited_for:
        assert found[merged.slowest - 1] == waited_for[0]


@given(prefixes, st.lists(st.integers(0, 30), min_size=1, max_size=8))
def test_however_old_what_members_know_nobody_is_left_out_of_the_floor(found: list[int], known: list[int]) -> None:
    merged: StreamRecord | None = None
    for node, prefix in enumerate(found, 1):
        mine = record(node, prefix, stable=known[node % len(known)])
        merged = mine if merged is None else merge(merged, mine)
    assert merged is not None
    # What would be decided: never a floor above what somebody lacks.
    reached = merged.stable if merged.prefix == NOBODY else max(merged.stable, min(merged.prefix, merged.stop))
    assert min(reached, merged.behind) <= max(merged.stable, min(found))
    lowest = min(found)
    assert lowest >= merged.stable or merged.behind == lowest


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), min_size=1, max_size=8),
    st.lists(st.integers(0, 30), min_size=1, max_size=8),
)
def test_however_old_what_members_know_what_one_of_them_holds_back_is_told(
    found: list[tuple[int, int]], known: list[int]
) -> None:
    merged: StreamRecord | None = None
    for node, (prefix, held) in enumerate(found, 1):
        mine = record(node, prefix, stable=known[node % len(known)], held=held)
        merged = mine if merged is None else merge(merged, mine)
    assert merged is not None
    lowest, delivered = min(prefix for prefix, _ in found), min(max(0, prefix - held) for prefix, held in found)
    assert merged.delivered == delivered
    assert is_held_back(merged) == (delivered < lowest)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=6))
def test_a_stream_is_closed_if_the_one_who_knows_most_of_it_says_so(said: list[tuple[int, bool]]) -> None:
    merged: StreamRecord | None = None
    for stop, closed in said:
        mine = record(1, 0, stable=0, stop=stop, closed=closed)
        merged = mine if merged is None else merge(merged, mine)
    assert merged is not None
    furthest = max(stop for stop, _ in said)
    assert merged.closed == any(closed for stop, closed in said if stop == furthest)


@given(st.integers(1, 60), st.integers(2, 7), st.lists(st.integers(0, 400), max_size=6, unique=True))
def test_ranges_are_split_into_what_partitions_cache_and_the_rest(nodes: int, size: int, cuts: list[int]) -> None:
    placement = place(list(range(1, nodes + 1)), size)
    bounds = tuple(sorted(cuts)[: len(cuts) // 2 * 2])
    wanted = {number for start, stop in zip(bounds[::2], bounds[1::2], strict=True) for number in range(start, stop)}
    for level in range(len(placement.levels)):
        for node in range(1, nodes + 1):
            inside = partitions_below(placement, level, node)
            mine, others = split_by_partition(bounds, placement, inside)
            assert set(mine) == {number for number in wanted if partition_of(placement, number) in inside}
            assert set(mine) | set(others) == wanted
            assert not set(mine) & set(others)


@given(st.integers(1, 60), st.integers(2, 7))
def test_the_partitions_below_all_rings_of_a_level_are_all_partitions_once(nodes: int, size: int) -> None:
    placement = place(list(range(1, nodes + 1)), size)
    for level, rings in enumerate(placement.levels):
        found = [each for plan in rings for each in partitions_below(placement, level, plan.slots[0][0])]
        assert found == list(range(placement.partitions))


@given(st.lists(st.tuples(st.integers(0, 40), st.sets(st.integers(0, 39), max_size=12)), min_size=1, max_size=6))
def test_feedback_tells_of_no_frame_that_somebody_lacks(members: list[tuple[int, set[int]]]) -> None:
    """Each member has all frames below its reach, but for those that it lacks."""
    whole = None
    for reach, lacks in members:
        lacking = RangeSet((number, number + 1) for number in sorted(lacks) if number < reach)
        mine = StreamRecord(1, 1, 0, 0, 40, False, 0, 1, NOBODY, NOBODY, 0, reach, tuple(lacking.bounds()))
        whole = mine if whole is None else merge(whole, mine)
    assert whole is not None
    told = set(RangeSet.from_bounds(beyond(0, whole.reach, whole.lacking)))
    lowest = min(reach for reach, _ in members)
    assert told == set(range(lowest)) - set().union(*(lacks for _, lacks in members))
