"""A process with one node. Each line on standard input is a request; each gets one line on standard output.

Messages are `TAG NUMBER padding`; the actor checks for each tag that numbers come one after the other.
"""

import asyncio
import json
import sys
from collections import defaultdict
from typing import Any

import vivum


def say(told: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


class Actor:
    def __init__(self, node: vivum.NodeHandle) -> None:
        self.node = node
        self.topics: dict[str, vivum.Topic[bytes]] = {}
        self.next: dict[tuple[str, str], int] = defaultdict(int)
        self.out_of_order: list[str] = []
        self.missed: list[str] = []
        self.changed = asyncio.Event()
        self.readers: list[asyncio.Task[None]] = []

    async def read(self, name: str, topic: vivum.Topic[bytes]) -> None:
        while True:
            try:
                async for event in topic:
                    tag, number, _ = event.value.split(b" ", 2)
                    key = (name, tag.decode())
                    if int(number) != self.next[key] and key in self.next:
                        self.out_of_order.append(f"{key}: {int(number)} after {self.next[key] - 1}")
                    self.next[key] = int(number) + 1
                    self.changed.set()
                return
            except vivum.MissedMessages as error:
                self.missed.append(str(error))
                self.changed.set()

    async def do_enter(self, topics: list[str]) -> Any:
        for topic in await self.node.enter_many(topics, bytes):
            self.topics[topic.name] = topic
            self.readers.append(asyncio.create_task(self.read(topic.name, topic)))
        return str(self.node.member)

    async def do_members(self, topic: str, count: int) -> Any:
        """Wait until the view has exactly so many members."""
        async for view in self.topics[topic].views():
            if len(view.members) == count:
                return [str(each) for each in view.members]
        return None

    async def do_send(self, topic: str, tag: str, count: int, size: int = 100, first: int = 0) -> Any:
        for start in range(first, first + count, 1000):
            stop = min(start + 1000, first + count)
            batch = [f"{tag} {number} ".encode().ljust(size, b".") for number in range(start, stop)]
            await self.topics[topic].send_many(batch)
        return count

    async def do_flush(self, topic: str) -> Any:
        try:
            await self.topics[topic].flush()
        except vivum.SendFailedError as error:
            return str(error)
        return "stable"

    async def do_expect(self, topic: str, tag: str, count: int) -> Any:
        """Wait until so many messages of a tag have come."""
        while self.next[topic, tag] < count:
            self.changed.clear()
            await self.changed.wait()
        return self.next[topic, tag]

    async def do_report(self) -> Any:
        return {
            "out_of_order": self.out_of_order,
            "missed": self.missed,
            "member": str(self.node.member),
            "carries": self.node.carries_service,
            "state": self.state(),
        }

    def state(self) -> str:
        """All that tells why a node does not get on, for people."""
        host = self.node._host
        client = host.client
        views = {name: None if topic.view is None else topic.view.members for name, topic in self.topics.items()}
        return (
            f"service {host.service_info}, client {client.state.value} at {client._talk.destination}, term "
            f"{client.term:x}, epoch {client.epoch:x}, groups {client.groups}, "
            f"wanted {client.wanted_groups}, views {views}"
        )

    async def do_leave(self, topic: str) -> Any:
        await self.topics.pop(topic).leave()
        return True

    async def run(self) -> None:
        say({"member": str(self.node.member), "carries": self.node.carries_service})
        while line := await asyncio.to_thread(sys.stdin.readline):
            request = json.loads(line)
            do = getattr(self, f"do_{request.pop('do')}")
            try:
                answer = {"answer": await do(**request)}
            except vivum.VivumError as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            say(answer)


async def main() -> None:
    options = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    async with vivum.connect(sys.argv[1], **options) as node:
        await Actor(node).run()


asyncio.run(main())
