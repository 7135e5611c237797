"""Rings joined by a link with virtual time: what is passed on reaches the next one after a delay, or is lost."""

from heapq import heappop, heappush

from vivum.core.ids import NodeId
from vivum.core.time import MICROSECOND, MILLISECOND
from vivum.protocols.qsm.recovery.placement import Placement, place
from vivum.protocols.qsm.recovery.ring import Ring, RingLadder
from vivum.protocols.qsm.settings import QsmSettings
from vivum.wire.tokens import NO_VOTE, Token, TokenReceipt

EMPTY = Token(0, 0, 0, 0, 0, (), NO_VOTE, (), ())


class Member(RingLadder):
    """One node and its rings; notes which rounds passed it, were told it, and came home."""

    def __init__(self, node: int, placement: Placement, settings: QsmSettings, busy: bool) -> None:
        self.node = NodeId(node)
        self.gone = set()
        self.busy = busy
        self.passed: list[tuple[int, int, int]] = []
        self.absorbed: list[tuple[int, int, int]] = []
        self.completed: list[Token] = []
        self.rings = [Ring(plan, self.node, self, settings, 0) for plan in placement.rings_of(self.node)]

    def begin(self, now_ns: int, level: int) -> Token:
        return EMPTY

    def pass_through(self, now_ns: int, token: Token) -> Token:
        self.passed.append((token.level, token.term, token.round))
        return token

    def absorb(self, now_ns: int, token: Token) -> None:
        self.absorbed.append((token.level, token.term, token.round))

    def complete(self, now_ns: int, token: Token) -> None:
        self.completed.append(token)

    def is_busy(self) -> bool:
        return self.busy

    def interval_ns(self) -> int:
        return 2 * MILLISECOND


class RingNet:
    """Members 1 to `nodes`; `asleep` ones neither hear nor speak nor have timers."""

    def __init__(self, nodes: int, size: int = 25, *, busy: bool = True) -> None:
        self.placement = place([NodeId(number) for number in range(1, nodes + 1)], size)
        self.settings = QsmSettings()
        self.members = {n: Member(n, self.placement, self.settings, busy) for n in range(1, nodes + 1)}
        self.asleep: set[int] = set()
        self.sent: list[tuple[int, int, Token | TokenReceipt]] = []
        self.now_ns = 0
        self._agenda: list[tuple[int, int, int, int, Token | TokenReceipt]] = []
        self._order = 0

    def run_for(self, duration_ns: int) -> None:
        end_ns = self.now_ns + duration_ns
        while True:
            self._collect()
            awake = [member for n, member in self.members.items() if n not in self.asleep]
            timers = [(ring.next_deadline_ns(), member.node, ring) for member in awake for ring in member.rings]
            timer_ns = min((each[0] for each in timers), default=end_ns + 1)
            message_ns = self._agenda[0][0] if self._agenda else end_ns + 1
            at_ns = min(timer_ns, message_ns)
            if at_ns > end_ns:
                self.now_ns = end_ns
                return
            self.now_ns = max(self.now_ns, at_ns)
            if message_ns <= timer_ns:
                _, _, source, target, message = heappop(self._agenda)
                self._arrive(source, target, message)
            else:
                for deadline_ns, _, ring in timers:
                    if deadline_ns <= self.now_ns:
                        ring.on_timer(self.now_ns)

    def _arrive(self, source: int, target: int, message: Token | TokenReceipt) -> None:
        if target in self.asleep:
            return
        for ring in self.members[target].rings:
            if (ring.plan.level, ring.plan.number) == (message.level, message.ring):
                if isinstance(message, Token):
                    ring.on_token(self.now_ns, NodeId(source), message)
                else:
                    ring.on_receipt(self.now_ns, NodeId(source), message)

    def _collect(self) -> None:
        for n, member in self.members.items():
            for ring in member.rings:
                for target, message in ring.take_messages(self.now_ns):
                    if n not in self.asleep:
                        self.sent.append((n, target, message))
                        self._order += 1
                        heappush(self._agenda, (self.now_ns + 100 * MICROSECOND, self._order, n, target, message))

    def rounds(self, level: int = 0, number: int = 0) -> list[Token]:
        """All rounds of one ring that came home, in order of their numbers."""
        found = [t for m in self.members.values() for t in m.completed if (t.level, t.ring) == (level, number)]
        return sorted(found, key=lambda token: (token.term, token.round))

    def leaders(self, level: int = 0) -> set[int]:
        return {n for n, member in self.members.items() if n not in self.asleep and member.rings[level].is_leader}
