"""Settings of discovery."""

from dataclasses import dataclass

from vivum.core.settings import setting
from vivum.core.time import MILLISECOND, SECOND


@dataclass(frozen=True, slots=True)
class DiscoverySettings:
    """Settings of discovery."""

    seek_ns_min: int = setting(
        40 * MILLISECOND,
        unit="ns",
        why="A service on a local network answers within a millisecond.",
        effect="Less asks more often at the start; the distance doubles up to seek_ns_max.",
    )
    seek_ns_max: int = setting(
        500 * MILLISECOND,
        unit="ns",
        why="A service that starts later is found within this time, also if its beacons are lost.",
        effect="More spares the network while there is no service.",
    )
    patience_ns: int = setting(
        250 * MILLISECOND,
        unit="ns",
        why="Several requests have stayed without an answer by then.",
        effect="After this time without an answer a node carries the service itself. Less starts the first node "
        "sooner, and makes two services more often, of which one gives way.",
    )
    elder_patience_ns: int = setting(
        1 * SECOND,
        unit="ns",
        why="A node that started earlier is also looking: it will carry the service.",
        effect="After this time without a service a node no longer waits for that other one.",
    )
    beacon_ns: int = setting(
        500 * MILLISECOND,
        unit="ns",
        why="Two services notice each other within this time.",
        effect="More is cheaper; less notices a rival and the end of a service sooner.",
    )
    silence_ns_max: int = setting(
        3 * SECOND,
        unit="ns",
        why="Six beacons: a service that pauses for less is not given up.",
        effect="After this time without a beacon of its service a node looks for another one.",
    )
