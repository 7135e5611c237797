"""A seat settles every message once, and moves without forgetting what it owes."""

import asyncio
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivum.core.ids import GroupId, Incarnation, Member, NodeId
from vivum.guarantees import KEYED, RELIABLE
from vivum.live.failures import SendFailedError
from vivum.live.seat import Seat
from vivum.protocols.commands import SendFailed, SendMessages
from vivum.protocols.keyed.keys import PLAIN_HEAD, heads_of
from vivum.runtime.turns import SenderTurns

LIFE, NEXT_LIFE = Member(NodeId(1), Incarnation(1)), Member(NodeId(1), Incarnation(2))


class AcceptingHost:
    """Takes whatever is sent."""

    def __init__(self) -> None:
        self.member = LIFE
        self.sent: list[SendMessages] = []
        self.before = 0
        self.turns = 0
        self.sender_turns = SenderTurns(lambda: 0.0, self)
        self._numbers: dict[tuple[Member, GroupId], int] = {}

    def send(self, command: SendMessages) -> bool:
        self.sent.append(command)
        key = (self.member, command.group)
        self._numbers[key] = self._numbers.get(key, self.before) + len(command.payloads)
        return False

    def next_sequence(self, group: GroupId) -> int:
        return self._numbers.get((self.member, group), self.before)


def make_seat(count: int = 0) -> Seat:
    seat = Seat(cast(Any, AcceptingHost()), "/t", GroupId(1), "bytes", RELIABLE)
    seat.holders = 1
    if count:
        assert seat.try_send([b"x"] * count)
    return seat


def flushed(seat: Seat) -> bool:
    """Return whether `flush` returns at once."""

    async def flush() -> bool:
        task = asyncio.create_task(seat.flush())
        await asyncio.sleep(0)
        if task.done():
            task.result()
            return True
        task.cancel()
        return False

    return asyncio.run(flush())


def test_a_seat_that_is_made_anew_goes_on_with_the_numbers_of_its_life() -> None:
    """Live seed 52: a topic left and entered again around a move of the service. Its flush never returned."""
    host = AcceptingHost()
    host.before = 8
    seat = Seat(cast(Any, host), "/t", GroupId(1), "bytes", RELIABLE)
    seat.holders = 1
    assert seat.try_send([b"x", b"y"])
    seat.on_confirmed(5, 9)
    assert not flushed(seat)
    seat.on_confirmed(9, 10)
    assert flushed(seat)
    assert seat.stable == 2


def test_flush_waits_for_messages_before_those_that_failed() -> None:
    """B7: one region was given up, another has said nothing yet."""
    seat = make_seat(10)
    seat.on_failed(SendFailed(GroupId(1), 5, 10, None, "region 1 did not become quiet"))
    with pytest.raises(SendFailedError, match="messages 5 to 9"):
        flushed(seat)
    assert not flushed(seat)
    seat.on_confirmed(0, 5)
    assert flushed(seat)


@given(st.permutations(list(range(8))), st.sets(st.integers(0, 7)))
def test_a_flush_returns_exactly_when_every_message_is_settled(order: list[int], failing: set[int]) -> None:
    seat = make_seat(8)
    for number in order[:-1]:
        if number in failing:
            seat.on_failed(SendFailed(GroupId(1), number, number + 1, None, "lost"))
            seat._failure = None
        else:
            seat.on_confirmed(number, number + 1)
    assert not flushed(seat)
    seat.on_confirmed(order[-1], order[-1] + 1)
    assert flushed(seat)
    assert seat.stable == 8 - len(failing - {order[-1]})


def test_a_seat_that_moves_reports_what_nobody_will_confirm_and_counts_anew() -> None:
    seat = make_seat(1000)
    seat.on_confirmed(0, 990)
    seat.move_to(GroupId(777))
    with pytest.raises(SendFailedError, match=r"messages 990 to 999 .* another group"):
        flushed(seat)
    assert flushed(seat)
    assert seat.try_send([b"x"] * 3)
    assert not flushed(seat)
    seat.on_confirmed(0, 3)
    assert flushed(seat)


def test_what_a_new_life_accepted_before_the_end_of_the_old_one_was_told_is_not_forgotten() -> None:
    seat = make_seat(5)
    cast(Any, seat)._host.member = NEXT_LIFE
    assert seat.try_send([b"x"])
    seat.on_life_ended(LIFE)
    assert seat.accepted == 1
    assert not flushed(seat)


def test_recorded_heads_go_down_beside_their_messages() -> None:
    seat = Seat(cast(Any, AcceptingHost()), "/t", GroupId(1), "bytes", KEYED)
    seat.holders = 1
    heads = [*heads_of(bytes(16), 7, 0, 1), PLAIN_HEAD]
    asyncio.run(seat.send_headed([heads[0] + b"a", heads[1] + b"b"]))
    (command,) = cast(Any, seat)._host.sent
    assert command.payloads == [b"a", b"b"]
    assert command.heads == heads
