"""A world: hosts, network, applications and faults of one scenario, run from one seed.

    world = World(scenario, seed=1, trace=...)
    result = world.run()

Two phases: until `duration` the applications send and the faults strike (only safety is promised); then everything
heals and for the time `settle` the system must become whole (liveness). Checkers look at all records and give their
verdict at the end.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from vivum.checkers.checker import Violation
from vivum.checkers.registry import CheckerSet, make_checkers
from vivum.core.ids import Channel, GroupId, Incarnation, Member, NodeId
from vivum.core.machine import Command, Delivery
from vivum.core.randomness import RandomSource
from vivum.core.time import SECOND
from vivum.node.build import PROTOCOLS, make_settings
from vivum.node.node import Node
from vivum.observe.counters import Counters
from vivum.observe.trace import HashTrace, Tracer, TraceRecord
from vivum.protocols.commands import JoinGroup, LeaveGroup, SlowMembers
from vivum.protocols.membership.service.role import SERVICE_NODE
from vivum.protocols.membership.settings import ServiceSettings
from vivum.sim.clock import DriftingClock
from vivum.sim.engine import Network, Scheduler
from vivum.sim.faults import FaultInjector
from vivum.sim.host import Host, HostProfile
from vivum.sim.loss import BurstLoss, IndependentLoss
from vivum.sim.network import LinkProfile
from vivum.sim.overlap import lay_out
from vivum.sim.scenario import Scenario, TrafficSpec
from vivum.sim.workload import Application

LATENCY_SAMPLES_MAX = 16_384
"""Latencies kept for percentiles stay below this: every second one is forgotten then, and half as many are taken."""

PROGRESS_STEPS = 100


@dataclass(slots=True)
class Result:
    """What a run gave."""

    seed: int
    trace_hash: str
    events: int
    records: int
    simulated_s: float
    accepted: int
    refused: int
    delivered: int
    arrivals: int
    losses: dict[str, int]
    counters: dict[str, int]
    latency_us_p50: float | None
    latency_us_p99: float | None
    violations: list[Violation] = field(default_factory=list)


class World:
    """Everything that one simulation consists of."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        trace: Tracer | None = None,
        *,
        frames: bool = True,
        checked: bool = True,
    ) -> None:
        """Build a world.

        `trace` gets every record besides checkers and hash. Without `frames`, single datagrams are not traced; without
        `checked`, nothing is: for benchmarks of the simulator alone.
        """
        self.scenario = scenario
        self.seed = seed
        self.scheduler = Scheduler()
        self.hosts: dict[NodeId, Host] = {}
        self.lives: list[Node] = []
        self._hash = HashTrace()
        self._checkers = CheckerSet(make_checkers(scenario.checkers if checked else []))
        self._random = RandomSource(seed)
        self._latencies_ns: list[int] = []
        self._sample_every, self._unsampled = 1, 0
        self._applications: dict[NodeId, list[Application]] = {}
        self._belated: dict[NodeId, list[Command]] = {}
        sinks: list[Tracer] = [self._hash, self._checkers] if checked else []
        self._trace = fan_out([*sinks, trace] if trace is not None else sinks)
        self._frame_trace = self._trace if frames else None
        self._settings = PROTOCOLS[scenario.protocol].make_settings(scenario.settings)
        network = scenario.network
        self.network = Network(
            self.scheduler,
            LinkProfile(network.bandwidth, network.delay, network.jitter, network.egress_bytes, network.ingress_bytes),
        )
        node_ids = [NodeId(number) for number in range(1, scenario.nodes + 1)]
        groups = scenario.groups
        self.groups = lay_out(groups.pattern, node_ids, groups.count, groups.members, self._random.fork("groups"))
        # One set for all groups with the same members: thousands of groups must not cost thousands of sets a node.
        distinct = {members: frozenset(members) for members in self.groups.values()}
        slow = SlowMembers[groups.slow.upper()]
        transport = PROTOCOLS[scenario.protocol].joins_with
        self._joins = {
            group: JoinGroup(group, Channel(group), distinct[each], slow, transport=transport)
            for group, each in self.groups.items()
        }
        self._groups_of: dict[NodeId, list[GroupId]] = {node: [] for node in node_ids}
        for group, members in self.groups.items():
            for node in members:
                self._groups_of[node].append(group)
        for node in node_ids:
            self.hosts[node] = self._make_host(node)
        self._clocks = {node: host.clock for node, host in self.hosts.items()}
        self.endpoints = {node: host.endpoint for node, host in self.hosts.items()}
        self.service: Host | None = None
        if PROTOCOLS[scenario.protocol].make_service is not None:
            self.service = self._make_host(SERVICE_NODE)
            self.endpoints[SERVICE_NODE] = self.service.endpoint
        self.faults = FaultInjector(
            self.scheduler, self.network, self.hosts, self.service, scenario.duration, self._trace, self._regroup
        )

    def run(self, on_progress: Callable[[float], None] | None = None) -> Result:
        """Run both phases to the end; `on_progress` hears the share that is done."""
        self.start()
        for step in range(1, PROGRESS_STEPS + 1):
            self.advance_to(self.end_ns * step // PROGRESS_STEPS)
            if on_progress is not None:
                on_progress(step / PROGRESS_STEPS)
        return self.finish()

    @property
    def end_ns(self) -> int:
        """When the liveness phase is over."""
        return self.scenario.duration + self.scenario.settle

    def start(self) -> None:
        """Start all hosts, and put traffic, faults and the healing on the agenda."""
        scenario = self.scenario
        if self.service is not None:
            self.service.start()
        for host in self.hosts.values():
            host.start()
        for index, traffic in enumerate(scenario.traffic):
            self._start_traffic(index, traffic)
        self.faults.tell_of(scenario.network)
        for fault in scenario.faults:
            self.faults.schedule(fault)
        if scenario.settle:
            self.scheduler.at(int(scenario.duration), self.faults.heal)

    def advance_to(self, at_ns: int) -> None:
        """Run the world up to a time."""
        self.scheduler.run_until(at_ns)

    def finish(self) -> Result:
        """Return the result, with the verdict of the checkers."""
        counters = Counters()
        for node in self.lives:
            counters.add(node.counters)
        latencies = sorted(self._latencies_ns)
        return Result(
            seed=self.seed,
            trace_hash=self._hash.hexdigest(),
            events=self.scheduler.events,
            records=self._hash.count,
            simulated_s=self.scheduler.now_ns / SECOND,
            accepted=counters.messages_accepted,
            refused=counters.messages_rejected,
            delivered=counters.messages_delivered,
            arrivals=self.network.arrivals,
            losses=dict(sorted(self.network.losses.items())),
            counters={name: value for name, value in counters.as_dict().items() if value},
            latency_us_p50=_percentile_us(latencies, 0.50),
            latency_us_p99=_percentile_us(latencies, 0.99),
            violations=self._checkers.finish(),
        )

    # Building.

    def _make_host(self, node: NodeId) -> Host:
        spec, rng = self.scenario.host, self._random.fork("host", node)
        clock = DriftingClock(
            rng.randint(0, spec.clock_offset), rng.randint(-spec.clock_drift_ppm, spec.clock_drift_ppm)
        )
        profile = HostProfile(spec.receive_cost, spec.send_cost, spec.socket_bytes, spec.inbox_bytes, spec.memory_cost)
        host = Host(
            node,
            self.scheduler,
            self.network,
            profile,
            clock,
            self._random.fork("link", node),
            self._make_node,
            self._trace if node != SERVICE_NODE else None,
            self._frame_trace,
        )
        host.on_started = self._on_started
        host.on_delivery = self._sample_latency
        network, port = self.scenario.network, host.port
        if network.loss:
            port.loss.append(IndependentLoss(network.loss))
        if network.burst_rate:
            port.loss.append(BurstLoss(network.burst_rate, network.burst_length))
        if network.duplicate:
            port.duplicates.append(network.duplicate)
        if network.reorder:
            port.reorders.append((network.reorder, int(network.reorder_delay)))
        port.update()
        return host

    def _make_node(self, host: Host, incarnation: Incarnation) -> Node:
        member = Member(host.node_id, incarnation)
        entry = PROTOCOLS[self.scenario.protocol]
        if host is self.service:
            assert entry.make_service is not None
            settings = make_settings(ServiceSettings, self.scenario.service)
            return entry.make_service(incarnation, host.endpoint, settings)
        trace = self._trace
        if trace is not None and (self.scenario.host.clock_offset or self.scenario.host.clock_drift_ppm):
            trace = in_true_time(trace, self.scheduler)
        node = entry.make_node(
            member,
            self.endpoints,
            self._settings,
            self._random.fork("node", host.node_id, incarnation),
            trace,
        )
        self.lives.append(node)
        return node

    def _on_started(self, host: Host) -> None:
        self._belated.pop(host.node_id, None)
        if host is self.service:
            return
        for group in self._groups_of.get(host.node_id, ()):
            host.submit(self._joins[group])

    def _regroup(self, host: Host, group: GroupId, joins: bool) -> None:
        """Make the application on a host join or leave a group; a host that is down does so when it comes up."""
        groups = self._groups_of[host.node_id]
        if joins == (group in groups):
            return
        if joins:
            groups.append(group)
            command: Command = self._joins[group]
        else:
            groups.remove(group)
            command = LeaveGroup(group)
        if host.is_asleep:
            # The application sleeps with its host: it acts when it wakes up.
            self._belated.setdefault(host.node_id, []).append(command)
            host.on_room = self._on_room
        else:
            host.submit(command)

    def _start_traffic(self, index: int, traffic: TrafficSpec) -> None:
        senders = range(1, traffic.senders + 1) if isinstance(traffic.senders, int) else traffic.senders
        stop_ns = self.scenario.duration if traffic.stop is None else min(traffic.stop, self.scenario.duration)
        for number in senders:
            host = self.hosts[NodeId(number)]
            application = Application(
                host,
                self.scheduler,
                traffic,
                self._groups_of[host.node_id],
                stop_ns,
                self._random.fork("traffic", index, number),
            )
            self._applications.setdefault(host.node_id, []).append(application)
            host.on_room = self._on_room

    def _on_room(self, host: Host) -> None:
        if self._belated and host.node_id in self._belated and not host.is_asleep:
            for command in self._belated.pop(host.node_id):
                host.submit(command)
        for application in self._applications.get(host.node_id, ()):
            application.on_room()

    def _sample_latency(self, host: Host, delivery: Delivery) -> None:
        """Note how long a run of messages took: at first of each one, of ever fewer when there are many."""
        self._unsampled += 1
        if self._unsampled < self._sample_every:
            return
        self._unsampled = 0
        sender = delivery.sender.node
        if sender == host.node_id:
            return
        self._latencies_ns.append(self.scheduler.now_ns - self._clocks[sender].true_ns(delivery.sent_ns))
        if len(self._latencies_ns) == LATENCY_SAMPLES_MAX:
            del self._latencies_ns[::2]
            self._sample_every *= 2


def _percentile_us(ordered_ns: list[int], share: float) -> float | None:
    return ordered_ns[min(len(ordered_ns) - 1, int(len(ordered_ns) * share))] / 1000 if ordered_ns else None


def fan_out(sinks: list[Tracer]) -> Tracer | None:
    """Make one tracer of several; None of none."""
    if not sinks:
        return None
    if len(sinks) == 1:
        return sinks[0]

    def trace(record: TraceRecord) -> None:
        for sink in sinks:
            sink(record)

    return trace


def in_true_time(trace: Tracer, scheduler: Scheduler) -> Tracer:
    """Put the world's time into records of a node whose own clock is off: checkers compare across nodes."""

    def corrected(record: TraceRecord) -> None:
        trace(msgspec.structs.replace(record, time_ns=scheduler.now_ns))

    return corrected
