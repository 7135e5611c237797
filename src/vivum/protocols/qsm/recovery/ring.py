"""One token ring as seen by one node: who leads, when a round starts, how the token passes a sleeping member.

What a token says is the business of the region (`RingHost`); this part only moves it. A token is passed with a
receipt: who does not confirm it in time is passed over (`skipped`) and gets a courtesy copy in later rounds, so
that it can say that it is awake. The leader starts rounds, one at a time. If it falls silent, the one who cannot
pass the token to it, or the first member that misses the token for too long, leads on with a higher term.

Invariants: a node handles each (term, round) once; only the leader of the highest term that it knows starts rounds;
the round that a node knows of in a term never goes back, whatever comes late.
"""

from dataclasses import dataclass
from typing import Protocol

import msgspec

from vivum.core.ids import NodeId
from vivum.protocols.qsm.recovery.placement import RingPlan
from vivum.protocols.qsm.settings import QsmSettings
from vivum.wire.tokens import Token, TokenReceipt

REDIRECT = 0
"""The round in a receipt of one who does not lead its own ring: the token must go to the leader that it names."""


REDIRECTS_MAX = 3
"""How often a token follows the word of those who do not lead: two may each take the other for the leader."""


GONE_ROUNDS = 8
"""In every so many rounds also those get a copy who are gone: who left may be awake, and lead on without us."""


class RingHost(Protocol):
    """What a ring needs from its region."""

    gone: set[NodeId]

    def begin(self, now_ns: int, level: int) -> Token:
        """Make the token of a new round, with what this node has to say; the ring fills in term and round."""
        ...

    def pass_through(self, now_ns: int, token: Token) -> Token:
        """Take what a passing token says and add what this node has to say."""
        ...

    def absorb(self, now_ns: int, token: Token) -> None:
        """Take what a token says without adding to it."""
        ...

    def complete(self, now_ns: int, token: Token) -> None:
        """Take the result of a round that this node led."""
        ...

    def leads(self, level: int) -> bool:
        """Tell whether this node leads its ring on a level."""
        ...

    def leader_of(self, level: int) -> NodeId:
        """Tell who leads this node's ring on a level."""
        ...

    def is_absent(self, level: int, node: NodeId) -> bool:
        """Tell whether a node does not answer in this node's ring on a level, or was dropped."""
        ...

    def on_take_over(self, now_ns: int, level: int, old: NodeId) -> None:
        """This node leads its ring on a level in place of another node."""
        ...

    def is_busy(self) -> bool:
        """Tell whether something is unstable or missing, so that tokens are needed soon."""
        ...

    def interval_ns(self) -> int:
        """Tell how long to wait between two rounds while busy."""
        ...


@dataclass(slots=True)
class _Pass:
    """A token that was passed on and not yet confirmed."""

    token: Token
    slot: int
    node: NodeId
    tries: int
    deadline_ns: int
    redirects: int


class Ring:
    """This node's part in one ring."""

    def __init__(self, plan: RingPlan, me: NodeId, host: RingHost, settings: QsmSettings, now_ns: int) -> None:
        self.plan = plan
        self.term = 0
        self.round = 0
        self.leader = plan.slots[0][0]
        self.skipped: dict[NodeId, int] = {}
        self.round_trip_ns = 0
        self._me = me
        self._host = host
        self._settings = settings
        self._slot = next(index for index, slot in enumerate(plan.slots) if me in slot)
        self._held: Token | None = None
        self._passed: _Pass | None = None
        self._contacts: dict[int, NodeId] = {}
        self._messages: list[tuple[NodeId, Token | TokenReceipt]] = []
        self._seen_ns = now_ns
        self._doubts = False
        self._watch_at_ns = now_ns + settings.watch_busy_ns
        # Long enough for a few members that do not answer; each costs its tries.
        self._round_timeout_ns = settings.watch_busy_ns // 2 + len(plan.slots) * settings.hop_timeout_ns
        self._start_ns: int | None = now_ns if self.leader == me else None
        self._started_ns = now_ns
        self._under_way = False
        self._awake: set[NodeId] = set()

    @property
    def is_leader(self) -> bool:
        """This node starts the rounds. Above level 0, only while it leads the ring below."""
        return self.leader == self._me and (self.plan.level == 0 or self._host.leads(self.plan.level - 1))

    # What arrives.

    def on_token(self, now_ns: int, source: NodeId, token: Token) -> None:
        """Take a token: confirm it, and handle it if it is new or has come home."""
        if self.plan.level and not self._host.leads(self.plan.level - 1):
            leader = self._host.leader_of(self.plan.level - 1)
            self._confirm(source, REDIRECT, leader)
            if self._me in token.skipped and token.leader != source:
                self._confirm(token.leader, REDIRECT, leader)
            return
        self._confirm(source, token.round, self.leader)
        if token.term < self.term or (token.term == self.term and token.leader != self.leader):
            # Of a leader that was replaced, or of a second one in the same term: the receipt tells it who leads.
            return
        if self._me in token.skipped:
            # A copy that waited on its way may be of an old round, or of one that we ourselves lead: then it tells
            # nothing new, and to take it over would be to forget the round that is under way. One of this very round
            # tells that it goes on without us.
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

    def _comes_home(self, token: Token) -> bool:
        if token.leader == self._me:
            return self._under_way
        # The one before could not pass it to the leader, and we are next.
        return token.leader in token.skipped and self._held is None

    def _come_home(self, now_ns: int, token: Token) -> None:
        if token.leader != self._me:
            self.become_leader(now_ns, start=False)
            self.round = token.round
        self.skipped = {node: self.skipped.get(node, now_ns) for node in map(NodeId, token.skipped)}
        self._finish_round(now_ns, token)

    def _adopt(self, now_ns: int, token: Token) -> None:
        self.term, self.round, self.leader = token.term, token.round, NodeId(token.leader)
        self.skipped = {node: self.skipped.get(node, now_ns) for node in map(NodeId, token.skipped)}
        self._see(now_ns)
        self._start_ns = None
        self._under_way = False
        self._passed = None

    def on_receipt(self, now_ns: int, source: NodeId, receipt: TokenReceipt) -> None:
        """Take a confirmation; or learn that somebody else leads."""
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
            below = self.plan.level - 1
            if below >= 0 and self._host.is_absent(below, self.leader) and self._host.leads(below):
                # They have not noticed yet that their leader is gone; we have, in the ring below.
                self.become_leader(now_ns)
            return
        if self._passed is not None and self._passed.node == source and receipt.round == self._passed.token.round:
            self._contacts[self._passed.slot] = source
            self._passed = None
        elif self.is_leader and source in self.skipped:
            # Not in the round under way, which passed it over, but in the next.
            self._awake.add(source)

    def _redirect(self, now_ns: int, leader: NodeId) -> None:
        """Somebody in the slot told us whom to ask: the leader of its ring."""
        passed = self._passed
        assert passed is not None
        slot = self.plan.slots[passed.slot]
        is_there = leader in slot and leader != passed.node and leader not in passed.token.skipped
        if is_there and passed.redirects < REDIRECTS_MAX:
            self._send(now_ns, passed.token, passed.slot, leader, passed.redirects + 1)
        else:
            # That ring has no leader just now. It will be asked again.
            self._pass_over(now_ns, passed)

    # Time.

    def next_deadline_ns(self) -> int:
        """Tell when this ring has something to do: there is always a watch."""
        earliest = self._watch_at_ns
        if self._passed is not None and self._passed.deadline_ns < earliest:
            earliest = self._passed.deadline_ns
        if self._start_ns is not None and self._start_ns < earliest:
            earliest = self._start_ns
        if self._under_way and self._started_ns + self._round_timeout_ns < earliest:
            earliest = self._started_ns + self._round_timeout_ns
        return earliest

    def on_timer(self, now_ns: int) -> None:
        """Pass over who does not answer, start rounds, and watch the leader."""
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
        """Lead on if no token came for too long: soon if all that time something waited for it, else later."""
        if self.is_leader:
            # A leader that neither rests nor has a round under way lost its thread.
            if self._start_ns is None and not self._under_way:
                self._start_ns = now_ns
        elif self.plan.level and not self._host.leads(self.plan.level - 1):
            self._seen_ns = now_ns
        else:
            is_busy = self._host.is_busy()
            patience_ns = self._settings.watch_idle_ns + self._settings.watch_idle_ns * self._distance() // 4
            if (is_busy and self._doubts) or now_ns - self._seen_ns >= patience_ns:
                if self.leader != self._me:
                    self.skipped.setdefault(self.leader, now_ns)
                self.become_leader(now_ns)
            else:
                self._doubts = is_busy
        self._watch_at_ns = now_ns + self._settings.watch_busy_ns * (4 + self._distance()) // 4

    def _distance(self) -> int:
        """How many slots behind the leader this node stands; who is further behind waits longer."""
        leader_slot = next((index for index, slot in enumerate(self.plan.slots) if self.leader in slot), 0)
        return (self._slot - leader_slot) % len(self.plan.slots)

    def _see(self, now_ns: int) -> None:
        """The ring is alive."""
        self._seen_ns = now_ns
        self._doubts = False
        self._watch_at_ns = now_ns + self._settings.watch_busy_ns * (4 + self._slot) // 4

    def hurry(self, now_ns: int) -> None:
        """There is something to tell: a leader that rests until the next idle round starts one soon."""
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
            self._host.on_take_over(now_ns, self.plan.level, old)

    # Rounds.

    def _start_round(self, now_ns: int) -> None:
        for node in self._awake:
            self.skipped.pop(node, None)
        self._awake.clear()
        if self.plan.level:
            # Nobody sends courtesy copies here, so nobody says that it is awake: ask again after a while.
            retry_ns = now_ns - self._settings.token_idle_ns
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

    def _finish_round(self, now_ns: int, token: Token) -> None:
        self._under_way = False
        self._passed = None
        self.round_trip_ns = now_ns - self._started_ns
        self._see(now_ns)
        self._host.complete(now_ns, token)
        settings = self._settings
        if not self._host.is_busy():
            self._start_ns = self._started_ns + settings.token_idle_ns
        elif self.plan.level == 0:
            self._start_ns = max(now_ns, self._started_ns + self._host.interval_ns())
        else:
            # There is news only when the ring below has completed a round, which then hurries this one.
            self._start_ns = max(now_ns, self._started_ns + 2 * settings.token_busy_ns_max)

    def _pass_on(self, now_ns: int, token: Token, from_slot: int) -> None:
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
        # Nobody else is there.
        if token.leader == self._me:
            self._finish_round(now_ns, token)
        else:
            self.become_leader(now_ns, start=False)
            self._finish_round(now_ns, token)

    def _candidate(self, slot: int, token: Token) -> NodeId | None:
        """Pick whom to ask in a slot; send courtesy copies to those who are passed over."""
        skipped, gone = token.skipped, self._host.gone
        nodes = self.plan.slots[slot]
        contact = self._contacts.get(slot)
        if contact is not None and contact not in skipped:
            return contact
        for node in nodes:
            # Who left the region and still answers takes part: it may lead, and wants to hear of its own frames.
            if node not in skipped:
                return node
            if node not in gone or token.round % GONE_ROUNDS == 0:
                self._messages.append((node, token))
        return None

    def _send(self, now_ns: int, token: Token, slot: int, node: NodeId, redirects: int = 0) -> None:
        self._passed = _Pass(token, slot, node, 1, now_ns + self._settings.hop_timeout_ns, redirects)
        self._messages.append((node, token))

    def _try_again(self, now_ns: int) -> None:
        passed = self._passed
        assert passed is not None
        if passed.tries < self._settings.hop_tries and passed.node not in self._host.gone:
            passed.tries += 1
            passed.deadline_ns = now_ns + self._settings.hop_timeout_ns
            self._messages.append((passed.node, passed.token))
            return
        self._pass_over(now_ns, passed)

    def _pass_over(self, now_ns: int, passed: _Pass) -> None:
        """Go on without the one who was asked."""
        self._passed = None
        self._contacts.pop(passed.slot, None)
        self.skipped.setdefault(passed.node, now_ns)
        token = msgspec.structs.replace(passed.token, skipped=(*passed.token.skipped, passed.node))
        # The same slot again: above level 0 it has other candidates.
        self._pass_on(now_ns, token, (passed.slot - 1) % len(self.plan.slots))

    def _confirm(self, target: NodeId | int, round_: int, leader: NodeId) -> None:
        self._messages.append(
            (NodeId(target), TokenReceipt(self.plan.level, self.plan.number, self.term, round_, leader))
        )

    @property
    def has_messages(self) -> bool:
        """Tell whether a token is held or anything waits to be sent."""
        return self._held is not None or bool(self._messages)

    def take_messages(self, now_ns: int) -> list[tuple[NodeId, Token | TokenReceipt]]:
        """Pass on what is held, with the state of this moment, and hand over all that is to be sent."""
        if self._held is not None:
            held, self._held = self._held, None
            self._pass_on(now_ns, self._host.pass_through(now_ns, held), self._slot)
        messages, self._messages = self._messages, []
        return messages


class RingLadder:
    """The rings that one node is in, from its own partition up: who leads where."""

    rings: list[Ring]
    gone: set[NodeId]

    def leads(self, level: int) -> bool:
        """Tell whether this node leads its ring on a level."""
        return self.rings[level].is_leader

    def leader_of(self, level: int) -> NodeId:
        """Tell who leads this node's ring on a level."""
        return self.rings[level].leader

    def is_absent(self, level: int, node: NodeId) -> bool:
        """Tell whether a node does not answer in our ring on a level, or was dropped."""
        return node in self.gone or node in self.rings[level].skipped

    def on_take_over(self, now_ns: int, level: int, old: NodeId) -> None:
        """This node leads a ring in place of another: also the ring above, if the other led that."""
        if level + 1 < len(self.rings) and self.rings[level + 1].leader == old:
            self.rings[level + 1].become_leader(now_ns)
