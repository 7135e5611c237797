"""When another service has taken over: seats get the groups that its directory has for their topics."""

from collections.abc import Iterable, Mapping

from vivum.core.ids import Channel, GroupId
from vivum.core.machine import Command
from vivum.live.failures import TypeMismatch
from vivum.live.messages import check_fit
from vivum.live.seat import Seat
from vivum.protocols.commands import JoinGroup, LeaveGroup
from vivum.wire.directory import TopicRecord

NO_CHANNEL = Channel(0)
"""Membership chooses the channels; what a join names is not used."""


def move_seats(seats: Mapping[str, Seat], records: Iterable[TopicRecord]) -> list[Command]:
    """Give seats their new groups; return what the node must leave and join. A type that does not fit is a fault."""
    leaves: list[Command] = []
    joins: list[Command] = []
    for record in records:
        seat = seats[record.name]
        try:
            check_fit(seat.name, seat.schema, seat.guarantee.value, record.schema, record.guarantee)
        except TypeMismatch as error:
            seat.fault = error
            continue
        if seat.group != record.group:
            leaves.append(LeaveGroup(seat.group))
            seat.group = GroupId(record.group)
            joins.append(JoinGroup(seat.group, NO_CHANNEL, (), seat.slow, seat.packs))
    # All leaves first: what one topic leaves another may join.
    return leaves + joins
