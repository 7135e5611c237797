"""The public helpers for tests of machines: a virtual clock, and two machines on a fake link."""

from collections.abc import Sequence

import pytest

from vivum.core.ids import Endpoint
from vivum.core.machine import Command, Datagram, Effect
from vivum.core.time import MICROSECOND, MILLISECOND
from vivum.testing import Pair, VirtualClock


class Ping(Command):
    """Asks a machine to send a ping."""


class Player:
    """A machine that answers what it hears after a millisecond, as often as it was told."""

    def __init__(self, other: Endpoint, answers: int) -> None:
        self.other = other
        self.answers = answers
        self.heard: list[tuple[int, bytes]] = []
        self.deadline_ns: int | None = None
        self.effects: list[Effect] = []
        self.has_data = False

    def on_datagrams(self, now_ns: int, arrived: Sequence[tuple[Endpoint, bytes]], waited_ns: int = 0) -> None:
        for source, data in arrived:
            assert source == self.other
            self.heard.append((now_ns, data))
            if self.answers:
                self.answers -= 1
                self.deadline_ns = now_ns + MILLISECOND

    def submit(self, now_ns: int, command: Command) -> None:
        self.effects.append(Datagram(self.other, b"ping"))

    def on_timer(self, now_ns: int) -> None:
        if self.deadline_ns is not None and now_ns >= self.deadline_ns:
            self.deadline_ns = None
            self.effects.append(Datagram(self.other, b"pong"))

    def next_deadline_ns(self) -> int | None:
        return self.deadline_ns

    def take_output(self, room_bytes: int = 0) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects

    def send_now(self, now_ns: int, command: Command) -> list[Datagram]:
        self.submit(now_ns, command)
        return []


def test_a_virtual_clock_moves_when_it_is_told_and_never_back() -> None:
    clock = VirtualClock(10)
    clock.advance(5)
    clock.advance_to(15)
    assert clock.now_ns == 15
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance_to(14)


def test_a_pair_carries_datagrams_after_its_delay_and_calls_timers_at_their_time() -> None:
    alice, bob = Player(Pair.b, 1), Player(Pair.a, 5)
    pair = Pair(alice, bob, delay_ns=100 * MICROSECOND)
    pair.submit(pair.a, Ping())
    pair.run_for(10 * MILLISECOND)
    assert pair.clock.now_ns == 10 * MILLISECOND
    assert bob.heard == [(100 * MICROSECOND, b"ping"), (2_300 * MICROSECOND, b"pong")]
    assert alice.heard == [(1_200 * MICROSECOND, b"pong"), (3_400 * MICROSECOND, b"pong")]


def test_a_pair_loses_what_it_is_told_to_lose_and_remembers_it() -> None:
    alice, bob = Player(Pair.b, 0), Player(Pair.a, 1)
    pair = Pair(alice, bob)
    pair.drop = lambda endpoint, datagram: endpoint == pair.b
    pair.submit(pair.a, Ping())
    pair.run_for(10 * MILLISECOND)
    assert len(bob.heard) == 1
    assert alice.heard == []
    assert [datagram.data for datagram in pair.dropped] == [b"pong"]


def test_what_is_due_after_the_end_of_a_run_waits_for_the_next() -> None:
    alice, bob = Player(Pair.b, 0), Player(Pair.a, 0)
    pair = Pair(alice, bob, delay_ns=MILLISECOND)
    pair.submit(pair.a, Ping())
    pair.run_for(MILLISECOND - 1)
    assert bob.heard == []
    pair.run_for(1)
    assert bob.heard == [(MILLISECOND, b"ping")]
