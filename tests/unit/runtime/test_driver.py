"""The driver in virtual time: its states, the order of effects, what survives errors, backlog, polling, closing."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

import msgspec
import pytest

from vivum.core.ids import Channel, Endpoint, GroupId, Incarnation, Member, NodeId, ViewNumber
from vivum.core.machine import (
    NO_FRAMES,
    ROOM_BYTES_UNLIMITED,
    ChannelClosed,
    ChannelOpened,
    Command,
    Datagram,
    Delivery,
    Effect,
    Event,
    InstallView,
    Persist,
)
from vivum.protocols.commands import SendConfirmed
from vivum.runtime import driver as driver_module
from vivum.runtime.driver import LOOK_NS, POLLING_DELAY_NS_MAX, ROOM_BYTES, UNTURNED_NS, Driver, State
from vivum.runtime.polling import PROVEN_POLLS, SHORT_WAITS
from vivum.runtime.port import Arrived
from vivum.wire.kinds import Kind

GROUP = GroupId(7)
ME = Member(NodeId(1), Incarnation(1))
PEER = Endpoint("peer", 1)
MICROSECOND = 1_000
TURNS_MAX = 1_000


class Timer:
    """A call that may be cancelled."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Loop:
    """As much of an event loop as a driver uses, in virtual time."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000
        self.ready: deque[Callable[[], None]] = deque()
        self.reported: list[str] = []
        self.step_ns = 1
        """What timers count in: a whole millisecond in uvloop."""

        self._timers: list[tuple[int, int, Timer]] = []
        self._timers_made = 0

    @property
    def timers(self) -> list[int]:
        """When timers fire that were not cancelled."""
        return sorted(when_ns for when_ns, _, timer in self._timers if timer.callback is not None)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.ready.append(callback)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback)
        self._timers_made += 1
        delay_ns = round(delay_s * 1e9 / self.step_ns) * self.step_ns
        heappush(self._timers, (self.now_ns + delay_ns, self._timers_made, timer))
        return timer

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.reported.append(str(context["exception"]))

    def turn(self) -> None:
        """Call what is ready now, and leave what becomes ready meanwhile for the next turn."""
        for _ in range(len(self.ready)):
            self.ready.popleft()()

    def run(self) -> None:
        """Turn until nothing is ready."""
        for _ in range(TURNS_MAX):
            if not self.ready:
                return
            self.turn()
        raise AssertionError("the loop never comes to rest")

    def advance(self, duration_ns: int) -> None:
        """Let time pass and timers fire."""
        until_ns = self.now_ns + duration_ns
        fired_max = self._timers_made + TURNS_MAX
        while self._timers and self._timers[0][0] <= until_ns:
            assert self._timers_made < fired_max, "timers call for themselves without end"
            self.now_ns, _, timer = heappop(self._timers)
            if timer.callback is not None:
                timer.callback()
            self.run()
        self.now_ns = until_ns


class FakePort:
    """A network in the hands of the test. What is called is written down in `log`."""

    endpoint = Endpoint("me", 1)
    waited_ns = 0

    def __init__(self, loop: Loop, log: list[object]) -> None:
        self.loop, self.log = loop, log
        self.waiting: Arrived = []
        self.room: int | None = None
        self.bad: set[object] = set()
        self.on_readable: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None
        self.on_sent: Callable[[Datagram], None] | None = None
        self.is_closed = False

    def now_ns(self) -> int:
        return self.loop.now_ns

    def attach(self, on_readable: Callable[[], None]) -> None:
        self.on_readable = on_readable

    def arrive(self, *data: bytes) -> None:
        """Let datagrams arrive and wake the driver."""
        self.waiting += [(PEER, each) for each in data]
        assert self.on_readable is not None
        self.on_readable()

    def receive(self, bytes_max: int) -> Arrived:
        taken, self.waiting = self.waiting, []
        return taken

    def look(self, wait_ns: int) -> Arrived:
        self.loop.now_ns += MICROSECOND if self.waiting else max(MICROSECOND, wait_ns)
        taken, self.waiting = self.waiting[:1], self.waiting[1:]
        return taken

    def send(self, datagrams: Sequence[Datagram]) -> Sequence[Datagram]:
        assert not self.is_closed
        for index, each in enumerate(datagrams):
            if self.room == 0:
                return datagrams[index:]
            if each.data in self.bad:
                raise ValueError(f"cannot send {each.data!r}")
            if self.room is not None and self.room < each.count:
                # A kernel that cuts no trains.
                stop, self.room = self.room * each.segment, 0
                self.log.append(each.data[:stop])
                return [msgspec.structs.replace(each, data=each.data[stop:]), *datagrams[index + 1 :]]
            if self.room is not None:
                self.room -= each.count
            self.log.append(each.data)
            if self.on_sent is not None:
                self.on_sent(each)
        return ()

    def when_writable(self, callback: Callable[[], None]) -> None:
        assert self.on_writable is None, "asked once"
        self.on_writable = callback

    def make_room(self, count: int | None = None) -> None:
        """Take so many datagrams, or all from now on, and call whoever waits for it."""
        self.room = count
        callback, self.on_writable = self.on_writable, None
        assert callback is not None
        callback()

    def listen(self, channel: Channel) -> None:
        if channel in self.bad:
            raise OSError(f"cannot listen on {channel}")
        self.log.append(("listens", channel))

    def unlisten(self, channel: Channel) -> None:
        self.log.append(("listens no more", channel))

    def close(self) -> None:
        self.is_closed = True
        self.log.append("closed")


class Do(Command):
    """Asks for effects."""

    def __init__(self, *effects: Effect) -> None:
        self.effects = effects


class Say(Command):
    """Asks for a message to the peer."""

    def __init__(self, text: bytes) -> None:
        self.text = text


class Player:
    """A machine that causes what it is asked for, puts what waits into one frame, and says when it was called."""

    def __init__(self, log: list[object]) -> None:
        self.log = log
        self.caused: list[Effect] = []
        self.pending: list[bytes] = []
        self.control: list[bytes] = []
        self.answers: dict[bytes, tuple[Effect, ...]] = {}
        self.rooms: list[int] = []
        self.messages_per_output: int | None = None
        self.deadline_ns: int | None = None
        self.spoken = 0

    def on_datagrams(self, now_ns: int, arrived: Sequence[tuple[Endpoint, bytes]], waited_ns: int = 0) -> None:
        self.log.append(("heard", *[data for _, data in arrived]))
        for _, data in arrived:
            self.caused += self.answers.get(data, ())

    def submit(self, now_ns: int, command: Command) -> None:
        if isinstance(command, Do):
            self.caused += command.effects
        elif isinstance(command, Say):
            self.pending.append(command.text)
            self.caused.append(own(self.spoken))
            self.spoken += 1

    def send_now(self, now_ns: int, command: Command) -> list[Datagram]:
        is_alone = not self.pending
        self.submit(now_ns, command)
        return [self._frame()] if is_alone and self.pending else []

    def _frame(self) -> Datagram:
        stop = len(self.pending) if self.messages_per_output is None else self.messages_per_output
        text, self.pending = b"+".join(self.pending[:stop]), self.pending[stop:]
        return Datagram(PEER, text)

    def on_timer(self, now_ns: int) -> None:
        self.log.append(("timer", now_ns))
        self.deadline_ns = None

    def next_deadline_ns(self) -> int | None:
        return self.deadline_ns

    @property
    def has_data(self) -> bool:
        return bool(self.pending)

    def take_output(self, room_bytes: int = ROOM_BYTES_UNLIMITED) -> list[Effect]:
        self.rooms.append(room_bytes)
        effects, self.caused = self.caused, []
        if room_bytes != NO_FRAMES:
            effects += [Datagram(PEER, each) for each in self.control]
            self.control = []
            if self.pending and room_bytes > 0:
                effects.append(self._frame())
        return effects


def own(number: int) -> Delivery:
    return Delivery(GROUP, ME, number, (b"own",), ViewNumber(1), 0)


def delivery(number: int) -> Delivery:
    return Delivery(GROUP, Member(NodeId(2), Incarnation(1)), number, (b"x",), ViewNumber(1), 0)


def event(number: int) -> Event:
    return SendConfirmed(GROUP, number, number + 1)


def view(number: int) -> InstallView:
    return InstallView((7, 8), ViewNumber(number), (ME,))


def datagram(data: bytes) -> Datagram:
    return Datagram(PEER, data)


class Stage:
    """A driver with its loop, port and node, and one log of all that was done, in order."""

    def __init__(self, loop: Loop, **options: Any) -> None:
        self.loop = loop
        self.log: list[object] = []
        self.node, self.port = Player(self.log), FakePort(loop, self.log)
        self.bad: set[Effect] = set()
        self.on: dict[Effect, Callable[[], None]] = {}
        self.settled = 0
        self.driver = Driver(
            self.node,
            self.port,
            **{
                "on_delivery": self.carry_out,
                "on_view": self.carry_out,
                "on_event": self.carry_out,
                "on_persist": self.carry_out,
                "on_settled": self.settle,
                **options,
            },
        )
        self.driver.start()
        self.log.clear()
        self.settled = 0

    def carry_out(self, effect: Effect) -> None:
        assert self.driver.is_pumping
        if any(effect is each for each in self.bad):
            raise RuntimeError(f"cannot take {type(effect).__name__}")
        self.log.append(effect)
        for each, callback in list(self.on.items()):
            if each is effect:
                callback()

    def settle(self) -> None:
        self.settled += 1

    def do(self, *effects: Effect) -> None:
        self.driver.submit(Do(*effects))
        self.loop.run()


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    made = Loop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: made)
    return made


@pytest.fixture
def stage(loop: Loop) -> Stage:
    return Stage(loop)


# States.


def test_a_command_settles_in_the_next_turn_is_pumped_and_leaves_the_driver_idle(stage: Stage) -> None:
    states: list[State] = []
    one = delivery(1)
    stage.on[one] = lambda: states.append(stage.driver.state)
    states.append(stage.driver.state)
    stage.driver.submit(Do(one))
    states.append(stage.driver.state)
    assert stage.log == [], "what is asked for in the same turn comes first"
    stage.driver.submit(Do(delivery(2)))
    stage.loop.turn()
    states.append(stage.driver.state)
    assert states == [State.IDLE, State.SETTLING, State.PUMPING, State.IDLE]
    assert stage.log == [one, delivery(2)]
    assert not stage.loop.ready
    assert stage.settled == 1


def test_effects_are_carried_out_in_their_order(stage: Stage) -> None:
    effects = (
        delivery(1),
        view(2),
        delivery(3),
        Persist(b"record"),
        datagram(b"a"),
        ChannelOpened(Channel(4)),
        datagram(b"b"),
        datagram(b"c"),
        ChannelClosed(Channel(4)),
        event(5),
    )
    stage.do(*effects)
    a, b, c, d, _, opened, _, _, closed, e = effects
    expected = [a, b, c, d, b"a", ("listens", 4), opened, b"b", b"c", ("listens no more", 4), closed, e]
    assert stage.log == expected


def test_one_small_datagram_is_answered_before_frames_are_made(stage: Stage) -> None:
    heard = delivery(1)
    stage.node.answers[b"hello"] = (heard,)
    stage.node.control = [b"token"]
    stage.on[heard] = lambda: stage.driver.send(Say(b"hi"))
    stage.port.arrive(b"hello")
    assert stage.log == [("heard", b"hello"), heard, b"hi", own(0)]
    assert stage.driver.state is State.SETTLING
    stage.loop.run()
    assert stage.log[4:] == [b"token"]
    assert stage.driver.state is State.IDLE


def test_much_that_arrives_together_is_handled_by_urgency_and_pumped_at_once(stage: Stage) -> None:
    data, repair, token = (bytes([1, kind]).ljust(40, b"\0") for kind in (Kind.DATA, Kind.RESENT, Kind.TOKEN))
    stage.node.control = [b"token"]
    stage.port.arrive(data, repair, token, data)
    assert stage.log == [("heard", token, repair, data, data), b"token"]
    assert stage.driver.state is State.IDLE


def test_the_timer_fires_when_something_is_due_and_follows_the_deadline(stage: Stage) -> None:
    start_ns = stage.loop.now_ns
    stage.node.deadline_ns = start_ns + 1000
    stage.do(delivery(1))
    # It is put off: the timer fires, finds nothing due, and is set again.
    stage.node.deadline_ns = start_ns + 5000
    stage.loop.advance(4000)
    assert stage.log == [delivery(1)]
    # Something else is due before.
    stage.node.deadline_ns = start_ns + 4500
    stage.do(delivery(2))
    stage.node.control = [b"heartbeat"]
    stage.loop.advance(1000)
    assert stage.log[1:] == [delivery(2), ("timer", start_ns + 4500), b"heartbeat"]
    stage.loop.advance(1_000_000)
    assert len(stage.log) == 4


def test_a_timer_that_fires_too_early_waits_for_a_millisecond(stage: Stage) -> None:
    """uvloop counts in whole milliseconds: it called at once, again and again, what was due in less than half."""
    loop, start_ns = stage.loop, stage.loop.now_ns
    loop.step_ns = 1_000_000
    stage.node.deadline_ns = start_ns + 1_400_000
    stage.do()
    loop.advance(1_000_000)
    assert stage.log == []
    assert loop.timers == [start_ns + 2_000_000]
    loop.advance(1_000_000)
    assert stage.log == [("timer", start_ns + 2_000_000)]


def test_a_deadline_that_was_put_off_by_little_is_not_kept_waiting_for_a_millisecond(stage: Stage) -> None:
    start_ns = stage.loop.now_ns
    stage.node.deadline_ns = start_ns + 1_000_000
    stage.do()
    stage.node.deadline_ns = start_ns + 1_200_000
    stage.loop.advance(1_200_000)
    assert stage.log == [("timer", start_ns + 1_200_000)]


def lingering_stage(loop: Loop) -> Stage:
    """Make a driver that was asked a few questions in quick succession."""
    stage = Stage(loop)
    question = delivery(1)
    stage.node.answers[b"?"] = (question,)
    stage.on[question] = lambda: stage.driver.send(Say(b"!"))
    while stage.driver.state is not State.LINGERING:
        loop.run()
        loop.advance(100 * MICROSECOND)
        stage.port.waiting.append((PEER, b"?"))
        assert stage.port.on_readable is not None
        stage.port.on_readable()
    stage.log.clear()
    return stage


def test_while_small_messages_go_back_and_forth_frames_wait_for_a_millisecond_at_most(loop: Loop) -> None:
    stage = lingering_stage(loop)
    stage.node.control = [b"token"]
    for number in range(9):
        loop.advance(100 * MICROSECOND)
        stage.port.arrive(b"?")
        loop.run()
        assert stage.driver.state is State.LINGERING
        assert stage.log.count(b"!") == number + 1
    assert b"token" not in stage.log
    loop.advance(100 * MICROSECOND)
    assert stage.log[-1] == b"token"
    assert stage.driver.state is State.IDLE
    assert loop.timers == []


def test_a_command_does_not_wait_for_a_millisecond(loop: Loop) -> None:
    stage = lingering_stage(loop)
    stage.driver.submit(Do(datagram(b"a")))
    assert stage.driver.state is State.SETTLING
    loop.turn()
    assert stage.log[-1] == b"a"


def test_a_driver_that_lingers_again_and_again_has_one_timer_for_it(loop: Loop) -> None:
    stage = lingering_stage(loop)
    for _ in range(5):
        stage.driver.submit(Do())
        loop.run()
        assert stage.driver.state is State.IDLE
        loop.advance(100 * MICROSECOND)
        stage.port.arrive(b"?")
        assert stage.driver.state is State.LINGERING
        assert len(loop.timers) == 1


# Errors.


def test_an_error_loses_no_other_effect_and_is_reported(loop: Loop) -> None:
    effects: list[Effect] = [
        delivery(1),
        event(2),
        view(3),
        ChannelOpened(Channel(4)),
        datagram(b"a"),
        datagram(b"b"),
        datagram(b"c"),
        Persist(b"record"),
        delivery(5),
        datagram(b"d"),
        event(6),
    ]

    def play(bad: Effect | None) -> Stage:
        stage = Stage(loop)
        loop.reported.clear()
        if isinstance(bad, Datagram):
            stage.port.bad.add(bad.data)
        elif isinstance(bad, ChannelOpened):
            stage.port.bad.add(bad.channel)
        elif bad is not None:
            stage.bad = {bad}
        stage.do(*effects)
        assert stage.driver.state is State.IDLE
        assert stage.settled == 1
        return stage

    whole = play(None)
    assert loop.reported == []
    for bad in effects:
        if isinstance(bad, Persist):
            continue
        stage = play(bad)
        gone = {Datagram: 1, ChannelOpened: 2}.get(type(bad), 1)
        kept = [each for each in stage.log if each in whole.log]
        missing = [each for each in whole.log if each not in stage.log]
        assert len(missing) == gone, f"{bad} took {missing} with it"
        # In order; a datagram before the bad one of its run may go twice, as networks do.
        assert list(dict.fromkeys(map(repr, kept))) == [repr(each) for each in whole.log if each not in missing]
        assert len(loop.reported) == 1
        # And the driver goes on.
        stage.do(delivery(9))
        assert stage.log[-1] == delivery(9)


def test_an_error_in_the_first_send_of_a_turn_is_reported_and_not_raised(stage: Stage) -> None:
    stage.port.bad.add(b"bad")
    stage.driver.send(Say(b"bad"))
    stage.loop.run()
    assert len(stage.loop.reported) == 1
    assert stage.log == [own(0)], "it was accepted: the application must not send it again"


def test_an_error_in_the_callback_of_the_end_is_reported_and_the_driver_goes_on(loop: Loop) -> None:
    def fail() -> None:
        raise RuntimeError("at the end")

    stage = Stage(loop, on_settled=fail)
    loop.reported.clear()
    stage.do(delivery(1))
    stage.do(delivery(2))
    assert stage.log == [delivery(1), delivery(2)]
    assert loop.reported == ["at the end"] * 2
    assert stage.driver.state is State.IDLE


@pytest.mark.parametrize("has_disk", [True, False])
def test_behind_a_record_that_cannot_be_written_nothing_is_done_and_the_driver_closes(
    loop: Loop, has_disk: bool
) -> None:
    stage = Stage(loop, **({} if has_disk else {"on_persist": None}))
    record = Persist(b"record")
    stage.bad = {record}
    stage.do(delivery(1), record, datagram(b"a"), delivery(2), Persist(b"next"), event(3))
    assert stage.log == [delivery(1), "closed"]
    assert len(loop.reported) == 1
    assert stage.driver.state is State.CLOSED
    assert stage.settled == 0


# What callbacks do.


def test_what_a_callback_submits_is_pulled_in_the_same_pump(stage: Stage) -> None:
    one = delivery(1)
    stage.on[one] = lambda: stage.driver.submit(Do(delivery(3), datagram(b"c")))
    stage.driver.submit(Do(one, datagram(b"a"), delivery(2), datagram(b"b")))
    stage.loop.turn()
    assert stage.log == [one, b"a", delivery(2), b"b", delivery(3), b"c"]
    assert not stage.loop.ready
    assert stage.settled == 1


def test_what_a_callback_sends_leaves_at_once_and_its_own_delivery_comes_in_the_same_pump(stage: Stage) -> None:
    one = delivery(1)
    stage.on[one] = lambda: stage.driver.send(Say(b"answer"))
    stage.driver.submit(Do(one, delivery(2), datagram(b"frame")))
    stage.loop.turn()
    assert stage.log == [one, b"answer", delivery(2), b"frame", own(0)]
    assert stage.driver.state is State.IDLE


def test_between_two_outputs_of_new_data_arrivals_are_handled(stage: Stage) -> None:
    stage.node.messages_per_output = 1
    for text in (b"one", b"two"):
        stage.driver.submit(Say(text))
    stage.loop.turn()
    assert (stage.driver.state, stage.log[2:]) == (State.SETTLING, [b"one"])
    stage.port.arrive(b"a", b"token")
    assert stage.log[3:] == [("heard", b"a", b"token"), b"two"]
    stage.loop.run()
    assert stage.driver.state is State.IDLE


def test_a_callback_that_pumps_leaves_the_work_to_the_pump_under_way(stage: Stage) -> None:
    one = delivery(1)

    def ask() -> None:
        stage.driver.submit(Do(delivery(3)))
        stage.driver.pump()
        assert stage.log == [one]

    stage.on[one] = ask
    stage.do(one, delivery(2))
    assert stage.log == [one, delivery(2), delivery(3)]


# Sending.


def test_the_first_message_of_a_turn_leaves_at_once_and_the_others_share_the_next_frame(stage: Stage) -> None:
    for _ in range(2):
        stage.log.clear()
        for text in (b"1", b"2", b"3"):
            stage.driver.send(Say(text))
        assert stage.log == [b"1"]
        stage.loop.run()
        assert [each for each in stage.log if isinstance(each, bytes)] == [b"1", b"2+3"]


@pytest.mark.parametrize("make", ["idle", "lingering", "polling"])
@pytest.mark.parametrize("count", [1, 2])
def test_the_loop_calls_the_driver_in_the_turn_after_each_in_which_something_was_sent(
    loop: Loop, make: str, count: int
) -> None:
    stage = {"idle": Stage, "lingering": lingering_stage, "polling": polling_stage}[make](loop)
    for _ in range(3):
        before = stage.driver.turns
        for number in range(count):
            stage.driver.send(Say(b"%d" % number))
        assert stage.driver.turns == before
        loop.turn()
        assert stage.driver.turns > before


def test_a_message_behind_a_command_waits_for_its_effects(stage: Stage) -> None:
    stage.driver.submit(Do(delivery(1)))
    stage.driver.send(Say(b"behind"))
    assert stage.log == []
    stage.loop.run()
    assert stage.log == [delivery(1), own(0), b"behind"]


def collecting(stage: Stage) -> None:
    """Let a run be collected behind two messages."""

    def hand_over() -> None:
        stage.log.append("handed over")
        stage.driver.submit(Say(b"run"))

    assert not stage.driver.send(Say(b"1"))
    assert stage.driver.send(Say(b"2"))
    stage.driver.collect(hand_over)
    stage.log.clear()


def test_what_is_collected_shares_the_frame_of_its_turn_and_comes_before_later_messages(stage: Stage) -> None:
    collecting(stage)
    stage.driver.send(Say(b"later"))
    assert stage.log == ["handed over"]
    stage.loop.run()
    assert stage.log[-1] == b"2+run+later"
    collecting(stage)
    stage.loop.run()
    assert stage.log.count("handed over") == 1
    assert stage.log[-1] == b"2+run"


def test_what_is_collected_is_handed_over_before_the_node_hears_anything_or_its_timer_fires(stage: Stage) -> None:
    collecting(stage)
    stage.port.arrive(b"x")
    assert [each for each in stage.log if each == "handed over" or isinstance(each, tuple)] == [
        "handed over",
        ("heard", b"x"),
    ]
    stage.loop.run()
    stage.node.deadline_ns = stage.loop.now_ns + 1000
    stage.do(delivery(1))
    collecting(stage)
    stage.loop.now_ns += 1000
    stage.driver._on_timer()
    assert stage.log[0] == "handed over"
    assert isinstance(stage.log[1], tuple)


def test_a_closed_driver_asks_for_nothing_that_was_collected(stage: Stage) -> None:
    collecting(stage)
    stage.driver.close()
    stage.driver.end_run()
    stage.loop.run()
    assert "handed over" not in stage.log


# Backlog.


def test_what_the_network_does_not_take_waits_in_order_and_no_new_data_is_made_meanwhile(stage: Stage) -> None:
    stage.port.room = 2
    stage.do(*[datagram(b"%d" % number) for number in range(5)])
    assert stage.log == [b"0", b"1"]
    stage.node.rooms.clear()
    stage.driver.send(Say(b"new"))
    stage.node.control = [b"token"]
    stage.loop.run()
    assert stage.log[2:] == [own(0)]
    assert set(stage.node.rooms) == {0}
    stage.port.make_room(2)
    assert stage.log[3:] == [b"2", b"3"]
    stage.port.make_room()
    assert stage.log[5:] == [b"4", b"token", b"new"]
    assert stage.node.rooms[-1] == ROOM_BYTES
    assert stage.driver.dropped == 0
    assert stage.port.on_writable is None


def test_of_a_train_that_the_network_takes_in_part_the_rest_waits_in_front(stage: Stage) -> None:
    """It was sent from its beginning each time; where it is longer than the network takes at once it never ended."""
    stage.port.room = 3
    stage.do(Datagram(PEER, b"112233445566", segment=2), datagram(b"behind"))
    for _ in range(2):
        stage.port.make_room(2)
    assert stage.log == [b"112233", b"4455", b"66", b"behind"]
    assert stage.port.on_writable is None


def test_the_backlog_has_a_limit_and_what_is_beyond_is_dropped_and_counted(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "BACKLOG_MAX", 3)
    stage.port.room = 0
    for number in range(5):
        stage.do(datagram(b"%d" % number), delivery(number))
    assert stage.log == [delivery(number) for number in range(5)]
    assert stage.driver.dropped == 2
    stage.port.make_room()
    assert stage.log[5:] == [b"0", b"1", b"2"]


def test_a_datagram_that_cannot_be_sent_does_not_hold_the_backlog_up(stage: Stage) -> None:
    stage.port.room = 0
    stage.do(datagram(b"a"), datagram(b"bad"), datagram(b"c"))
    stage.port.bad.add(b"bad")
    stage.port.make_room()
    assert list(dict.fromkeys(stage.log)) == [b"a", b"c"]
    assert len(stage.loop.reported) == 1
    stage.do(datagram(b"d"))
    assert stage.log[-1] == b"d"


# Polling.

POLL_NS = 200_000


def polling_stage(loop: Loop) -> Stage:
    """Make a driver that polls, after a few questions with short waits between them."""
    stage = Stage(loop, poll_ns=POLL_NS)
    question = delivery(1)
    stage.node.answers[b"?"] = (question,)
    stage.on[question] = lambda: stage.driver.send(Say(b"!"))
    for number in range(SHORT_WAITS + 1):
        assert stage.driver.state is State.IDLE, f"polls after {number} waits"
        loop.advance(100 * MICROSECOND)
        stage.port.arrive(b"?")
        if stage.driver.state is not State.POLLING:
            loop.run()
    assert stage.driver.state is State.POLLING
    stage.log.clear()
    return stage


def test_a_driver_polls_after_short_waits_answers_and_is_idle_when_nothing_comes(loop: Loop) -> None:
    stage = polling_stage(loop)
    for _ in range(20):
        stage.port.waiting.append((PEER, b"?"))
        loop.turn()
        assert stage.driver.state is State.POLLING
    assert [each for each in stage.log if isinstance(each, bytes)] == [b"!"] * 20
    # In vain: it ends after its limit, and what was put off is carried out.
    stage.node.control = [b"token"]
    began_ns = loop.now_ns
    loop.run()
    assert stage.driver.state is State.IDLE
    assert POLL_NS - LOOK_NS <= loop.now_ns - began_ns <= POLL_NS + LOOK_NS
    assert stage.log[-1] == b"token"
    assert sum(isinstance(each, Delivery) and each.sender == ME for each in stage.log) >= 20
    stage.driver.submit(Do(delivery(5)))
    assert stage.driver.state is State.SETTLING
    loop.run()
    assert stage.log[-1] == delivery(5)


def test_until_polls_have_proved_useful_the_peer_may_run_on_this_processor(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_way: list[int] = []
    monkeypatch.setattr("os.sched_yield", lambda: given_way.append(loop.now_ns))
    stage = polling_stage(loop)
    for found in range(PROVEN_POLLS + 10):
        assert bool(given_way) == (0 < found <= PROVEN_POLLS), found
        given_way.clear()
        stage.port.waiting.append((PEER, b"?"))
        loop.turn()
    assert not given_way


def test_a_driver_that_was_not_asked_to_never_polls(loop: Loop) -> None:
    stage = Stage(loop)
    stage.node.answers[b"?"] = (delivery(1),)
    for _ in range(50):
        loop.advance(50 * MICROSECOND)
        stage.port.arrive(b"?")
        loop.run()
        assert stage.driver.state is not State.POLLING
    loop.advance(2 * MICROSECOND * 1000)
    assert stage.driver.state is State.IDLE


def test_what_is_submitted_while_polling_is_carried_out_in_the_next_turn(loop: Loop) -> None:
    stage = polling_stage(loop)
    stage.driver.submit(Do(delivery(5), datagram(b"a")))
    loop.turn()
    assert [each for each in stage.log if each in (delivery(5), b"a")] == [delivery(5), b"a"]
    assert stage.driver.state is State.POLLING


def test_answers_without_end_keep_neither_the_loop_nor_other_frames_waiting_for_long(loop: Loop) -> None:
    stage = polling_stage(loop)
    stage.port.on_sent = lambda sent: stage.port.waiting.append((PEER, b"?")) if sent.data == b"!" else None
    stage.port.waiting.append((PEER, b"?"))
    stage.node.control = [b"token"]
    began_ns = loop.now_ns
    while b"token" not in stage.log:
        before_ns = loop.now_ns
        loop.turn()
        assert loop.now_ns - before_ns <= UNTURNED_NS + LOOK_NS
        assert loop.now_ns - began_ns <= POLLING_DELAY_NS_MAX + UNTURNED_NS + LOOK_NS
    assert stage.log.count(b"!") > 100
    assert stage.driver.state is State.POLLING


def test_an_error_in_a_callback_does_not_end_polling(loop: Loop) -> None:
    stage = polling_stage(loop)
    bad = delivery(8)
    stage.node.answers[b"bad"] = (bad, delivery(9))
    stage.bad = {bad}
    stage.port.waiting.append((PEER, b"bad"))
    loop.turn()
    assert stage.log[-1] == delivery(9)
    assert len(loop.reported) == 1
    loop.run()
    assert stage.driver.state is State.IDLE


# Closing.


@pytest.mark.parametrize("closing", [delivery(1), view(1), event(1), Persist(b"1"), ChannelOpened(Channel(1))])
def test_a_callback_that_closes_stops_the_pump(stage: Stage, closing: Effect) -> None:
    stage.on[closing] = stage.driver.close
    stage.do(delivery(0), closing, datagram(b"a"), delivery(2), event(3), Persist(b"4"))
    expected = [each for each in stage.log if each != ("listens", 1)]
    assert expected == [delivery(0), closing, "closed"]
    assert stage.driver.state is State.CLOSED
    assert stage.settled == 0
    assert stage.loop.reported == []


def test_a_callback_of_one_small_datagram_may_close(loop: Loop) -> None:
    stage = polling_stage(loop)
    last = delivery(9)
    stage.node.answers[b"end"] = (last, delivery(10))
    stage.on[last] = stage.driver.close
    stage.port.waiting.append((PEER, b"end"))
    loop.run()
    assert stage.log[-2:] == [last, "closed"]
    assert stage.driver.state is State.CLOSED


def test_nothing_is_called_after_close(loop: Loop) -> None:
    stage = polling_stage(loop)
    driver, node, port = stage.driver, stage.node, stage.port
    port.room = 0
    driver.submit(Do(datagram(b"a"), datagram(b"b")))
    node.deadline_ns = loop.now_ns + 1000
    loop.turn()
    assert port.on_writable is not None
    driver.submit(Do(delivery(1), datagram(b"c")))
    stage.log.clear()
    driver.close()
    driver.close()
    node.rooms.clear()
    port.arrive(b"?")
    port.make_room()
    driver.pump()
    driver.send(Say(b"late"))
    driver.submit(Do(delivery(2)))
    loop.advance(1_000_000_000)
    loop.run()
    assert stage.log == ["closed"]
    assert node.rooms == []
    assert driver.state is State.CLOSED
    assert loop.reported == []


def test_a_closed_driver_leaves_neither_timers_nor_datagrams(loop: Loop) -> None:
    stage = lingering_stage(loop)
    stage.port.room = 0
    stage.node.deadline_ns = loop.now_ns + 1_000_000_000
    stage.driver.submit(Do(datagram(b"a")))
    loop.run()
    stage.port.arrive(b"?")
    assert len(loop.timers) == 2
    stage.driver.close()
    assert loop.timers == []
    assert not stage.driver._backlog


def test_a_pump_that_was_scheduled_before_close_does_nothing(stage: Stage) -> None:
    stage.driver.submit(Do(delivery(1)))
    stage.driver.close()
    stage.loop.run()
    assert stage.log == ["closed"]
    assert stage.settled == 0


@pytest.mark.parametrize("call", ["take_output", "on_datagrams", "on_timer"])
def test_a_node_that_raises_stops_its_driver_and_says_so(stage: Stage, call: str, monkeypatch) -> None:
    """Its state is not what it should be: to go on, or to stand still in silence, would be worse."""

    def fail(*_: object) -> None:
        raise AssertionError("an invariant is broken")

    stage.node.deadline_ns = stage.loop.now_ns + 1
    stage.do()
    monkeypatch.setattr(stage.node, call, fail)
    if call == "on_datagrams":
        stage.port.waiting.append((PEER, b"x"))
        assert stage.port.on_readable is not None
        stage.port.on_readable()
    stage.driver.submit(Do())
    stage.loop.advance(2)
    stage.loop.run()
    assert stage.driver.state is State.CLOSED
    assert stage.port.is_closed
    assert stage.loop.reported == ["an invariant is broken"]
