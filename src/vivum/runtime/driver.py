"""Lets an asyncio event loop drive a node over UDP: drain, classify, handle, pull, send, one timer.

The order of handling decides the behaviour under load (seed 004, sections 4 and 6): sockets are drained into memory
first, tokens and views are handled before repairs and these before data, and only then new data is pulled, as far
as the kernel takes it. A quantum bounds what is drained at once, so that timers fire on time.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from socket import socket

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
from vivum.runtime.udp import UdpPort
from vivum.wire.kinds import priority_of

DRAIN_BYTES_MAX = 1 << 19
"""Bytes taken from one socket before anything is handled: with the messages made of them they fit a processor's cache,
and the memory of the last ones is used again. With 2 MB messages of 100 bytes cost a receiver alone twice as much."""

ROOM_BYTES = 1 << 20
"""New data that may wait for the kernel in memory of ours: none, while the kernel takes none."""


class Driver:
    """Runs one node on the current event loop."""

    def __init__(
        self,
        node: Machine,
        port: UdpPort,
        on_delivery: Callable[[Delivery], None],
        on_event: Callable[[Event], None] | None = None,
        on_settled: Callable[[], None] | None = None,
    ) -> None:
        """Prepare. `on_settled` is called after all that one input caused was carried out."""
        self._node = node
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

    @property
    def now_ns(self) -> int:
        """The time that the node sees."""
        return self._epoch_ns + time.monotonic_ns()

    @property
    def is_pumping(self) -> bool:
        """Tell whether output is being carried out: a callback that asks is part of it."""
        return self._pumping

    def start(self) -> None:
        """Begin to listen, and let the node say what it has to say."""
        self._watch_sockets()
        self.pump()

    def submit(self, command: Command) -> None:
        """Hand a command to the node, and carry out what it causes soon. Raises what the node raises.

        Not at once: what the application does in the same turn of the loop goes into the same frames.
        """
        self._node.submit(self.now_ns, command)
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
        if self._timer is not None:
            self._timer.cancel()
        for each in self._readers:
            self._loop.remove_reader(each)
        if self._writing:
            self._loop.remove_writer(self._port.sockets[0])
        self._port.close()

    def _watch_sockets(self) -> None:
        for each in self._port.sockets:
            if each not in self._readers:
                self._readers.add(each)
                self._loop.add_reader(each, partial(self._on_readable, each))

    def _on_readable(self, _: socket) -> None:
        """Drain every socket, not only the one that woke us: a token may wait in another."""
        drained: tuple[list[tuple[Endpoint, bytes]], ...] = ([], [], [])
        for each in list(self._readers):
            for source, data in self._port.receive(each, DRAIN_BYTES_MAX):
                drained[priority_of(data)].append((source, data))
        node, now_ns = self._node, self.now_ns
        for batch in drained:
            if batch:
                node.on_datagrams(now_ns, batch)
        self.pump()

    def pump(self) -> None:
        """Pull and carry out all that the node wants done, then set the timer."""
        self._pump_scheduled = False
        if self._pumping or self._closed:
            # A callback of the application submitted something: the loop below will see it.
            return
        self._pumping = True
        try:
            while (output := self._node.take_output(0 if self._unsent else ROOM_BYTES)) is not EMPTY_OUTPUT:
                self._carry_out(output)
                if self._is_closed():
                    return
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
        if self._timer_ns is not None and (deadline_ns is None or deadline_ns >= self._timer_ns):
            # It may fire for nothing, and is then set anew: deadlines move with every frame, and to follow costs more.
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
        self._node.on_timer(self.now_ns)
        self.pump()
