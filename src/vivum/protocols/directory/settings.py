"""Settings of the directory."""

from dataclasses import dataclass

from vivum.core.settings import setting
from vivum.core.time import MILLISECOND, SECOND


@dataclass(frozen=True, slots=True)
class DirectorySettings:
    """Settings of the directory of topics and of its client in every node."""

    topics_max: int = setting(
        65_536,
        unit="topics",
        why="Eight times the groups of the largest experiment of seed 004; some 20 MB with their types.",
        effect="At the limit topics without members are forgotten, oldest first; without any, new ones are refused.",
    )
    frame_bytes_max: int = setting(
        30_000,
        unit="bytes",
        why="An answer is a little longer than its request and must fit one datagram.",
        effect="Longer requests and answers go in several. Less survives a lossy path better.",
    )
    watch_ns: int = setting(
        6 * SECOND,
        unit="ns",
        why="Three repetitions of a watcher's request.",
        effect="A watcher that is silent for longer is no longer told of new topics.",
    )
    watchers_max: int = setting(
        4096,
        unit="watchers",
        why="Each new topic is compared with the pattern of each.",
        effect="At the limit the oldest is forgotten; it asks again and is told then.",
    )
    rewatch_ns: int = setting(
        2 * SECOND,
        unit="ns",
        why="If the message about a new topic was lost, the topic is noticed after this time.",
        effect="Less notices it sooner and costs a request of each watcher.",
    )
    retry_ns_min: int = setting(
        100 * MILLISECOND,
        unit="ns",
        why="The directory answers within a millisecond.",
        effect="Less repairs a lost request sooner.",
    )
    retry_ns_max: int = setting(
        2 * SECOND,
        unit="ns",
        why="Requests double their distance up to this while nobody answers.",
        effect="More spares a service in trouble.",
    )
