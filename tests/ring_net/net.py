"""Rings joined by a link with virtual time: what is passed on reaches the next one after a delay, or is lost."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Generic, Protocol, TypeVar

from vivum.core.ids import NodeId
from vivum.core.time import MICROSECOND, MILLISECOND, SECOND
from vivum.protocols.rings.ladder import RingLadder
from vivum.protocols.rings.placement import Placement, place
from vivum.protocols.rings.ring import RingTimes
from vivum.wire.rings import RingToken, TokenReceipt

TIMES = RingTimes(
    idle_ns=SECOND,
    leaders_busy_ns=60 * MILLISECOND,
    hop_timeout_ns=10 * MILLISECOND,
    hop_tries=2,
    watch_busy_ns=200 * MILLISECOND,
    watch_idle_ns=3 * SECOND,
)


class BareToken(RingToken, frozen=True, tag=200):
    """A token that carries nothing."""


EMPTY = BareToken(0, 0, 0, 0, 0, ())

T = TypeVar("T", bound=RingToken)


class Standing(Protocol[T]):
    """A host with its rings, and the rounds that came home to it."""

    ladder: RingLadder[T]
    completed: list[T]


S = TypeVar("S", bound=Standing[RingToken])


class Member:
    """One node and its rings; notes which rounds passed it, were told it, and came home."""

    def __init__(self, node: NodeId, placement: Placement, busy: bool) -> None:
        self.busy = busy
        self.passed: list[tuple[int, int, int]] = []
        self.absorbed: list[tuple[int, int, int]] = []
        self.completed: list[BareToken] = []
        self.ladder: RingLadder[BareToken] = RingLadder(placement, node, self, TIMES, 0)

    def begin(self, now_ns: int, level: int) -> BareToken:
        return EMPTY

    def pass_through(self, now_ns: int, token: BareToken) -> BareToken:
        self.passed.append((token.level, token.term, token.round))
        return token

    def absorb(self, now_ns: int, token: BareToken) -> None:
        self.absorbed.append((token.level, token.term, token.round))

    def complete(self, now_ns: int, token: BareToken) -> None:
        self.completed.append(token)

    def is_busy(self) -> bool:
        return self.busy

    def interval_ns(self) -> int:
        return 2 * MILLISECOND


class RingNet(Generic[S]):
    """Members 1 to `nodes`; `asleep` ones neither hear nor speak nor have timers."""

    def __init__(self, nodes: int, size: int, make: Callable[[NodeId, Placement], S]) -> None:
        self.placement = place([NodeId(number) for number in range(1, nodes + 1)], size)
        self.members = {n: make(NodeId(n), self.placement) for n in range(1, nodes + 1)}
        self.asleep: set[int] = set()
        self.sent: list[tuple[int, int, RingToken | TokenReceipt]] = []
        self.now_ns = 0
        self._agenda: list[tuple[int, int, int, int, RingToken | TokenReceipt]] = []
        self._order = 0

    def run_for(self, duration_ns: int) -> None:
        end_ns = self.now_ns + duration_ns
        # A test may have changed anybody; from here on a member changes only when something reaches it or is due.
        due_ns: dict[int, int] = {}
        touched = list(self.members)
        while True:
            for n in touched:
                self._collect(n)
                if n not in self.asleep:
                    due_ns[n] = self.members[n].ladder.next_deadline_ns()
            timer_ns = min(due_ns.values(), default=end_ns + 1)
            message_ns = self._agenda[0][0] if self._agenda else end_ns + 1
            at_ns = min(timer_ns, message_ns)
            if at_ns > end_ns:
                self.now_ns = end_ns
                return
            self.now_ns = max(self.now_ns, at_ns)
            if message_ns <= timer_ns:
                _, _, source, target, message = heappop(self._agenda)
                self._arrive(source, target, message)
                touched = [target]
            else:
                touched = [n for n, each_ns in due_ns.items() if each_ns <= self.now_ns]
                for n in touched:
                    self.members[n].ladder.on_timer(self.now_ns)

    def _arrive(self, source: int, target: int, message: RingToken | TokenReceipt) -> None:
        ring = None if target in self.asleep else self.members[target].ladder.find(message.level, message.ring)
        if ring is not None and isinstance(message, TokenReceipt):
            ring.on_receipt(self.now_ns, NodeId(source), message)
        elif ring is not None:
            ring.on_token(self.now_ns, NodeId(source), message)

    def _collect(self, n: int) -> None:
        for target, message in self.members[n].ladder.take_messages(self.now_ns):
            if n not in self.asleep:
                self.sent.append((n, target, message))
                self._order += 1
                heappush(self._agenda, (self.now_ns + 100 * MICROSECOND, self._order, n, target, message))

    def rounds(self, level: int = 0, number: int = 0) -> list[RingToken]:
        """All rounds of one ring that came home, in order of their numbers."""
        found = [t for m in self.members.values() for t in m.completed if (t.level, t.ring) == (level, number)]
        return sorted(found, key=lambda token: (token.term, token.round))

    def leaders(self, level: int = 0) -> set[int]:
        awake = [(n, member) for n, member in self.members.items() if n not in self.asleep]
        return {n for n, member in awake if member.ladder.rings[level].is_leader}


def bare_net(nodes: int, size: int = 25, *, busy: bool = True) -> RingNet[Member]:
    """Make a net whose tokens carry nothing."""
    return RingNet(nodes, size, lambda node, placement: Member(node, placement, busy))
