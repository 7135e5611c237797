"""Which of two histories of one domain goes on, when they hear each other.

The one with more members; then the one that was founded first; then the one of the lower number. All who know both
decide alike. Within one history nothing is to be decided: the leader of the later term leads.
"""

from typing import NamedTuple

from vivum.core.ids import Endpoint
from vivum.wire.directory import Beacon, Farewell, Remnant, Seek


class HistoryRank(NamedTuple):
    """What decides between two histories: the greater one goes on."""

    lives: int
    negative_founded_ns: int
    negative_history: int


class ServiceInfo(NamedTuple):
    """The leader of a configuration service that was heard of."""

    endpoint: Endpoint
    lives: int
    history: int
    term: int
    founded_ns: int

    @property
    def rank(self) -> HistoryRank:
        """What decides against another history."""
        return HistoryRank(self.lives, -self.founded_ns, -self.history)

    def to_beacon(self) -> Beacon:
        """Write it as it travels."""
        return Beacon(*self.endpoint, self.lives, self.history, self.term, self.founded_ns)


def info_of(beacon: Beacon) -> ServiceInfo:
    """Read it as it came."""
    return ServiceInfo(Endpoint(beacon.host, beacon.port), beacon.lives, beacon.history, beacon.term, beacon.founded_ns)


def is_own_word(source: Endpoint, body: Seek | Beacon | Farewell | Remnant) -> bool:
    """Return whether a message came from the endpoint that it names: forging it takes forging the address too."""
    return source == (body.host, body.port)
