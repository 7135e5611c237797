"""Simulated clients of a log: hosts of their own, each with a client machine, that issue what their plan says.

What they send and get crosses the simulated network, and may be lost there. A client outlives all replicas.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zlib import crc32

from vivum.core.ids import Endpoint, Incarnation, Member, NodeId
from vivum.core.machine import Command, Event
from vivum.core.randomness import RandomSource
from vivum.node.node import Node
from vivum.observe.counters import Counters
from vivum.observe.trace import CommandAnswered, CommandIssued, ReadAnswered, ReadIssued, Tracer
from vivum.protocols.consensus.client import (
    CommandDone,
    CommandLost,
    CommandNumbered,
    LogClient,
    QueryDone,
    RunCommand,
    RunQuery,
)
from vivum.protocols.consensus.client_settings import LogClientSettings
from vivum.sim.clock import DriftingClock
from vivum.sim.engine import Network, Scheduler
from vivum.sim.host import Host, HostProfile
from vivum.sim.loss import IndependentLoss
from vivum.sim.replicas.ledger import read_ledger
from vivum.wire.gate import Gate, domain_tag

CLIENT_NODES = 1000
"""Clients have the node numbers behind this."""


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
    """The share of datagrams that get lost on the way to it."""


class SimulatedClient:
    """One client: its host, its machine, and when it has its turn. Subclasses say what it does then."""

    def __init__(
        self,
        number: int,
        group: int,
        plan: ClientPlan,
        replicas: Sequence[Endpoint],
        settings: LogClientSettings,
        scheduler: Scheduler,
        network: Network,
        profile: HostProfile,
        clock: DriftingClock,
        rng: RandomSource,
        trace: Tracer,
    ) -> None:
        self.answered = 0
        self.lost = 0
        self.node = CLIENT_NODES + number
        self.counters = Counters()
        self._group = group
        self._plan = plan
        self._replicas = replicas
        self._settings = settings
        self._scheduler = scheduler
        self._rng = rng
        self._trace = trace
        self._wanted = plan.commands
        self._next_ticket = 0
        # Session and number of each command that is under way.
        self._numbers: dict[int, tuple[int, int]] = {}
        self.host = Host(
            NodeId(self.node),
            scheduler,
            network,
            profile,
            clock,
            rng.fork("link"),
            self._make_node,
            None,
            None,
        )
        self.host.on_event = self._on_event
        if plan.lost:
            self.host.port.loss.append(IndependentLoss(plan.lost))
            self.host.port.update()

    def _make_node(self, host: Host, incarnation: Incarnation) -> Node:
        member = Member(host.node_id, incarnation)
        gate = Gate(domain_tag("sim"), self.counters, member)
        self.machine = LogClient(
            NodeId(self.node),
            self._group,
            self._replicas,
            gate,
            self._rng.fork("machine"),
            self._settings,
            now_ns=host.local_now_ns,
        )
        return Node(member, gate, [self.machine], self.counters)

    @property
    def is_done(self) -> bool:
        """Whether all that it issued is answered, and nothing more is planned."""
        return not self._wanted and not self.machine.open_count

    @property
    def waits_for(self) -> str:
        """What it still waits for."""
        return f"{self.machine.open_count} requests, and {self._wanted} to issue"

    def start(self) -> None:
        """Begin."""
        self.host.start()
        self._scheduler.at(self._rng.randrange(self._plan.gap_ns), self._on_turn)

    def heal(self) -> None:
        """Lose nothing any more, and issue nothing new; what is issued is still to be answered."""
        self.host.port.heal()
        self._wanted = 0

    def _on_turn(self, _: object) -> None:
        if self._wanted:
            self._issue()
        self._scheduler.at(self._scheduler.now_ns + self._rng.randrange(self._plan.gap_ns) + 1, self._on_turn)

    def _ask(self, make: Callable[[int], Command]) -> int:
        """Submit a command under the next ticket; return it, or 0 if it was refused."""
        self._next_ticket += 1
        return self._next_ticket if self.host.submit(make(self._next_ticket)) else 0

    # Abstract, `_issue` and `_on_query_done`: each application of a log has its own commands and answers.

    def _issue(self) -> None:
        """Do what the plan says in one turn."""
        raise NotImplementedError

    def _on_command_done(self, ticket: int, answer: bytes) -> None:
        """Take the answer of a command."""

    def _on_command_lost(self, ticket: int) -> None:
        """Learn that nobody knows what became of a command."""

    def _on_query_done(self, ticket: int, position: int, answer: bytes) -> None:
        """Take the answer of a query."""
        raise NotImplementedError

    def _on_event(self, host: Host, event: Event) -> None:  # noqa: ARG002 - as hosts call it
        now_ns = self._scheduler.now_ns
        match event:
            case CommandNumbered(ticket, client, sequence):
                self._numbers[ticket] = (client, sequence)
                self._trace(CommandIssued(now_ns, self.node, 1, self._group, client, sequence))
            case CommandDone(ticket, answer):
                self.answered += 1
                number = self._numbers.pop(ticket)
                self._trace(CommandAnswered(now_ns, self.node, 1, self._group, *number, crc32(answer)))
                self._on_command_done(ticket, answer)
            case CommandLost(ticket):
                self.lost += 1
                del self._numbers[ticket]
                self._on_command_lost(ticket)
            case QueryDone(ticket, position, answer):
                self.answered += 1
                self._on_query_done(ticket, position, answer)


class LedgerClient(SimulatedClient):
    """Adds to a ledger, and reads it; what the checkers of a log judge."""

    _reads = 0
    _reading = 0

    def _issue(self) -> None:
        if self._rng.random() < self._plan.reads:
            if not self._reading:
                self._reading = self._ask(lambda ticket: RunQuery(ticket, b""))
                self._reads += 1
                self._trace(ReadIssued(self._scheduler.now_ns, self.node, 1, self._group, self.node, self._reads))
            return
        count = min(self._wanted, self._rng.randint(1, self._plan.burst_max))
        for _ in range(count):
            self._ask(self._command)
        self._wanted -= count

    def _command(self, ticket: int) -> RunCommand:
        filling = bytes(self._rng.randrange(self._plan.size + 1))
        return RunCommand(ticket, f"{self.node}/{ticket}".encode() + filling)

    def _on_query_done(self, ticket: int, position: int, answer: bytes) -> None:  # noqa: ARG002
        assert ticket == self._reading, "only one read is under way"
        self._reading = 0
        index, digest = read_ledger(answer)
        seen = crc32(digest) if index else 0
        now_ns = self._scheduler.now_ns
        self._trace(ReadAnswered(now_ns, self.node, 1, self._group, self.node, self._reads, index, seen))
