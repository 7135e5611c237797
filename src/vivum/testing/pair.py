"""Two machines joined by a fake link, in virtual time.

The link delivers everything after a fixed delay, in order, unless `drop` says otherwise. What each machine wanted done
is kept for the test to look at: `effects` has all of it in order, `deliveries` and `events` a part each.

    pair = Pair(alice, bob)
    pair.submit(pair.a, SendMessages(...))
    pair.run_for(100 * MILLISECOND)
    assert pair.deliveries[pair.b] == [...]
"""

from collections import deque
from collections.abc import Callable

from vivum.core.ids import Endpoint
from vivum.core.machine import Command, Datagram, Delivery, Effect, Event, Machine
from vivum.core.time import MICROSECOND
from vivum.testing.clock import VirtualClock

Drop = Callable[[Endpoint, Datagram], bool]
"""Decides whether a datagram from an endpoint is lost."""


def _drop_nothing(_: Endpoint, __: Datagram) -> bool:
    return False


class Pair:
    """Two machines, `a` and `b` by their endpoints, and the link between them."""

    a = Endpoint("a", 1)
    b = Endpoint("b", 1)

    def __init__(
        self,
        machine_a: Machine,
        machine_b: Machine,
        *,
        clock: VirtualClock | None = None,
        delay_ns: int = 100 * MICROSECOND,
    ) -> None:
        self.machines: dict[Endpoint, Machine] = {self.a: machine_a, self.b: machine_b}
        self.deliveries: dict[Endpoint, list[Delivery]] = {self.a: [], self.b: []}
        self.events: dict[Endpoint, list[Event]] = {self.a: [], self.b: []}
        self.effects: dict[Endpoint, list[Effect]] = {self.a: [], self.b: []}
        self.dropped: list[Datagram] = []
        self.clock = clock or VirtualClock()
        self.drop: Drop = _drop_nothing
        self._delay_ns = delay_ns
        self._on_link: deque[tuple[int, Endpoint, Datagram]] = deque()

    def other(self, endpoint: Endpoint) -> Endpoint:
        """Name the other end."""
        return self.b if endpoint == self.a else self.a

    def submit(self, endpoint: Endpoint, command: Command) -> None:
        """Hand a command to one machine and take what it says."""
        self.machines[endpoint].submit(self.clock.now_ns, command)
        self._collect(endpoint)

    def payloads(self, endpoint: Endpoint) -> list[bytes]:
        """All payloads that a machine delivered, in order."""
        return [payload for delivery in self.deliveries[endpoint] for payload in delivery.payloads]

    def run_for(self, duration_ns: int) -> None:
        """Let both machines and the link do what is due within a time, and stand at its end."""
        end_ns = self.clock.now_ns + duration_ns
        while (next_ns := self._next_ns()) is not None and next_ns <= end_ns:
            self.clock.advance_to(max(next_ns, self.clock.now_ns))
            self._step()
        self.clock.advance_to(end_ns)

    def _next_ns(self) -> int | None:
        times = [machine.next_deadline_ns() for machine in self.machines.values()]
        times.append(self._on_link[0][0] if self._on_link else None)
        return min((at_ns for at_ns in times if at_ns is not None), default=None)

    def _step(self) -> None:
        now_ns = self.clock.now_ns
        while self._on_link and self._on_link[0][0] <= now_ns:
            _, source, datagram = self._on_link.popleft()
            target = self.other(source)
            self.machines[target].on_datagrams(now_ns, ((source, datagram.data),))
            self._collect(target)
        for endpoint, machine in self.machines.items():
            deadline_ns = machine.next_deadline_ns()
            if deadline_ns is not None and deadline_ns <= now_ns:
                machine.on_timer(now_ns)
                self._collect(endpoint)

    def _collect(self, endpoint: Endpoint) -> None:
        """Take output until there is none; put datagrams on the link."""
        machine = self.machines[endpoint]
        while output := machine.take_output():
            self.effects[endpoint] += output
            for effect in output:
                if isinstance(effect, Delivery):
                    self.deliveries[endpoint].append(effect)
                elif isinstance(effect, Event):
                    self.events[endpoint].append(effect)
                elif isinstance(effect, Datagram):
                    for each in effect.cut():
                        self._transmit(endpoint, each)

    def _transmit(self, endpoint: Endpoint, datagram: Datagram) -> None:
        if self.drop(endpoint, datagram):
            self.dropped.append(datagram)
        else:
            self._on_link.append((self.clock.now_ns + self._delay_ns, endpoint, datagram))
