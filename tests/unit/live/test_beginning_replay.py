"""How replay begins, and how it does not: when another topic fails, or when the reader leaves first."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import vivum
from vivum.core.ids import Incarnation, Member, NodeId, ViewNumber
from vivum.core.machine import Delivery
from vivum.live.inbox import Inbox
from vivum.live.replay.back_copies import BACK, BackCopies, ReplayLine
from vivum.live.replay.catching_up import CatchingUp
from vivum.protocols.keyed.keys import heads_of
from vivum.testing import World


def run_alone(program: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    world = World()

    async def rehearse() -> None:
        await world.host("a").start(program)

    world.run(rehearse())


def test_when_one_topic_has_no_recorder_the_others_do_not_begin_later(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    async def begin(catching_up: CatchingUp) -> None:
        name = catching_up._seat.name
        if name == "/lacking":
            raise vivum.NoRecorderError(name)
        await asyncio.sleep(1)
        begun.append(name)

    monkeypatch.setattr(CatchingUp, "begin", begin)

    async def program() -> None:
        async with vivum.connect("d") as node:
            with pytest.raises(vivum.NoRecorderError):
                await node.enter_many(["/recorded", "/lacking"], bytes, replay="all")
            await asyncio.sleep(2)

    run_alone(program)
    assert begun == []


def test_replay_does_not_begin_for_a_reader_that_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(line: ReplayLine, *_: Any) -> tuple[Any, BackCopies]:
        await asyncio.sleep(1)
        return None, BackCopies(BACK, 1, "/t", 0, is_end=True)

    monkeypatch.setattr(ReplayLine, "ask", ask)

    async def program() -> None:
        async with vivum.connect("d") as node:
            await node.enter("/t", bytes)
            seat = node.seat_of("/t")
            assert seat is not None
            catching_up = CatchingUp(node, seat, Inbox("/t", 1000, drops_oldest=False), "all")
            beginning = asyncio.create_task(catching_up.begin())
            await asyncio.sleep(0.5)
            catching_up.stop()
            with pytest.raises(vivum.ClosedError):
                await beginning
            assert node.replay_line._users == 0, "the line to recorders is free again"

    run_alone(program)


def test_of_a_live_run_that_back_copies_have_the_beginning_of_the_rest_keeps_its_keys() -> None:
    given: list[tuple[int, list[bytes]]] = []
    heads = heads_of(bytes(16), 1, 0, 4)
    payloads = [b"a", b"b", b"c", b"d"]

    async def program() -> None:
        async with vivum.connect("d") as node:
            topic = await node.enter("/t", bytes, guarantee=vivum.KEYED)
            seat = node.seat_of("/t")
            assert seat is not None
            inbox = Inbox("/t", 1000, drops_oldest=False)
            catching_up = CatchingUp(node, seat, inbox, "all")
            sender = Member(NodeId(9), Incarnation(1))
            recorded = [head + payload for head, payload in zip(heads[:2], payloads[:2], strict=True)]
            catching_up._hand_on_copy(Delivery(seat.group, sender, 0, recorded, ViewNumber(1), 0))
            catching_up.put(Delivery(seat.group, sender, 1, payloads[1:], ViewNumber(1), 0, heads[1:]))
            catching_up._go_live()
            while (item := inbox.take()) is not None:
                if isinstance(item, Delivery):
                    given.append((item.first_sequence, list(item.payloads)))
            assert topic.statistics().undecodable == topic.statistics().repeated == 0

    run_alone(program)
    assert given == [(0, [b"a", b"b"]), (2, [b"c", b"d"])]
