"""Limits of a key-value store. They decide what is applied, so they are the same at all replicas of a log."""

from dataclasses import dataclass

from vivum.core.settings import setting
from vivum.core.time import MILLISECOND, SECOND


@dataclass(frozen=True, slots=True)
class KvSettings:
    """All that can be set of a store."""

    key_bytes_max: int = setting(
        512,
        unit="bytes",
        why="A path of a dozen words; a request for it fits one frame of 1,472 bytes.",
        effect="A longer key is refused.",
    )
    value_bytes_max: int = setting(
        64 * 1024,
        unit="bytes",
        why="Configuration and coordination; large contents belong elsewhere.",
        effect="A larger value is refused.",
    )
    keys_max: int = setting(
        100_000,
        unit="keys",
        why="Every replica holds all of them in memory, twice while it takes a snapshot.",
        effect="A put of one more key is refused; delete some first.",
    )
    state_bytes_max: int = setting(
        64 * 1024 * 1024,
        unit="bytes",
        why="A quarter of the largest snapshot that a replica sends.",
        effect="A put that would take keys and values together past it is refused.",
    )
    history_events_max: int = setting(
        10_000,
        unit="changes",
        why="A watcher that was away for seconds finds all of them.",
        effect="The oldest changes are forgotten; a watch that resumes before them is told so (compacted).",
    )
    history_bytes_max: int = setting(
        4 * 1024 * 1024,
        unit="bytes",
        why="It is part of every snapshot.",
        effect="The same, counted in bytes of keys and values.",
    )
    leases_max: int = setting(
        10_000,
        unit="leases",
        why="One for each process of a large domain.",
        effect="A further lease is refused.",
    )
    lease_ns_min: int = setting(
        500 * MILLISECOND,
        unit="ns",
        why="An election takes up to 0.8 s, and a lease should outlive the keep-alives of some of them.",
        effect="A lease that is asked for a shorter time is granted this one.",
    )
    lease_ns_max: int = setting(
        24 * 3600 * SECOND,
        unit="ns",
        why="What should live longer should not be bound to a lease.",
        effect="A lease that is asked for a longer time is granted this one.",
    )
    answer_bytes_max: int = setting(
        64 * 1024,
        unit="bytes",
        why="Fits the receive buffer of a client many times over.",
        effect="A range, or the changes of a watch, come in pages of about this size.",
    )
