"""Measures a world between `begin` and `end`; `sample` is to be called at even distances between them.

Who is measured:

- *senders*: nodes that send.
- *perturbed*: the nodes that faults name.
- *receivers*: all others. Their rates are `rate_*`, so a perturbed node is not one of them.

Only looks: nothing here changes what happens in the world.
"""

from array import array
from collections.abc import Iterator
from itertools import pairwise
from statistics import fmean, median, pstdev

from experiments.measuring.link import datagrams_per_s, payload_bytes_per_s
from experiments.measuring.memory import MemoryLog
from experiments.measuring.numbers import Numbers, percentile
from experiments.measuring.recovery import RecoveryLog
from experiments.measuring.rounds import RoundLog
from experiments.measuring.streams import StreamLogs
from experiments.measuring.timers import TimerLog
from vivum.core.ids import Member, NodeId
from vivum.core.machine import Delivery
from vivum.core.time import MICROSECOND, MILLISECOND, SECOND
from vivum.observe.counters import Counters
from vivum.protocols.qsm.machine import QsmMachine
from vivum.protocols.streams.region_sender import RegionSender, ViewKey
from vivum.sim.host import Host
from vivum.sim.scenario import FaultSpec
from vivum.sim.world import World

MEMORY_SAMPLE = 20
"""Memory is added up in every so many samples: it is the dearest look, and it changes slowly."""

SLICE_NS = 100 * MILLISECOND
"""The rate in such slices of time says how steady it is."""

LATE_NS = 3 * MILLISECOND
"""What takes longer was lost, or waits behind what was lost, where hosts and links have little to do."""

COUNTED = (
    "messages_accepted",
    "datagrams_sent",
    "repairs_sent",
    "repairs_received",
    "repairs_wasted",
    "lateral_sent",
    "lateral_rebuilt",
    "lateral_wasted",
    "frames_duplicate",
    "frames_unwanted",
    "messages_lost",
    "messages_failed",
)


class Probe:
    """Looks at one world."""

    def __init__(self, world: World) -> None:
        scenario = world.scenario
        self._world = world
        senders: set[int] = set()
        for traffic in scenario.traffic:
            senders.update(range(1, traffic.senders + 1) if isinstance(traffic.senders, int) else traffic.senders)
        self._senders = [NodeId(node) for node in sorted(senders)]
        self._perturbed = [NodeId(node) for node in sorted({node for fault in scenario.faults for node in fault.nodes})]
        others = [node for node in world.hosts if node not in senders and node not in self._perturbed]
        self._receivers = others or [node for node in world.hosts if node not in self._perturbed]
        self._streams = StreamLogs()
        self._rounds = RoundLog()
        self._recoveries = {node: RecoveryLog() for node in self._perturbed}
        kinds = {"sender": self._senders, "receiver": self._receivers, "perturbed": self._perturbed}
        self._kinds = {name: nodes for name, nodes in kinds.items() if nodes}
        self._memory = {name: MemoryLog(name) for name in self._kinds}
        self._timers: dict[str, TimerLog] = {}
        self._cache_frames_max = self._sender_frames_max = 0
        self._latencies_ns = array("q")
        # How long those runs took that were late; how many there were of others' messages.
        self._late_ns = array("q")
        self._foreign = self._deliveries = 0
        self._latency_stride = 1 + len(world.hosts) // 8
        self._samples = 0
        self._begin_ns = 0
        self._before: dict[NodeId, Counters] = {}
        self._counters_before = Counters()
        self._losses_before: dict[str, int] = {}
        self._lost_before: dict[NodeId, int] = {}
        # What one receiver had at the end of each slice.
        self._slices = array("q")

    def begin(self) -> None:
        """The warm-up is over."""
        world = self._world
        self._begin_ns = world.scheduler.now_ns
        self._before = {node: self._counters(node) for node in world.hosts}
        self._counters_before = self._sum_counters()
        self._losses_before = dict(world.network.losses)
        self._lost_before = {node: host.port.lost for node, host in world.hosts.items()}
        self._timers = {name: TimerLog(self._begin_ns) for name in self._kinds}
        for host in world.hosts.values():
            host.on_delivery = self._on_delivery
        self.sample()

    def _on_delivery(self, host: Host, delivery: Delivery) -> None:
        self._deliveries += 1
        if delivery.sender.node == host.node_id:
            return
        took_ns = self._world.scheduler.now_ns - delivery.sent_ns
        self._foreign += 1
        if took_ns > LATE_NS:
            self._late_ns.append(took_ns)
        if self._deliveries % self._latency_stride == 0:
            self._latencies_ns.append(took_ns)

    def sample(self) -> None:
        """Look at the state of this moment."""
        now_ns = self._world.scheduler.now_ns
        self._streams.sample(now_ns, (((member.node, *key), stream) for member, key, stream in self._sending()))
        for host in self._world.hosts.values():
            if host.node is not None:
                self._rounds.sample(now_ns, _machine(host))
        for node, log in self._recoveries.items():
            if self._world.hosts[node].node is not None:
                log.sample(now_ns, _machine(self._world.hosts[node]), self._sending())
        for name, timer in self._timers.items():
            timer.sample(now_ns, self._world.hosts[self._kinds[name][-1]].node)
        if self._samples % MEMORY_SAMPLE == 0:
            self._look_at_memory()
        if (now_ns - self._begin_ns) % SLICE_NS == 0:
            self._slices.append(self._delivered(self._receivers[-1]))
        self._samples += 1

    def _sending(self) -> Iterator[tuple[Member, ViewKey, RegionSender]]:
        for node in self._senders:
            host = self._world.hosts[node]
            machine = None if host.node is None else _machine(host)
            if machine is not None and machine.member is not None:
                for key, stream in machine.sending.streams.items():
                    yield machine.member, key, stream

    def _look_at_memory(self) -> None:
        for name, nodes in self._kinds.items():
            hosts = [self._world.hosts[node] for node in nodes]
            self._memory[name].sample([(host, _machine(host)) for host in hosts if host.node is not None])
        for host in self._world.hosts.values():
            if host.node is not None:
                machine = _machine(host)
                regions, sending = machine.regions.values(), machine.sending.streams.values()
                cached = sum(len(stream.cache) for member in regions for stream in member.streams.values())
                kept = sum(each.next_frame - each.confirmed for each in sending)
                self._cache_frames_max = max(self._cache_frames_max, cached)
                self._sender_frames_max = max(self._sender_frames_max, kept)

    def end(self) -> Numbers:
        """Sum up."""
        world = self._world
        seconds = (world.scheduler.now_ns - self._begin_ns) / SECOND
        rates = {
            node: (self._delivered(node) - self._before[node].messages_delivered) / seconds for node in world.hosts
        }
        received = [rates[node] for node in self._receivers]
        size = world.scenario.traffic[0].size
        bandwidth = world.scenario.network.bandwidth
        numbers: Numbers = {
            "rate_median": median(received),
            "rate_min": min(received),
            "rate_max": max(received),
            "link_share": median(received) * size / payload_bytes_per_s(bandwidth),
            "datagram_share": median(received) / datagrams_per_s(bandwidth, size),
        }
        self._sum_slices(numbers)
        after, start = self._sum_counters(), self._counters_before
        # A frame for several streams is sealed in each of them, and is one frame and one datagram.
        spread = after.frames_spread - start.frames_spread
        saved = after.frames_spread_streams - start.frames_spread_streams - spread
        numbers |= self._streams.sum_up(seconds, saved)
        datagrams = numbers["data_datagrams_per_s"] * seconds
        numbers["hybrid_share"] = spread / datagrams if datagrams else 0.0
        numbers |= self._rounds.sum_up(seconds)
        latencies = sorted(self._latencies_ns)
        for share in (50, 99):
            numbers[f"latency_us_p{share}"] = percentile(latencies, share) / MICROSECOND
        self._sum_repairs(numbers, after)
        for name, nodes in self._kinds.items():
            numbers |= self._memory[name].sum_up()
            numbers[f"load_{name}"] = fmean(self._load(node, seconds) for node in nodes)
            numbers[f"timer_ms_{name}"] = self._timers[name].mean_ms()
            numbers[f"timer_ms_{name}_max"] = self._timers[name].max_ms()
        numbers["cache_frames_max"] = self._cache_frames_max
        numbers["sender_frames_max"] = self._sender_frames_max
        self._sum_perturbed(numbers, rates, seconds)
        self._sum_counts(numbers, after, seconds)
        clients = [_machine(host).client for host in world.hosts.values() if host.node is not None]
        numbers["regions"] = len({each.own_region.region for each in clients if each.own_region is not None})
        return numbers

    def _sum_slices(self, numbers: Numbers) -> None:
        """Say how steady the rate of one receiver is, if there was time for some slices."""
        rates = sorted((stop - start) * SECOND / SLICE_NS for start, stop in pairwise(self._slices))
        if len(rates) > 1 and fmean(rates):
            numbers["rate_deviation"] = pstdev(rates) / fmean(rates)
            numbers["rate_slice_p5"] = percentile(rates, 5)
            numbers["rate_slice_p95"] = percentile(rates, 95)

    def _sum_repairs(self, numbers: Numbers, after: Counters) -> None:
        """Say how late what was lost came, who repaired it, and what repairs cost."""
        before, late = self._counters_before, sorted(self._late_ns)
        numbers["late_share"] = len(late) / self._foreign if self._foreign else 0.0
        for share in (50, 90, 99):
            numbers[f"late_ms_p{share}"] = percentile(late, share) / MILLISECOND
        rebuilt = after.lateral_rebuilt - before.lateral_rebuilt
        asked = after.repairs_received - before.repairs_received
        numbers["lateral_share"] = rebuilt / (rebuilt + asked) if rebuilt + asked else 0.0
        lateral = after.lateral_bytes_sent - before.lateral_bytes_sent
        resent = after.repair_bytes_sent - before.repair_bytes_sent
        received = after.bytes_received - before.bytes_received
        numbers["repair_overhead"] = (lateral + resent) / max(1, received - lateral - resent)

    def _load(self, node: NodeId, seconds: float) -> float:
        """Return the share of its processor that a node used, by the costs of the model."""
        host = self._world.scenario.host
        after, before = self._counters(node), self._before[node]
        received = after.datagrams_received - before.datagrams_received
        sent = after.datagrams_sent - before.datagrams_sent
        return (received * host.receive_cost + sent * host.send_cost) / SECOND / seconds

    def _sum_perturbed(self, numbers: Numbers, rates: dict[NodeId, float], seconds: float) -> None:
        """Say how the perturbed node fares; of several the one that gets least."""
        if not self._perturbed:
            return
        node = min(self._perturbed, key=rates.__getitem__)
        numbers["perturbed_rate"] = rates[node]
        lost = self._world.hosts[node].port.lost - self._lost_before[node]
        came = self._counters(node).datagrams_received - self._before[node].datagrams_received
        numbers["perturbed_loss"] = lost / (lost + came) if lost + came else 0.0
        now_ns = self._world.scheduler.now_ns
        events = sum(_times_between(fault, self._begin_ns, now_ns) for fault in self._world.scenario.faults)
        numbers["perturbations"] = events
        numbers |= self._recoveries[node].sum_up(seconds, numbers["frames_per_s"] * seconds, events)

    def _sum_counts(self, numbers: Numbers, after: Counters, seconds: float) -> None:
        before = self._counters_before
        for name in COUNTED:
            numbers[name] = getattr(after, name) - getattr(before, name)
        accepted = numbers["messages_accepted"]
        for name in ("frames", "data_datagrams"):
            numbers[f"{name}_per_message"] = numbers[f"{name}_per_s"] * seconds / accepted if accepted else 0.0
        for name in ("datagrams_sent", "frames_unwanted"):
            numbers[f"{name}_per_message"] = numbers[name] / accepted if accepted else 0.0
        losses = self._world.network.losses
        numbers["losses"] = sum(losses.values()) - sum(self._losses_before.values())
        for cause in ("link", "switch queue full", "socket buffer full"):
            lost = losses.get(cause, 0) - self._losses_before.get(cause, 0)
            numbers[f"losses_{cause.partition(' ')[0]}"] = lost

    def _sum_counters(self) -> Counters:
        total = Counters()
        for node in self._world.lives:
            total.add(node.counters)
        return total

    def _counters(self, node: NodeId) -> Counters:
        """Return what a node has counted so far."""
        found, host = Counters(), self._world.hosts[node]
        if host.node is not None:
            found.add(host.node.counters)
        return found

    def _delivered(self, node: NodeId) -> int:
        host = self._world.hosts[node].node
        return 0 if host is None else host.counters.messages_delivered


def _machine(host: Host) -> QsmMachine:
    assert host.node is not None
    machine = host.node.protocols[0]
    assert isinstance(machine, QsmMachine), "only QSM has streams and rings to measure"
    return machine


def _times_between(fault: FaultSpec, begin_ns: int, end_ns: int) -> int:
    """Return how often a fault strikes in a time."""
    if fault.every is None:
        return int(begin_ns <= fault.at < end_ns)
    first = fault.at if fault.at >= begin_ns else fault.at + -(-(begin_ns - fault.at) // fault.every) * fault.every
    return max(0, -(-(end_ns - first) // fault.every))
