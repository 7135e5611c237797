"""Lets an asyncio event loop drive a node over UDP: drain, classify, handle, pull, send, one timer.

The order of handling decides the behaviour under load (seed 004, sections 4 and 6): sockets are drained into memory
first, tokens and views are handled before repairs and these before data, and only then new data is pulled, as far
as the kernel takes it. A quantum bounds what is drained at once, so that timers fire on time.

While small messages go back and forth the loop is kept turning instead of sleeping (`polling`): everything else on it
is served as before.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from socket import socket
from time import monotonic_ns
from weakref import WeakKeyDictionary

from vivum.core.ids import Endpoint
from vivum.core.machine import (
    EMPTY_OUTPUT,
    ChannelClosed,
    ChannelOpened,
    Command,
    Datagram,
    Delivery,
    Event,
    Machine,
    Output,
)
from vivum.runtime.polling import SMALL_BYTES, Polling
from vivum.runtime.udp import UdpPort
from vivum.wire.kinds import priority_of

DRAIN_BYTES_MAX = 1 << 19
"""Bytes taken from one socket before anything is handled: with the messages made of them they fit a processor's cache,
and the memory of the last ones is used again. 2 MB cost twice as much before arenas were kept (`heap`); since then 1
and 2 MB made no difference that could be seen."""

LOOK_NS = 30_000
"""So long a node that polls looks at its sockets in vain before the loop has a turn."""

BUSY_TURN_NS = 50_000
"""If a turn of the loop took longer, others have work there: then a node only looks once in each turn."""

UNTURNED_NS = 200_000
"""After so long the loop has a turn, however many answers go back and forth: others on it wait no longer than that."""

SETTLE_NS = 500_000
"""What answers leave to be done waits no longer than this while they go back and forth: output of other machines, and
timers, which are in milliseconds."""

SETTLE_S = 0.001
"""The same where a node sleeps between one message and the next: less is nothing to the timers of a loop."""

_POLLERS: WeakKeyDictionary[asyncio.AbstractEventLoop, set[int]] = WeakKeyDictionary()
"""The nodes that poll on each loop: where there are several, none keeps the others waiting."""

ROOM_BYTES = 1_000_000
"""New data that may wait for the kernel in memory of ours: none, while the kernel takes none. Sixteen of the largest
frames, two notes of shared memory: a mebibyte is one more, which would have a note and a turn of every receiver."""


class Driver:
    """Runs one node on the current event loop."""

    def __init__(
        self,
        node: Machine,
        port: UdpPort,
        on_delivery: Callable[[Delivery], None],
        on_event: Callable[[Event], None] | None = None,
        on_settled: Callable[[], None] | None = None,
        poll_ns: int = 0,
    ) -> None:
        """Prepare. `on_settled` is called after all that one input caused was carried out.

        The driver polls for at most `poll_ns` before it lets the loop sleep, where that pays.
        """
        self._node = node
        self._hear_now, self._seal_now = node.hear_now, node.seal_now
        self._port = port
        self._on_delivery = on_delivery
        self._on_event = on_event
        self._on_settled = on_settled
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns: int | None = None
        self._unsent: deque[Datagram] = deque()
        self._readers: set[socket] = set()
        self._writing = False
        self._pumping = False
        self._pump_scheduled = False
        # Wall-clock time that never goes back: protocols compare it, people read it.
        self._epoch_ns = time.time_ns() - time.monotonic_ns()
        self._closed = False
        self._polling = Polling(poll_ns)
        self._is_turning = False
        self._pollers = _POLLERS.setdefault(self._loop, set())
        self._sent_bytes = 0
        # Commands were taken, or messages went out at once, since output was pulled.
        self._has_input = False
        self._has_spoken = False
        # The loop has a turn only for the sake of others: what comes is answered at once by who looks.
        self._answers = False
        # When the loop was last left to others by who polls.
        self._left_ns = 0
        # Something was answered, and all else that it caused is put off until this time.
        self._settle_at_ns: int | None = None
        self._settler: asyncio.TimerHandle | None = None

    @property
    def now_ns(self) -> int:
        """The time that the node sees."""
        return self._epoch_ns + monotonic_ns()

    @property
    def is_pumping(self) -> bool:
        """Tell whether output is being carried out: a callback that asks is part of it."""
        return self._pumping

    def start(self) -> None:
        """Begin to listen, and let the node say what it has to say."""
        self._watch_sockets()
        if self._port.boards is not None and self._port.boards.socket is not None:
            self._loop.add_reader(self._port.boards.socket, self._on_boards)
        self.pump()

    def submit(self, command: Command) -> None:
        """Hand a command to the node, and carry out what it causes soon. Raises what the node raises.

        Not at once: what the application does in the same turn of the loop goes into the same frames.
        """
        self._node.submit(self.now_ns, command)
        self._has_input = True
        self.pump_soon()

    def send(self, command: Command) -> None:
        """Hand messages to the node, as `submit`; the first of a turn go out at once if nothing is in their way.

        So an answer is on its way before anything else is done. What is sent after it goes into the same frames.
        """
        if self._has_input:
            # As `submit`: where thousands are sent in a turn, this is the way of all but the first.
            self._node.submit(self._epoch_ns + monotonic_ns(), command)
            if not self._pump_scheduled:
                self.pump_soon()
            return
        if self._has_spoken or self._unsent or self._closed:
            self.submit(command)
            return
        now_ns = self._epoch_ns + monotonic_ns()
        datagrams = self._seal_now(now_ns, command)
        if datagrams is None:
            datagrams = self._node.send_now(now_ns, command)
        if not datagrams:
            self._has_input = True
            self.pump_soon()
            return
        self._has_spoken = True
        self._send(datagrams)
        if self._pumping:
            return
        if self._is_turning or self._polling.expects_one:
            self._loop.call_soon(self._after_sending)
        else:
            self.pump_soon()

    def pump_soon(self) -> None:
        """Let `pump` run once in the next turn of the loop, however often this is called."""
        if not (self._pump_scheduled or self._pumping or self._closed):
            self._pump_scheduled = True
            self._loop.call_soon(self.pump)

    def close(self) -> None:
        """Stop driving and close the sockets. May be called again."""
        if self._closed:
            return
        self._closed = True
        self._pollers.discard(id(self))
        for timer in (self._timer, self._settler):
            if timer is not None:
                timer.cancel()
        for each in self._readers:
            self._loop.remove_reader(each)
        if self._writing:
            self._loop.remove_writer(self._port.sockets[0])
        if self._port.boards is not None and self._port.boards.socket is not None:
            self._loop.remove_reader(self._port.boards.socket)
        self._port.close()

    def _watch_sockets(self) -> None:
        for each in self._port.sockets:
            if each not in self._readers:
                self._readers.add(each)
                self._loop.add_reader(each, partial(self._on_readable, each))

    def _on_readable(self, readable: socket) -> None:
        if self._answers and self._is_turning:
            # The look that comes in this turn of the loop takes it, for less.
            return
        # Where what comes is likely to be alone, to look for more would cost as much as to take it. What came besides
        # is taken in the next turn.
        arrived = self._port.receive(readable, 1) if self._polling.expects_one else self._drain()
        if len(arrived) == 1 and len(arrived[0][1]) <= SMALL_BYTES:
            self._hear(arrived)
            if self._settle_at_ns is not None and not self._is_turning:
                self._settle_later()
            return
        now_ns = self.now_ns
        if arrived:
            self._node.on_datagrams(now_ns, arrived)
        self._pump()
        if arrived:
            self._polling.on_arrival(now_ns, sum(len(data) for _, data in arrived))
            self._wait()

    def _on_boards(self) -> None:
        arrived = self._port.receive_from_boards()
        if arrived:
            self._node.on_datagrams(self.now_ns, arrived)
            self._pump()

    def _hear(self, arrived: list[tuple[Endpoint, bytes]]) -> None:
        """Take one datagram, hand its messages over, and put all else off; if there is no message in it, do all."""
        node, now_ns = self._node, self._epoch_ns + monotonic_ns()
        source, data = arrived[0]
        self._has_spoken = False
        heard = self._hear_now(now_ns, source, data)
        if heard is not None:
            deliveries = [heard]
        else:
            node.on_datagrams(now_ns, arrived)
            deliveries = node.take_deliveries()
        if not deliveries:
            self._pump()
        else:
            self._hand_over(deliveries)
            if self._settle_at_ns is None:
                self._settle_at_ns = now_ns + SETTLE_NS
            if self._has_input:
                self._pump()
            elif self._has_spoken or heard is not None:
                self._deliver()
        self._polling.on_arrival(now_ns, len(data))
        self._wait()

    def _settle_later(self) -> None:
        """What was put off may wait for a while if the next datagram is near; else it comes behind who was woken."""
        if not self._polling.expects_one:
            self.pump_soon()
        elif self._settler is None:
            self._settler = self._loop.call_later(SETTLE_S, self._on_settler)

    def _on_settler(self) -> None:
        self._settler = None
        self._settle()

    def _after_sending(self) -> None:
        """The turn is over in which a task sent something at once."""
        if self._closed:
            return
        self._has_spoken = False
        self._deliver()
        if self._settle_at_ns is None and not self._is_turning:
            self._settle_at_ns = self.now_ns + SETTLE_NS
            self._settle_later()
        if self._sent_bytes:
            self._wait()

    def _deliver(self) -> None:
        """Hand over what went out at once, to those here who want to have it; then all that they may have said."""
        if self._pumping or self._closed:
            return
        self._hand_over(self._node.take_deliveries())
        if self._has_input:
            self._pump()

    def _hand_over(self, deliveries: list[Delivery]) -> None:
        self._pumping = True
        try:
            for delivery in deliveries:
                self._on_delivery(delivery)
        finally:
            self._pumping = False

    def _drain(self) -> list[tuple[Endpoint, bytes]]:
        """Take all from every socket, not only from the one that woke us: a token may wait in another."""
        drained: tuple[list[tuple[Endpoint, bytes]], ...] = ([], [], [])
        for each in list(self._readers):
            for source, data in self._port.receive(each, DRAIN_BYTES_MAX):
                drained[priority_of(data)].append((source, data))
        control, repairs, fresh = drained
        return control + repairs + fresh if control or repairs else fresh

    def _wait(self) -> None:
        """Everything was carried out: poll for what comes next, if that pays, or let the loop sleep."""
        size, self._sent_bytes = self._sent_bytes, 0
        self._polling.begin(self.now_ns, size)
        if self._polling.is_on and not self._is_turning:
            self._is_turning = True
            self._pollers.add(id(self))
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        # The loop looks at the sockets without waiting, since this is to be called again, and serves all else on it.
        if self._sent_bytes:
            self._wait()
        now_ns = self.now_ns
        goes_on = not self._closed and self._polling.go_on(now_ns)
        if self._has_spoken and self._settle_at_ns is None:
            self._settle_at_ns = now_ns + SETTLE_NS
        if not goes_on:
            self._is_turning = False
            self._pollers.discard(id(self))
        try:
            if not goes_on or not self._look(now_ns):
                self._settle()
        finally:
            self._left_ns = self.now_ns
            if goes_on:
                # Behind all who were just woken: they have their turn first.
                self._loop.call_soon(self._turn)

    def _look(self, now_ns: int) -> bool:
        """Look for what comes and answer it, until nothing comes or the loop must have a turn; tell which."""
        self._has_spoken = False
        until_ns = now_ns + UNTURNED_NS
        is_alone = now_ns - self._left_ns < BUSY_TURN_NS and len(self._pollers) == 1
        look_ns = LOOK_NS if is_alone else 0
        while arrived := self._port.look(look_ns):
            self._hear(arrived)
            if not self._has_spoken:
                # Whoever was woken may want to answer.
                break
            if self.now_ns >= until_ns:
                break
        self._answers = bool(arrived) and self._has_spoken and self._port.looks_at_all
        return bool(arrived) and (self._settle_at_ns is None or self.now_ns < self._settle_at_ns)

    def _settle(self) -> None:
        if self._settle_at_ns is not None and not self._closed:
            self._pump()

    def pump(self) -> None:
        """Pull and carry out all that the node wants done, then set the timer."""
        self._pump()
        if self._sent_bytes:
            self._wait()

    def _pump(self) -> None:
        self._pump_scheduled = False
        if self._pumping or self._closed:
            # A callback of the application submitted something: the loop below will see it.
            self._has_input = True
            return
        self._pumping = True
        self._settle_at_ns = None
        try:
            node = self._node
            while True:
                self._has_input = self._has_spoken = False
                output = node.take_output(0 if self._unsent else ROOM_BYTES)
                if output is EMPTY_OUTPUT:
                    break
                self._carry_out(output)
                if self._is_closed():
                    return
                if not (self._has_input or self._has_spoken or output.events or (node.has_data and not self._unsent)):
                    # Nobody has said anything since, and whoever is told of an event may do so in other ways.
                    break
        finally:
            self._pumping = False
        self._set_timer()
        if self._on_settled is not None:
            self._on_settled()

    def _is_closed(self) -> bool:
        # As a method, since a callback may have closed us since the last look.
        return self._closed

    def _carry_out(self, output: Output) -> None:
        for event in output.events:
            if type(event) is ChannelOpened:
                self._port.listen(event.channel)
                self._watch_sockets()
            elif type(event) is ChannelClosed:
                self._port.unlisten(event.channel)
            if self._on_event is not None:
                self._on_event(event)
        if output.datagrams:
            self._send(output.datagrams)
        for delivery in output.deliveries:
            self._on_delivery(delivery)

    def _send(self, datagrams: list[Datagram]) -> None:
        if len(datagrams) == 1 and not self._unsent:
            taken = int(self._port.send_one(datagrams[0]))
            self._sent_bytes += len(datagrams[0].data)
            if taken:
                return
        else:
            for each in datagrams:
                self._sent_bytes += len(each.data)
            if self._unsent:
                self._unsent.extend(datagrams)
                return
            taken = self._port.send(datagrams)
        if taken < len(datagrams):
            self._unsent.extend(datagrams[taken:])
            self._writing = True
            self._loop.add_writer(self._port.sockets[0], self._on_writable)

    def _on_writable(self) -> None:
        waiting = list(self._unsent)
        taken = self._port.send(waiting)
        for _ in range(taken):
            self._unsent.popleft()
        if not self._unsent:
            self._writing = False
            self._loop.remove_writer(self._port.sockets[0])
            self.pump()

    def _set_timer(self) -> None:
        deadline_ns = self._node.next_deadline_ns()
        armed_ns = self._timer_ns
        if deadline_ns == armed_ns or (armed_ns is not None and deadline_ns is not None and armed_ns < deadline_ns):
            # Deadlines are put off with every message: a timer that comes too early is set again then, once.
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_ns = deadline_ns
        if deadline_ns is not None:
            delay_s = max(0, deadline_ns - self.now_ns) / 1e9
            self._timer = self._loop.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = self._timer_ns = None
        deadline_ns = self._node.next_deadline_ns()
        if deadline_ns is None or self.now_ns < deadline_ns:
            self._set_timer()
            return
        self._node.on_timer(self.now_ns)
        self.pump()
