"""Writes to standard output from a thread, so that a node goes on while nobody reads its output.

A pipe that nobody reads stops who writes to it. A node that is stopped is dropped from its domain. Here only the reader
of topics is stopped, when `held_bytes_max` wait: then what comes waits in its inbox, which has a limit and tells what
it does not keep.
"""

import asyncio
import os
from queue import SimpleQueue
from threading import Thread
from typing import BinaryIO

OUTPUT_BYTES_MAX = 4 * 1024 * 1024
"""What may wait for the reader of the output. More hides its pauses for longer, and is lost with the process."""


class OutputPipe:
    """An output that is written by a daemon thread: a process can end although its output is stuck."""

    def __init__(self, file: BinaryIO, held_bytes_max: int = OUTPUT_BYTES_MAX) -> None:
        file.flush()
        self._file = file.fileno()
        self._held_bytes_max = held_bytes_max
        self._held_bytes = 0
        self._pieces: SimpleQueue[bytes] = SimpleQueue()
        self._failure: OSError | None = None
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        Thread(target=self._run, name="output", daemon=True).start()

    async def write(self, piece: bytes) -> None:
        """Hand a piece over; waits while too much is not written. Raises what writing raised."""
        await self._wait_until(self._held_bytes_max)
        self._held_bytes += len(piece)
        self._pieces.put(piece)

    async def drain(self, timeout_s: float | None = None) -> None:
        """Wait until all is written. Raises `TimeoutError` if that takes longer."""
        async with asyncio.timeout(timeout_s):
            await self._wait_until(0)

    async def _wait_until(self, held_bytes: int) -> None:
        while self._held_bytes > held_bytes and self._failure is None:
            self._changed.clear()
            await self._changed.wait()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        failure: OSError | None = None
        while failure is None:
            piece = self._pieces.get()
            rest = memoryview(piece)
            try:
                while rest:
                    rest = rest[os.write(self._file, rest) :]
            except OSError as error:
                failure = error
            try:
                self._loop.call_soon_threadsafe(self._on_written, len(piece), failure)
            except RuntimeError:
                return  # The loop is closed: nobody waits any more.

    def _on_written(self, size: int, failure: OSError | None) -> None:
        self._held_bytes -= size
        self._failure = failure
        self._changed.set()
