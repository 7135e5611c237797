"""Wildcards: one subscription to all topics of a branch, also to those that appear later. And best effort.

python examples/patterns.py [DOMAIN]
"""

import asyncio
import sys

import vivum


async def main(domain: str | None) -> None:
    async with vivum.connect(domain) as sensors, vivum.connect(domain) as display:
        hall = await sensors.enter("/plant/hall/temperature", bytes, guarantee=vivum.BEST_EFFORT)
        async with display.subscribe("/plant/**", bytes, guarantee=vivum.BEST_EFFORT) as plant:
            await plant.wait_for_topics(1)
            yard = await sensors.enter("/plant/yard/temperature", bytes, guarantee=vivum.BEST_EFFORT)
            await plant.wait_for_topics(2)
            for topic in (hall, yard):
                await topic.wait_for_members(2)
            await hall.send(b"19.5")
            await yard.send(b"7.0")
            seen = set()
            async for event in plant:
                print(event.topic, event.value.decode())
                seen.add(event.topic)
                if len(seen) == 2:
                    break


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None))
