"""A reader that is told where messages are missing, and that its node has another life, and goes on.

python examples/missed.py [DOMAIN]
"""

import asyncio
import sys

import vivum

LAST = 1999


class Position(vivum.Message):
    number: int
    note: str


async def main(domain: str | None) -> None:
    async with vivum.connect(domain) as sender, vivum.connect(domain) as reader:
        life = reader.member

        def missed(told: vivum.MissedMessages) -> None:
            # `count` is None if nobody knows how many, as after the node was dropped and joined again.
            many = "many" if told.count is None else "some" if told.count else "no"
            again = "" if reader.member == life else f"; the node is {reader.member} now"
            print(f"{many} messages are missing here: fetch the state anew{again}")

        # Room for little, so that this reader misses messages. The default is 64 MB.
        positions = await reader.enter("/ship/position", Position, receive_bytes_max=20_000, on_missed=missed)
        sending = await sender.enter("/ship/position", Position, receive=False)
        await sending.wait_for_members(2)

        await sending.send_many([Position(number, "x" * 100) for number in range(LAST)])
        await sending.flush()
        first = await positions.receive()
        print(f"reads number {first.value.number}")
        # All that waits, and the place where messages are missing behind it.
        reading = asyncio.create_task(last_of(positions))
        await asyncio.sleep(0)
        await sending.send(Position(LAST, "last"))
        print(f"goes on with number {await reading}")


async def last_of(positions: vivum.Topic[Position]) -> int:
    async for event in positions:
        if event.value.number == LAST:
            return event.value.number
    raise RuntimeError("the topic was left")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None))
