"""One file to many receivers over a topic: in parts, resumable, checksummed.

The sender offers the file; each receiver says from where it wants it; the sender sends parts from the lowest of these
places on, once for all. At the end of a pass whoever lacks something says so, and the next pass begins there. What
a receiver has is in a file of its own beside the target, named after the checksum, so that a later run goes on with it.
"""

import asyncio
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from vivum.core.errors import HostError, UsageError
from vivum.core.ids import Member
from vivum.live.failures import MissedMessages
from vivum.live.handle import NodeHandle
from vivum.live.messages import Message
from vivum.live.topic import Topic

PART_BYTES = 256 * 1024
"""Large enough that parts cost little, small enough that several fit the queues."""

OFFER_S = 1.0
"""How often the offer is repeated while receivers are waited for."""

ATTEMPTS_MAX = 2
"""How often a receiver takes the whole file before it gives up on the checksum."""

Progress = Callable[[int, int], None]
"""Told how many bytes are done, of how many."""


class FileMessage(Message):
    """What sender and receivers say: `offer`, `want` (from offset), `part`, `end` (of a pass), `done`."""

    what: str
    name: str
    size: int
    digest: str
    offset: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class FileSent:
    """How a file was sent."""

    name: str
    size: int
    digest: str
    receivers: int
    sent_bytes: int
    """With what had to be sent again for those who came later."""


@dataclass(frozen=True, slots=True)
class FileReceived:
    """How a file was received."""

    path: Path
    size: int
    digest: str
    resumed_at: int
    """How many bytes were here from an earlier run."""


def digest_of(path: Path, progress: Progress | None = None) -> str:
    """Compute the checksum of a file: BLAKE2b with 32 bytes, as hexadecimal digits."""
    made = hashlib.blake2b(digest_size=32)
    size = path.stat().st_size
    done = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            made.update(block)
            done += len(block)
            if progress is not None:
                progress(done, size)
    return made.hexdigest()


class FileSender:
    """Sends one file to so many receivers."""

    def __init__(self, topic: Topic[FileMessage], path: Path, digest: str, receivers: int) -> None:
        self._topic = topic
        self._path = path
        self._receivers = receivers
        self._size = path.stat().st_size
        self._digest = digest
        self._wants: dict[Member, int] = {}
        self._done: set[Member] = set()
        self._changed = asyncio.Event()
        self._sent_bytes = 0

    async def run(self, progress: Progress) -> FileSent:
        """Send until enough receivers have the whole file and nobody waits for more."""
        listening = asyncio.create_task(self._listen())
        try:
            while len(self._done) < self._receivers or self._wants:
                await self._wait_for_wants()
                if self._wants:
                    await self._send_from(min(self._wants.values()), progress)
            await self._topic.flush()
        finally:
            listening.cancel()
        return FileSent(self._path.name, self._size, self._digest, len(self._done), self._sent_bytes)

    def _say(self, what: str, offset: int = 0, data: bytes = b"") -> FileMessage:
        return FileMessage(what, self._path.name, self._size, self._digest, offset, data)

    async def _listen(self) -> None:
        async for event in self._topic:
            told = event.value
            if told.digest != self._digest:
                continue
            if told.what == "want" and 0 <= told.offset <= self._size:
                self._wants[event.sender] = told.offset
                self._changed.set()
            elif told.what == "done":
                self._wants.pop(event.sender, None)
                self._done.add(event.sender)
                self._changed.set()

    async def _wait_for_wants(self) -> None:
        """Offer the file until as many as are expected have answered."""
        while len(self._wants) + len(self._done) < self._receivers:
            await self._topic.send(self._say("offer"))
            self._changed.clear()
            try:
                async with asyncio.timeout(OFFER_S):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._forget_departed()

    def _forget_departed(self) -> None:
        present = set(self._topic.members)
        for member in [each for each in self._wants if each not in present]:
            del self._wants[member]

    async def _send_from(self, start: int, progress: Progress) -> None:
        asked = set(self._wants)
        with self._path.open("rb") as file:
            file.seek(start)
            offset = start
            while block := file.read(PART_BYTES):
                await self._topic.send(self._say("part", offset, block))
                offset += len(block)
                self._sent_bytes += len(block)
                progress(offset, self._size)
        if offset != self._size:
            raise HostError(f"{self._path} changed its size while it was sent; send it again")
        for member in asked:
            self._wants.pop(member, None)
        await self._topic.send(self._say("end"))
        await self._topic.flush()
        await self._wait_for_answers(asked)

    async def _wait_for_answers(self, asked: set[Member]) -> None:
        while True:
            waiting = asked - self._done - self._wants.keys()
            if not waiting & set(self._topic.members):
                return
            self._changed.clear()
            try:
                async with asyncio.timeout(OFFER_S):
                    await self._changed.wait()
            except TimeoutError:
                # Its answer, or the end of the pass, may have met a change of views.
                await self._topic.send(self._say("end"))


async def send_file(
    node: NodeHandle, topic: str, path: Path, receivers: int, progress: Progress, digest_progress: Progress
) -> FileSent:
    """Send a file to so many receivers, who may come while it runs; returns when all have it."""
    if not path.is_file():
        raise UsageError(f"{path} is not a file")
    digest = await asyncio.to_thread(digest_of, path, digest_progress)
    async with await node.enter(topic, FileMessage, own=False) as entered:
        return await FileSender(entered, path, digest, receivers).run(progress)


class FileReceiver:
    """Receives one file."""

    def __init__(self, topic: Topic[FileMessage], folder: Path, progress: Progress) -> None:
        self._topic = topic
        self._folder = folder
        self._progress = progress
        self._offer: FileMessage | None = None
        self._part = folder
        self._file: BinaryIO | None = None
        self._have = 0
        self._resumed_at = 0
        self._attempts = 0

    async def run(self) -> FileReceived:
        """Receive the first file that is offered."""
        try:
            while True:
                try:
                    async for event in self._topic:
                        received = await self._on_message(event.value)
                        if received is not None:
                            return received
                except MissedMessages:
                    # What is missing is asked for when the pass ends.
                    continue
                raise HostError("the topic was closed before the file was complete; run it again to go on")
        finally:
            if self._file is not None:
                self._file.close()

    async def _on_message(self, told: FileMessage) -> FileReceived | None:
        if self._offer is None:
            if told.what in ("offer", "end", "part"):
                self._accept(told)
                await self._want()
        elif told.digest != self._offer.digest:
            return None
        elif told.what == "part":
            self._take(told)
        elif told.what in ("end", "offer") and self._have < told.size:
            await self._want()
        return await self._maybe_finish()

    def _accept(self, offer: FileMessage) -> None:
        if not offer.name or Path(offer.name).name != offer.name or offer.name in (".", "..") or "\0" in offer.name:
            raise UsageError(f"the sender offers a file of the name {offer.name!r}, which is not a plain file name")
        self._offer = offer
        self._part = self._folder / f"{offer.name}.{offer.digest[:16]}.part"
        self._file = self._part.open("ab")
        self._have = self._resumed_at = min(self._part.stat().st_size, offer.size)
        self._file.truncate(self._have)
        self._progress(self._have, offer.size)

    async def _want(self) -> None:
        assert self._offer is not None
        offer = self._offer
        if self._have < offer.size or not offer.size:
            await self._topic.send(FileMessage("want", offer.name, offer.size, offer.digest, self._have))

    def _take(self, told: FileMessage) -> None:
        assert self._file is not None
        skip = self._have - told.offset
        if 0 <= skip < len(told.data):
            self._file.write(told.data[skip:])
            self._have += len(told.data) - skip
            self._progress(self._have, told.size)

    async def _maybe_finish(self) -> FileReceived | None:
        offer = self._offer
        if offer is None or self._file is None or self._have < offer.size:
            return None
        self._file.flush()
        os.fsync(self._file.fileno())
        if await asyncio.to_thread(digest_of, self._part) != offer.digest:
            self._attempts += 1
            self._file.truncate(0)
            self._have = self._resumed_at = 0
            if self._attempts >= ATTEMPTS_MAX:
                raise HostError(f"{offer.name} does not have the checksum that was promised; what came was deleted")
            await self._want()
            return None
        target = self._folder / offer.name
        os.replace(self._part, target)
        await self._topic.send(FileMessage("done", offer.name, offer.size, offer.digest, offer.size))
        await self._topic.flush()
        return FileReceived(target, offer.size, offer.digest, self._resumed_at)


async def receive_file(node: NodeHandle, topic: str, folder: Path, progress: Progress) -> FileReceived:
    """Receive the next file that is offered in a topic, into a folder; goes on with what an earlier run left."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder")
    async with await node.enter(topic, FileMessage, own=False) as entered:
        return await FileReceiver(entered, folder, progress).run()
