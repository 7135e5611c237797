import pytest

from vivum.core.ids import Endpoint, Incarnation, Member, NodeId
from vivum.core.ranges import RangeSet
from vivum.protocols.membership.service.state import ConfigurationService
from vivum.protocols.membership.settings import ServiceSettings


def endpoint(host):
    return Endpoint(host, 1)


def join(service, host, wanted=0, name=None):
    return service.join(name or f"process on {host}", NodeId(wanted), endpoint(host))


def subscribe(service, life, *ranges, remove=()):
    assert service.subscribe(life, life.request + 1, RangeSet(ranges), RangeSet(remove))


@pytest.fixture
def service():
    return ConfigurationService()


def test_processes_get_ids_of_their_own_and_ages_in_the_order_of_joining(service):
    lives = [join(service, host) for host in "abc"]
    assert [life.member for life in lives] == [(1, 1), (2, 1), (3, 1)]
    assert [life.age for life in lives] == [1, 2, 3]


def test_a_repeated_join_gets_the_same_answer(service):
    assert join(service, "a") is join(service, "a")
    assert len(service.lives) == 1


def test_a_wanted_id_is_given_if_it_is_free(service):
    assert join(service, "a", wanted=7).member == (7, 1)
    assert join(service, "b", wanted=7).member == (1, 1)
    assert join(service, "c", wanted=10**6).member == (2, 1), "an id past nodes_max is not short"


def test_a_new_process_on_the_endpoint_of_another_ends_it_and_has_its_id_with_the_next_incarnation(service):
    old = join(service, "a", name="first")
    new = join(service, "a", name="second")
    assert (old.member, new.member) == ((1, 1), (1, 2))
    assert service.life_of(old.member) is None
    assert service.former_life("first") == old.member
    assert new.age > old.age


def test_a_late_join_of_a_life_that_ended_does_not_end_the_one_that_followed(service):
    join(service, "a", name="first")
    new = join(service, "a", name="second")
    assert join(service, "a", name="first") is None
    assert service.life_of(new.member) is new


def test_a_dropped_life_never_appears_again_under_its_incarnation(service):
    seen = set()
    for number in range(20):
        life = join(service, "a", wanted=3, name=f"life {number}")
        assert life.member not in seen
        seen.add(life.member)
        service.leave(life)


def test_ids_that_were_never_used_go_before_those_of_the_dead():
    service = ConfigurationService(ServiceSettings(nodes_max=3))
    lives = [join(service, host) for host in "ab"]
    service.leave(lives[0])
    assert join(service, "c").member.node == 3
    assert join(service, "d").member == (1, 2)
    assert join(service, "e") is None, "nodes_max nodes are in the domain"


def test_names_of_former_lives_are_bounded():
    service = ConfigurationService(ServiceSettings(names_max=2))
    for number in range(5):
        service.leave(join(service, "a", wanted=1, name=f"life {number}"))
    assert [service.former_life(f"life {number}") is None for number in range(5)] == [True] * 3 + [False] * 2
    assert service.name_of_former(Member(NodeId(1), Incarnation(5))) == "life 4"
    assert service.name_of_former(Member(NodeId(1), Incarnation(1))) == ""


def test_requests_are_applied_once_and_in_order(service):
    life = join(service, "a")
    add, nothing = RangeSet([(0, 4)]), RangeSet()
    assert service.subscribe(life, 1, add, nothing)
    assert service.subscribe(life, 2, nothing, add)
    assert service.subscribe(life, 1, add, nothing), "known: to be answered"
    assert service.subscribe(life, 2, add, nothing), "known too"
    assert life.groups == nothing
    assert not service.subscribe(life, 4, add, nothing), "request 3 is missing"
    assert (life.groups, life.request) == (nothing, 2)


def test_a_request_for_too_many_ranges_is_refused():
    service = ConfigurationService(ServiceSettings(group_ranges_max=2))
    life = join(service, "a")
    assert not service.subscribe(life, 1, RangeSet([(0, 1), (2, 3), (4, 5)]), RangeSet())
    assert (life.request, service.has_changes) == (0, False)


def test_all_changes_of_a_batch_are_one_epoch(service):
    lives = [join(service, f"h{number}") for number in range(50)]
    for life in lives:
        subscribe(service, life, (0, 8192))
    concerned = service.close_batch()
    assert service.epoch == 1
    assert sorted(concerned) == [life.member for life in lives]
    assert len(service.regions) == 1


def test_a_batch_that_changes_no_region_is_no_epoch(service):
    life = join(service, "a")
    assert service.close_batch() == []
    subscribe(service, life, (0, 4))
    service.close_batch()
    subscribe(service, life, (0, 2))
    subscribe(service, life, (9, 10))
    subscribe(service, life, remove=[(9, 10)])
    assert service.close_batch() == []
    assert service.epoch == 1


def changes(service, life, known):
    life.acknowledged = known
    base = service.base_for(life)
    return base, service.changes_for(service.regions.region_of(life.member), base)


def test_a_member_is_told_what_changed_since_the_epoch_that_it_knows(service):
    a, b, c, far = (join(service, host) for host in ("a", "b", "c", "far"))
    for life, ranges in ((a, (0, 4)), (b, (2, 6)), (far, (9, 10))):
        subscribe(service, life, ranges)
    service.close_batch()
    subscribe(service, c, (3, 4))
    service.close_batch()
    assert service.concern_epoch(far) == 1
    base, told = changes(service, a, 1)
    assert base == 1
    assert [record.members[0].node for record in told.regions] == [c.member.node]
    service.leave(c)
    assert service.close_batch() == [a.member, b.member]
    base, told = changes(service, a, 2)
    assert (base, told.regions, told.gone, told.went) == (2, (), (3 + 1,), ((3, (3, 4)),))


def test_a_member_that_moved_is_told_everything_that_concerns_it_now(service):
    a, b = join(service, "a"), join(service, "b")
    subscribe(service, a, (0, 4))
    subscribe(service, b, (6, 8))
    service.close_batch()
    subscribe(service, a, (7, 8))
    service.close_batch()
    base, told = changes(service, a, 1)
    assert base == 0, "the region of b has not changed, but it is new to a"
    assert {record.members[0].node for record in told.regions} == {a.member.node, b.member.node}


def test_a_member_without_groups_is_told_that_it_knows_nothing(service):
    life = join(service, "a")
    subscribe(service, life, (0, 4))
    service.close_batch()
    subscribe(service, life, remove=[(0, 4)])
    service.close_batch()
    base, told = changes(service, life, 1)
    assert (base, told.regions, told.gone, told.went) == (0, (), (), ())


def test_what_went_is_remembered_only_for_groups_that_somebody_has(service):
    a, b = join(service, "a"), join(service, "b")
    subscribe(service, a, (0, 4000))
    service.close_batch()
    for number in range(0, 9000, 3):
        subscribe(service, b, (number, number + 1))
        service.close_batch()
        subscribe(service, b, remove=[(number, number + 1)])
        service.close_batch()
    # 1,333 single groups lie inside what a has; each leaves a stretch of its own and one between.
    assert len(service._went) < 2 * 1334 + 2 * (1024 + 2 * 1334)


def test_with_too_many_exact_regions_those_most_alike_are_merged():
    service = ConfigurationService(ServiceSettings(regions_max=2, waste_max=0.25))
    lives = [join(service, host) for host in "abc"]
    for life, ranges in zip(lives, [(0, 8), (0, 7), (50, 60)], strict=True):
        subscribe(service, life, ranges)
    service.close_batch()
    assert [region.key for region in service.regions.all()] == [(0, 8), (50, 60)]
    shared, _ = service.regions.all()
    record = shared.record
    assert [member.node for member in record.members] == [1, 2]
    assert record.lacks == ((1, (7, 8)),)
    # With few enough again, regions are exact again.
    service.leave(lives[2])
    service.close_batch()
    assert {region.key for region in service.regions.all()} == {(0, 8), (0, 7)}


def test_the_bound_on_waste_goes_before_the_number_of_regions():
    service = ConfigurationService(ServiceSettings(regions_max=1, waste_max=0.1))
    for host, ranges in (("a", (0, 10)), ("b", (5, 15))):
        subscribe(service, join(service, host), ranges)
    service.close_batch()
    assert len(service.regions) == 2
