"""A copy of the service that was made at any moment, and repeats what the service does, stays equal to it."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivum.core.errors import DecodeError
from vivum.core.ids import Endpoint, NodeId
from vivum.core.ranges import RangeSet
from vivum.protocols.membership.service.snapshot import read_state, write_state
from vivum.protocols.membership.service.state import ConfigurationService
from vivum.protocols.membership.settings import ServiceSettings

PORTS = range(1, 25)


def act(service, kind, port, groups):
    """Do one thing to a service; the same for a copy of it."""
    life = service.join(f"p{port}", NodeId(port), Endpoint("h", port))
    if life is None:
        return None
    match kind:
        case "leave":
            service.leave(life)
        case "acknowledge":
            service.acknowledge(life, service.epoch)
        case "close":
            return service.close_batch()
        case _:
            ranges = RangeSet((group, group + 1) for group in groups)
            service.subscribe(life, life.request + 1, ranges, life.groups.copy())
    return None


@given(st.integers(0, 2**32), st.integers(1, 8), st.sampled_from([0.2, 0.5, 0.8]))
@settings(max_examples=20, deadline=None)
def test_a_copy_repeats_the_service_also_while_regions_are_merged(seed, regions_max, waste_max):
    rng = random.Random(seed)
    service = ConfigurationService(ServiceSettings(regions_max=regions_max, waste_max=waste_max))
    copy = ConfigurationService(service.settings)
    for _ in range(80):
        kind = rng.choices(["leave", "acknowledge", "close", "subscribe"], [1, 2, 6, 8])[0]
        step = (kind, rng.choice(PORTS), rng.sample(range(20), rng.randint(1, 8)))
        assert act(service, *step) == act(copy, *step), "the same members are concerned"
        if rng.random() < 0.2:
            copy = read_state(write_state(copy))
        assert write_state(copy) == write_state(service)
        for life in service.lives.values():
            region, base = service.regions.region_of(life.member), service.base_for(life)
            twin = copy.regions.region_of(life.member)
            assert copy.changes_for(twin, base) == service.changes_for(region, base)


def test_a_state_whose_clusters_are_not_those_of_its_regions_is_refused():
    service = ConfigurationService(ServiceSettings(regions_max=1))
    for port, groups in ((1, [1, 2, 3, 4]), (2, [1, 2, 3, 5])):
        act(service, "subscribe", port, groups)
    service.close_batch()
    assert len(service.regions) == 1
    service._exact_keys[7, 8] = 1
    with pytest.raises(DecodeError, match="clusters"):
        read_state(write_state(service))
