"""Run a node on an asyncio event loop: drain, classify, handle, carry out effects in order, one timer.

The order of handling decides the behaviour under load (seed 004, sections 4 and 6): the port is drained into memory
first; tokens and views are handled before repairs, and repairs before data; only then is new data pulled, as much as
the network takes. A quantum bounds what is drained at once, so that timers fire on time.

States:

- IDLE: nothing is due. The loop calls when something arrives, the timer fires, or the application asks.
- SETTLING: output is due, and a pump is scheduled behind the tasks that were woken before it.
- LINGERING: as SETTLING, but with a delay of at most a millisecond: single small messages go back and forth, and
  several of them share a token and a timer.
- PUMPING: effects are being carried out. What callbacks submit meanwhile is pulled before the pump ends.
- POLLING: answers are expected within microseconds, so the loop is kept turning (`polling`). Only on request.
- CLOSED: nothing more is done.

Effects are carried out in their order. One that raises (a socket, a callback of the application) is reported to the
loop's exception handler and loses no other; but after a record that could not be written nothing more is done, and the
driver closes. It also closes when the node itself raises.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from weakref import WeakKeyDictionary

from vivum.core.machine import (
    NO_FRAMES,
    ChannelClosed,
    ChannelOpened,
    Command,
    Datagram,
    Delivery,
    Effect,
    Event,
    InstallView,
    Machine,
    Persist,
)
from vivum.runtime.polling import SMALL_BYTES, Polling
from vivum.runtime.port import Arrived, Port
from vivum.wire.kinds import priority_of

DRAIN_BYTES_MAX = 1 << 19
"""Bytes taken from each socket before anything is handled. They fit a processor's cache together with the messages made
from them, and the next drain reuses their memory."""

ROOM_BYTES = 1_000_000
"""New data to pull at once; none while datagrams wait for the network. Room for sixteen of the largest frames, which
are two notes of shared memory. A mebibyte has room for seventeen: the last would need a note of its own, and wake every
receiver once more."""

BACKLOG_MAX = 16_384
"""Datagrams that may wait for the network. Above this the newest are dropped and counted, as a full interface does.
These are only control frames and repairs, which are made again."""

LOOK_NS = 30_000
"""How long a polling node looks at its sockets in vain before the loop gets a turn."""

BUSY_TURN_NS = 50_000
"""If a turn of the loop took longer, other tasks are busy: then a polling node looks only once in each turn."""

UNTURNED_NS = 200_000
"""The loop gets a turn at least this often, however many answers go back and forth: other tasks wait no longer."""

LINGER_S = TIMER_S_MIN = 0.001
"""How long frames wait for more answers to share a token, and how long to wait again after a timer that came too early.
Loops whose timers count in milliseconds treat a shorter time as zero."""

POLLING_DELAY_NS_MAX = 500_000
"""The longest delay of all but answers (tokens, confirmations, timers) while a node polls."""

_POLLERS: WeakKeyDictionary[asyncio.AbstractEventLoop, set[int]] = WeakKeyDictionary()
"""The nodes that poll on each loop. If there are several, each looks once in a turn and does not wait."""


class State(Enum):
    """A driver's state; see the module's docstring."""

    IDLE = "idle"
    SETTLING = "settling"
    LINGERING = "lingering"
    PUMPING = "pumping"
    POLLING = "polling"
    CLOSED = "closed"


def _ignore(_: object) -> None:
    pass


class Driver:
    """Runs one node on the current event loop."""

    def __init__(
        self,
        node: Machine,
        port: Port,
        *,
        on_delivery: Callable[[Delivery], None] = _ignore,
        on_view: Callable[[InstallView], None] = _ignore,
        on_event: Callable[[Event], None] = _ignore,
        on_persist: Callable[[Persist], None] | None = None,
        on_settled: Callable[[], None] | None = None,
        on_failed: Callable[[Exception], None] | None = None,
        poll_ns: int = 0,
    ) -> None:
        """Prepare. `on_settled` is called when all that one input caused has been carried out.

        `on_persist` must have written the record when it returns. `on_failed` is called with the reason when the driver
        closes by itself. `poll_ns` is how long to poll before the loop sleeps, where that pays; 0 for never.
        """
        self.state = State.IDLE
        self.dropped = 0
        """Datagrams dropped because the backlog was full."""

        self.turns = 0
        """How often the loop has called the driver. In the turn after a send it always does."""

        self._node = node
        self._port = port
        self._now_ns = port.now_ns
        self._on_delivery = on_delivery
        self._on_view = on_view
        self._on_event = on_event
        self._on_persist = on_persist
        self._on_settled = on_settled
        self._on_failed = on_failed
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        # Ends LINGERING. It stays set if that ends early, and then serves the next one.
        self._lingering: asyncio.TimerHandle | None = None
        self._timer_ns: int | None = None
        self._backlog: deque[Datagram] = deque()
        # Whether commands came since output was pulled.
        self._has_input = False
        # Hands over messages that were accepted and are not with the node yet.
        self._hand_over: Callable[[], None] | None = None
        # Whether the next messages may leave at once: nothing was sent since the last arrival or pump.
        self._may_send_now = True
        self._polling = Polling(poll_ns)
        self._pollers = _POLLERS.setdefault(self._loop, set())
        self._sent_bytes = 0
        # While POLLING: when other tasks last got their turn, and when postponed frames must be made.
        self._left_ns = 0
        self._settle_at_ns: int | None = None

    @property
    def now_ns(self) -> int:
        """The time that the node sees."""
        return self._now_ns()

    @property
    def is_pumping(self) -> bool:
        """Whether effects are being carried out, so the caller is one of their callbacks."""
        return self.state is State.PUMPING

    # Calls of the application.

    def start(self) -> None:
        """Begin to listen, and carry out what the node wants done at its start."""
        self._port.attach(self._on_readable)
        self.pump()

    def submit(self, command: Command) -> None:
        """Hand a command to the node; carry out soon what it causes. Raises what the node raises.

        Not at once, so that what the application does in one turn of the loop shares frames.
        """
        if self._hand_over is not None:
            self.end_run()
        self._node.submit(self._now_ns(), command)
        self._has_input = True
        if self.state is State.IDLE or self.state is State.LINGERING:
            self._become_settling()

    def send(self, command: Command) -> bool:
        """Hand messages to the node as `submit` does; the first of a turn leave at once if nothing else waits.

        So an answer is on its way before anything else is done. What is sent after it in the turn shares frames: return
        whether these messages do, so that more of them may be collected.
        """
        # While something is collected there is input; `submit` has it handed over first.
        if not self._may_send_now or self._has_input or self._backlog or self.state is State.CLOSED:
            self.submit(command)
            return True
        self._may_send_now = False
        datagrams = self._node.send_now(self._now_ns(), command)
        if datagrams:
            self._send(datagrams)
        else:
            self._has_input = True
        if self.state is not State.PUMPING:
            self._loop.call_soon(self._deliver_own)
        return False

    def _deliver_own(self) -> None:
        """Carry out what messages that left at once caused at this node: their own delivery."""
        self.turns += 1
        if self.state is not State.PUMPING and self.state is not State.CLOSED:
            self._answer(self._node.take_output(NO_FRAMES))

    def collect(self, hand_over: Callable[[], None]) -> None:
        """Let the application collect messages behind those that it just submitted.

        `hand_over` must submit them. It is called before the node gets anything else, and before output is pulled: so
        the node is as it was when they were accepted, and takes them.
        """
        self.end_run()
        self._hand_over = hand_over

    def end_run(self) -> None:
        """Hand over what is being collected."""
        hand_over, self._hand_over = self._hand_over, None
        if hand_over is not None:
            hand_over()

    def close(self) -> None:
        """Stop driving and close the port. May be called again."""
        if self.state is not State.CLOSED:
            self._become_closed()

    # States. Only these methods change the state.

    def _become_idle(self) -> None:
        self.state = State.IDLE

    def _become_settling(self) -> None:
        self.state = State.SETTLING
        self._loop.call_soon(self._settle)

    def _become_lingering(self) -> None:
        self.state = State.LINGERING
        if self._lingering is None:
            self._lingering = self._loop.call_later(LINGER_S, self._end_lingering)

    def _become_pumping(self) -> None:
        self.state = State.PUMPING

    def _become_again(self, before: State) -> None:
        """Return to the state that pumping interrupted: what was scheduled in it is still pending."""
        self.state = before

    def _become_polling(self) -> None:
        if self.state is not State.IDLE:
            # Output is due, and need not wait for the next turn of the loop.
            self._settle_at_ns = self._now_ns() + POLLING_DELAY_NS_MAX
        self.state = State.POLLING
        self._pollers.add(id(self))
        self._loop.call_soon(self._turn)

    def _become_closed(self) -> None:
        self.state = State.CLOSED
        self._hand_over = None
        self._pollers.discard(id(self))
        for timer in (self._timer, self._lingering):
            if timer is not None:
                timer.cancel()
        self._backlog.clear()
        self._port.close()

    # Input.

    def _on_readable(self) -> None:
        self.turns += 1
        if self.state is State.CLOSED:
            return
        # If the datagram is probably alone, looking for more would cost as much as taking it. Any others are taken in
        # the next turn.
        arrived = self._port.look(0) if self._polling.expects_one else self._drain()
        if arrived:
            self._handle(arrived)

    def _drain(self) -> Arrived:
        drained: tuple[Arrived, ...] = ([], [], [])
        for each in self._port.receive(DRAIN_BYTES_MAX):
            drained[priority_of(each[1])].append(each)
        control, repairs, fresh = drained
        return control + repairs + fresh if control or repairs else fresh

    def _handle(self, arrived: Arrived) -> None:
        """Take what arrived, and carry out what it causes. One small message is answered before frames are made."""
        self.end_run()
        now_ns = self._now_ns()
        try:
            self._node.on_datagrams(now_ns, arrived, self._port.waited_ns)
        except Exception as error:
            self._fail(error)
            return
        self._may_send_now = True
        size = len(arrived[0][1]) if len(arrived) == 1 else sum([len(data) for _, data in arrived])
        is_small = len(arrived) == 1 and size <= SMALL_BYTES
        if is_small and not self._has_input and (effects := self._node.take_output(NO_FRAMES)):
            self._answer(effects)
        else:
            self._pump()
        self._polling.on_arrival(now_ns, size)
        self._wait()

    def _answer(self, effects: list[Effect]) -> None:
        """Carry out what one small message caused; make frames later, so that woken tasks can answer first."""
        before = self.state
        self._become_pumping()
        while effects:
            self._carry_out(effects)
            if self._is_closed():
                return
            effects = [] if self._has_input else self._node.take_output(NO_FRAMES)
        self._become_again(before)
        if self._has_input:
            self._pump()
        elif before is State.IDLE:
            # Answers leave at once; frames for all else can wait until there were several answers.
            if self._polling.expects_one:
                self._become_lingering()
            else:
                self._become_settling()
        elif before is State.POLLING and self._settle_at_ns is None:
            self._settle_at_ns = self._now_ns() + POLLING_DELAY_NS_MAX

    def _on_timer(self) -> None:
        self.turns += 1
        armed_ns, now_ns = self._timer_ns, self._now_ns()
        self._timer = self._timer_ns = None
        deadline_ns = self._node.next_deadline_ns()
        if deadline_ns is None or now_ns < deadline_ns:
            is_too_early = armed_ns is not None and now_ns < armed_ns
            self._set_timer(TIMER_S_MIN if is_too_early else 0.0)
            return
        self.end_run()
        try:
            self._node.on_timer(self._now_ns())
        except Exception as error:
            self._fail(error)
            return
        self.pump()

    def _set_timer(self, delay_s_min: float = 0.0) -> None:
        deadline_ns = self._node.next_deadline_ns()
        armed_ns = self._timer_ns
        if deadline_ns == armed_ns or (armed_ns is not None and deadline_ns is not None and armed_ns < deadline_ns):
            # Every message postpones deadlines. Leave a timer that is too early, and set it again when it fires.
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_ns = deadline_ns
        if deadline_ns is not None:
            delay_s = (deadline_ns - self._now_ns()) / 1e9
            self._timer = self._loop.call_later(max(delay_s_min, delay_s), self._on_timer)

    # Output.

    def pump(self) -> None:
        """Pull and carry out all that the node wants done, then set the timer."""
        self._pump()
        if self._sent_bytes:
            self._wait()

    def _settle(self) -> None:
        self.turns += 1
        if self.state is State.SETTLING:
            self.pump()

    def _end_lingering(self) -> None:
        self.turns += 1
        self._lingering = None
        if self.state is State.LINGERING:
            self.pump()

    def _pump(self) -> None:
        before = self.state
        if before is State.CLOSED:
            return
        if before is State.PUMPING:
            # Called by a callback: the pump under way goes on with it.
            self._has_input = True
            return
        self._become_pumping()
        node = self._node
        while True:
            self.end_run()
            self._has_input = False
            self._may_send_now = True
            try:
                effects = node.take_output(0 if self._backlog else ROOM_BYTES)
            except Exception as error:
                self._fail(error)
                return
            if not effects:
                break
            self._carry_out(effects)
            if self._is_closed():
                return
            if self._may_send_now and not self._has_input and type(effects[-1]) is Datagram:
                # No commands came meanwhile. Effects other than frames may have more of them behind them.
                break
        self._settle_at_ns = None
        # New data that is left goes out in the next turn: tokens that have arrived meanwhile are handled before it.
        has_more = bool(effects) and node.has_data and not self._backlog
        if before is State.POLLING:
            self._become_again(before)
            if has_more:
                self._settle_at_ns = self._now_ns()
        elif has_more:
            self._become_settling()
        else:
            self._become_idle()
        self._set_timer()
        if self._on_settled is not None:
            try:
                self._on_settled()
            except Exception as error:
                self._report("vivum: on_settled failed", error)

    def _is_closed(self) -> bool:
        # A method, so that the type checker does not assume the state unchanged: a callback may have closed the driver.
        return self.state is State.CLOSED

    def _carry_out(self, effects: list[Effect]) -> None:
        index, stop = 0, len(effects)
        while index < stop:
            effect = effects[index]
            index += 1
            try:
                if type(effect) is Datagram:
                    first = index - 1
                    while index < stop and type(effects[index]) is Datagram:
                        index += 1
                    self._send(effects[first:index])  # type: ignore[arg-type]
                elif type(effect) is Delivery:
                    self._on_delivery(effect)
                elif type(effect) is InstallView:
                    self._on_view(effect)
                elif type(effect) is Persist:
                    if not self._persist(effect):
                        return
                else:
                    assert isinstance(effect, Event)
                    self._tell(effect)
            except Exception as error:
                self._report(f"vivum: {type(effect).__name__} could not be carried out", error)
            if self.state is State.CLOSED:
                return

    def _tell(self, event: Event) -> None:
        if type(event) is ChannelOpened:
            self._port.listen(event.channel)
        elif type(event) is ChannelClosed:
            self._port.unlisten(event.channel)
        self._on_event(event)

    def _persist(self, effect: Persist) -> bool:
        try:
            assert self._on_persist is not None, "a node that persists needs a disk"
            self._on_persist(effect)
        except Exception as error:
            # What follows may depend on the record: send and report nothing.
            self._stop("vivum: a record could not be written; the node stops", error)
            return False
        return True

    def _fail(self, error: Exception) -> None:
        """Stop: the node itself raised, so its state cannot be trusted. Other nodes notice the silence."""
        self._stop("vivum: a fault in the node; it stops", error)

    def _stop(self, message: str, error: Exception) -> None:
        self._report(message, error)
        self.close()
        if self._on_failed is not None:
            self._on_failed(error)

    def _report(self, message: str, error: Exception) -> None:
        self._loop.call_exception_handler({"message": message, "exception": error})

    def _send(self, datagrams: list[Datagram]) -> None:
        for each in datagrams:
            self._sent_bytes += len(each.data)
        if self._backlog:
            self._wait_for_room(datagrams)
            return
        rest = self._offer(datagrams)
        if rest:
            self._wait_for_room(rest)
            self._port.when_writable(self._on_writable)

    def _offer(self, datagrams: Sequence[Datagram]) -> Sequence[Datagram]:
        """Return what the port did not take. A datagram that it raises for is dropped, alone."""
        try:
            return self._port.send(datagrams)
        except Exception as error:
            if len(datagrams) == 1:
                self._report("vivum: a datagram could not be sent", error)
                return ()
        # The port does not say which one it was, so some are sent twice. Harmless: networks do that too.
        for index, each in enumerate(datagrams):
            rest = self._offer([each])
            if rest:
                return [*rest, *datagrams[index + 1 :]]
        return ()

    def _wait_for_room(self, datagrams: Sequence[Datagram]) -> None:
        room = BACKLOG_MAX - len(self._backlog)
        self._backlog.extend(datagrams[:room])
        self.dropped += max(0, len(datagrams) - room)

    def _on_writable(self) -> None:
        self.turns += 1
        if self.state is State.CLOSED:
            return
        rest = self._offer(list(self._backlog))
        for _ in range(len(self._backlog) - len(rest)):
            self._backlog.popleft()
        if rest:
            # Of a train a part may have left.
            self._backlog[0] = rest[0]
            self._port.when_writable(self._on_writable)
        else:
            self.pump()

    # Polling.

    def _wait(self) -> None:
        """Wait for input when all is carried out: poll if that pays, or let the loop sleep."""
        size, self._sent_bytes = self._sent_bytes, 0
        self._polling.begin(self._now_ns(), size)
        if self._polling.is_on and self.state in (State.IDLE, State.SETTLING, State.LINGERING):
            self._become_polling()

    def _turn(self) -> None:
        """Look at the sockets, then let other tasks run. The loop does not sleep, since this is scheduled again."""
        self.turns += 1
        if self.state is not State.POLLING:
            return
        if self._sent_bytes:
            self._wait()
        now_ns = self._now_ns()
        if not self._polling.go_on(now_ns):
            self._pollers.discard(id(self))
            self._become_idle()
            self._pump()
            return
        self._look(now_ns)
        if self._has_input or (self._settle_at_ns is not None and self._now_ns() >= self._settle_at_ns):
            self._pump()
        if self._is_closed():
            return
        self._left_ns = self._now_ns()
        # Behind all tasks that were just woken: they run first.
        self._loop.call_soon(self._turn)

    def _look(self, now_ns: int) -> None:
        """Answer what arrives until nothing arrives or the loop must get a turn."""
        until_ns = now_ns + UNTURNED_NS
        is_alone = now_ns - self._left_ns < BUSY_TURN_NS and len(self._pollers) == 1
        look_ns = LOOK_NS if is_alone else 0
        if not self._polling.is_proven:
            # The kernel often wakes the peer on the processor that sent to it. Let it run, or we poll in its place.
            os.sched_yield()
        while arrived := self._port.look(look_ns):
            self._handle(arrived)
            if self._may_send_now or self.state is not State.POLLING or self._now_ns() >= until_ns:
                # No callback answered at once: let the tasks that it woke run.
                break
