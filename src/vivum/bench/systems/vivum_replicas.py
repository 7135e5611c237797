"""Vivum's replicated log: three processes, commands pipelined at the leader, then one at a time."""

import asyncio
import time
from typing import Any

from vivum.bench.worker import Control
from vivum.core.ids import NodeId
from vivum.core.machine import Event
from vivum.protocols.consensus.commands import (
    CommandsAnswered,
    LeaderChanged,
    OpenSession,
    Propose,
    SessionOpened,
)
from vivum.protocols.consensus.configuration import Replica, ReplicaConfiguration
from vivum.protocols.consensus.settings import ConsensusSettings
from vivum.runtime.environment import current_environment
from vivum.runtime.loop_thread import run_on_loop
from vivum.runtime.replica_host import ReplicaHost
from vivum.wire.gate import domain_tag

LABEL = "vivum"
FRAME_BYTES = 60_000
"""Loopback takes datagrams of this size whole."""


class Counting:
    """The application: counts. What a log costs is what is measured."""

    def __init__(self) -> None:
        self.count = 0

    def apply(self, index: int, command: bytes) -> bytes:  # noqa: ARG002
        """Count a command."""
        self.count += 1
        return b""

    def snapshot(self) -> bytes:
        """Return the count."""
        return self.count.to_bytes(8, "little")

    def restore(self, data: bytes) -> None:
        """Take the count of a snapshot."""
        self.count = int.from_bytes(data, "little")


def replicate(control: Control, options: dict[str, Any]) -> None:
    """Be one replica; if it leads, propose when the parent says so."""
    run_on_loop(_Replica(control, options).run())


class _Replica:
    def __init__(self, control: Control, options: dict[str, Any]) -> None:
        self._control = control
        self._options = options
        self._id = NodeId(options["id"])
        self._application = Counting()
        self._answered = asyncio.Event()
        self._commits = 0
        self._sequence = 0
        self._window = 0
        self._stop = 0.0
        self._batch = [bytes(options["size"])] * options["batch"]

    async def run(self) -> None:
        """Go through the parent's words."""
        loop = asyncio.get_running_loop()
        domain = domain_tag("bench consensus")
        port = current_environment().open_port(domain, "127.0.0.1", multicast=False)
        self._control.tell(place=list(port.endpoint))
        places = await loop.run_in_executor(None, self._control.wait_for, "places")
        founders = ReplicaConfiguration(Replica(number, *place) for number, place in enumerate(places, 1))
        window_bytes = max(4 * FRAME_BYTES, port.receive_buffer_bytes // 4)
        settings = ConsensusSettings(
            frame_bytes_max=FRAME_BYTES, batch_bytes_max=FRAME_BYTES - 200, window_bytes_max=window_bytes
        )
        self._host = ReplicaHost(
            port,
            domain,
            1,
            self._id,
            self._application,
            founders=founders,
            state_dir=self._options["state"],
            settings=settings,
            on_event=self._on_event,
        )
        while True:
            heard = await loop.run_in_executor(None, self._control.hear)
            if heard is None or "end" in heard:
                break
            if "pipeline" in heard:
                await self._pipeline(*heard["pipeline"])
            elif "one_by_one" in heard:
                await self._one_by_one(heard["one_by_one"])
            elif "count" in heard:
                self._control.tell(count=self._application.count)
        self._host.close()

    def _on_event(self, event: Event) -> None:
        if type(event) is CommandsAnswered:
            assert event.statuses is None
            self._commits += len(event.answers)
            self._answered.set()
            if self._window and time.monotonic() < self._stop:
                self._fill(self._window)
        elif isinstance(event, LeaderChanged) and event.leader == self._id:
            self._host.submit(OpenSession(1))
        elif isinstance(event, SessionOpened):
            self._session = event.client
            self._control.tell(leads=True)

    def _fill(self, window: int) -> None:
        while self._sequence - self._commits + len(self._batch) <= window:
            self._host.submit(Propose(self._session, self._sequence, self._batch, self._commits))
            self._sequence += len(self._batch)

    async def _pipeline(self, window: int, warm_s: float, seconds: float) -> None:
        began = time.monotonic()
        self._window, self._stop = window, began + warm_s + seconds
        self._fill(window)
        await asyncio.sleep(warm_s)
        start, commits = time.monotonic(), self._commits
        await asyncio.sleep(seconds)
        rate = (self._commits - commits) / (time.monotonic() - start)
        self._window = 0
        while self._commits < self._sequence:
            self._answered.clear()
            await self._answered.wait()
        self._control.tell(commits_per_s=rate, total=self._commits)

    async def _one_by_one(self, rounds: int) -> None:
        command, times = self._batch[:1], []
        for _ in range(rounds):
            self._answered.clear()
            began = time.perf_counter_ns()
            self._host.submit(Propose(self._session, self._sequence, command, self._commits))
            self._sequence += 1
            await self._answered.wait()
            times.append(time.perf_counter_ns() - began)
        self._control.tell(times_us=[each / 1000 for each in times])
