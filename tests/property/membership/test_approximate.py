"""Merging of regions against the dumb way: compare all pairs, merge the best one, begin again."""

import random
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from vivum.core.ranges import RangeSet
from vivum.protocols.membership.service.approximate import RegionMerger, waste_of


def bounds_of(groups):
    return tuple(RangeSet((group, group + 1) for group in groups).bounds())


def groups_in(bounds):
    return frozenset(RangeSet.from_bounds(bounds))


KEYS = st.sets(st.integers(0, 15), min_size=1, max_size=8).map(bounds_of)
LIMITS = st.tuples(st.integers(1, 8), st.floats(0, 0.9))


def like_minded(seed, nodes):
    """Make exact regions of nodes that share three tastes, so that much can be merged, in many orders."""
    rng = random.Random(seed)
    tastes = [rng.sample(range(24), 6) for _ in range(3)]
    chosen = [{*rng.sample(rng.choice(tastes), rng.randint(3, 6)), rng.randrange(24)} for _ in range(nodes)]
    return {bounds_of(groups): rng.randint(1, 3) for groups in chosen}


def waste_among(keys, counts):
    cover = frozenset().union(*map(groups_in, keys))
    members = sum(counts[key] for key in keys)
    return waste_of(len(cover), members, sum(counts[key] * len(groups_in(key)) for key in keys))


def merge_dumbly(counts, regions_max, waste_max):
    """Take all pairs again after every merge. A merged cluster keeps the lower number; equal covers are one cluster."""
    clusters = {number: [key] for number, key in enumerate(sorted(counts))}
    covers = {number: groups_in(keys[0]) for number, keys in clusters.items()}
    while len(clusters) > regions_max:
        pairs = [
            (waste, a, b)
            for a, b in combinations(sorted(clusters), 2)
            if covers[a] & covers[b] and (waste := waste_among(clusters[a] + clusters[b], counts)) <= waste_max
        ]
        if not pairs:
            break
        _, a, b = min(pairs)
        clusters[a] += clusters.pop(b)
        covers[a] |= covers.pop(b)
        for twin in [each for each in clusters if each != a and covers[each] == covers[a]]:
            low, high = min(a, twin), max(a, twin)
            clusters[low] = clusters[a] + clusters[twin]
            covers[low] = covers[a]
            del clusters[high], covers[high]
            a = low
    return {frozenset(keys) for keys in clusters.values()}


def clusters_of(merger, counts):
    found = {}
    for key in counts:
        found.setdefault(merger.cover_of(key), []).append(key)
    return found


def check(merger, counts, regions_max, waste_max):
    clusters = clusters_of(merger, counts)
    assert len(merger) == len(clusters)
    for cover, keys in clusters.items():
        assert groups_in(cover) == frozenset().union(*map(groups_in, keys)), "no group that nobody asked for"
        assert waste_among(keys, counts) <= waste_max
    if len(counts) <= regions_max:
        assert all(keys == [cover] for cover, keys in clusters.items()), "few enough stay exact"
    if len(clusters) > regions_max:
        for a, b in combinations(clusters, 2):
            shares = groups_in(a) & groups_in(b)
            assert not shares or waste_among(clusters[a] + clusters[b], counts) > waste_max, "no merge was missed"


@given(
    st.dictionaries(KEYS, st.integers(1, 5), max_size=14)
    | st.builds(like_minded, st.integers(0, 2**32), st.integers(6, 14)),
    LIMITS,
)
@settings(deadline=None)
def test_regions_that_come_at_once_are_merged_as_by_comparing_all_pairs(counts, limits):
    merger = RegionMerger(*limits)
    merger.update(counts)
    check(merger, counts, *limits)
    found = clusters_of(merger, counts)
    assert {frozenset(keys) for keys in found.values()} == merge_dumbly(counts, *limits)


@given(st.lists(st.dictionaries(KEYS, st.integers(0, 3), min_size=1, max_size=4), max_size=12), LIMITS, st.randoms())
def test_any_history_keeps_the_bounds_and_a_copy_goes_the_same_way(history, limits, rng):
    merger, counts, covers = RegionMerger(*limits), {}, {}
    for changes in history:
        counts = {key: count for key, count in (counts | changes).items() if count}
        changed = merger.update(changes)
        check(merger, counts, *limits)
        before, covers = covers, {key: merger.cover_of(key) for key in counts}
        assert changed == {key: before[key] for key in counts if key in before and before[key] != covers[key]}
        copy = RegionMerger(*limits)
        copy.restore(merger.state(), counts)
        assert copy.state() == merger.state()
        if rng.random() < 0.5:
            merger = copy


def mean_waste(clusters, counts):
    members = sum(counts.values())
    return sum(waste_among(keys, counts) * sum(counts[key] for key in keys) for keys in clusters) / members


def live_through(seed, regions_max, waste_max, changes=40):
    """Let nodes of a few tastes, each with whims, come and go one by one. Returns the merger and the members."""
    rng = random.Random(seed)
    tastes = [rng.sample(range(60), 12) for _ in range(6)]
    merger, counts = RegionMerger(regions_max, waste_max), {}
    for _ in range(changes):
        if counts and rng.random() < 0.3:
            change = {rng.choice(sorted(counts)): 0}
        else:
            taste = rng.choice(tastes)
            change = {bounds_of({*rng.sample(taste, rng.randint(9, 12)), rng.randrange(60)}): rng.randint(1, 2)}
        counts = {key: count for key, count in (counts | change).items() if count}
        merger.update(change)
    return merger, counts


@given(st.integers(0, 2**32), st.integers(2, 10), st.sampled_from([0.25, 0.5]))
@settings(max_examples=20, deadline=None)
def test_changes_one_by_one_never_leave_half_as_many_regions_again_as_all_at_once(seed, regions_max, waste_max):
    merger, counts = live_through(seed, regions_max, waste_max)
    check(merger, counts, regions_max, waste_max)
    assert len(merger) <= 1.5 * max(regions_max, len(merge_dumbly(counts, regions_max, waste_max)))


def test_changes_one_by_one_come_to_as_many_regions_and_as_little_waste_as_all_at_once():
    """On the average of 30 histories: at most a twentieth more regions, at most 0.02 more waste."""
    regions, wastes = [], []
    for seed in range(30):
        regions_max, waste_max = 2 + seed % 8, (0.25, 0.5)[seed % 2]
        merger, counts = live_through(seed, regions_max, waste_max)
        dumb = merge_dumbly(counts, regions_max, waste_max)
        regions.append(len(merger) / len(dumb))
        wastes.append(mean_waste(clusters_of(merger, counts).values(), counts) - mean_waste(dumb, counts))
    assert sum(regions) / len(regions) <= 1.05
    assert sum(wastes) / len(wastes) <= 0.02


def test_a_change_among_thousands_of_regions_costs_a_few_searches():
    """Review finding B9: each change compared all pairs."""
    rng = random.Random(1)
    counts = {bounds_of(rng.sample(range(200), 10)): 1 for _ in range(1500)}
    merger = RegionMerger(1024, 0.25)
    merger.update(counts)
    assert merger.searches == len(counts), "at first each is looked at once, since none can be merged"
    for _ in range(20):
        before = merger.searches
        merger.update({rng.choice(sorted(counts)): 0, bounds_of(rng.sample(range(200), 10)): 1})
        assert merger.searches - before == 1, "the newcomer"
