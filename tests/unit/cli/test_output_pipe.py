"""An output that nobody reads does not stop the loop, and loses nothing."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from threading import Thread

import pytest

from vivum.cli.output_pipe import OutputPipe

PIECE = bytes(range(256)) * 1024


@pytest.fixture
def ends() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for each in (reading, writing):
        with suppress(OSError):
            os.close(each)


def test_the_loop_goes_on_while_nobody_reads_and_all_comes_when_somebody_does(ends):
    reading, writing = ends
    read: list[bytes] = []

    def read_all() -> None:
        while sum(map(len, read)) < 5 * len(PIECE):
            read.append(os.read(reading, 1 << 16))

    async def scene() -> None:
        with os.fdopen(writing, "wb", closefd=False) as file:
            pipe = OutputPipe(file, held_bytes_max=3 * len(PIECE))
        for _ in range(4):
            await pipe.write(PIECE)
        fifth = asyncio.create_task(pipe.write(PIECE))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not fifth.done()
        reader = Thread(target=read_all)
        reader.start()
        await fifth
        await pipe.drain()
        await asyncio.to_thread(reader.join)

    asyncio.run(asyncio.wait_for(scene(), 30))
    assert b"".join(read) == PIECE * 5


def test_an_output_that_was_closed_is_told(ends):
    reading, writing = ends
    os.close(reading)

    async def scene() -> None:
        with os.fdopen(writing, "wb", closefd=False) as file:
            pipe = OutputPipe(file)
        await pipe.write(PIECE)
        with pytest.raises(BrokenPipeError):
            await pipe.drain()
        with pytest.raises(BrokenPipeError):
            await pipe.write(PIECE)

    asyncio.run(asyncio.wait_for(scene(), 30))
