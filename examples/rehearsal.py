"""Rehearse failures: three nodes of a program in a simulated world, with loss, a kill and a split, in virtual time.

python examples/rehearsal.py [DOMAIN [SEED]]
"""

import asyncio
import sys
from collections import Counter

import vivum
from vivum.testing import World


class Tick(vivum.Message):
    leader: str
    number: int


# The program, as it runs in production: the oldest member of the topic leads, and ticks ten times a second.


async def serve(domain: str, name: str, seen: Counter[str]) -> None:
    async with vivum.connect(domain, name=name) as node, asyncio.TaskGroup() as tasks:
        ticks = await node.enter("/ticks", Tick)
        tasks.create_task(follow(ticks, name, seen))
        number = 0
        while True:
            if ticks.members and ticks.members[0] == node.member:
                await ticks.send(Tick(name, number))
                number += 1
            await asyncio.sleep(0.1)


async def follow(ticks: vivum.Topic[Tick], name: str, seen: Counter[str]) -> None:
    while True:
        try:
            async for event in ticks:
                seen[f"{name} heard {event.value.leader}"] += 1
        except vivum.MissedMessages as missed:
            print(f"{asyncio.get_running_loop().time():5.1f} s  {name}: {missed}")


# The rehearsal: what happens to it, from one seed.


async def rehearse(world: World, domain: str, seen: Counter[str]) -> None:
    for name in ("ann", "bob", "cec"):
        world.host(name).start(serve, domain, name, seen)
        await asyncio.sleep(1)
    world.host("cec").pause(0.5)
    await asyncio.sleep(5)
    world.split(["cec"], ["ann", "bob"])
    await asyncio.sleep(5)
    world.split()
    await asyncio.sleep(5)
    world.host("ann").kill()  # the leader, and the one that carries the service
    await asyncio.sleep(20)
    world.host("ann").start(serve, domain, "ann again", seen)
    await asyncio.sleep(10)
    world.heal()
    await asyncio.sleep(10)


def main(domain: str | None, seed: int) -> None:
    world, seen = World(seed, loss=0.05), Counter()
    world.run(rehearse(world, domain, seen))
    for what, count in sorted(seen.items()):
        print(f"{what} {count} times")
    print(world.verdict())
    world.verdict().check()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None, int((sys.argv[2:] or ["1"])[0]))
