"""Ask recorders for back copies of a topic, piece by piece, and the messages that joiners and recorders exchange.

A node that wants back copies enters a topic of its own below `REPLAY_TOPICS`. Recorders watch for such topics and enter
them too. The node says what it wants (`want`); a recorder that has it answers with a piece (`back`). From then on the
node asks that recorder, one piece at a time as it has room, so neither side holds more than a piece for the other. This
topic is the node's *line*. It is closed when nobody at the node needs it any more, and the recorder leaves it too.
"""

import asyncio
from typing import TYPE_CHECKING

import msgspec

from vivum.core.errors import UsageError
from vivum.core.ids import Member
from vivum.core.topic_names import OWN_TOPICS
from vivum.live.failures import NoRecorderError
from vivum.live.messages import Message

if TYPE_CHECKING:
    from vivum.live.handle import NodeHandle
    from vivum.live.topic import Topic

REPLAY_TOPICS = f"{OWN_TOPICS}/replay"

FROM_THE_BEGINNING = -1
"""As an offset, stands for the oldest message in the log."""

ASK_S = 0.3
"""How long to wait for an answer before asking again: a recorder may only have joined now."""

RENEW_S = 2.0
"""How long to wait for a recorder before the line gets a new name. Recorders look at each name once."""

NOBODY_S = 5.0
"""How long to wait before concluding that there is no recorder."""

WANT, BACK, REFUSED = "want", "back", "refused"

BackRun = tuple[int, int, int, int, int, list[bytes]]
"""Messages of one life of a sender, one after the other: node, incarnation, first sequence, view, sent_ns, payloads."""


class BackCopies(Message):
    """`want` asks for copies from an offset and a delivery time. `back` is a piece. `refused` says why in `text`."""

    what: str
    request: int
    topic: str
    offset: int
    """Where to begin; in an answer, where the next piece begins."""

    time_ns: int = 0
    to: str = ""
    """The member that is asked; empty in the first question, which any may answer."""

    is_end: bool = False
    """Whether the piece reaches what was the end of the log."""

    tips: list[tuple[int, int, int]] = msgspec.field(default_factory=list)
    """How far the log went for each sender before the piece was read: node, incarnation, next sequence."""

    runs: list[BackRun] = msgspec.field(default_factory=list)
    text: str = ""


def joiner_of(name: str) -> str:
    """Return the member that made a topic below `REPLAY_TOPICS`."""
    return name.rpartition("/")[2].partition("-")[0]


class ReplayLine:
    """One node's line to recorders, shared by all its topics."""

    def __init__(self, node: "NodeHandle") -> None:
        self._node = node
        self._users = 0
        self._opened = 0
        self._life: Member | None = None
        self._requests = 0
        self._topic: Topic[BackCopies] | None = None
        self._opening = asyncio.Lock()
        self._waiting: dict[int, asyncio.Future[tuple[Member, BackCopies]]] = {}

    async def open(self) -> None:
        """Begin to use the line; `close` must follow."""
        self._users += 1
        try:
            await self._line()
        except BaseException:
            self._users -= 1
            raise

    async def close(self) -> None:
        """Stop using the line."""
        self._users -= 1
        if not self._users and self._topic is not None:
            topic, self._topic = self._topic, None
            await topic.leave()

    async def _line(self) -> "Topic[BackCopies]":
        """Return the line's topic, a new one in each life: recorders leave when a life ends."""
        async with self._opening:
            if self._topic is not None and self._node.member not in (None, self._life):
                await self._topic.leave()
                self._topic = None
            if self._topic is None:
                self._opened += 1
                self._life = self._node.member
                # A new name: recorders are told of new topics only.
                name = f"{REPLAY_TOPICS}/{self._life}-{self._opened}"
                self._topic = await self._node.enter(name, BackCopies, own=False)
                # An answer that was missed is asked for again.
                self._topic.on(lambda event: self._on_message(event.sender, event.value), missed=lambda _: None)
            return self._topic

    async def _renewed(self, old: "Topic[BackCopies]") -> "Topic[BackCopies]":
        """Open the line anew: a recorder that failed to enter the old one enters the new one."""
        async with self._opening:
            if self._topic is old:
                self._topic = None
                await old.leave()
        return await self._line()

    def _on_message(self, sender: Member, message: BackCopies) -> None:
        future = self._waiting.get(message.request)
        if future is not None and not future.done() and message.what in (BACK, REFUSED):
            future.set_result((sender, message))

    async def ask(self, topic: str, offset: int, time_ns: int, whom: Member | None) -> tuple[Member, BackCopies]:
        """Return the piece that begins at an offset, from the recorder `whom` or from any.

        Raises `NoRecorderError` if none answers, or if the one that was asked is gone.
        """
        self._requests += 1
        request = self._requests
        future = self._waiting[request] = asyncio.get_running_loop().create_future()
        want = BackCopies(WANT, request, topic, offset, time_ns, "" if whom is None else str(whom))
        clock = asyncio.get_running_loop().time
        deadline = renewal = 0.0
        life: Member | None = None
        try:
            while not future.done():
                line = await self._line()
                if self._life != life:
                    # A new life, perhaps with another service, whose recorders were not asked yet.
                    life, deadline, renewal = self._life, clock() + NOBODY_S, clock() + RENEW_S
                if clock() > deadline:
                    raise self._nobody(topic, whom)
                if whom is None and clock() > renewal:
                    renewal = clock() + RENEW_S
                    line = await self._renewed(line)
                if whom is None or whom in line.members:
                    await line.send(want)
                await asyncio.wait([future], timeout=ASK_S)
        finally:
            del self._waiting[request]
        sender, answer = future.result()
        if answer.what == REFUSED:
            raise UsageError(f"no back copies of {topic}: {answer.text}")
        return sender, answer

    def _nobody(self, topic: str, whom: Member | None) -> NoRecorderError:
        domain = self._node.domain
        if whom is not None:
            return NoRecorderError(
                f"the recorder of {topic}, node {whom} of domain {domain!r}, does not answer any more"
            )
        return NoRecorderError(
            f"nobody in domain {domain!r} has back copies of {topic}: no recorder answered within {NOBODY_S:g} s; "
            f"start one with `vivum record {topic} --to DIR`, or enter without replay"
        )
