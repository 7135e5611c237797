"""One node that sends to many topics, over real sockets."""

import asyncio

import pytest

import vivum
from vivum.runtime import turns as turns_module

TIMEOUT_S = 30


def test_who_sends_to_many_topics_in_turn_does_not_give_way_after_each_message(
    domain_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns_module, "TURN_S", 30.0)

    async def scenario() -> None:
        async with vivum.connect(domain_name) as node:
            topics = await asyncio.gather(*(node.enter(f"/many/{number}", bytes) for number in range(50)))
            turns = 0

            def count() -> None:
                nonlocal turns
                turns += 1
                handle[0] = asyncio.get_running_loop().call_soon(count)

            await topics[0].send(b"first")
            handle = [asyncio.get_running_loop().call_soon(count)]
            for topic in topics:
                await topic.send(b"message")
            handle[0].cancel()
            assert turns == 0

    async def timed() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await scenario()

    asyncio.run(timed())
