"""The trace of a live node: what it sent, delivered and installed. In Parquet files, for `vivum audit`, or simulated.

Costs some microseconds for each message. A thread writes the files. At most `FILES_WAITING_MAX` of them wait for it;
then the node waits too, since a trace with a hole is useless. A topic's name and guarantee come before all other
records of its group: `vivum audit` takes its promises from there. For `vivum pipeline run operations` the trace also
has what the node sent in each second.
"""

import asyncio
import re
from operator import sub
from pathlib import Path
from queue import Queue
from threading import Thread

from vivum.core.ids import GroupId, Member
from vivum.guarantees import Guarantee
from vivum.observe.trace import GroupJoined, GroupNamed, NodeMeasured, NodeStarted, NodeStopped, TraceRecord
from vivum.runtime.environment import TraceSink, current_environment
from vivum.runtime.member_host import MemberHost
from vivum.storage.errors import StorageError
from vivum.storage.traces import TraceWriter

ROWS_PER_FILE = 32_768
"""Records held before a file is written. A crash can lose these, and those of waiting files."""

FILES_WAITING_MAX = 4
"""Files whose records wait for the disk, some 8 MB each."""

MEASURE_S = 1.0
"""How often a node records what it sent. Operations are summed up by the minute."""


class TraceFolder:
    """Parquet files that a thread writes."""

    def __init__(self, folder: Path, name: str) -> None:
        """Begin. Files are named after the node, whose name is unique to this start."""
        label = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "node"
        self._writer = TraceWriter(folder, label, rows_per_file=ROWS_PER_FILE, promises=())
        self._held: list[TraceRecord] = []
        self._full: Queue[list[TraceRecord] | None] = Queue(FILES_WAITING_MAX)
        self._is_closed = False
        self._fault: StorageError | None = None
        self._thread = Thread(target=self._write_on, name="trace", daemon=True)
        self._thread.start()

    def __call__(self, record: TraceRecord) -> None:
        """Take one record."""
        held = self._held
        held.append(record)
        if len(held) >= ROWS_PER_FILE:
            self._held = []
            self._full.put(held)

    def _write_on(self) -> None:
        while (records := self._full.get()) is not None:
            # Neither a full disk nor a bug here may stop the node: `close` reports what is missing.
            try:
                self._writer.extend(records)
            except StorageError:
                pass
            except Exception as error:
                self._fault = StorageError(f"a trace file could not be written: {error}")

    def close(self) -> None:
        """Write the rest. Raises `StorageError` if that fails or records are missing. May be called again."""
        if not self._is_closed:
            self._is_closed = True
            self._full.put(self._held)
            self._full.put(None)
            self._thread.join()
        self._writer.close()
        if self._fault is not None:
            raise self._fault


def begin_trace(domain: str, name: str, folder: Path | None) -> "NodeTrace | None":
    """Return a trace to a folder and to the environment's sink; None if neither is wanted."""
    given = current_environment().trace_sink(domain)
    sinks = [] if given is None else [given]
    if folder is not None:
        sinks.append(TraceFolder(folder, name))
    return NodeTrace(*sinks) if sinks else None


class NodeTrace:
    """A tracer for one node."""

    def __init__(self, *sinks: TraceSink) -> None:
        self._sinks = sinks
        self._unnamed: dict[GroupId, tuple[str, Guarantee]] = {}
        self._life: Member | None = None
        self._host: MemberHost | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._measured = (0, 0, 0, 0, 0)

    def __call__(self, record: TraceRecord) -> None:
        """Take one record."""
        if self._unnamed and type(record) is GroupJoined:
            self._name(record)
        for sink in self._sinks:
            sink(record)

    def on_topic(self, name: str, group: GroupId, guarantee: Guarantee) -> None:
        """Note that a topic has this group from now on. It is recorded before the node joins the group."""
        self._unnamed[group] = (name, guarantee)

    def _name(self, joined: GroupJoined) -> None:
        found = self._unnamed.pop(GroupId(joined.group), None)
        if found is not None:
            name, guarantee = found
            life = (joined.node, joined.incarnation)
            self(GroupNamed(joined.time_ns, *life, joined.group, name, guarantee.name))

    def watch(self, host: MemberHost) -> None:
        """Record every second what a node sent, until it is closed."""
        self._host = host
        self._timer = asyncio.get_running_loop().call_later(MEASURE_S, self._measure_again)

    def _measure_again(self) -> None:
        self._measure()
        self._timer = asyncio.get_running_loop().call_later(MEASURE_S, self._measure_again)

    def _measure(self) -> None:
        host, life = self._host, self._life
        if host is None or life is None:
            return
        counters = host.parts.counters
        now = (
            counters.datagrams_sent,
            counters.bytes_sent,
            counters.repairs_sent,
            counters.repair_bytes_sent,
            host.lost_on_purpose,
        )
        before, self._measured = self._measured, now
        datagrams, size, repairs, repair_bytes, lost = map(sub, now, before)
        rings = (each for region in host.parts.qsm.regions.values() for each in region.ladder.rings if each.is_leader)
        ring_ns = max((each.round_trip_ns for each in rings), default=0)
        self(NodeMeasured(host.now_ns, *life, datagrams, size, repairs, repair_bytes, lost, ring_ns))

    def on_life(self, now_ns: int, life: Member) -> None:
        """Note a life; the first one is recorded here, later ones by the membership client."""
        if self._life is None:
            self(NodeStarted(now_ns, *life))
        self._life = life

    def close(self, now_ns: int) -> None:
        """End the trace. Raises `StorageError` if records are missing. May be called again."""
        if self._timer is not None:
            self._timer.cancel()
        self._measure()
        life, self._life = self._life, None
        if life is not None:
            self(NodeStopped(now_ns, *life, "closed"))
        for sink in self._sinks:
            sink.close()
