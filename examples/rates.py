"""High rates: lists in, batches out, nothing done for each message.

python examples/rates.py [DOMAIN [MESSAGES]]
"""

import asyncio
import sys
import time

import vivum


async def main(domain: str | None, count: int) -> None:
    async with vivum.connect(domain) as sender, vivum.connect(domain) as receiver:
        sending = await sender.enter("/rates", bytes, receive=False)
        receiving = await receiver.enter("/rates", bytes)
        await sending.wait_for_members(2)

        async def send() -> None:
            batch = [bytes(100)] * 5000
            for _ in range(count // len(batch)):
                await sending.send_many(batch)
            await sending.flush()

        began = time.perf_counter()
        task = asyncio.create_task(send())
        received = 0
        async for batch in receiving.batches():
            received += len(batch)
            if received == count:
                break
        seconds = time.perf_counter() - began
        await task
        print(f"{received:,} messages of 100 bytes, {received / seconds:,.0f} a second, both ends in one process")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None, int((sys.argv[2:] or ["500000"])[0])))
