"""Send one file to many receivers over a topic: in parts, resumable, checksummed.

The sender offers the file. Each receiver answers with the offset from which it needs it, and the sender sends all
parts from the lowest of these offsets, once for all receivers. At the end of a pass receivers say what they lack, and
the next pass begins there. The sender does not wait for a receiver that reports that it cannot take the file.

A receiver keeps what it has in a part file (`part_file`), so that a later run can go on with it. Anybody may offer
anything: a receiver ignores offers that it cannot take, and replaces a file only if it was told to.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vivum.core.errors import HostError, UsageError, VivumError
from vivum.core.ids import Member
from vivum.live.failures import MissedMessages
from vivum.live.handle import NodeHandle
from vivum.live.messages import Message
from vivum.live.part_file import PartFile, Progress, digest_of, refusal_of
from vivum.live.topic import Topic

PART_BYTES = 256 * 1024
"""Bytes of a part: large enough to cost little each, small enough that several fit the queues."""

OFFER_S = 1.0
"""How often the offer is repeated while the sender waits for receivers."""

ATTEMPTS_MAX = 2
"""How often a receiver tries the whole file before it gives up on a wrong checksum."""

GOODBYE_S = 5.0
"""How long a receiver that gives up tries to tell the sender."""

REASON_BYTES_MAX = 500
"""Length of a receiver's error text that is sent and shown."""

REFUSALS_MAX = 100
"""Refused offers that are remembered, so that each is reported once. Beyond this, none are reported."""


class FileMessage(Message):
    """What sender and receivers exchange: `offer`, `want` (from offset), `part`, `end` (of a pass), `done`, `failed`.

    `data` is a piece of the file, or why it failed.
    """

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
    """Including repetitions for receivers that joined later."""


@dataclass(frozen=True, slots=True)
class FileReceived:
    """How a file was received."""

    path: Path
    size: int
    digest: str
    resumed_at: int
    """Bytes that were left by an earlier run."""


class FileSender:
    """Sends one file to a number of receivers."""

    def __init__(
        self,
        topic: Topic[FileMessage],
        path: Path,
        digest: str,
        receivers: int,
        waiting: Callable[[int], None] | None = None,
    ) -> None:
        self._topic = topic
        self._waiting = waiting
        self._told = -1
        self._path = path
        self._receivers = receivers
        self._size = path.stat().st_size
        self._digest = digest
        self._wants: dict[Member, int] = {}
        self._done: set[Member] = set()
        self._failed: dict[Member, str] = {}
        self._changed = asyncio.Event()
        self._sent_bytes = 0

    async def run(self, progress: Progress) -> FileSent:
        """Send until enough receivers have the file or have failed, and nobody waits for more."""
        listening = asyncio.create_task(self._listen())
        try:
            while self._answered < self._receivers or self._wants:
                await self._wait_for_wants()
                if self._wants:
                    await self._send_from(min(self._wants.values()), progress)
            await self._topic.flush()
        finally:
            listening.cancel()
        if len(self._done) < self._receivers:
            lacking = f"{self._receivers - len(self._done)} of {self._receivers} receivers"
            reasons = "; ".join(f"node {member}: {reason}" for member, reason in self._failed.items())
            raise HostError(f"{lacking} did not get {self._path.name}: {reasons}")
        return FileSent(self._path.name, self._size, self._digest, len(self._done), self._sent_bytes)

    @property
    def _answered(self) -> int:
        return len(self._done) + len(self._failed)

    def _say(self, what: str, offset: int = 0, data: bytes = b"") -> FileMessage:
        return FileMessage(what, self._path.name, self._size, self._digest, offset, data)

    async def _listen(self) -> None:
        while True:
            try:
                async for event in self._topic:
                    if event.value.digest == self._digest:
                        self._on_answer(event.sender, event.value)
                return
            except MissedMessages:
                # Receivers ask again at the end of the pass.
                continue

    def _on_answer(self, sender: Member, told: FileMessage) -> None:
        if told.what == "want" and 0 <= told.offset <= self._size:
            self._wants[sender] = told.offset
            self._failed.pop(sender, None)
        elif told.what == "done":
            self._wants.pop(sender, None)
            self._failed.pop(sender, None)
            self._done.add(sender)
        elif told.what == "failed" and sender not in self._done:
            self._wants.pop(sender, None)
            reason = told.data[:REASON_BYTES_MAX].decode(errors="replace")
            # This goes to a terminal: remove a stranger's control characters.
            self._failed[sender] = "".join(each if each.isprintable() else "?" for each in reason)
        self._changed.set()

    async def _wait_for_wants(self) -> None:
        """Offer the file until the expected number of receivers have answered."""
        while (answered := len(self._wants) + self._answered) < self._receivers:
            if self._waiting is not None and answered != self._told:
                self._told = answered
                self._waiting(answered)
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
                if not self._wants:
                    # All receivers that asked have failed.
                    return
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
            waiting = asked - self._done - self._wants.keys() - self._failed.keys()
            if not waiting & set(self._topic.members):
                return
            self._changed.clear()
            try:
                async with asyncio.timeout(OFFER_S):
                    await self._changed.wait()
            except TimeoutError:
                # The answer, or the end of the pass, may have been lost in a view change.
                await self._topic.send(self._say("end"))


async def send_file(
    node: NodeHandle,
    topic: str,
    path: Path,
    receivers: int,
    progress: Progress,
    digest_progress: Progress,
    waiting: Callable[[int], None] | None = None,
) -> FileSent:
    """Send a file to a number of receivers, which may join while it runs; return when all have it.

    `waiting` is told how many have answered, when it begins to wait for more and whenever the number changes.

    Raises `HostError` if all have answered, and some of them cannot take it.
    """
    if not path.is_file():
        raise UsageError(f"{path} is not a file")
    with path.open("rb", buffering=0) as file:
        digest = await asyncio.to_thread(digest_of, file.fileno(), digest_progress)
    async with await node.enter(topic, FileMessage, own=False) as entered:
        return await FileSender(entered, path, digest, receivers, waiting).run(progress)


class FileReceiver:
    """Receives one file."""

    def __init__(
        self,
        topic: Topic[FileMessage],
        folder: Path,
        progress: Progress,
        name: str | None,
        overwrite: bool,
        note: Callable[[str], None] | None,
    ) -> None:
        self._topic = topic
        self._folder = folder
        self._progress = progress
        self._name = name
        self._overwrite = overwrite
        self._note = note
        self._refused: set[tuple[str, str]] = set()
        self._offer: FileMessage | None = None
        self._part: PartFile | None = None
        self._resumed_at = 0
        self._attempts = 0

    async def run(self) -> FileReceived:
        """Receive the first file that is offered and can be taken."""
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
        except VivumError as error:
            await self._say_failed(error)
            raise
        finally:
            if self._part is not None:
                self._part.close()

    async def _on_message(self, told: FileMessage) -> FileReceived | None:
        if self._offer is None:
            if told.what in ("offer", "end", "part") and self._is_acceptable(told):
                await self._accept(told)
                await self._want()
        elif told.digest != self._offer.digest:
            return None
        elif told.what == "part":
            self._take(told)
        elif told.what in ("end", "offer"):
            await self._want()
        return await self._maybe_finish()

    def _is_acceptable(self, offer: FileMessage) -> bool:
        refusal = refusal_of(offer.name, offer.size, offer.digest)
        if refusal is None and self._name is not None:
            # Another file than the one asked for.
            return offer.name == self._name
        if refusal is None and offer.name.startswith("."):
            refusal = "it would be a hidden file; ask for it with --name"
        if refusal is None:
            return True
        key = (offer.name[:256], offer.digest[:256])
        if key not in self._refused and len(self._refused) < REFUSALS_MAX:
            self._refused.add(key)
            if self._note is not None:
                self._note(f"passed over an offer of {key[0]!r}: {refusal}")
        return False

    async def _accept(self, offer: FileMessage) -> None:
        self._offer = offer
        self._part = await asyncio.to_thread(
            PartFile, self._folder, offer.name, offer.size, offer.digest, overwrite=self._overwrite
        )
        self._resumed_at = self._part.have
        self._progress(self._part.have, offer.size)

    async def _want(self) -> None:
        assert self._part is not None
        assert self._offer is not None
        if self._part.have < self._offer.size:
            await self._say("want", self._part.have)

    async def _say(self, what: str, offset: int = 0, data: bytes = b"") -> None:
        assert self._offer is not None
        offer = self._offer
        await self._topic.send(FileMessage(what, offer.name, offer.size, offer.digest, offset, data))

    async def _say_failed(self, error: VivumError) -> None:
        if self._offer is not None:
            with suppress(VivumError, TimeoutError):
                async with asyncio.timeout(GOODBYE_S):
                    await self._say("failed", data=str(error).encode(errors="replace")[:REASON_BYTES_MAX])
                    await self._topic.flush()

    def _take(self, told: FileMessage) -> None:
        assert self._part is not None
        assert self._offer is not None
        if self._part.take(told.offset, told.data):
            self._progress(self._part.have, self._offer.size)

    async def _maybe_finish(self) -> FileReceived | None:
        offer, part = self._offer, self._part
        if offer is None or part is None or part.have < offer.size:
            return None
        if not part.is_complete:
            if not await asyncio.to_thread(part.has_right_digest):
                self._attempts += 1
                part.start_again()
                self._resumed_at = 0
                if self._attempts >= ATTEMPTS_MAX:
                    raise HostError(f"{offer.name} does not have the checksum that was promised; what came was deleted")
                await self._want()
                return None
            part.finish()
        await self._say("done", offer.size)
        await self._topic.flush()
        return FileReceived(part.target, offer.size, offer.digest, self._resumed_at)


async def receive_file(
    node: NodeHandle,
    topic: str,
    folder: Path,
    progress: Progress,
    *,
    name: str | None = None,
    overwrite: bool = False,
    note: Callable[[str], None] | None = None,
) -> FileReceived:
    """Receive the next file that is offered in a topic, into a folder; go on with what an earlier run left.

    With `name`, take only a file of that name. An existing file is replaced only with `overwrite`; if it has the
    promised checksum, there is nothing to do. `note` is called with a line of text for each offer that is skipped.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder")
    async with await node.enter(topic, FileMessage, own=False) as entered:
        return await FileReceiver(entered, folder, progress, name, overwrite, note).run()
