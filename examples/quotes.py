"""A typed topic: two nodes, quotes of one share. Start it twice with the same domain and both see each other.

python examples/quotes.py [DOMAIN]
"""

import asyncio
import sys

import vivum


class Quote(vivum.Message):
    symbol: str
    bid: float
    ask: float


async def main(domain: str | None) -> None:
    async with vivum.connect(domain) as exchange, vivum.connect(domain) as trader:
        sending = await exchange.enter("/swx/NESN", Quote, receive=False)
        # Where messages are missing, a warning in the logger "vivum"; the default raises MissedMessages.
        receiving = await trader.enter("/swx/NESN", Quote, on_missed="log")
        await sending.wait_for_members(2)

        for cents in range(5):
            await sending.send(Quote("NESN", 101.20 + cents / 100, 101.40 + cents / 100))
        await sending.flush()  # every member has them

        async for event in receiving:
            print(f"{event.value.symbol} {event.value.bid:.2f}/{event.value.ask:.2f} from node {event.sender}")
            if event.sequence == 4:
                break


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None))
