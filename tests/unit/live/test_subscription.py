"""Subscriptions, with a node that only notes which seats are taken."""

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from vivum.guarantees import RELIABLE
from vivum.live.handle import NodeHandle
from vivum.live.inbox import Inbox
from vivum.live.messages import codec_of
from vivum.live.subscription import Subscription
from vivum.wire.directory import TopicRecord

RECORD = TopicRecord("/a", 1, 1, codec_of(bytes).schema, RELIABLE.name, 0)


class NodeOfSeats:
    """Has seats for all, and topics that are listed as a test says."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.tell: Callable[[Sequence[TopicRecord]], None] = lambda _: None
        self.browser = SimpleNamespace(watch=self.watch, unwatch=lambda _: None)

    def check_open(self) -> None:
        pass

    def watch(self, pattern: str, tell: Callable[[Sequence[TopicRecord]], None]) -> int:
        assert pattern == "/*"
        self.tell = tell
        return 1

    async def take_seats(self, names: Sequence[str], *_: Any) -> list[Any]:
        self.taken += names
        return [SimpleNamespace(name=name, view=1) for name in names]

    def give_back(self, *_: Any) -> None:
        pass

    def forget(self, _: Any) -> None:
        pass


def test_a_topic_that_is_listed_twice_before_it_was_entered_is_entered_once() -> None:
    """Live seed 382: it was entered twice, and every message came twice."""

    async def main() -> list[str]:
        node = NodeOfSeats()
        inbox = Inbox("/*", 1000, drops_oldest=False)
        async with Subscription(cast(NodeHandle, node), "/*", codec_of(bytes), RELIABLE, inbox) as subscription:
            node.tell([RECORD])
            node.tell([RECORD])
            await subscription.wait_for_topics(1)
        return node.taken

    assert asyncio.run(main()) == ["/a"]
