"""Views of many topics at once: what is the same for all of them is worked out once."""

from collections import deque
from typing import Any, cast

from vivum.core.ids import GroupId, Incarnation, Member, NodeId, ViewNumber
from vivum.core.machine import InstallView
from vivum.core.ranges import RangeSet
from vivum.guarantees import KEYED, RELIABLE, Guarantee
from vivum.live.seat import MemberChanges, Seat, install_views
from vivum.node.stacks import Stacks
from vivum.protocols.layer import Layer
from vivum.protocols.membership.client.view import ConfigurationView
from vivum.wire.membership import ConfigurationChanges, MemberAddress, RegionRecord

NO_HOST = cast(Any, None)
"""Nothing is sent here."""


def held_seats(*groups: int, guarantee: Guarantee = RELIABLE) -> dict[GroupId, Seat]:
    seats = {GroupId(group): Seat(NO_HOST, f"/t{group}", GroupId(group), "bytes", guarantee) for group in groups}
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
        changes = MemberChanges()
        install_views(view.bundles(everything), seats, changes)
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
    install_views(view.bundles(RangeSet([(0, 10)])), seats, MemberChanges())
    seats[GroupId(9)] = late
    view.apply(1, 2, ConfigurationChanges((region(1, 2, range(2, 5), 0, 10),), (2,), ((2, (5, 6)),)))
    changes = MemberChanges()
    install_views(view.bundles(RangeSet([(0, 10)])), seats, changes)
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
        assert install_views(view.bundles(RangeSet([(0, 10)])), seats, MemberChanges()) == [seats[GroupId(0)]]
    assert [each.number for each in waiting] == [1]
    assert seats[GroupId(1)].view is None


def test_a_region_of_more_groups_than_anybody_could_walk_harms_nobody():
    view, seats = ConfigurationView(16), held_seats(3, 2**63)
    view.apply(0, 1, ConfigurationChanges((region(1, 1, range(1, 4), 0, 2**64 - 1),), (), ()))
    install_views(view.bundles(RangeSet([(0, 2**64 - 1)])), seats, MemberChanges())
    assert [cast(Any, seat.view).number for seat in seats.values()] == [1, 1]


class Transport:
    """What a stack stands on."""

    transport = "qsm"


def joined(seats: dict[GroupId, Seat]) -> Stacks:
    stacks = Stacks({"qsm": cast(Any, Transport())})
    for seat in seats.values():
        stacks.join(seat.join_command())
    return stacks


def views(*sizes: int) -> list[InstallView]:
    return [
        InstallView((0, 8192), ViewNumber(size), tuple(Member(NodeId(node), Incarnation(1)) for node in range(size)))
        for size in sizes
    ]


def test_a_view_of_thousands_of_keyed_topics_passes_their_layers_in_one_piece():
    """Each had a view, a comparison of members and a look at all who wait of its own: 170 ms, and 1.5 s to enter."""
    seats = held_seats(*range(8192), guarantee=KEYED)
    stacks, changes = joined(seats), MemberChanges()
    for install in views(110, 111):
        lifted = stacks.lift(1, [install])
        assert lifted == [install]
        compared = changes.compared
        assert install_views(cast(Any, lifted), seats, changes) == list(seats.values())
        assert changes.compared == compared + 1
    assert {len(cast(Any, seat.view).members) for seat in seats.values()} == {111}


def test_layers_that_look_at_views_get_one_for_their_group_and_members_are_compared_once():
    seats = held_seats(*range(8192), guarantee=KEYED)
    for seat in seats.values():
        seat.layers = (*seat.layers, Layer())
    stacks, changes = joined(seats), MemberChanges()
    for install in views(110, 111):
        lifted = cast(list[InstallView], stacks.lift(1, [install]))
        assert [each.groups for each in lifted] == [(group, group + 1) for group in range(8192)]
        compared = changes.compared
        for each in lifted:
            (seat,) = install_views([each], seats, changes)
            assert seat.group == each.groups[0]
        assert changes.compared == compared + 1


def test_who_was_compared_is_not_held_for_ever():
    changes = MemberChanges()
    for install in views(*range(1, 100)):
        changes.between((), install.members)
        changes.between(install.members[1:], install.members)
    assert changes.held == 2
