"""Views: members agree on who is there, oldest first, so the first one leads without an election.

python examples/leader.py [DOMAIN]
"""

import asyncio
import sys

import vivum


async def watch(name: str, topic: vivum.Topic[bytes], node: vivum.NodeHandle, rounds: int) -> None:
    async for view in topic.views():
        role = "leads" if view.members[0] == node.member else "follows"
        print(f"{name} {role}: view {view.number} has {len(view.members)} members")
        if len(view.members) == rounds:
            return


async def main(domain: str | None) -> None:
    async with vivum.connect(domain) as first:
        first_topic = await first.enter("/cluster/leader", bytes)
        async with vivum.connect(domain) as second, asyncio.TaskGroup() as tasks:
            second_topic = await second.enter("/cluster/leader", bytes)
            tasks.create_task(watch("first", first_topic, first, 2))
            tasks.create_task(watch("second", second_topic, second, 2))
        # The second has left: the first hears of it.
        await watch("first", first_topic, first, 1)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None))
