"""Single messages: collected in a turn of the loop, handed over before anything else, never refused afterwards."""

import asyncio
from typing import Any, cast

import pytest

import vivum
from vivum.core.errors import LimitError, NotNowError
from vivum.core.ids import GroupId, Incarnation, Member, NodeId
from vivum.core.limits import Limits
from vivum.guarantees import RELIABLE
from vivum.live.done import DONE
from vivum.live.failures import ClosedError, SendFailedError
from vivum.live.seat import MESSAGE_BYTES, RUN_BYTES_MAX, Seat
from vivum.protocols.commands import SendMessages
from vivum.runtime.turns import STEP_MAX, TURN_S, SenderTurns
from vivum.testing import World


class Host:
    """Takes messages as a host does: the first of a turn at once, the others when the turn ends."""

    member = Member(NodeId(1), Incarnation(1))

    def __init__(self, room: int = 1 << 30) -> None:
        self.room = room
        self.took: list[list[bytes]] = []
        self.now_s = 1.0
        self.looks = 0
        self.sender_turns = SenderTurns(self.time, self)
        self.turns = 0
        self.refuses: bool | Exception = False
        self._has_input = False
        self._hand_over: Any = None

    def send(self, command: SendMessages) -> bool:
        before, self._has_input = self._has_input, True
        self.submit(command)
        return before

    def submit(self, command: SendMessages) -> None:
        self.end_run()
        size = sum(map(len, command.payloads))
        if isinstance(self.refuses, Exception):
            raise self.refuses
        if self.refuses or (self.took and size > self.room):
            raise NotNowError("full")
        self.room -= size
        self.took.append(list(command.payloads))

    def collect(self, group: GroupId, hand_over: Any) -> int:
        if self.room > 0:
            self._hand_over = hand_over
        return max(0, self.room)

    def end_run(self) -> None:
        hand_over, self._hand_over = self._hand_over, None
        if hand_over is not None:
            hand_over()

    def end(self) -> None:
        """Take nothing more, as a closed driver."""
        self._hand_over = None

    def next_sequence(self, group: GroupId) -> int:
        return sum(map(len, self.took))

    def turn(self) -> None:
        """Be called by the loop, as a driver is behind all that was sent."""
        self.turns += 1
        self.end_run()
        self._has_input = False

    def time(self) -> float:
        self.looks += 1
        return self.now_s


def seat_at(host: Host) -> Seat:
    seat = Seat(cast(Any, host), "/t", GroupId(1), "bytes", RELIABLE)
    seat.holders = 1
    return seat


def test_the_first_of_a_turn_goes_at_once_and_those_behind_the_second_are_collected() -> None:
    host = Host()
    seat = seat_at(host)
    for number in range(6):
        assert seat.send_one(b"%d" % number) is DONE
    assert host.took == [[b"0"], [b"1"]]
    host.end_run()
    assert host.took == [[b"0"], [b"1"], [b"2", b"3", b"4", b"5"]]
    assert seat.accepted == seat.sent == 6


def test_what_is_sent_otherwise_comes_behind_what_was_collected() -> None:
    host = Host()
    seat = seat_at(host)
    for number in range(4):
        seat.send_one(b"%d" % number)
    assert seat.try_send([b"4", b"5"])
    assert seat.try_send_one(b"6")
    seat.end_run()
    assert [each for run in host.took for each in run] == [b"%d" % number for number in range(7)]


def test_no_more_is_collected_than_the_node_is_sure_to_take() -> None:
    host = Host(room=1000)
    seat = seat_at(host)
    accepted = 0
    while seat.try_send_one(bytes(100)):
        accepted += 1
    host.end_run()
    assert sum(map(len, host.took)) == accepted == seat.accepted
    assert host.room >= 0
    assert accepted >= 8


@pytest.mark.parametrize("size", [0, 100, RUN_BYTES_MAX])
def test_what_is_collected_is_bounded_for_empty_messages_too(size: int) -> None:
    host = Host()
    seat = seat_at(host)
    for _ in range(3 * RUN_BYTES_MAX // (size + MESSAGE_BYTES) + 3):
        seat.try_send_one(bytes(size))
    assert max(map(len, host.took)) <= RUN_BYTES_MAX // MESSAGE_BYTES
    assert max(sum(map(len, run)) for run in host.took) <= RUN_BYTES_MAX


def turns_of(seconds: list[float]) -> list[list[int]]:
    """Send messages, each after so much work, and nothing else; return which of them were sent in which turn."""
    host = Host()
    seat = seat_at(host)
    at_turns: list[list[int]] = [[]]

    async def turn() -> None:
        while True:
            host.turn()
            at_turns.append([])
            await asyncio.sleep(0)

    async def scenario() -> None:
        turning = asyncio.create_task(turn())
        for number, work_s in enumerate(seconds):
            host.now_s += work_s
            at_turns[-1].append(number)
            await seat.send_one(b"x")
        turning.cancel()

    asyncio.run(scenario())
    assert [number for turn in at_turns for number in turn] == list(range(len(seconds)))
    assert host.looks < 4 * len(at_turns) + len(seconds) / STEP_MAX * 2
    return at_turns


def test_a_task_that_only_sends_yields_when_its_time_is_over() -> None:
    at_turns = turns_of([TURN_S / 1000] * 20_000)
    assert len(at_turns) > 10
    assert max(map(len, at_turns)) <= 1000 + STEP_MAX + 1


@pytest.mark.parametrize("fast", [0, 1, 2, 3, 10, 100])
def test_a_task_whose_messages_take_long_yields_at_each_from_the_second_of_a_turn_on(fast: int) -> None:
    """It looked at every 16th message of a run: at 50 ms each, others waited for 0.8 s."""
    at_turns = turns_of([0.0] * fast + [0.05] * 100)
    assert max(len(turn) for turn in at_turns[2:]) <= 2
    assert len(at_turns[0]) + len(at_turns[1]) <= fast + STEP_MAX + 2


def test_a_send_in_a_turn_of_its_own_is_done_however_long_ago_the_last_one_was() -> None:
    """Only a sender's own yielding counted as a turn: each message of a slow source cost a suspended coroutine."""
    host = Host()
    seat = seat_at(host)
    for _ in range(5):
        assert seat.send_one(b"x") is DONE
        host.turn()
        host.now_s += 0.01
    # Of those sent within one turn the second is late.
    assert seat.send_one(b"x") is DONE
    host.now_s += 0.01
    late = seat.send_one(b"x")
    assert late is not DONE
    asyncio.run(late)  # type: ignore[arg-type]


def test_what_a_node_refuses_after_all_is_reported_and_counted() -> None:
    async def scenario() -> None:
        host = Host()
        seat = seat_at(host)
        for _ in range(5):
            await seat.send_one(b"x")
        host.refuses = True
        with pytest.raises(SendFailedError, match=r"messages 2 to 4 .* full"):
            await seat.flush()
        assert (seat.sent, seat.accepted, seat.failed) == (5, 2, 3)

    asyncio.run(scenario())


def test_what_a_broken_node_does_not_take_is_counted_and_its_error_is_not_hidden() -> None:
    async def scenario() -> None:
        host = Host()
        seat = seat_at(host)
        for _ in range(5):
            await seat.send_one(b"x")
        host.refuses = ArithmeticError("a bug of ours")
        with pytest.raises(ArithmeticError):
            host.end_run()
        with pytest.raises(SendFailedError, match=r"messages 2 to 4 .* a bug of ours"):
            await seat.flush()
        assert (seat.sent, seat.failed) == (5, 3)

    asyncio.run(scenario())


def test_what_was_collected_when_the_node_ended_has_failed_and_who_waits_is_told() -> None:
    async def scenario() -> None:
        host = Host()
        seat = seat_at(host)
        seat.try_send_one(b"0")
        flushing = asyncio.ensure_future(seat.flush())
        await asyncio.sleep(0)
        for number in range(1, 5):
            assert seat.try_send_one(b"%d" % number)
        host.end()
        seat.close(ClosedError("the node was closed"))
        with pytest.raises(SendFailedError, match=r"messages 2 to 4 .* the node was closed"):
            await flushing
        assert (seat.sent, seat.accepted, seat.failed) == (5, 2, 3)
        assert host.took == [[b"0"], [b"1"]]

    asyncio.run(scenario())


@pytest.mark.parametrize("end", ["close", "disown"])
def test_nothing_is_collected_for_a_seat_that_was_closed(end: str) -> None:
    host = Host()
    seat = seat_at(host)
    for _ in range(5):
        seat.send_one(b"x")
    getattr(seat, end)(ClosedError("closed"))
    with pytest.raises(ClosedError):
        seat.send_one(b"x")
    with pytest.raises(ClosedError):
        seat.try_send_one(b"x")


def test_nothing_is_collected_for_a_seat_that_waits_for_its_new_group() -> None:
    host = Host()
    seat = seat_at(host)
    for _ in range(5):
        seat.send_one(b"x")
    seat.is_moving = True
    assert not seat.try_send_one(b"late")
    host.end_run()
    assert sum(map(len, host.took)) == 5


class Note(vivum.Message):
    number: int


def run_alone(program: Any) -> None:
    """Run a program at the only host of a world to its end."""
    world = World()

    async def rehearse() -> None:
        await world.host("a").start(program)

    world.run(rehearse())


def run_two(sender: Any, receiver: Any, seed: int = 0) -> tuple[Any, Any]:
    """Run two programs at hosts of one world to their ends; return what they returned."""
    world = World(seed)

    async def rehearse() -> tuple[Any, Any]:
        running = [world.host(name).start(program) for name, program in (("a", sender), ("b", receiver))]
        return await running[0], await running[1]

    found: tuple[Any, Any] = world.run(rehearse())
    world.verdict().check()
    return found


@pytest.mark.parametrize("guarantee", ["reliable", "best_effort", "keyed"])
def test_all_ways_of_sending_keep_one_order_in_each_topic(guarantee: str) -> None:
    async def send() -> None:
        async with vivum.connect("d") as node:
            one, two = await node.enter_many(["/1", "/2"], Note, guarantee=guarantee, receive=False)
            for topic in (one, two):
                await topic.wait_for_members(2)
            for number in range(0, 200, 5):
                await one.send(Note(number))
                await one.send(Note(number + 1))
                assert one.try_send(Note(number + 2))
                await two.send(Note(number))
                await two.send_many([Note(number + each) for each in range(1, 5)])
                await one.send_many([Note(number + 3)])
                await one.send(Note(number + 4))
                if number % 15 == 0:
                    await asyncio.sleep(0)
            assert [topic.statistics().sent for topic in (one, two)] == [200, 200]
            await one.flush()
            await two.flush()

    async def receive() -> list[list[int]]:
        async with vivum.connect("d") as node:
            topics = await node.enter_many(["/1", "/2"], Note, guarantee=guarantee)
            return [[(await topic.receive()).value.number for _ in range(200)] for topic in topics]

    assert run_two(send, receive)[1] == [list(range(200))] * 2


def test_what_was_sent_before_a_topic_is_left_arrives() -> None:
    async def send() -> None:
        async with vivum.connect("d") as node:
            topic = await node.enter("/t", bytes, receive=False)
            await topic.wait_for_members(2)
            for number in range(100):
                await topic.send(b"%d" % number)
            await topic.leave()
            with pytest.raises(vivum.ClosedError):
                await topic.send(b"late")
            await asyncio.sleep(5)

    async def receive() -> list[bytes]:
        async with vivum.connect("d") as node:
            topic = await node.enter("/t", bytes)
            return [(await topic.receive()).value for _ in range(100)]

    assert run_two(send, receive)[1] == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize("guarantee", ["reliable", "best_effort"])
def test_a_message_over_the_limit_is_refused_where_it_is_sent_and_takes_no_other_with_it(guarantee: str) -> None:
    """A run that was collected in one turn of the loop was lost as a whole, and only `flush` told of it."""

    async def send() -> None:
        async with vivum.connect("d", limits=Limits(message_bytes_max=1000)) as node:
            topic = await node.enter("/t", bytes, guarantee=guarantee)
            for number in range(5):
                await topic.send(b"%d" % number)
            assert len(topic._seat._run or ()) > 1
            with pytest.raises(LimitError, match="2000 bytes is over message_bytes_max=1000"):
                await topic.send(bytes(2000))
            with pytest.raises(LimitError):
                topic.try_send(bytes(1001))
            await topic.send(bytes(1000))
            await topic.send(b"end")
            await topic.flush()
            expected = [*(b"%d" % number for number in range(5)), bytes(1000), b"end"]
            assert [(await topic.receive()).value for _ in expected] == expected
            assert (topic.statistics().sent, topic.statistics().failed) == (len(expected), 0)

    run_alone(send)


@pytest.mark.parametrize("end", ["close_now", "a fault"])
def test_what_was_collected_when_a_node_ends_without_leaving_is_told_and_counted_as_failed(end: str) -> None:
    """It was dropped in silence: ten were accepted, two were sent, none failed."""

    async def send() -> None:
        node = await vivum.connect("d")
        topic = await node.enter("/t", bytes)
        assert all(topic.try_send(b"%d" % number) for number in range(10))
        collected = len(topic._seat._run or ())
        assert collected > 1
        if end == "close_now":
            node.close_now()
        else:
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)
            node._host._driver._fail(ArithmeticError("a bug of ours"))
        with pytest.raises(SendFailedError, match="was closed" if end == "close_now" else "a bug of ours"):
            await topic.flush()
        told = topic.statistics()
        assert (told.sent, told.failed) == (10, collected)

    run_alone(send)


def test_closing_a_node_hands_over_what_was_collected() -> None:
    async def send() -> None:
        node = await vivum.connect("d")
        topic = await node.enter("/t", bytes, receive=False)
        await topic.wait_for_members(2)
        for number in range(100):
            await topic.send(b"%d" % number)
        assert len(topic._seat._run or ()) > 1
        await node.close()

    async def receive() -> list[bytes]:
        async with vivum.connect("d") as node:
            topic = await node.enter("/t", bytes)
            return [(await topic.receive()).value for _ in range(100)]

    assert run_two(send, receive)[1] == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize("pause_s", [0.0, 0.001, 0.01])
def test_each_send_of_a_program_that_waits_in_between_is_done(pause_s: float) -> None:
    async def send() -> None:
        async with vivum.connect("d") as node:
            topic = await node.enter("/t", bytes)
            for _ in range(20):
                await asyncio.sleep(pause_s)
                sent = topic.send(b"x")
                assert sent is DONE
                await sent

    run_alone(send)


def test_errors_are_raised_where_a_send_is_awaited_and_single_sends_are_tasks_if_one_likes() -> None:
    async def send() -> None:
        async with vivum.connect("d") as node:
            topic = await node.enter("/t", Note)
            refused = topic.send("text")  # type: ignore[arg-type]
            with pytest.raises(vivum.UsageError, match="takes Note, not str"):
                await refused
            await asyncio.gather(*(topic.send(Note(number)) for number in range(5)))
            await asyncio.gather(*(asyncio.create_task(topic.send(Note(5 + number))) for number in range(5)))
            assert [(await topic.receive()).value.number for _ in range(10)] == list(range(10))
            await node.close()
            with pytest.raises(vivum.ClosedError):
                await topic.send(Note(1))

    run_alone(send)
