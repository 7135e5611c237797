"""Views of many topics at once: what is the same for all of them is worked out once."""

from collections import deque
from typing import Any, cast

from vivum.core.ids import GroupId
from vivum.core.ranges import RangeSet
from vivum.guarantees import RELIABLE
from vivum.live.seat import Seat, install_views
from vivum.protocols.membership.client.view import ConfigurationView
from vivum.wire.membership import ConfigurationChanges, MemberAddress, RegionRecord

NO_HOST = cast(Any, None)
"""Nothing is sent here."""


def held_seats(*groups: int) -> dict[GroupId, Seat]:
    seats = {GroupId(group): Seat(NO_HOST, f"/t{group}", GroupId(group), "bytes", RELIABLE) for group in groups}
    for seat in seats.values():
        seat.holders = 1
    return seats


def region(number: int, view: int, nodes: range, *groups: int) -> RegionRecord:
    members = tuple(MemberAddress(node, 1, node, f"h{node}", 1) for node in nodes)
    return RegionRecord(number, view, number, members, groups)


def test_a_member_that_joins_thousands_of_topics_is_found_once():
    """Review finding B8: 110 members and 8,192 topics took 1.9 s, members times members for each topic."""
    everything = RangeSet([(0, 8192)])
    view, seats = ConfigurationView(16), held_seats(*range(8192))
    for epoch, nodes in ((1, range(1, 111)), (2, range(1, 112))):
        made = view.tuples_made
        view.apply(epoch - 1, epoch, ConfigurationChanges((region(1, epoch, nodes, 0, 8192),), (), ()))
        changes = install_views(view.bundles(everything), seats)
        assert (view.tuples_made - made, changes.compared) == (1, 1)
    seen = [cast(Any, seat.view) for seat in seats.values()]
    first = seen[0]
    assert (first.number, len(first.members), [each.node for each in first.joined], first.left) == (2, 111, [111], ())
    assert all(each.number == 2 for each in seen)
    assert all(each.members is first.members and each.joined is first.joined for each in seen)
    assert [each.topic for each in seen[:2]] == ["/t0", "/t1"]


def test_each_topic_learns_who_joined_and_left_since_the_view_that_it_had():
    view, seats = ConfigurationView(16), held_seats(0, 5, 9)
    late = seats.pop(GroupId(9))
    view.apply(0, 1, ConfigurationChanges((region(1, 1, range(1, 4), 0, 10), region(2, 1, range(4, 6), 5, 6)), (), ()))
    install_views(view.bundles(RangeSet([(0, 10)])), seats)
    seats[GroupId(9)] = late
    view.apply(1, 2, ConfigurationChanges((region(1, 2, range(2, 5), 0, 10),), (2,), ((2, (5, 6)),)))
    changes = install_views(view.bundles(RangeSet([(0, 10)])), seats)
    told = {seat.group: cast(Any, seat.view) for seat in seats.values()}
    assert {group: [each.node for each in view.joined] for group, view in told.items()} == {0: [4], 5: [], 9: [2, 3, 4]}
    assert {group: [each.node for each in view.left] for group, view in told.items()} == {0: [1], 5: [1, 5], 9: []}
    assert changes.compared == 3


def test_seats_that_nobody_holds_and_views_that_are_not_new_are_passed_over():
    view, seats = ConfigurationView(16), held_seats(0, 1)
    seats[GroupId(1)].holders = 0
    waiting = deque[Any]()
    seats[GroupId(0)].watchers = (waiting,)
    view.apply(0, 1, ConfigurationChanges((region(1, 1, range(1, 4), 0, 10),), (), ()))
    for _ in range(2):
        install_views(view.bundles(RangeSet([(0, 10)])), seats)
    assert [each.number for each in waiting] == [1]
    assert seats[GroupId(1)].view is None


def test_a_region_of_more_groups_than_anybody_could_walk_harms_nobody():
    view, seats = ConfigurationView(16), held_seats(3, 2**63)
    view.apply(0, 1, ConfigurationChanges((region(1, 1, range(1, 4), 0, 2**64 - 1),), (), ()))
    install_views(view.bundles(RangeSet([(0, 2**64 - 1)])), seats)
    assert [cast(Any, seat.view).number for seat in seats.values()] == [1, 1]
