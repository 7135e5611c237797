"""Seats that move to the groups of another service."""

from typing import Any, cast

from vivum.core.ids import GroupId
from vivum.live.guarantees import RELIABLE
from vivum.live.moving import NO_CHANNEL, move_seats
from vivum.live.seat import Seat
from vivum.protocols.commands import JoinGroup, LeaveGroup
from vivum.protocols.directory.machine import BLOCKS, block_of
from vivum.protocols.membership.client.allegiance import term_of
from vivum.wire.directory import TopicRecord

NO_HOST = cast(Any, None)
"""Nothing is sent here."""


def seat(name: str, group: int) -> Seat:
    return Seat(NO_HOST, name, GroupId(group), "bytes", RELIABLE)


def record(name: str, group: int, schema: str = "bytes") -> TopicRecord:
    return TopicRecord(name, group, 1, schema, RELIABLE.value, 0)


def test_topics_may_take_each_other_s_groups():
    seats = {each.name: each for each in (seat("/a", 1), seat("/b", 2), seat("/c", 3))}
    commands = move_seats(seats, [record("/a", 2), record("/b", 1), record("/c", 3)])
    assert [each.group for each in seats.values()] == [2, 1, 3]
    joined = {1, 2, 3}
    for command in commands:
        if isinstance(command, LeaveGroup):
            joined.discard(command.group)
        else:
            assert isinstance(command, JoinGroup)
            assert command.channel == NO_CHANNEL
            joined.add(command.group)
    assert joined == {1, 2, 3}


def test_a_topic_of_another_type_there_is_a_fault_of_its_seat_alone():
    seats = {each.name: each for each in (seat("/a", 1), seat("/b", 2))}
    move_seats(seats, [record("/a", 5, '["Quote",[]]'), record("/b", 6)])
    assert seats["/a"].fault is not None
    assert (seats["/b"].fault, seats["/b"].group) == (None, 6)


def test_terms_have_groups_of_their_own():
    terms = [term_of(round_, node) for round_ in range(8) for node in range(1, 9)]
    blocks = [block_of(term) for term in terms]
    assert all(0 <= block < BLOCKS for block in blocks)
    assert len(set(blocks)) == len(blocks)
