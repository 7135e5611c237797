"""What becomes of tasks that wait, and of messages half read, when a topic is left or a node closed."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import vivum
from vivum.protocols.qsm.machine import QsmMachine
from vivum.testing import World


def run_alone(program: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    world = World()

    async def rehearse() -> Any:
        return await world.host("a").start(program)

    return world.run(rehearse())


async def join() -> vivum.Topic[bytes]:
    """Enter a topic, and wait for the other one of two."""
    node = await vivum.connect("d")
    topic = await node.enter("/t", bytes)
    await topic.wait_for_members(2)
    return topic


def run_beside_another(world: World, program: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a program at a host `a`, while `b` is in the topic too."""

    async def rehearse() -> None:
        running = world.host("a").start(program)
        world.host("b").start(join)
        await running

    world.run(rehearse())


async def ends_with_closed_error(waiting: Awaitable[Any], end: Callable[[], Awaitable[None]]) -> None:
    task = asyncio.ensure_future(waiting)
    await asyncio.sleep(0.1)
    assert not task.done()
    await end()
    with pytest.raises(vivum.ClosedError):
        await asyncio.wait_for(task, 1)


def test_callbacks_get_the_rest_of_a_run_whose_first_message_was_read_alone() -> None:
    async def program() -> list[bytes]:
        async with vivum.connect("d") as node:
            topic = await node.enter("/t", bytes)
            await topic.send_many([b"%d" % number for number in range(5)])
            got = [(await topic.receive()).value]
            topic.on(lambda event: got.append(event.value))
            await topic.send(b"5")
            await asyncio.sleep(0.1)
            return got

    assert run_alone(program) == [b"%d" % number for number in range(6)]


def test_views_begin_with_the_present_one_in_the_middle_of_a_run_too() -> None:
    async def program() -> None:
        async with vivum.connect("d") as node:
            topic = await node.enter("/t", bytes)
            await topic.send_many([b"%d" % number for number in range(5)])
            assert (await topic.receive()).value == b"0"
            items = topic.with_views()
            assert await anext(items) == topic.view
            got = [await anext(items) for _ in range(4)]
            assert [each.value for each in got if isinstance(each, vivum.TopicEvent)] == [b"1", b"2", b"3", b"4"]
            # Another loop goes on where that one ended.
            await topic.send(b"5")
            (event,) = [await anext(topic.with_views())]
            assert isinstance(event, vivum.TopicEvent)
            assert event.value == b"5"

    run_alone(program)


def test_a_flush_ends_when_the_node_is_closed() -> None:
    world = World()

    async def send() -> None:
        topic = await join()
        world.split(["a"], ["b"])
        await topic.send(b"x")
        await ends_with_closed_error(topic.flush(), topic._node.close)

    run_beside_another(world, send)


def test_a_send_that_waits_for_room_ends_with_an_error_when_the_node_is_closed() -> None:
    world = World()

    async def send() -> None:
        topic = await join()
        world.split(["a"], ["b"])
        # Until the window is full too, into which waiting messages go.
        while topic.try_send(bytes(100_000)):
            while topic.try_send(bytes(100_000)):
                pass
            await asyncio.sleep(0.2)

        async def end() -> None:
            topic._node.close_now()

        await ends_with_closed_error(topic.send(bytes(100_000)), end)

    run_beside_another(world, send)


def test_waiting_for_members_ends_when_the_topic_is_left() -> None:
    async def program() -> None:
        async with vivum.connect("d") as node:
            topic = await node.enter("/t", bytes)
            await ends_with_closed_error(topic.wait_for_members(2), topic.leave)

    run_alone(program)


def test_waiting_for_topics_ends_when_the_subscription_is_closed() -> None:
    async def program() -> None:
        async with vivum.connect("d") as node, node.subscribe("/t/*", bytes) as subscription:
            await ends_with_closed_error(subscription.wait_for_topics(1), subscription.close)

    run_alone(program)


def test_a_topic_that_is_left_while_another_service_is_asked_for_its_group_is_not_joined_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()

    async def carry() -> None:
        async with vivum.connect("d") as node:
            await node.enter("/t", bytes)
            await asyncio.Event().wait()

    async def leave_meanwhile() -> list[int]:
        async with vivum.connect("d", embedded=False) as node:
            topic = await node.enter("/t", bytes)
            asked = asyncio.Event()
            enter = node.browser.enter

            async def enter_slowly(entries: Any) -> Any:
                records = await enter(entries)
                await topic.leave()
                asked.set()
                return records

            monkeypatch.setattr(node.browser, "enter", enter_slowly)
            world.host("a").kill()
            await asked.wait()
            await asyncio.sleep(1)
            return list(node._host.client.wanted_groups)

    async def rehearse() -> list[int]:
        world.host("a").start(carry)
        await asyncio.sleep(1)
        leaving = world.host("b").start(leave_meanwhile)
        await asyncio.sleep(3)
        # It begins a service with a new history: names get other groups.
        world.host("c").start(carry)
        found: list[int] = await leaving
        return found

    assert world.run(rehearse()) == []


def test_a_node_that_cannot_open_its_port_leaves_no_thread_of_its_trace(tmp_path: Path) -> None:
    async def program() -> None:
        async with vivum.connect("d", port=7000):
            before = threading.active_count()
            with pytest.raises(vivum.HostError):
                await vivum.connect("d", port=7000, trace=tmp_path)
            assert threading.active_count() == before

    run_alone(program)


@pytest.mark.plain
def test_who_reads_sends_or_waits_is_told_of_a_fault_in_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_timer(_self: QsmMachine, _now_ns: int) -> None:
        raise ArithmeticError("a bug of ours")

    async def program() -> None:
        node = await vivum.connect("d")
        topic = await node.enter("/t", bytes)
        reading = asyncio.ensure_future(topic.receive())
        reported: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["message"]))
        with monkeypatch.context() as broken:
            broken.setattr(QsmMachine, "on_timer", on_timer)
            with pytest.raises(vivum.MissedMessages, match=r"stopped by a fault.*a bug of ours"):
                await asyncio.wait_for(reading, 10)
        assert reported == ["vivum: a fault in the node; it stops"]
        for use in (topic.send(b"x"), topic.receive(), node.enter("/u", bytes)):
            with pytest.raises(vivum.ClosedError, match=r"stopped by a fault|was left"):
                await asyncio.wait_for(use, 1)
        await node.close()

    run_alone(program)
