"""Subscriptions, with a node that only notes which seats are taken."""

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from vivum.core.ids import GroupId, Incarnation, Member, NodeId
from vivum.guarantees import BEST_EFFORT, RELIABLE
from vivum.live.failures import ClosedError
from vivum.live.handle import NodeHandle
from vivum.live.inbox import Inbox
from vivum.live.messages import codec_of
from vivum.live.seat import MemberChanges, Seat
from vivum.live.subscription import Subscription
from vivum.runtime.member_host import MemberHost
from vivum.wire.directory import TopicRecord

ME = Member(NodeId(1), Incarnation(1))
RECORD = TopicRecord("/a", 1, 1, codec_of(bytes).schema, RELIABLE.name, 0)


class NodeOfSeats:
    """Has seats for all, and topics that are listed as a test says."""

    def __init__(self) -> None:
        self.on_take: Callable[[Sequence[str]], None] = lambda _: None
        self.kinds: list[Any] = []
        self.taken: list[str] = []
        self.seats: list[Seat] = []
        self.tell: Callable[[Sequence[TopicRecord]], None] = lambda _: None
        self.browser = SimpleNamespace(watch=self.watch, unwatch=lambda _: None)

    def check_open(self) -> None:
        pass

    def watch(self, pattern: str, tell: Callable[[Sequence[TopicRecord]], None]) -> int:
        assert pattern == "/*"
        self.tell = tell
        return 1

    async def take_seats(self, names: Sequence[str], *kind: Any) -> list[Any]:
        self.on_take(names)
        self.kinds.append(kind[:2])
        self.taken += names
        for name in names:
            seat = Seat(cast(MemberHost, None), name, GroupId(1), codec_of(bytes).schema, RELIABLE)
            seat.on_view(1, (ME,), MemberChanges())
            self.seats.append(seat)
        return self.seats[-len(names) :]

    def closed_error(self, text: str) -> ClosedError:
        return ClosedError(text)

    def give_back(self, *_: Any) -> None:
        pass

    def forget(self, _: Any) -> None:
        pass


def subscription_at(node: NodeOfSeats) -> Subscription[bytes]:
    inbox = Inbox("/*", 1000, drops_oldest=False)
    return Subscription(cast(NodeHandle, node), "/*", codec_of(bytes), RELIABLE, inbox)


def test_a_topic_that_is_listed_twice_before_it_was_entered_is_entered_once() -> None:
    """Live seed 382: it was entered twice, and every message came twice."""

    async def main() -> list[str]:
        node = NodeOfSeats()
        async with subscription_at(node) as subscription:
            node.tell([RECORD])
            node.tell([RECORD])
            await subscription.wait_for_topics(1)
        return node.taken

    assert asyncio.run(main()) == ["/a"]


@pytest.mark.parametrize("closes", [False, True])
def test_who_waits_for_topics_goes_on_when_a_lost_view_returns_or_when_the_subscription_ends(closes: bool) -> None:
    async def main() -> None:
        node = NodeOfSeats()
        async with subscription_at(node) as subscription:
            node.tell([RECORD])
            await subscription.wait_for_topics(1)
            node.seats[0].on_life_ended(ME)
            waiting = asyncio.create_task(subscription.wait_for_topics(1))
            await asyncio.sleep(0)
            assert not waiting.done()
            if closes:
                await subscription.close()
                with pytest.raises(ClosedError):
                    await asyncio.wait_for(waiting, 1)
            else:
                node.seats[0].on_view(2, (ME,), MemberChanges())
                assert await asyncio.wait_for(waiting, 1) == ("/a",)

    asyncio.run(main())


def test_without_a_type_topics_are_entered_by_their_own_types_and_those_of_vivum_are_left_out() -> None:
    async def main() -> None:
        node = NodeOfSeats()
        known: list[str] = []
        inbox = Inbox("/*", 1000, drops_oldest=False)
        async with Subscription(cast(NodeHandle, node), "/*", codec_of(bytes), None, inbox) as subscription:
            # The first message may come before all seats of a list are taken.
            node.on_take = lambda names: known.extend(map(subscription.schema_of, names))
            typed = TopicRecord("/b", 2, 1, '["T",[["x","int",false]]]', BEST_EFFORT.name, 0)
            own = TopicRecord("/vivum/x", 3, 1, RECORD.schema, RELIABLE.name, 0)
            strange = TopicRecord("/c", 4, 1, RECORD.schema, "of tomorrow", 0)
            node.tell([RECORD, typed, own, strange])
            assert await subscription.wait_for_topics(2) == ("/a", "/b")
            assert node.kinds == [(RECORD.schema, RELIABLE), (typed.schema, BEST_EFFORT)]
            assert known == [RECORD.schema, typed.schema]
            assert subscription.schema_of("/never entered") == RECORD.schema
            assert list(subscription.passed_over) == ["/c"]

    asyncio.run(main())
