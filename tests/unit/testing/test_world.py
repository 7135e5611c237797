"""A world of simulated computers: processes start, pause, die and end, and the network does what it is told."""

import asyncio
import gc
import subprocess
import sys
import warnings

import pytest

import vivum
from vivum.core.errors import HostError, UsageError
from vivum.core.ids import Channel, Endpoint
from vivum.core.machine import Datagram
from vivum.testing import Deadlock, ProcessKilled, World
from vivum.testing.link import SimulatedPort
from vivum.testing.loop import PROCESS
from vivum.testing.process import Process


def now() -> float:
    return round(asyncio.get_running_loop().time(), 3)


def test_a_pause_holds_every_callback_of_a_process_and_of_no_other() -> None:
    world = World()
    ticks: dict[str, list[float]] = {"a": [], "b": []}

    async def tick(name: str) -> None:
        while True:
            await asyncio.sleep(1)
            ticks[name].append(now())

    async def rehearse() -> None:
        a, b = world.host("a"), world.host("b")
        a.start(tick, "a")
        b.start(tick, "b")
        await asyncio.sleep(2.5)
        a.pause(3)
        await asyncio.sleep(4.9)

    world.run(rehearse())
    assert ticks == {"a": [1.0, 2.0, 5.5, 6.5], "b": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]}


def test_a_pause_can_end_before_its_time() -> None:
    world = World()

    async def sleep() -> float:
        await asyncio.sleep(1)
        return now()

    async def rehearse() -> float:
        process = world.host("a").start(sleep)
        await asyncio.sleep(0)
        world.host("a").pause(100)
        await asyncio.sleep(2)
        world.host("a").resume()
        return await process

    assert world.run(rehearse()) == 2.0


def test_a_process_that_is_killed_runs_no_line_more() -> None:
    world = World()
    lines: list[str] = []

    async def main() -> None:
        try:
            lines.append("begin")
            await asyncio.sleep(5)
            lines.append("end")
        except BaseException:
            lines.append("except")
            raise
        finally:
            lines.append("finally")

    async def rehearse() -> list[str]:
        host = world.host("a")
        process = host.start(main)
        await asyncio.sleep(1)
        host.kill()
        with pytest.raises(ProcessKilled):
            await process
        gc.collect()
        await asyncio.sleep(10)
        assert not host.is_running
        return list(lines)

    assert world.run(rehearse()) == ["begin"]
    assert world.verdict().holds


@pytest.mark.parametrize("datagrams", range(1, 6))
def test_a_process_that_is_killed_between_two_effects_sends_so_many_datagrams_more(datagrams: int) -> None:
    world = World(multicast=False)
    heard: list[bytes] = []

    def open_port(port: int) -> SimulatedPort:
        process = PROCESS.get()
        assert isinstance(process, Process)
        return process.open_port(1, "", port=port)

    async def listen() -> None:
        port = open_port(7)
        port.attach(lambda: heard.extend(data for _, data in port.receive(1000)))
        await asyncio.sleep(100)

    async def say() -> None:
        port, where = open_port(0), Endpoint(world.resolve("b"), 7)
        await asyncio.sleep(2)
        # The kill strikes in the middle of a call, and between two of them.
        assert not port.send([Datagram(where, b"1"), Datagram(where, b"2")])
        assert not port.send([Datagram(where, b"3"), Datagram(where, b"4")])
        port.listen(Channel(3))
        await asyncio.sleep(0)
        heard.append(b"a line more")
        await asyncio.sleep(100)

    async def rehearse() -> bool:
        world.host("b").start(listen)
        process = world.host("a").start(say)
        await asyncio.sleep(1)
        world.host("a").kill(after_datagrams=datagrams)
        assert process.is_dying
        await asyncio.sleep(2)
        return process.is_running

    assert world.run(rehearse()) == (datagrams > 4)
    said = [b"1", b"2", b"3", b"4"]
    assert sorted(heard) == (said[:datagrams] if datagrams <= 4 else [*said, b"a line more"])
    assert world.verdict().holds


def test_nothing_is_said_about_tasks_that_a_world_leaves_behind() -> None:
    async def stubborn() -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(asyncio.sleep(1000))
                await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def rehearse(world: World) -> None:
        world.host("a").start(stubborn)
        world.host("b").start(stubborn)
        await asyncio.sleep(1)
        world.host("a").kill()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        world = World()
        world.run(rehearse(world))
        del world
        gc.collect()


def test_a_program_that_ends_takes_its_tasks_with_it() -> None:
    world = World()
    seen: list[str] = []

    async def helper() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            seen.append("cancelled")

    async def main() -> str:
        seen.append("begun")
        asyncio.create_task(helper())  # noqa: RUF006
        await asyncio.sleep(1)
        return "done"

    async def rehearse() -> str:
        result = await world.host("a").start(main)
        assert world.host("a").start(main) is not None, "another program may follow"
        return result

    assert world.run(rehearse()) == "done"
    assert seen[:2] == ["begun", "cancelled"]


def test_an_error_that_nobody_awaits_is_a_failure_and_one_that_is_awaited_is_not() -> None:
    async def fail() -> None:
        await asyncio.sleep(1)
        raise KeyError("lost")

    async def rehearse(world: World, awaits: bool) -> None:
        process = world.host("a").start(fail)
        if awaits:
            with pytest.raises(KeyError):
                await process
        await asyncio.sleep(2)

    unseen, seen = World(), World()
    unseen.run(rehearse(unseen, False))
    seen.run(rehearse(seen, True))
    assert unseen.verdict().failures == ("a#1: KeyError: 'lost'",)
    with pytest.raises(AssertionError, match="failure: a#1: KeyError"):
        unseen.verdict().check()
    assert seen.verdict().holds


def test_an_error_in_a_callback_or_a_forgotten_task_is_a_failure() -> None:
    world = World()

    async def fail() -> None:
        raise ValueError("nobody looks")

    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        task = asyncio.create_task(fail(), name="forgotten")
        await asyncio.sleep(1)
        assert task.done()

    async def rehearse() -> None:
        await world.host("a").start(main)

    world.run(rehearse())
    in_callback, in_task = world.verdict().failures
    assert in_callback.startswith("a#1: Exception in callback")
    assert "ZeroDivisionError" in in_callback
    assert in_task.startswith("a#1: ")
    assert "ValueError: nobody looks" in in_task


def test_a_deadlock_of_programs_names_their_processes() -> None:
    world = World()

    async def wait() -> None:
        await asyncio.Event().wait()

    async def rehearse() -> None:
        await world.host("server").start(wait)

    with pytest.raises(Deadlock, match=r"server#1 main of server#1"):
        world.run(rehearse())


def test_wrong_use_is_told() -> None:
    world = World()

    async def main() -> None:
        await asyncio.sleep(1)

    async def rehearse() -> None:
        world.host("a").start(main)
        with pytest.raises(UsageError, match="runs a program already"):
            world.host("a").start(main)
        with pytest.raises(UsageError, match="no host 'z'"):
            world.split(["z"])
        with pytest.raises(UsageError, match="on two sides"):
            world.split(["a"], ["a"])
        with pytest.raises(UsageError, match="out of range"):
            world.loss(2)
        with pytest.raises(UsageError, match="runs no program"):
            await world.host("b").call(main)
        with pytest.raises(UsageError, match="no computer of its own"):
            await vivum.connect("d")
        with pytest.raises(UsageError, match="the verdict is there when the world has run"):
            world.verdict()

    world.run(rehearse())
    again = rehearse()
    with pytest.raises(UsageError, match="runs once"):
        world.run(again)


def test_two_nodes_of_one_host_have_two_ports_and_one_port_is_not_given_twice() -> None:
    world = World()

    async def main() -> tuple[int, int]:
        async with vivum.connect("d") as one, vivum.connect("d") as two:
            assert one.endpoint.host == two.endpoint.host == "10.0.0.1"
            with pytest.raises(HostError, match="is taken"):
                await vivum.connect("d", port=one.endpoint.port)
            return one.endpoint.port, two.endpoint.port

    async def rehearse() -> tuple[int, int]:
        return await world.host("a").start(main)

    one, two = world.run(rehearse())
    assert one != two


def test_nodes_meet_by_the_names_of_hosts_where_there_is_no_multicast() -> None:
    world = World(multicast=False)

    async def main(port: int) -> int:
        async with vivum.connect("d", port=port, seeds=["server:7000"]) as node:
            topic = await node.enter("/t", bytes)
            return len(await topic.wait_for_members(2))

    async def rehearse() -> int:
        world.host("server").start(main, 7000)
        return await world.host("client").start(main, 0)

    assert world.run(rehearse()) == 2


def test_two_domains_of_one_world_do_not_hear_each_other() -> None:
    world = World()

    async def main(domain: str) -> int:
        async with vivum.connect(domain) as node:
            await asyncio.sleep(3)
            found = await node.nodes()
            await asyncio.sleep(1)
            return len(found)

    async def rehearse() -> list[int]:
        processes = [
            world.host(name).start(main, domain) for name, domain in (("a", "one"), ("b", "one"), ("c", "two"))
        ]
        return [await each for each in processes]

    assert world.run(rehearse()) == [2, 2, 1]


def test_loop_and_helpers_for_machines_are_imported_without_nodes() -> None:
    code = (
        "import sys; from vivum.testing import Pair, VirtualClock; "
        "heavy = [name for name in sys.modules if name.startswith(('vivum.live', 'vivum.runtime', 'vivum.sim'))]; "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
