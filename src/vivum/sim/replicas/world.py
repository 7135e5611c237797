"""A world of replicas: hosts with disks, clients, an operator who changes the membership, and faults.

First anything may fail (safety); then everything heals, and all that clients issued must be answered (liveness). The
checkers read the records of both.
"""

from dataclasses import dataclass, field
from typing import Literal

from msgspec.structs import replace

from vivum.checkers.checker import Checker, Violation
from vivum.checkers.consensus.registry import LOG_CHECKERS
from vivum.checkers.registry import CheckerSet
from vivum.core.errors import UsageError
from vivum.core.ids import Endpoint, Incarnation, Member, NodeId
from vivum.core.machine import Command, Effect, Event, Persist
from vivum.core.randomness import RandomSource
from vivum.core.time import MILLISECOND, SECOND
from vivum.node.node import Node
from vivum.observe.counters import Counters
from vivum.observe.trace import HashTrace, Tracer
from vivum.protocols.consensus.client_settings import LogClientSettings, LogServerSettings
from vivum.protocols.consensus.commands import (
    AddLearner,
    PromoteLearner,
    Recorded,
    RemoveReplica,
    TransferLeadership,
)
from vivum.protocols.consensus.configuration import Replica, ReplicaConfiguration
from vivum.protocols.consensus.machine import ReplicaMachine
from vivum.protocols.consensus.records import founding_record
from vivum.protocols.consensus.server import LogServer
from vivum.protocols.consensus.settings import ConsensusSettings
from vivum.protocols.consensus.state_machine import AnswersQueries
from vivum.sim.clock import DriftingClock
from vivum.sim.engine import Network, Scheduler
from vivum.sim.faults import FaultInjector
from vivum.sim.host import Host, HostProfile
from vivum.sim.loss import IndependentLoss
from vivum.sim.network import LinkProfile
from vivum.sim.replicas.client import ClientPlan, LedgerClient, SimulatedClient
from vivum.sim.replicas.disk import SimulatedDisk
from vivum.sim.replicas.ledger import Ledger
from vivum.sim.scenario import FaultSpec, HostSpec, NetworkSpec
from vivum.sim.world import Result, fan_out, in_true_time
from vivum.wire.gate import Gate, domain_tag

GROUP = 1
STEP_NS = 50 * MILLISECOND
"""How often the world looks whether all is answered, after it healed."""


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """The operator wants something at a time: of a spare, of a replica, or of any voter."""

    at_ns: int
    kind: Literal["add", "remove", "transfer"]
    node: int


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """A whole world, but for its seed."""

    replicas: int
    duration_ns: int
    settle_ns: int
    settings: ConsensusSettings
    clients: tuple[ClientPlan, ...]
    spares: int = 0
    network: NetworkSpec = field(default_factory=NetworkSpec)
    host: HostSpec = field(default_factory=HostSpec)
    faults: tuple[FaultSpec, ...] = ()
    changes: tuple[PlannedChange, ...] = ()
    flipped: int = 0
    """The replica whose disk loses a bit at every restart; 0 for none."""

    padding_bytes: int = 0


class DiskHost(Host):
    """A host whose disk tears what is being written when it dies."""

    replica: ReplicaMachine
    application: AnswersQueries
    store: SimulatedDisk

    def _do(self, effect: Effect) -> None:
        if type(effect) is Persist:
            self.store.append(effect.record, is_dying=self._effects_left == 1)
        elif isinstance(effect, Event):
            self._tell(effect)


class ReplicaWorld:
    """One simulation."""

    client_type: type[SimulatedClient] = LedgerClient
    checker_types: tuple[type[Checker], ...] = tuple(LOG_CHECKERS.values())

    def __init__(self, plan: ReplicaPlan, seed: int, trace: Tracer | None = None, *, frames: bool = False) -> None:
        self.plan = plan
        self.seed = seed
        self.scheduler = Scheduler()
        self.hosts: dict[NodeId, DiskHost] = {}
        self.checkers = CheckerSet([each() for each in self.checker_types])
        self.leaders: list[NodeId] = []
        self._hash = HashTrace()
        self._random = RandomSource(seed)
        self._counters: list[Counters] = []
        sinks: list[Tracer] = [self._hash, self.checkers]
        self._trace = fan_out([*sinks, trace] if trace is not None else sinks)
        self._frame_trace = self._trace if frames else None
        network = plan.network
        self.network = Network(
            self.scheduler,
            LinkProfile(network.bandwidth, network.delay, network.jitter, network.egress_bytes, network.ingress_bytes),
        )
        names = {NodeId(number): f"node-{number}" for number in range(1, plan.replicas + plan.spares + 1)}
        self._places = {node: Replica(node, name, 1) for node, name in names.items()}
        self.founders = ReplicaConfiguration(self._places[node] for node in list(names)[: plan.replicas])
        for node in names:
            self.hosts[node] = self._make_host(node)
        self.clients = [self._make_client(number, each) for number, each in enumerate(plan.clients, 1)]
        self.faults = FaultInjector(self.scheduler, self.network, dict(self.hosts), None, plan.duration_ns, self._trace)
        self._healed = False
        self.unanswered = ""

    # Building.

    def _make_clock(self, rng: RandomSource) -> DriftingClock:
        spec = self.plan.host
        return DriftingClock(
            rng.randint(0, spec.clock_offset), rng.randint(-spec.clock_drift_ppm, spec.clock_drift_ppm)
        )

    def _profile(self) -> HostProfile:
        spec = self.plan.host
        return HostProfile(spec.receive_cost, spec.send_cost, spec.socket_bytes, spec.inbox_bytes, spec.memory_cost)

    def _make_client(self, number: int, plan: ClientPlan) -> SimulatedClient:
        assert self._trace is not None
        rng = self._random.fork("client", number)
        return self.client_type(
            number,
            GROUP,
            plan,
            [Endpoint(*each.endpoint) for each in self._places.values()],
            LogClientSettings(frame_bytes_max=self.plan.settings.frame_bytes_max),
            self.scheduler,
            self.network,
            self._profile(),
            self._make_clock(rng.fork("clock")),
            rng,
            self._trace,
        )

    def _make_host(self, node: NodeId) -> DiskHost:
        host = DiskHost(
            node,
            self.scheduler,
            self.network,
            self._profile(),
            self._make_clock(self._random.fork("host", node)),
            self._random.fork("link", node),
            self._make_node,  # type: ignore[arg-type]
            self._trace,
            self._frame_trace,
        )
        host.store = SimulatedDisk(self._random.fork("disk", node))
        if node in self.founders.replicas:
            host.store.append(founding_record(self.founders))
        host.on_event = self._on_event  # type: ignore[assignment]
        network, port = self.plan.network, host.port
        if network.loss:
            port.loss.append(IndependentLoss(network.loss))
        if network.duplicate:
            port.duplicates.append(network.duplicate)
        if network.reorder:
            port.reorders.append((network.reorder, int(network.reorder_delay)))
        port.update()
        return host

    def _make_node(self, host: DiskHost, incarnation: Incarnation) -> Node:
        if incarnation > 1 and host.node_id == self.plan.flipped and not self._healed:
            host.store.flip_a_bit()
        counters = Counters()
        member = Member(host.node_id, incarnation)
        trace = self._trace
        assert trace is not None
        spec = self.plan.host
        if spec.clock_offset or spec.clock_drift_ppm:
            trace = in_true_time(trace, self.scheduler)
        gate = Gate(domain_tag("sim"), counters, member, trace)
        host.application = self.make_application()
        host.replica = self.make_replica(host, gate, incarnation)
        settings = LogServerSettings(frame_bytes_max=self.plan.settings.frame_bytes_max)
        server = LogServer(host.replica, host.application, gate, settings, now_ns=host.local_now_ns)
        self._counters.append(counters)
        return Node(member, gate, [server], counters)

    def make_application(self) -> AnswersQueries:
        """Make the application of one life of a replica."""
        return Ledger(self.plan.padding_bytes)

    def make_replica(self, host: DiskHost, gate: Gate, incarnation: Incarnation) -> ReplicaMachine:
        """Make a replica of what is on its disk."""
        return ReplicaMachine(
            host.node_id,
            GROUP,
            host.store.open(),
            host.application,
            gate,
            self._random.fork("replica", host.node_id, incarnation),
            self.plan.settings,
            now_ns=host.local_now_ns,
            incarnation=incarnation,
            trace=True,
        )

    # Running.

    def run(self) -> Result:
        """Run both phases; the second ends when all is answered."""
        plan = self.plan
        for host in self.hosts.values():
            host.start()
        for client in self.clients:
            client.start()
        for fault in plan.faults:
            self.faults.schedule(fault)
        for change in plan.changes:
            self.scheduler.at(change.at_ns, self._on_wish, change)
        self.scheduler.run_until(plan.duration_ns)
        self._heal()
        end_ns = plan.duration_ns + plan.settle_ns
        while self.scheduler.now_ns < end_ns and not self._is_whole():
            self.scheduler.run_until(min(end_ns, self.scheduler.now_ns + STEP_NS))
        return self._finish()

    def _heal(self) -> None:
        self._healed = True
        self.faults.heal()
        for client in self.clients:
            client.heal()

    def _is_whole(self) -> bool:
        """Return whether everything issued is answered, and all replicas have applied the same."""
        if not all(client.is_done for client in self.clients):
            return False
        leader = next((host.replica for host in self.hosts.values() if host.replica.leads), None)
        if leader is None or leader.log.commit_index != leader.log.last_index:
            return False
        return all(
            host.replica.applied_index == leader.applied_index and not host.replica.is_impaired
            for node, host in self.hosts.items()
            if node in leader.configuration.replicas
        )

    def _finish(self) -> Result:
        violations = self.checkers.finish()
        if not self._is_whole():
            waiting = "; ".join(f"client {at}: {each.waits_for}" for at, each in enumerate(self.clients, 1))
            states = "; ".join(
                f"{node} {type(host.replica.role).__name__} t{host.replica.term} "
                f"@{host.replica.applied_index}/{host.replica.log.last_index}"
                for node, host in self.hosts.items()
            )
            violations.append(Violation("liveness", f"not whole after the healing: {waiting}; {states}", ()))
        counters = Counters()
        for each in self._counters:
            counters.add(each)
        answered = sum(client.answered for client in self.clients)
        return Result(
            seed=self.seed,
            trace_hash=self._hash.hexdigest(),
            events=self.scheduler.events,
            records=self._hash.count,
            simulated_s=self.scheduler.now_ns / SECOND,
            accepted=answered,
            refused=sum(client.lost for client in self.clients),
            delivered=answered,
            arrivals=self.network.arrivals,
            losses=dict(sorted(self.network.losses.items())),
            counters={name: value for name, value in counters.as_dict().items() if value},
            latency_us_p50=None,
            latency_us_p99=None,
            violations=violations,
        )

    # Events of replicas.

    def _on_event(self, host: DiskHost, event: Event) -> None:  # noqa: ARG002 - as hosts call it
        if isinstance(event, Recorded):
            assert self._trace is not None
            self._trace(replace(event.record, time_ns=self.scheduler.now_ns))

    # The operator.

    def _on_wish(self, change: PlannedChange) -> None:
        """Ask whoever leads, again and again, until it is so; not for ever."""
        if self._healed:
            return
        for host in self.hosts.values():
            if host.node is None or host.is_asleep or not host.replica.leads:
                continue
            command = self._command_of(host.replica, change)
            if command is None:
                continue
            try:
                host.submit(command)
            except UsageError:
                continue
            if change.kind == "transfer":
                return
        self.scheduler.at(self.scheduler.now_ns + STEP_NS, self._on_wish, change)

    def _command_of(self, leader: ReplicaMachine, change: PlannedChange) -> Command | None:
        node = NodeId(change.node)
        replicas = leader.configuration.replicas
        if change.kind == "transfer":
            return TransferLeadership(node)
        if change.kind == "remove":
            return RemoveReplica(node) if node in replicas else None
        if node not in replicas:
            return AddLearner(self._places[node])
        return None if replicas[node].votes else PromoteLearner(node)
