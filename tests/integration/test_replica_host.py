"""Replicas on real sockets and real disks: commit, kill and start again, and a disk that fails."""

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from vivum.core.errors import NotNowError
from vivum.core.ids import Endpoint, NodeId
from vivum.core.machine import Event
from vivum.protocols.consensus.commands import CommandsAnswered, OpenSession, Propose, SessionOpened
from vivum.protocols.consensus.configuration import Replica, ReplicaConfiguration
from vivum.protocols.consensus.settings import ConsensusSettings
from vivum.runtime.environment import current_environment
from vivum.runtime.replica_host import ReplicaHost
from vivum.storage.errors import StorageError
from vivum.wire.gate import domain_tag

DOMAIN = domain_tag("test replicas")
SETTINGS = ConsensusSettings(frame_bytes_max=8000, snapshot_log_bytes=20_000, log_tail_bytes=2000)


class Tape:
    """The application: remembers all commands."""

    def __init__(self) -> None:
        self.commands: list[bytes] = []

    def apply(self, index: int, command: bytes) -> bytes:
        self.commands.append(command)
        return str(len(self.commands)).encode()

    def snapshot(self) -> bytes:
        return b" ".join(self.commands)

    def restore(self, data: bytes) -> None:
        self.commands = data.split()


class Trio:
    """Three replicas on one event loop."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tapes: dict[int, Tape] = {}
        self.hosts: dict[int, ReplicaHost] = {}
        self.failed: list[Exception] = []
        self.events: list[Event] = []
        ports = {each: self._port() for each in (1, 2, 3)}
        self.places = {each: port.endpoint for each, port in ports.items()}
        self.founders = ReplicaConfiguration(Replica(each, *place) for each, place in self.places.items())
        for each, port in ports.items():
            self._start(each, port)

    def _port(self, at: Endpoint | None = None):
        return current_environment().open_port(DOMAIN, "127.0.0.1", port=at.port if at else 0, multicast=False)

    def _start(self, number: int, port) -> None:
        self.tapes[number] = Tape()
        self.hosts[number] = ReplicaHost(
            port,
            DOMAIN,
            1,
            NodeId(number),
            self.tapes[number],
            founders=self.founders,
            state_dir=self.path / str(number),
            settings=SETTINGS,
            on_event=self.events.append,
            on_failed=self.failed.append,
        )

    def start(self, number: int) -> None:
        self._start(number, self._port(self.places[number]))

    def stop(self, number: int) -> None:
        self.hosts.pop(number).close()

    @property
    def leader(self) -> int:
        return next((number for number, host in self.hosts.items() if host.machine.leads), 0)

    async def until(self, is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not is_so():
                await asyncio.sleep(0.01)

    async def session(self) -> int:
        await self.until(lambda: self.leader)
        self.hosts[self.leader].submit(OpenSession(1))
        await self.until(lambda: any(isinstance(each, SessionOpened) for each in self.events))
        return next(each.client for each in self.events if isinstance(each, SessionOpened))

    async def commit(self, client: int, first: int, count: int) -> None:
        """Propose until all is answered, as a client that retries does."""
        commands = [b"%d" % number for number in range(first, first + count)]
        async with asyncio.timeout(20):
            while True:
                before = len(self.events)
                try:
                    if self.leader:
                        self.hosts[self.leader].submit(Propose(client, first, commands, first))
                except NotNowError:
                    pass
                for _ in range(50):
                    await asyncio.sleep(0.01)
                    got = [
                        each
                        for each in self.events[before:]
                        if isinstance(each, CommandsAnswered) and each.sequence == first and each.statuses is None
                    ]
                    if got:
                        return

    def close(self) -> None:
        for number in list(self.hosts):
            self.stop(number)


def test_what_was_answered_is_there_after_all_have_died(tmp_path: Path) -> None:
    async def run() -> None:
        trio = Trio(tmp_path)
        try:
            client = await trio.session()
            await trio.commit(client, 0, 300)
            first = trio.leader
            trio.stop(first)
            await trio.until(lambda: trio.leader)
            await trio.commit(client, 300, 3000)
            trio.start(first)
            expected = [b"%d" % number for number in range(3300)]
            await trio.until(lambda: all(tape.commands == expected for tape in trio.tapes.values()))
            for number in (1, 2, 3):
                trio.stop(number)
            for number in (1, 2, 3):
                trio.start(number)
            await trio.until(lambda: trio.leader)
            await trio.until(lambda: all(tape.commands == expected for tape in trio.tapes.values()))
            await trio.commit(client, 3300, 1)
            assert any((tmp_path / "1").glob("*.snapshot"))
            assert trio.failed == []
        finally:
            trio.close()

    asyncio.run(run())


def test_a_disk_that_fails_stops_its_replica_and_nothing_of_it_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        trio = Trio(tmp_path)
        try:
            client = await trio.session()
            await trio.commit(client, 0, 10)
            leader = trio.leader
            file = trio.hosts[leader].store._file
            right = os.fdatasync

            def fdatasync(descriptor: int) -> None:
                if descriptor == file._file:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                right(descriptor)

            with monkeypatch.context() as patch:
                patch.setattr(os, "fdatasync", fdatasync)
                before = len(trio.events)
                trio.hosts[leader].submit(Propose(client, 10, [b"10"]))
                await trio.until(lambda: trio.failed)
                assert not any(isinstance(each, CommandsAnswered) for each in trio.events[before:])
            assert isinstance(trio.failed[0], StorageError)
            assert "No space left on device; the replica stops" in str(trio.failed[0])
            trio.stop(leader)
            await trio.until(lambda: trio.leader)
            # It is either there or not; a retry finds out, and it is there once.
            trio.hosts[trio.leader].submit(Propose(client, 10, [b"10"]))
            await trio.until(lambda: trio.tapes[trio.leader].commands[-1:] == [b"10"] if trio.leader else False)
            assert trio.tapes[trio.leader].commands == [b"%d" % number for number in range(11)]
        finally:
            trio.close()

    asyncio.run(run())
