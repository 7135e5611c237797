"""Three replicas on one event loop, each of which can be stopped and started again."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from vivum import kv
from vivum.runtime.environment import current_environment
from vivum.runtime.replica_host import ReplicaHost
from vivum.wire.gate import domain_tag


def free_ports(domain: str, count: int = 3) -> list[int]:
    """Find ports that nobody has: all are open at the same time, so they differ."""
    tag = domain_tag(domain)
    opened = [current_environment().open_port(tag, "127.0.0.1", multicast=False) for _ in range(count)]
    ports = [each.endpoint.port for each in opened]
    for each in opened:
        each.close()
    return ports


class StoreTrio:
    """`async with StoreTrio(path, domain) as trio:`, then `trio.connect()`."""

    def __init__(self, path: Path, domain: str) -> None:
        self.path = path
        self.domain = domain
        self.peers: dict[int, str] = {}
        self.hosts: dict[int, ReplicaHost] = {}

    async def __aenter__(self) -> "StoreTrio":
        self.peers = {number: f"127.0.0.1:{port}" for number, port in enumerate(free_ports(self.domain), 1)}
        for number in self.peers:
            self.start(number)
        return self

    async def __aexit__(self, *_: object) -> None:
        for number in list(self.hosts):
            self.stop(number)

    def start(self, number: int) -> None:
        self.hosts[number] = kv.serve(number, self.peers, self.path / str(number), domain=self.domain)

    def stop(self, number: int) -> None:
        self.hosts.pop(number).close()

    def connect(self, timeout_s: float = 10.0) -> kv.KeyValueClient:
        return kv.connect(list(self.peers.values()), domain=self.domain, timeout_s=timeout_s)

    @property
    def leader(self) -> int:
        return next((number for number, host in self.hosts.items() if host.machine.leads), 0)

    async def until(self, is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not is_so():
                await asyncio.sleep(0.01)
