"""Looks at a running world: what the applications got, how far senders are, how tokens go round, what caches hold.

Only looks: nothing here changes what happens in the world. Who is measured:

- *receivers*: nodes that send nothing and that no fault of the scenario names. Their rates are `rate_*`.
- *perturbed*: the nodes that faults name.
- *streams*: everything that a sender sends into one region view. A frame is pending from its sealing until the
  sender knows that it is stable.
"""

from array import array
from bisect import bisect_right
from statistics import fmean, median
from typing import Any

from vivum.core.ids import NodeId
from vivum.core.machine import Delivery
from vivum.core.time import MICROSECOND, MILLISECOND, SECOND
from vivum.observe.counters import Counters
from vivum.protocols.qsm.machine import QsmMachine
from vivum.sim.host import Host
from vivum.sim.network import ETHERNET_BYTES, PACKET_BYTES_MAX, UDP_HEADER_BYTES
from vivum.sim.world import World

CACHE_SAMPLE = 20
"""Caches are counted in every so many samples: it is the dearest look, and they change slowly."""

BEHIND_MESSAGES = 100
"""A perturbed node is behind when it lacks more than this many of the messages that receivers have: some 10 ms."""

ACK_STRIDE = 8
"""Of every so many frames, one is followed from sealing to stable."""

Numbers = dict[str, float]


class StreamLog:
    """How far one stream was at each sample."""

    def __init__(self) -> None:
        self.times_ns = array("q")
        self.sealed = array("q")
        self.stable = array("q")
        self.pending = array("q")
        self.copies = 1

    def note(self, now_ns: int, sealed: int, stable: int) -> None:
        """Take a sample."""
        self.times_ns.append(now_ns)
        self.sealed.append(sealed)
        self.stable.append(stable)
        self.pending.append(sealed - stable)

    def acknowledge_times_ns(self) -> list[int]:
        """Follow frames sealed in the time measured, from then to stable.

        Both ends are late by a part of a sample; in the mean by the same.
        """
        found = []
        for number in range(self.sealed[0], self.stable[-1], ACK_STRIDE):
            begin = bisect_right(self.sealed, number)
            end = bisect_right(self.stable, number)
            found.append(self.times_ns[end] - self.times_ns[begin])
        return found


class Probe:
    """Measures a world between `begin` and `end`; `sample` is to be called at even distances between them."""

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
        self._streams: dict[tuple[int, int, int], StreamLog] = {}
        self._rounds: dict[tuple[int, int, int], tuple[int, int]] = {}
        self._round_trips_ns: dict[int, list[int]] = {}
        self._caches: list[int] = []
        self._kept: list[int] = []
        self._latencies_ns = array("q")
        self._deliveries = 0
        self._latency_stride = 1 + len(world.hosts) // 8
        self._samples = 0
        self._behind_samples = 0
        self._begin_ns = 0
        self._before: dict[NodeId, int] = {}
        self._counters_before = Counters()
        self._losses_before: dict[str, int] = {}

    def begin(self) -> None:
        """The warm-up is over."""
        world = self._world
        self._begin_ns = world.scheduler.now_ns
        self._before = {node: self._delivered(node) for node in world.hosts}
        self._counters_before = self._sum_counters()
        self._losses_before = dict(world.network.losses)
        for host in world.hosts.values():
            host.on_delivery = self._on_delivery
        self.sample()

    def _on_delivery(self, host: Host, delivery: Delivery) -> None:
        self._deliveries += 1
        if delivery.sender.node != host.node_id and self._deliveries % self._latency_stride == 0:
            self._latencies_ns.append(self._world.scheduler.now_ns - delivery.sent_ns)

    def sample(self) -> None:
        """Look at the state of this moment."""
        now_ns = self._world.scheduler.now_ns
        for node in self._senders:
            for key, stream in self._machine(node).sending.streams.items():
                log = self._streams.setdefault((node, *key), StreamLog())
                log.note(now_ns, stream.next_frame, stream.first)
                log.copies = len(stream.destinations)
        for node in self._world.hosts:
            self._look_at_rings(node)
        if self._samples % CACHE_SAMPLE == 0:
            self._look_at_caches()
        if self._perturbed:
            typical = median(self._delivered(node) - self._before[node] for node in self._receivers)
            mine = min(self._delivered(node) - self._before[node] for node in self._perturbed)
            self._behind_samples += typical - mine > BEHIND_MESSAGES
        self._samples += 1

    def _look_at_rings(self, node: NodeId) -> None:
        if self._world.hosts[node].node is None:
            return
        for (region, _), member in self._machine(node).regions.items():
            for ring in member.ladder.rings:
                if ring.is_leader and ring.round_trip_ns:
                    key, now = (region, ring.plan.level, ring.plan.number), (ring.term, ring.round)
                    before = self._rounds.get(key, now)
                    self._rounds[key] = now
                    # The first round of a new leader was begun by another one: it cannot tell how long it took.
                    if before != now and before[0] == now[0]:
                        self._round_trips_ns.setdefault(ring.plan.level, []).append(ring.round_trip_ns)

    def _look_at_caches(self) -> None:
        cached, kept = [0], [0]
        for node, host in self._world.hosts.items():
            if host.node is None:
                continue
            machine = self._machine(node)
            cached.append(
                sum(len(stream.cache) for member in machine.regions.values() for stream in member.streams.values())
            )
            kept.append(sum(each.next_frame - each.confirmed for each in machine.sending.streams.values()))
        self._caches.append(max(cached))
        self._kept.append(max(kept))

    def end(self) -> Numbers:
        """Sum up."""
        world = self._world
        seconds = (world.scheduler.now_ns - self._begin_ns) / SECOND
        rates = {node: (self._delivered(node) - self._before[node]) / seconds for node in world.hosts}
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
        if self._perturbed:
            numbers["perturbed_rate"] = min(rates[node] for node in self._perturbed)
            numbers["behind_ms"] = 1000 * seconds * self._behind_samples / self._samples
        self._sum_streams(numbers, seconds)
        for level, times in sorted(self._round_trips_ns.items()):
            numbers[f"token_ms_{level}"] = fmean(times) / MILLISECOND
            numbers[f"token_rounds_per_s_{level}"] = len(times) / seconds
        numbers["token_levels"] = len(self._round_trips_ns)
        latencies = sorted(self._latencies_ns)
        for share in (50, 99):
            numbers[f"latency_us_p{share}"] = _percentile(latencies, share) / MICROSECOND
        numbers["cache_frames_max"] = max(self._caches)
        numbers["sender_frames_max"] = max(self._kept)
        self._sum_counts(numbers, seconds)
        return numbers

    def _sum_streams(self, numbers: Numbers, seconds: float) -> None:
        logs = list(self._streams.values())
        times = sorted(each for log in logs for each in log.acknowledge_times_ns())
        # A frame for several streams is sealed in each of them, and is one frame and one datagram.
        after, before = self._sum_counters(), self._counters_before
        spread = after.frames_spread - before.frames_spread
        saved = after.frames_spread_streams - before.frames_spread_streams - spread
        frames = sum(log.sealed[-1] - log.sealed[0] for log in logs) - saved
        numbers["frames_per_s"] = frames / seconds
        numbers["pending_mean"] = sum(fmean(log.pending) for log in logs)
        numbers["pending_max"] = max((max(log.pending) for log in logs), default=0)
        numbers["ack_ms_mean"] = fmean(times) / MILLISECOND if times else 0.0
        numbers["ack_ms_p99"] = _percentile(times, 99) / MILLISECOND
        datagrams = sum((log.sealed[-1] - log.sealed[0]) * log.copies for log in logs) - saved
        numbers["data_datagrams_per_s"] = datagrams / seconds
        numbers["hybrid_share"] = spread / datagrams if datagrams else 0.0
        clients = [self._machine(node).client for node in self._world.hosts]
        numbers["regions"] = len({each.own_region.region for each in clients if each.own_region is not None})

    def _sum_counts(self, numbers: Numbers, seconds: float) -> None:
        after, before = self._sum_counters(), self._counters_before
        for name in (
            "messages_accepted",
            "datagrams_sent",
            "repairs_sent",
            "repairs_received",
            "repairs_wasted",
            "frames_duplicate",
            "frames_unwanted",
            "messages_lost",
            "messages_failed",
        ):
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

    def _delivered(self, node: NodeId) -> int:
        host = self._world.hosts[node].node
        return 0 if host is None else host.counters.messages_delivered

    def _machine(self, node: NodeId) -> QsmMachine:
        host = self._world.hosts[node].node
        assert host is not None
        machine = host.protocols[0]
        assert isinstance(machine, QsmMachine), "only QSM has streams and rings to measure"
        return machine


def payload_bytes_per_s(bandwidth_bps: int) -> float:
    """UDP payload of a link full of full Ethernet frames: 11,964 KB/s at 100 Mb/s."""
    return bandwidth_bps / 8 * (PACKET_BYTES_MAX - UDP_HEADER_BYTES) / (PACKET_BYTES_MAX + ETHERNET_BYTES)


def datagrams_per_s(bandwidth_bps: int, size: int) -> float:
    """Plain datagrams of one message each that a link carries: 11,726 of 1,000 bytes at 100 Mb/s."""
    return bandwidth_bps / 8 / (size + UDP_HEADER_BYTES + ETHERNET_BYTES)


def _percentile(ordered: Any, share: int) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * share // 100)] if ordered else 0.0
