"""A recorder without a disk: keeps what was delivered in topics, and serves joiners back copies from memory.

Speaks as the recorder of `vivum.pipeline` does (`live.replay.back_copies`), which needs files and threads.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from vivum.core.errors import VivumError
from vivum.core.ids import Member
from vivum.live.event import Batch
from vivum.live.failures import MissedMessages
from vivum.live.handle import NodeHandle
from vivum.live.replay.back_copies import BACK, REPLAY_TOPICS, WANT, BackCopies, BackRun, joiner_of
from vivum.live.topic import Topic
from vivum.wire.directory import TopicRecord

PIECE_RUNS = 50
"""Runs of messages in one piece."""

ALONE_S = 5.0
"""Time without a joiner in its own topic after which it counts as gone."""


class Archive:
    """Records topics of bytes, and serves back copies."""

    def __init__(self, node: NodeHandle, names: Sequence[str]) -> None:
        self._node = node
        self._logs: dict[str, list[BackRun]] = {name: [] for name in names}
        self._tips: dict[str, dict[Member, int]] = {name: {} for name in names}
        self._serving: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Record and serve until cancelled."""
        for topic in await self._node.enter_many(self._logs, bytes):
            topic.on_batch(self._record, self._miss)
        self._node.browser.watch(f"{REPLAY_TOPICS}/*", self._on_lines)
        await asyncio.Event().wait()

    def _record(self, batch: Batch[bytes]) -> None:
        run = (*batch.sender, batch.first_sequence, batch.view, batch.time_ns, list(batch.payloads))
        self._logs[batch.topic].append(run)
        self._tips[batch.topic][batch.sender] = batch.first_sequence + len(batch)

    def _miss(self, told: MissedMessages) -> None:
        """Leave a hole: the joiner sees it by the numbers."""

    def _on_lines(self, records: Sequence[TopicRecord]) -> None:
        for each in records:
            if each.name not in self._serving:
                self._serving[each.name] = asyncio.get_running_loop().create_task(self._serve(each.name))

    async def _serve(self, name: str) -> None:
        """Serve one joiner until it has gone."""
        with suppress(VivumError, TimeoutError):
            if joiner_of(name) not in {str(each.member) for each in await self._node.nodes()}:
                # Topics stay in the directory when their joiner has gone.
                return
            async with await self._node.enter(name, BackCopies, own=False) as line:
                line.on(lambda event: self._answer(line, event.value), self._miss)
                async with asyncio.timeout(ALONE_S):
                    await line.wait_for_members(2)
                async for view in line.views():
                    if len(view.members) < 2:
                        return

    def _answer(self, line: Topic[BackCopies], want: BackCopies) -> None:
        if want.what != WANT or want.topic not in self._logs or want.to not in ("", str(self._node.member)):
            return
        log, begin = self._logs[want.topic], max(0, want.offset)
        runs = log[begin : begin + PIECE_RUNS]
        stop = begin + len(runs)
        tips: list[tuple[int, int, int]] = [(*sender, reached) for sender, reached in self._tips[want.topic].items()]
        answer = BackCopies(BACK, want.request, want.topic, stop, is_end=stop == len(log), tips=tips, runs=runs)
        # One that finds no room is asked for again.
        line.try_send(answer)
