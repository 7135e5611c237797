"""Nodes that start before their network is there; root only, skipped with a reason otherwise."""

import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from vivum.bench.namespaces import NetnsHost, NetnsNetwork, why_impossible

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why := why_impossible()), reason=why or "possible")]

NODE = """
import asyncio, sys, vivum

async def main(address, timeout_s):
    try:
        node = await vivum.connect("late", interface=address, timeout_s=timeout_s)
    except vivum.NoServiceError as error:
        print("refused:", error, flush=True)
        return
    async with node:
        print("joined, carries" if node.carries_service else "joined", flush=True)
        topic = await node.enter("/late", bytes)
        await topic.wait_for_members(3)
        print("whole", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main(sys.argv[1], float(sys.argv[2])))
"""

PATIENCE_S = 20.0


class Node:
    """A process of a host that joins the domain."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def hear(self, within_s: float = PATIENCE_S) -> str | None:
        """Return the next line that it prints; None if it prints none in this time."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], within_s)
        return self._process.stdout.readline().strip() if ready else None


@contextmanager
def node_on(host: NetnsHost, timeout_s: float = PATIENCE_S) -> Iterator[Node]:
    command = [*host.prefix, sys.executable, "-c", NODE, host.address, str(timeout_s)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        try:
            yield Node(process)
        finally:
            process.kill()


def test_a_node_that_starts_while_its_network_is_down_joins_the_others_when_it_is_back():
    # B12: it heard nobody, began a domain of its own, and confirmed messages to itself for ever.
    with NetnsNetwork(3) as network:
        first, second, third = network.hosts
        with node_on(first) as one, node_on(second) as two:
            assert sorted([one.hear() or "", two.hear() or ""]) == ["joined", "joined, carries"]
            third.cut_from(network.hosts)
            with node_on(third) as late:
                assert late.hear(3.0) is None, "it waits for its network"
                third.cut_from(())
                healed_s = time.monotonic()
                assert late.hear() == "joined"
                assert time.monotonic() - healed_s < 3
                assert [each.hear() for each in (one, two, late)] == ["whole"] * 3


def test_a_node_whose_network_stays_down_says_what_it_waited_for():
    with NetnsNetwork(1) as network:
        (host,) = network.hosts
        host.cut_from(network.hosts)
        with node_on(host, timeout_s=1.5) as lonely:
            text = lonely.hear() or ""
    assert text.startswith("refused: the node waited for its network: 10.99.7.1 has heard no multicast")


def test_a_node_alone_on_a_network_that_works_carries_the_service():
    with NetnsNetwork(1) as network, node_on(network.hosts[0]) as alone:
        assert alone.hear() == "joined, carries"
