"""A node's metrics: its counters, what it holds, and its place in the domain."""

from vivum.live.statistics import NodeStatistics
from vivum.observe.counters import counter_list
from vivum.runtime.metrics import Metric, metrics_text


def node_metrics(statistics: NodeStatistics, name: str) -> str:
    """Write the metrics of a node as Prometheus reads them."""
    held = statistics.memory
    metrics = [
        Metric("up", "1 while the node is in its domain, 0 while it joins", statistics.member is not None),
        Metric("carries_service", "1 if the configuration service runs in this process", statistics.carries_service),
        Metric("topics", "Topics that the node is in", statistics.topics),
        Metric("receive_buffer_bytes", "Receive buffer that the system granted", statistics.receive_buffer_bytes),
        Metric("held_waiting_bytes", "Messages that were accepted and are in no frame yet", held.waiting_bytes),
        Metric("held_sent_bytes", "Own frames that not every member is known to have", held.sent_bytes),
        Metric("held_cached_bytes", "Frames of others that are kept for repair", held.cached_bytes),
        Metric("held_out_of_order_bytes", "Frames of others that wait for an earlier one", held.held_bytes),
    ]
    metrics += [
        Metric(f"{counter}_total", f"{meaning} ({unit})", statistics.counters[counter], is_counter=True)
        for counter, unit, meaning in counter_list()
    ]
    return metrics_text(metrics, {"domain": statistics.domain, "node": name})
