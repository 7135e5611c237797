"""A simulated client of a log: opens a session, issues commands and reads, asks again until it is answered.

It speaks to one replica at a time, the one that it believes to lead. What it gets may be lost on the way, so it asks
again for what was done already. A client outlives all replicas.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from zlib import crc32

from vivum.core.ids import NodeId
from vivum.core.machine import Command
from vivum.core.time import MILLISECOND
from vivum.observe.trace import CommandAnswered, CommandIssued, ReadAnswered, ReadIssued, Tracer
from vivum.protocols.consensus.commands import (
    CommandsAnswered,
    OpenSession,
    Propose,
    ReadIndex,
    ReadsAllowed,
    SessionOpened,
)
from vivum.protocols.consensus.sessions import CommandStatus
from vivum.sim.engine import Scheduler
from vivum.sim.host import Host
from vivum.sim.replicas.ledger import Ledger

CLIENT_NODES = 1000
"""Clients have the node numbers behind this in traces."""

PATIENCE_NS = 150 * MILLISECOND
"""After this time without an answer a client asks the next replica; then after twice that, and so on."""

PATIENCE_NS_MAX = 1200 * MILLISECOND
"""Not longer. Without the doubling, a log that is slow gets every command again before it can answer."""

REQUESTS_EACH = 1 << 32
"""Requests of a client have numbers from its own range."""


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """What a client does."""

    commands: int
    gap_ns: int
    burst_max: int
    size: int
    reads: float
    """The share of reads."""

    lost: float
    """The share of answers that get lost."""


class SimulatedClient:
    """One client."""

    def __init__(
        self,
        number: int,
        group: int,
        plan: ClientPlan,
        hosts: Mapping[NodeId, Host],
        application_of: Callable[[NodeId], Ledger],
        scheduler: Scheduler,
        rng: Random,
        trace: Tracer | None,
    ) -> None:
        self.answered = 0
        self.reads_answered = 0
        self.expired = 0
        self._node = CLIENT_NODES + number
        self._group = group
        self._plan = plan
        self._hosts = hosts
        self._application_of = application_of
        self._scheduler = scheduler
        self._rng = rng
        self._trace = trace
        self._request = number * REQUESTS_EACH
        self._wanted = plan.commands
        self._target: NodeId = rng.choice(sorted(hosts))
        self._session = 0
        self._opening = 0
        # Commands of the session that are not answered: by number.
        self._open: dict[int, bytes] = {}
        self._next_sequence = 0
        self._reads: dict[int, int] = {}
        self._read_request = 0
        self._next_read = 0
        self._moved_ns = 0
        self._patience_ns = PATIENCE_NS

    @property
    def is_done(self) -> bool:
        """Whether all that it issued is answered, and nothing more is planned."""
        return not self._wanted and not self._open and not self._reads

    @property
    def waits_for(self) -> str:
        """What it still waits for."""
        return f"{len(self._open)} commands and {len(self._reads)} reads, and {self._wanted} to issue"

    def start(self) -> None:
        """Begin."""
        self._scheduler.at(self._rng.randrange(self._plan.gap_ns), self._on_turn)

    def stop_issuing(self) -> None:
        """Issue nothing new; what is issued is still to be answered."""
        self._wanted = 0

    def _on_turn(self, _: object) -> None:
        now_ns = self._scheduler.now_ns
        if now_ns - self._moved_ns >= self._patience_ns:
            self._patience_ns = min(2 * self._patience_ns, PATIENCE_NS_MAX)
            self._ask_another()
        if self._wanted:
            self._issue()
        self._scheduler.at(now_ns + self._rng.randrange(self._plan.gap_ns) + 1, self._on_turn)

    def _issue(self) -> None:
        if self._rng.random() < self._plan.reads:
            if not self._reads:
                self._reads[self._next_read] = 0
                self._record(ReadIssued, self._next_read)
                self._next_read += 1
                self._ask_read()
            return
        if not self._session:
            if not self._opening:
                self._ask_session()
            return
        count = min(self._wanted, self._rng.randint(1, self._plan.burst_max))
        first = self._next_sequence
        for _ in range(count):
            number = self._next_sequence
            self._next_sequence += 1
            filling = bytes(self._rng.randrange(self._plan.size + 1))
            self._open[number] = f"{self._session}/{number}".encode() + filling
            self._record(CommandIssued, number)
        self._wanted -= count
        self._propose(first)

    def _record(self, kind: type[CommandIssued | ReadIssued], sequence: int) -> None:
        if self._trace is not None:
            who = self._session if kind is CommandIssued else self._node
            self._trace(kind(self._scheduler.now_ns, self._node, 1, self._group, who, sequence))

    # Asking.

    def _ask_another(self) -> None:
        """Ask the next replica for all that is open."""
        self._moved_ns = self._scheduler.now_ns
        self._target = self._rng.choice(sorted(self._hosts))
        if self._opening or (not self._session and self._wanted):
            self._ask_session()
        if self._open:
            self._propose(min(self._open))
        if self._reads:
            self._ask_read()

    def _ask_session(self) -> None:
        self._request += 1
        self._opening = self._request
        self._ask(OpenSession(self._opening))

    def _propose(self, first: int) -> None:
        heard = min(self._open, default=self._next_sequence)
        commands = [self._open.get(number, b"") for number in range(first, self._next_sequence)]
        self._ask(Propose(self._session, first, commands, heard))

    def _ask_read(self) -> None:
        self._request += 1
        self._read_request = self._request
        self._ask(ReadIndex(self._read_request))

    def _ask(self, command: Command) -> None:
        if not self._hosts[self._target].submit(command):
            # It does not lead, or takes nothing now: ask another one in the next turn.
            self._patience_ns = PATIENCE_NS
            self._moved_ns = -PATIENCE_NS

    # Answers.

    def on_opened(self, event: SessionOpened) -> None:
        """Use the session that was asked for last."""
        if event.request == self._opening and not self._loses():
            self._session, self._opening = event.client, 0
            self._next_sequence = 0

    def on_answered(self, event: CommandsAnswered) -> None:
        """Take answers; those that came before are not looked at."""
        if event.client != self._session or self._loses():
            return
        statuses = event.statuses or [CommandStatus.DONE] * len(event.answers)
        for number, (answer, status) in enumerate(zip(event.answers, statuses, strict=True), event.sequence):
            if number not in self._open or status is CommandStatus.SEQUENCE_GAP:
                continue
            if status is CommandStatus.SESSION_EXPIRED:
                self._end_session()
                return
            self._note_answer()
            del self._open[number]
            self.answered += 1
            if status is CommandStatus.DONE and self._trace is not None:
                self._trace(
                    CommandAnswered(
                        self._scheduler.now_ns, self._node, 1, self._group, self._session, number, crc32(answer)
                    )
                )

    def _end_session(self) -> None:
        """Give up what is open: nobody knows what became of it."""
        self.expired += 1
        self._open.clear()
        self._session = 0

    def on_allowed(self, node: NodeId, event: ReadsAllowed) -> None:
        """Read at the replica that allows it."""
        if self._read_request not in event.requests or not self._reads or self._loses():
            return
        (number,) = self._reads
        self._reads.clear()
        self._note_answer()
        self.reads_answered += 1
        ledger = self._application_of(node)
        if self._trace is not None:
            digest = crc32(ledger.digest) if ledger.last_index else 0
            self._trace(
                ReadAnswered(
                    self._scheduler.now_ns, self._node, 1, self._group, self._node, number, ledger.last_index, digest
                )
            )

    def _note_answer(self) -> None:
        self._moved_ns = self._scheduler.now_ns
        self._patience_ns = PATIENCE_NS

    def _loses(self) -> bool:
        return self._rng.random() < self._plan.lost
