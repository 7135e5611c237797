"""A node is a guest in the user's process: what was there before `connect` is there after `close`, and no more.

The program still holds its node and its topics, as programs do.
"""

import asyncio
import contextlib
import gc
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

import vivum
from vivum.core.errors import HostError
from vivum.runtime.shared_memory import memory

LARGE = bytes(60_000)
COUNT = 200
PATIENCE_S = 10.0


@dataclass(frozen=True)
class Held:
    """What the process holds of the system, of the loop and of threads."""

    descriptors: list[str]
    memories: list[str]
    threads: list[str]
    tasks: int
    timers: int
    readers: int


async def held() -> Held:
    # Calls that were scheduled have their turn.
    await asyncio.sleep(0)
    gc.collect()
    descriptors = []
    for each in os.listdir("/proc/self/fd"):
        # That of the listing itself is closed by now.
        with contextlib.suppress(FileNotFoundError):
            descriptors.append(f"{each} {os.readlink(f'/proc/self/fd/{each}')}")
    maps = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:" in line]
    loop = cast(Any, asyncio.get_running_loop())
    return Held(
        sorted(descriptors),
        maps,
        sorted(each.name for each in threading.enumerate()),
        len(asyncio.all_tasks()),
        sum(not each.cancelled() for each in loop._scheduled),
        len(loop._selector.get_map()),
    )


async def read(topic: vivum.Topic[bytes], count: int) -> list[bytes]:
    taken: list[bytes] = []
    async for batch in topic.batches():
        taken += batch.payloads
        if len(taken) >= count:
            break
    return taken


async def close_with_all_of_it(domain_name: str, tmp_path: Path) -> None:
    before = await held()
    async with vivum.connect(domain_name, trace=tmp_path) as sender, vivum.connect(domain_name) as receiver:
        topic = await sender.enter("/large", bytes)
        other = await receiver.enter("/large", bytes)
        keyed = await sender.enter("/keyed", bytes, guarantee=vivum.KEYED)
        async with receiver.subscribe("/**", bytes) as subscription:
            await topic.wait_for_members(2)
            reading = asyncio.create_task(read(other, COUNT))
            await topic.send_many([LARGE] * COUNT)
            await topic.flush()
            taken = await reading
        sent = sender.statistics().shared_frames_sent
        if memory.IS_AVAILABLE:
            assert sent
            assert len((await held()).memories) > len(before.memories), "nothing to give back"
    assert await held() == before
    assert taken == [LARGE] * COUNT
    assert sender.statistics().shared_frames_sent == sent, "a closed node still says what it did"
    assert (topic.name, other.name, keyed.name) == ("/large", "/large", "/keyed")
    assert subscription is not None


async def close_while_it_sends(domain_name: str) -> None:
    before = await held()
    sender, receiver = await vivum.connect(domain_name), await vivum.connect(domain_name)
    topic, other = await sender.enter("/large", bytes), await receiver.enter("/large", bytes)
    await topic.wait_for_members(2)

    async def send_on() -> None:
        while True:
            await topic.send_many([LARGE] * 10)

    sending = [asyncio.create_task(send_on()) for _ in range(3)]
    await read(other, COUNT)
    assert sender.statistics().memory.total_bytes
    await sender.close()
    for each in sending:
        with pytest.raises(vivum.ClosedError):
            await asyncio.wait_for(each, PATIENCE_S)
    await receiver.close()
    del sending
    assert await held() == before
    assert sender.statistics().memory.total_bytes == 0
    assert (topic.name, other.name) == ("/large", "/large")


async def fail_to_connect(domain_name: str) -> None:
    before = await held()
    with pytest.raises(vivum.NoServiceError):
        await vivum.connect(domain_name, embedded=False, timeout_s=0.1)
    assert await held() == before

    connecting = asyncio.ensure_future(vivum.connect(domain_name, embedded=False))
    await asyncio.sleep(0.05)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    del connecting
    assert await held() == before

    async with vivum.connect(domain_name) as node:
        inside = await held()
        with pytest.raises(HostError):
            await vivum.connect(domain_name, port=node.endpoint.port)
        assert (await held()).descriptors == inside.descriptors
    assert await held() == before


def test_a_closed_node_leaves_nothing_though_the_program_still_holds_it(domain_name: str, tmp_path: Path) -> None:
    asyncio.run(close_with_all_of_it(domain_name, tmp_path))


def test_a_node_that_is_closed_while_it_sends_leaves_nothing(domain_name: str) -> None:
    asyncio.run(close_while_it_sends(domain_name))


def test_a_node_that_could_not_connect_leaves_nothing(domain_name: str) -> None:
    asyncio.run(fail_to_connect(domain_name))
