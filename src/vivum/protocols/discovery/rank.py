"""Which of two configuration services of one domain stays, when they hear each other.

One that runs as a process of its own goes before one that a node carries; then the one with more nodes; then the
later round, which is that of a successor of a lost one; then the one that started first; then the lower endpoint. All
who know both decide alike. More nodes go before a later round, so that a node that was cut off alone and began a domain
of its own does not drag the others over when it comes back.
"""

from typing import NamedTuple

from vivum.core.ids import Endpoint
from vivum.protocols.membership.client.allegiance import ROUND_BITS
from vivum.wire.directory import Beacon, Farewell, Seek


class ServiceRank(NamedTuple):
    """What decides between two services: the greater one stays."""

    dedicated: bool
    lives: int
    round: int
    negative_started_ns: int
    negative_port: int
    host: str


class ServiceInfo(NamedTuple):
    """A configuration service that was heard of."""

    endpoint: Endpoint
    dedicated: bool
    lives: int
    term: int
    started_ns: int

    @property
    def rank(self) -> ServiceRank:
        """What decides against another service."""
        return ServiceRank(
            self.dedicated,
            self.lives,
            self.term >> ROUND_BITS,
            -self.started_ns,
            -self.endpoint.port,
            self.endpoint.host,
        )

    def to_beacon(self) -> Beacon:
        """Write it as it travels."""
        return Beacon(*self.endpoint, self.dedicated, self.lives, self.term, self.started_ns)


def info_of(beacon: Beacon) -> ServiceInfo:
    """Read it as it came."""
    return ServiceInfo(
        Endpoint(beacon.host, beacon.port), beacon.dedicated, beacon.lives, beacon.term, beacon.started_ns
    )


def is_own_word(source: Endpoint, body: Seek | Beacon | Farewell) -> bool:
    """Return whether a message came from the endpoint that it names: forging it takes forging the address too."""
    return source == (body.host, body.port)
