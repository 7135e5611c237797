"""Serve back copies: read pieces of the log and send them to the joiners that ask (`live.replay.back_copies`).

A piece is read in a thread, by columns; nothing is kept of it or of the one who asked, so any number of joiners costs
one topic each and a piece at a time.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.compute

from vivum.core.errors import VivumError
from vivum.core.ids import Member
from vivum.live.handle import NodeHandle
from vivum.live.replay.back_copies import (
    BACK,
    FROM_THE_BEGINNING,
    REFUSED,
    REPLAY_TOPICS,
    WANT,
    BackCopies,
    BackRun,
    joiner_of,
)
from vivum.live.topic import Topic
from vivum.storage.errors import StorageError
from vivum.storage.segment_reader import LogReader
from vivum.wire.directory import TopicRecord

PIECE_BYTES = 256 * 1024
"""Payload of one piece: large enough that asking costs little, small enough that many joiners fit into the queues."""

SCANNED_ROWS_MAX = 500_000
"""Rows that are looked at for one piece: of a topic that is rare in its log a piece may be empty."""

JOINERS_MAX = 256
"""Joiners that are served at a time; further ones are not answered, and say so."""

ALONE_S = 5.0
"""Time without a joiner in its own topic after which it counts as gone."""


class BackCopyServer:
    """Serves the joiners of a domain from the log of a recorder."""

    def __init__(
        self,
        node: NodeHandle,
        directory: Path,
        topics: Collection[str],
        tips: Mapping[str, Mapping[Member, int]],
        settle: Callable[[], Awaitable[None]],
    ) -> None:
        """Prepare. `topics` are recorded; `tips` tell for each of them how far the log goes for each sender.

        `settle` waits until all that was delivered to the recorder is in its log.
        """
        self._node = node
        self._reader = LogReader(directory)
        self._topics = topics
        self._tips = tips
        self._settle = settle
        self._reading = asyncio.Lock()
        self._serving: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Serve until cancelled."""
        watch = self._node.browser.watch(f"{REPLAY_TOPICS}/*", self._on_topics)
        try:
            await asyncio.Event().wait()
        finally:
            self._node.browser.unwatch(watch)
            tasks = list(self._serving.values())
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    def _on_topics(self, records: Sequence[TopicRecord]) -> None:
        for each in records:
            if each.name not in self._serving and len(self._serving) < JOINERS_MAX:
                task = asyncio.get_running_loop().create_task(self._serve(each.name))
                self._serving[each.name] = task
                task.add_done_callback(partial(self._forget, each.name))

    def _forget(self, name: str, _: object) -> None:
        self._serving.pop(name, None)

    async def _serve(self, name: str) -> None:
        """Serve one joiner until it has gone."""
        with suppress(VivumError):
            if joiner_of(name) not in {str(each.member) for each in await self._node.nodes()}:
                # Topics stay in the directory when their joiner has gone.
                return
            async with await self._node.enter(name, BackCopies, own=False) as line:
                leaving = asyncio.create_task(_until_alone(line))
                answering = asyncio.create_task(self._answer_all(line))
                try:
                    await asyncio.wait([leaving, answering], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in (leaving, answering):
                        task.cancel()
                    await asyncio.wait([leaving, answering])

    async def _answer_all(self, line: Topic[BackCopies]) -> None:
        async for event in line:
            want = event.value
            if want.what == WANT and want.topic in self._topics and want.to in ("", str(self._node.member)):
                await line.send(await self._answer(want))

    async def _answer(self, want: BackCopies) -> BackCopies:
        # A sender that has left cannot be asked what it sent. What it knew to be stable was delivered here before.
        await self._settle()
        # Before the log is read: what they tell of is in it.
        reached: list[tuple[int, int, int]] = [
            (*sender, stop) for sender, stop in list(self._tips.get(want.topic, {}).items())
        ]
        try:
            async with self._reading:
                offset, is_end, runs = await asyncio.to_thread(
                    read_piece, self._reader, want.topic, want.offset, want.time_ns
                )
        except StorageError as error:
            return BackCopies(REFUSED, want.request, want.topic, want.offset, text=str(error))
        return BackCopies(BACK, want.request, want.topic, offset, is_end=is_end, tips=reached, runs=runs)


async def _until_alone(line: Topic[BackCopies]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(ALONE_S):
            await line.wait_for_members(2)
    async for view in line.views():
        if len(view.members) < 2:
            return


def read_piece(reader: LogReader, topic: str, offset: int, time_ns: int) -> tuple[int, bool, list[BackRun]]:
    """Read messages of a topic from an offset on, those delivered at a time or later, up to `PIECE_BYTES`.

    Returns where the next piece begins, whether this one goes to the end of the log, and the messages.
    """
    first, stop = reader.first_offset(), reader.stop_offset()
    if offset == FROM_THE_BEGINNING:
        offset = reader.offset_at(time_ns) if time_ns else first
    elif offset < first:
        raise StorageError(f"offset {offset} is no longer in the log, whose oldest is {first}")
    elif offset > stop:
        raise StorageError(f"offset {offset} is not in the log yet, where the next is {stop}")
    runs: list[BackRun] = []
    room, rows = PIECE_BYTES, SCANNED_ROWS_MAX
    for batch in reader.batches(offset, stop):
        wanted = pyarrow.compute.equal(batch.column("topic"), topic)
        if time_ns:
            wanted = pyarrow.compute.and_(wanted, pyarrow.compute.greater_equal(batch.column("delivered_ns"), time_ns))
        mine = batch.filter(wanted)
        taken = _fitting(mine.column("payload"), room)
        is_cut = taken < len(mine)
        offset = mine.column("offset")[taken].as_py() if is_cut else batch.column("offset")[-1].as_py() + 1
        if taken:
            new = _runs(mine.slice(0, taken))
            runs += new
            room -= sum(sum(map(len, run[-1])) for run in new)
        rows -= len(batch)
        if is_cut or room <= 0 or rows <= 0:
            break
    return offset, offset >= stop, runs


def _fitting(payloads: Any, room: int) -> int:
    """Return how many messages fit; one at least, if there is one."""
    sizes = pyarrow.compute.cumulative_sum(pyarrow.compute.cast(pyarrow.compute.binary_length(payloads), "int64"))
    fitting = pyarrow.compute.sum(pyarrow.compute.less_equal(sizes, room)).as_py() or 0
    return max(min(1, len(payloads)), int(fitting))


def _runs(rows: Any) -> list[BackRun]:
    """Cut rows where sender, life, view or time of sending change, or where numbers do not follow each other."""
    columns = [rows.column(name).to_pylist() for name in ("sender", "incarnation", "sequence", "view", "sent_ns")]
    payloads = rows.column("payload").to_pylist()
    changes = None
    for name, step in (("sender", 0), ("incarnation", 0), ("view", 0), ("sent_ns", 0), ("sequence", 1)):
        column = rows.column(name)
        moved = pyarrow.compute.not_equal(
            pyarrow.compute.subtract(column.slice(1), column.slice(0, len(rows) - 1)), step
        )
        changes = moved if changes is None else pyarrow.compute.or_(changes, moved)
    cuts = [0, *(place + 1 for place in pyarrow.compute.indices_nonzero(changes).to_pylist()), len(rows)]
    senders, incarnations, sequences, views, times = columns
    return [
        (senders[begin], incarnations[begin], sequences[begin], views[begin], times[begin], payloads[begin:end])
        for begin, end in itertools.pairwise(cuts)
    ]
