"""Senders that wait for room in the queue."""

import asyncio

import vivum

TIMEOUT_S = 30


def test_a_list_that_is_used_again_while_its_sender_waits_harms_nobody(domain_name: str) -> None:
    """It must not be, but bytes that were counted and never sent would fill the queue for ever."""

    async def scenario() -> None:
        async with vivum.connect(domain_name) as first, vivum.connect(domain_name) as second:
            sending = await first.enter("/a", bytes, receive=False)
            receiving = await second.enter("/a", bytes)
            await sending.wait_for_members(2)
            reused = [b"last" * 10_000] * 20
            batches = [[bytes(40_000)] * 20 for _ in range(40)] + [reused]
            sends = [asyncio.create_task(sending.send_many(batch)) for batch in batches]
            await asyncio.sleep(0)
            assert not sends[-1].done()
            reused[:] = [b"short"] * 2
            got = [(await receiving.receive()).value for _ in range(41 * 20)]
            assert set(got[:800]) == {bytes(40_000)}
            assert got[800:] == [b"last" * 10_000] * 20
            await asyncio.gather(*sends)
            await sending.flush()
            assert first.statistics().memory.waiting_bytes == 0

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))
