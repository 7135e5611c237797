"""Reading one message at a time: no suspension while messages are here, and turns for others all the same."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import vivum
from vivum.core.ids import GroupId, Incarnation, Member, NodeId, ViewNumber
from vivum.core.machine import Delivery
from vivum.live.event import TopicEvent, TopicView
from vivum.live.failures import MissedMessages
from vivum.live.inbox import Inbox
from vivum.live.messages import codec_of
from vivum.live.reader import Reader
from vivum.live.taking import TURN_S_MAX, Events
from vivum.runtime.turns import STEP_MAX, TURN_S


class Note(vivum.Message):
    number: int


class Names:
    def name_of(self, group: GroupId) -> str:
        return f"/{group}"


def delivery(first: int, *payloads: bytes) -> Delivery:
    return Delivery(GroupId(1), Member(NodeId(1), Incarnation(1)), first, list(payloads), ViewNumber(1), 7)


def note(number: int) -> bytes:
    return msgspec.msgpack.encode(Note(number))


def made(kind: type[Any] = bytes) -> tuple[Inbox, Reader]:
    inbox = Inbox("/1", 1 << 30, drops_oldest=False)
    return inbox, Reader(inbox, codec_of(kind), Names())


def events(reader: Reader) -> Events:
    return Events(reader.taker, reader.next_event)


def test_events_come_in_order_with_their_numbers_across_runs_and_what_cannot_be_read_is_counted() -> None:
    inbox, reader = made(Note)
    inbox.put(delivery(3, b"\xc1", note(4), b"\xc1", b""))
    inbox.put(delivery(7, note(7)))
    inbox.put(delivery(8, b"\xc1"))
    inbox.close()

    async def read() -> list[TopicEvent[Note]]:
        return [event async for event in events(reader)]

    assert [(event.sequence, event.value.number) for event in asyncio.run(read())] == [(4, 4), (7, 7)]
    assert reader.taker.undecodable == 4


def test_messages_that_are_here_are_read_without_a_turn_of_the_loop() -> None:
    async def scenario() -> None:
        inbox, reader = made()
        for number in range(5):
            inbox.put(delivery(number, b"x"))
        turns: list[int] = []
        iterator = events(reader)
        assert (await anext(iterator)).sequence == 0
        asyncio.get_running_loop().call_soon(turns.append, 1)
        reader.taker._time = lambda: 0.0
        assert [(await anext(iterator)).sequence for _ in range(4)] == [1, 2, 3, 4]
        assert not turns

    asyncio.run(scenario())


def test_a_task_of_the_next_event_takes_it_when_it_runs_and_loses_nothing_when_it_is_cancelled() -> None:
    async def scenario() -> None:
        inbox, reader = made()
        inbox.put(delivery(0, b"0", b"1", b"2", b"3"))
        iterator = events(reader)
        assert (await anext(iterator)).value == b"0"
        task = asyncio.ensure_future(anext(iterator))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await asyncio.wait_for(anext(iterator), 1)).value == b"1"
        assert (await asyncio.create_task(anext(iterator))).value == b"2"  # type: ignore[arg-type]
        assert (await anext(iterator, None)).value == b"3"  # type: ignore[union-attr]

    asyncio.run(scenario())


def test_two_tasks_that_take_one_event_are_told_so() -> None:
    async def scenario() -> None:
        inbox, reader = made()
        inbox.put(delivery(0, b"0", b"1"))
        iterator = events(reader)
        await anext(iterator)
        tasks = [asyncio.ensure_future(anext(iterator)) for _ in range(2)]
        assert (await tasks[0]).value == b"1"
        with pytest.raises(RuntimeError, match="two tasks read"):
            await tasks[1]

    asyncio.run(scenario())


def test_the_rest_of_a_run_begins_with_the_event_that_was_made_and_not_taken() -> None:
    async def scenario() -> None:
        inbox, reader = made()
        inbox.put(delivery(5, b"a", b"b", b"c"))
        assert (await reader.next_event()).value == b"a"  # type: ignore[union-attr]
        assert reader.taker.peek()
        rest = reader.taker.take_rest()
        assert rest is not None
        assert (rest.first_sequence, rest.payloads) == (6, [b"b", b"c"])
        inbox.put(delivery(8, b"d"))
        assert (await reader.next_event()).value == b"d"  # type: ignore[union-attr]

    asyncio.run(scenario())


def test_views_and_missing_messages_keep_their_place_between_messages() -> None:
    async def scenario() -> None:
        inbox, reader = made()
        inbox.wants_views = True
        inbox.put(delivery(0, b"0"))
        inbox.on_view(TopicView("/1", 2, (), (), ()))
        inbox.put(delivery(1, b"1"))
        inbox.interrupt(MissedMessages("a gap", 1))
        inbox.put(delivery(3, b"3"))
        iterator = Events(reader.taker, reader.next_item)
        assert (await anext(iterator)).sequence == 0
        assert (await anext(iterator)).number == 2
        assert (await anext(iterator)).sequence == 1
        with pytest.raises(MissedMessages):
            await anext(iterator)
        assert (await anext(iterator)).sequence == 3

    asyncio.run(scenario())


def read_beside_a_counter(
    reader: Reader, messages_s: Callable[[int], float], on_read: Callable[[], None] = lambda: None
) -> list[tuple[int, float]]:
    """Read all; the work for each message takes some time. Return how much was read between turns, and how long."""
    now_s, read, looks = 0.0, 0, 0
    at_turns: list[tuple[int, float]] = []

    async def count() -> None:
        while True:
            at_turns.append((read, now_s))
            await asyncio.sleep(0)

    def time() -> float:
        nonlocal looks
        looks += 1
        return now_s

    async def scenario() -> None:
        nonlocal now_s, read
        reader.taker._time = time
        counting = asyncio.create_task(count())
        async for _ in events(reader):
            now_s += messages_s(read)
            read += 1
            on_read()
        at_turns.append((read, now_s))
        counting.cancel()

    asyncio.run(scenario())
    assert looks < 6 * len(at_turns) + read / STEP_MAX + now_s / (TURN_S / 8)
    return [(after[0] - before[0], after[1] - before[1]) for before, after in itertools.pairwise([(0, 0.0), *at_turns])]


def filled(count: int) -> tuple[Inbox, Reader]:
    inbox, reader = made()
    for number in range(count):
        inbox.put(delivery(number, b"x"))
    inbox.close()
    return inbox, reader


def test_a_reader_yields_in_time_though_messages_are_always_here() -> None:
    inbox, reader = filled(20_000)
    # As if these had been here when it was last suspended.
    reader.taker._behind = inbox.size
    turns = read_beside_a_counter(reader, lambda _: TURN_S / 1000)
    assert max(read for read, _ in turns) <= 1000 + STEP_MAX + 1
    assert len(turns) > 10


def test_a_reader_reads_what_came_meanwhile_before_it_yields_but_not_for_ever() -> None:
    """Otherwise the inbox of a reader that is slower than the network would grow up to its limit."""
    _, reader = filled(1000)
    assert max(read for read, _ in read_beside_a_counter(reader, lambda _: TURN_S / 20)) >= 999
    _, reader = filled(1000)
    assert (
        max(passed_s for _, passed_s in read_beside_a_counter(reader, lambda _: TURN_S)) <= TURN_S_MAX + TURN_S * 1.01
    )


@pytest.mark.parametrize("fast", [0, 1, 3, 100])
def test_a_reader_whose_messages_take_long_yields_in_time(fast: int) -> None:
    """It looked at every 16th message, and only from the second look on: others waited for 3.4 s."""
    inbox, reader = made()
    inbox.put(delivery(0, b"x"))
    read = 0

    def put_more() -> None:
        # More comes than it reads, so it never has all that came since its last turn.
        nonlocal read
        read += 1
        if read < 300:
            inbox.put(delivery(read, b"x" * 500))
            inbox.put(delivery(read, b"x" * 500))
        else:
            inbox.close()

    passed = [
        passed_s
        for _, passed_s in read_beside_a_counter(reader, lambda number: 0.05 if number >= fast else 0.0, put_more)
    ]
    assert passed[0] + passed[1] <= 0.05 * (STEP_MAX + 1) * 1.01
    assert max(passed[2:]) <= TURN_S_MAX + 0.051
    assert sum(passed) > 10


def test_a_reader_that_waits_for_each_message_looks_at_the_clock_once_for_it() -> None:
    async def scenario() -> None:
        inbox, reader = made()
        looks: list[int] = []

        def time() -> float:
            looks.append(1)
            return 0.0

        reader.taker._time = time
        iterator = events(reader)
        for number in range(100):
            reading = asyncio.ensure_future(anext(iterator))
            await asyncio.sleep(0)
            inbox.put(delivery(number, b"x"))
            assert (await reading).sequence == number
        assert len(looks) <= 101

    asyncio.run(scenario())
