"""One token ring as seen by one node: who leads, when a round starts, how the token passes a sleeping member.

Design note: `docs/design/rings.md`. This part moves tokens and reads nothing but their envelope (`RingToken`); the
`RingHost` decides what they carry, and when news is urgent. Receivers confirm a token with a receipt: a node that does
not confirm it in time is passed over (`skipped`) and gets a courtesy copy in later rounds, so that it can answer when
it is awake. The leader starts rounds, one at a time. If it falls silent, the node that cannot pass the token to it, or
the first member that misses the token for too long, takes over with a higher term.

Invariants: a node handles each (term, round) once; only the leader of the highest term that it knows starts rounds;
the round that a node knows of in a term never goes back, whatever comes late.
"""

from collections.abc import Set
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

from vivum.core.ids import NodeId
from vivum.protocols.rings.placement import RingPlan
from vivum.wire.rings import RingToken, TokenReceipt

T = TypeVar("T", bound=RingToken)

REDIRECT = 0
"""The round in a receipt from a node that does not lead the ring below: the token must go to the leader it names."""


REDIRECTS_MAX = 3
"""How often a token follows such receipts: two nodes may each take the other for the leader."""


GONE_ROUNDS = 8
"""Every this many rounds, also copy departed members: they may be awake, and lead the other half of a split ring."""


@dataclass(frozen=True, slots=True)
class RingTimes:
    """The intervals and timeouts of a ring. Hosts take these from their settings."""

    idle_ns: int
    """Time between the beginnings of two rounds while nothing is urgent."""

    leaders_busy_ns: int
    """The same above level 0 while something is urgent, unless the ring below has news earlier."""

    hop_timeout_ns: int
    """Time without a receipt after which a token is sent again."""

    hop_tries: int
    """Unconfirmed attempts after which a node is passed over."""

    watch_busy_ns: int
    """Time without a token, while something is urgent, after which a member takes over as leader."""

    watch_idle_ns: int
    """The same while nothing is urgent."""


class RingHost(Protocol[T]):
    """What a ring needs from the protocol whose tokens it moves. Only the host reads and merges payloads."""

    def begin(self, now_ns: int, level: int) -> T:
        """Make the token of a new round, with this node's report; the ring fills in the envelope."""
        ...

    def pass_through(self, now_ns: int, token: T) -> T:
        """Read a passing token, and add this node's report."""
        ...

    def absorb(self, now_ns: int, token: T) -> None:
        """Read a token without adding to it: this node was passed over."""
        ...

    def complete(self, now_ns: int, token: T) -> None:
        """Take the result of a round that this node led."""
        ...

    def is_busy(self) -> bool:
        """Return whether tokens are needed soon."""
        ...

    def interval_ns(self) -> int:
        """Return how long to wait between two rounds on level 0 while busy."""
        ...


@dataclass(slots=True)
class _Pass(Generic[T]):
    """A token that was passed on and is not confirmed yet."""

    token: T
    slot: int
    node: NodeId
    tries: int
    deadline_ns: int
    redirects: int


class Ring(Generic[T]):
    """This node's part in one ring. On level 0 it represents itself; above, the ring below, while it leads that."""

    def __init__(
        self,
        plan: RingPlan,
        me: NodeId,
        host: RingHost[T],
        times: RingTimes,
        now_ns: int,
        gone: Set[NodeId] = frozenset(),
        below: "Ring[T] | None" = None,
    ) -> None:
        """Join a ring. `gone` has the members that were dropped; the caller may add to it."""
        self.plan = plan
        self.term = 0
        self.round = 0
        self.leader = plan.slots[0][0]
        self.skipped: dict[NodeId, int] = {}
        self.round_trip_ns = 0
        self._me = me
        self._host = host
        self._times = times
        self._gone = gone
        self._below = below
        self._above: Ring[T] | None = None
        if below is not None:
            below._above = self
        self._slot = next(index for index, slot in enumerate(plan.slots) if me in slot)
        self._held: T | None = None
        self._passed: _Pass[T] | None = None
        self._contacts: dict[int, NodeId] = {}
        self._messages: list[tuple[NodeId, T | TokenReceipt]] = []
        self._seen_ns = now_ns
        self._doubts = False
        self._watch_at_ns = now_ns + times.watch_busy_ns
        # Long enough for a few members that do not answer: each takes all its attempts.
        self._round_timeout_ns = times.watch_busy_ns // 2 + len(plan.slots) * times.hop_timeout_ns
        self._start_ns: int | None = now_ns if self.leader == me else None
        self._started_ns = now_ns
        self._under_way = False
        self._awake: set[NodeId] = set()

    @property
    def is_leader(self) -> bool:
        """Whether this node starts the rounds. Above level 0, only while it leads the ring below."""
        return self.leader == self._me and (self._below is None or self._below.is_leader)

    def is_absent(self, node: NodeId) -> bool:
        """Return whether a node does not answer in this ring, or was dropped."""
        return node in self._gone or node in self.skipped

    # What arrives.

    def on_token(self, now_ns: int, source: NodeId, token: T) -> None:
        """Take a token: confirm it, and handle it if it is new or has come home."""
        if self._below is not None and not self._below.is_leader:
            leader = self._below.leader
            self._confirm(source, REDIRECT, leader)
            if self._me in token.skipped and token.leader != source:
                self._confirm(token.leader, REDIRECT, leader)
            return
        self._confirm(source, token.round, self.leader)
        if token.term < self.term or (token.term == self.term and token.leader != self.leader):
            # From a leader that was replaced, or a second one in the same term: the receipt tells it who leads.
            return
        if self._me in token.skipped:
            # A delayed copy may be of an old round, or of one that we lead ourselves: it has nothing new, and adopting
            # it would forget the round under way. A copy of this very round means that it goes on without us.
            if token.leader != self._me and (token.term, token.round) >= (self.term, self.round):
                self._adopt(now_ns, token)
                self._host.absorb(now_ns, token)
            if token.leader != source:
                self._confirm(token.leader, token.round, self.leader)
            return
        if token.term == self.term and token.round <= self.round:
            if token.round == self.round and self._comes_home(token):
                self._come_home(now_ns, token)
            return
        self._adopt(now_ns, token)
        self._held = token

    def _comes_home(self, token: T) -> bool:
        if token.leader == self._me:
            return self._under_way
        # The node before us could not pass it to the leader, and we are next.
        return token.leader in token.skipped and self._held is None

    def _come_home(self, now_ns: int, token: T) -> None:
        if token.leader != self._me:
            self.become_leader(now_ns, start=False)
            self.round = token.round
        self.skipped = {node: self.skipped.get(node, now_ns) for node in map(NodeId, token.skipped)}
        self._finish_round(now_ns, token)

    def _adopt(self, now_ns: int, token: T) -> None:
        self.term, self.round, self.leader = token.term, token.round, NodeId(token.leader)
        self.skipped = {node: self.skipped.get(node, now_ns) for node in map(NodeId, token.skipped)}
        self._see(now_ns)
        self._start_ns = None
        self._under_way = False
        self._passed = None

    def on_receipt(self, now_ns: int, source: NodeId, receipt: TokenReceipt) -> None:
        """Take a confirmation, or learn that another node leads."""
        if receipt.round == REDIRECT and self.plan.level:
            if self._passed is not None and self._passed.node == source:
                self._redirect(now_ns, NodeId(receipt.leader))
            elif self.is_leader and source in self.skipped:
                self._awake.add(source)
            return
        is_rival = receipt.term == self.term and self.leader == self._me and receipt.leader != self._me
        if receipt.term > self.term or is_rival:
            self.term, self.round, self.leader = receipt.term, 0, NodeId(receipt.leader)
            self._start_ns = None
            self._under_way = False
            self._passed = None
            self._see(now_ns)
            below = self._below
            if below is not None and below.is_absent(self.leader) and below.is_leader:
                # They have not noticed yet that their leader is gone. We have, in the ring below.
                self.become_leader(now_ns)
            return
        if self._passed is not None and self._passed.node == source and receipt.round == self._passed.token.round:
            self._contacts[self._passed.slot] = source
            self._passed = None
        elif self.is_leader and source in self.skipped:
            # From the next round on: the one under way has passed it over.
            self._awake.add(source)

    def _redirect(self, now_ns: int, leader: NodeId) -> None:
        """Pass the token to the leader of the ring below, which a node of that slot named."""
        passed = self._passed
        assert passed is not None
        slot = self.plan.slots[passed.slot]
        is_there = leader in slot and leader != passed.node and leader not in passed.token.skipped
        if is_there and passed.redirects < REDIRECTS_MAX:
            self._send(now_ns, passed.token, passed.slot, leader, passed.redirects + 1)
        else:
            # That ring has no leader at the moment. It will be asked again.
            self._pass_over(now_ns, passed)

    # Time.

    def next_deadline_ns(self) -> int:
        """Return when this ring has something to do: it always watches its leader."""
        earliest = self._watch_at_ns
        if self._passed is not None and self._passed.deadline_ns < earliest:
            earliest = self._passed.deadline_ns
        if self._start_ns is not None and self._start_ns < earliest:
            earliest = self._start_ns
        if self._under_way and self._started_ns + self._round_timeout_ns < earliest:
            earliest = self._started_ns + self._round_timeout_ns
        return earliest

    def on_timer(self, now_ns: int) -> None:
        """Pass over a node that does not answer, start rounds, and watch the leader."""
        if self._passed is not None and now_ns >= self._passed.deadline_ns:
            self._try_again(now_ns)
        is_due = self._start_ns is not None and now_ns >= self._start_ns
        is_lost = self._under_way and now_ns >= self._started_ns + self._round_timeout_ns
        if is_due or is_lost:
            self._start_ns = None
            self._under_way = False
            if self.is_leader:
                self._start_round(now_ns)
        if now_ns >= self._watch_at_ns:
            self._watch(now_ns)

    def _watch(self, now_ns: int) -> None:
        """Take over if no token came for too long: early if something waited for it all that time, else later."""
        if self.is_leader:
            # A leader that neither rests nor has a round under way must start one.
            if self._start_ns is None and not self._under_way:
                self._start_ns = now_ns
        elif self._below is not None and not self._below.is_leader:
            self._seen_ns = now_ns
        else:
            is_busy = self._host.is_busy()
            patience_ns = self._times.watch_idle_ns + self._times.watch_idle_ns * self._distance() // 4
            if (is_busy and self._doubts) or now_ns - self._seen_ns >= patience_ns:
                if self.leader != self._me:
                    self.skipped.setdefault(self.leader, now_ns)
                self.become_leader(now_ns)
            else:
                self._doubts = is_busy
        self._watch_at_ns = now_ns + self._times.watch_busy_ns * (4 + self._distance()) // 4

    def _distance(self) -> int:
        """Return how many slots behind the leader this node is: nodes further behind wait longer."""
        leader_slot = next((index for index, slot in enumerate(self.plan.slots) if self.leader in slot), 0)
        return (self._slot - leader_slot) % len(self.plan.slots)

    def _see(self, now_ns: int) -> None:
        """Note that the ring is alive."""
        self._seen_ns = now_ns
        self._doubts = False
        self._watch_at_ns = now_ns + self._times.watch_busy_ns * (4 + self._slot) // 4

    def hurry(self, now_ns: int) -> None:
        """Start a round soon because there is news, if this node leads and rests until the next idle round."""
        start_ns = self._start_ns
        if start_ns is not None and start_ns > now_ns and self.is_leader:
            soon_ns = self._started_ns + self._host.interval_ns()
            if soon_ns < start_ns:
                self._start_ns = max(now_ns, soon_ns)

    def become_leader(self, now_ns: int, *, start: bool = True) -> None:
        """Lead from now on, with a term that is higher than any known."""
        old, self.leader = self.leader, self._me
        self.term += 1
        self.round = 0
        self._passed = None
        self._held = None
        self._under_way = False
        self._see(now_ns)
        self._start_ns = now_ns if start else None
        self.skipped.pop(self._me, None)
        if old != self._me:
            above = self._above
            if above is not None and above.leader == old:
                # The old leader led the ring above too, on behalf of this one.
                above.become_leader(now_ns)

    # Rounds.

    def _start_round(self, now_ns: int) -> None:
        for node in self._awake:
            self.skipped.pop(node, None)
        self._awake.clear()
        if self.plan.level:
            # No courtesy copies are sent here, so no node can say that it is awake: ask again after a while.
            retry_ns = now_ns - self._times.idle_ns
            self.skipped = {node: since_ns for node, since_ns in self.skipped.items() if since_ns > retry_ns}
        self.round += 1
        self._started_ns = now_ns
        self._see(now_ns)
        self._start_ns = None
        self._under_way = True
        made = self._host.begin(now_ns, self.plan.level)
        token = msgspec.structs.replace(
            made,
            level=self.plan.level,
            ring=self.plan.number,
            term=self.term,
            round=self.round,
            leader=self._me,
            skipped=tuple(self.skipped),
        )
        self._pass_on(now_ns, token, self._slot)

    def _finish_round(self, now_ns: int, token: T) -> None:
        self._under_way = False
        self._passed = None
        self.round_trip_ns = now_ns - self._started_ns
        self._see(now_ns)
        self._host.complete(now_ns, token)
        if not self._host.is_busy():
            self._start_ns = self._started_ns + self._times.idle_ns
        elif self.plan.level == 0:
            self._start_ns = max(now_ns, self._started_ns + self._host.interval_ns())
        else:
            # News comes only when the ring below has completed a round, which then hurries this one.
            self._start_ns = max(now_ns, self._started_ns + self._times.leaders_busy_ns)

    def _pass_on(self, now_ns: int, token: T, from_slot: int) -> None:
        """Send a token to the next slot that answers; a full turn brings it home."""
        slots = self.plan.slots
        for step in range(1, len(slots) + 1):
            slot = (from_slot + step) % len(slots)
            if slot == self._slot:
                break
            node = self._candidate(slot, token)
            if node is not None:
                self._send(now_ns, token, slot, node)
                return
        # There is no other member.
        if token.leader == self._me:
            self._finish_round(now_ns, token)
        else:
            self.become_leader(now_ns, start=False)
            self._finish_round(now_ns, token)

    def _candidate(self, slot: int, token: T) -> NodeId | None:
        """Return the node to ask in a slot; send courtesy copies to nodes that are passed over."""
        skipped, gone = token.skipped, self._gone
        nodes = self.plan.slots[slot]
        contact = self._contacts.get(slot)
        if contact is not None and contact not in skipped:
            return contact
        for node in nodes:
            # A node that left the region and still answers takes part: it may lead, or wait for its own frames.
            if node not in skipped:
                return node
            if node not in gone or token.round % GONE_ROUNDS == 0:
                self._messages.append((node, token))
        return None

    def _send(self, now_ns: int, token: T, slot: int, node: NodeId, redirects: int = 0) -> None:
        self._passed = _Pass(token, slot, node, 1, now_ns + self._times.hop_timeout_ns, redirects)
        self._messages.append((node, token))

    def _try_again(self, now_ns: int) -> None:
        passed = self._passed
        assert passed is not None
        if passed.tries < self._times.hop_tries and passed.node not in self._gone:
            passed.tries += 1
            passed.deadline_ns = now_ns + self._times.hop_timeout_ns
            self._messages.append((passed.node, passed.token))
            return
        self._pass_over(now_ns, passed)

    def _pass_over(self, now_ns: int, passed: _Pass[T]) -> None:
        """Go on without the node that was asked."""
        self._passed = None
        self._contacts.pop(passed.slot, None)
        self.skipped.setdefault(passed.node, now_ns)
        token = msgspec.structs.replace(passed.token, skipped=(*passed.token.skipped, passed.node))
        # Try the same slot again: above level 0 it has other candidates.
        self._pass_on(now_ns, token, (passed.slot - 1) % len(self.plan.slots))

    def _confirm(self, target: NodeId | int, round_: int, leader: NodeId) -> None:
        self._messages.append(
            (NodeId(target), TokenReceipt(self.plan.level, self.plan.number, self.term, round_, leader))
        )

    @property
    def has_messages(self) -> bool:
        """Whether a token is held or anything waits to be sent."""
        return self._held is not None or bool(self._messages)

    def take_messages(self, now_ns: int) -> list[tuple[NodeId, T | TokenReceipt]]:
        """Pass on the held token, with the state of this moment, and return all that is to be sent."""
        if self._held is not None:
            held, self._held = self._held, None
            self._pass_on(now_ns, self._host.pass_through(now_ns, held), self._slot)
        messages, self._messages = self._messages, []
        return messages
