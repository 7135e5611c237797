"""A configuration service on sockets: a node of its own with a port of its own, in whatever process carries it."""

from collections.abc import Callable

from vivum.core.machine import Delivery, Event
from vivum.node.compose import compose_service
from vivum.protocols.discovery.beaconer import ServiceOutranked, StartBeacon
from vivum.protocols.discovery.rank import ServiceInfo
from vivum.runtime.driver import Driver
from vivum.runtime.udp import UdpPort


class ServiceHost:
    """Runs the configuration service, the directory of topics and the beacon of a domain on the current event loop."""

    def __init__(
        self,
        domain: int,
        interface: str,
        *,
        port: int = 0,
        ttl: int = 1,
        multicast: bool = True,
        dedicated: bool = False,
        term: int = 1,
        on_outranked: Callable[[ServiceInfo], None],
    ) -> None:
        """Open the port and begin. `on_outranked` is called once, when another service is to stay in this one's place."""
        self._port = UdpPort(domain, interface, port=port, ttl=ttl)
        self._parts = compose_service(
            domain, self._port.endpoint, multicast=multicast, dedicated=dedicated, term=term
        )
        self._on_outranked = on_outranked
        self._is_outranked = False
        self._driver = Driver(self._parts.node, self._port, self._on_delivery, self._on_event)
        self._driver.start()
        self._driver.submit(StartBeacon())

    @property
    def info(self) -> ServiceInfo:
        """The service as beacons tell it."""
        return self._parts.beaconer.info

    @property
    def counters(self) -> dict[str, int]:
        """What the node of the service counted."""
        return self._parts.counters.as_dict()

    def _on_delivery(self, _: Delivery) -> None:
        """Nothing is delivered to a service."""

    def _on_event(self, event: Event) -> None:
        if isinstance(event, ServiceOutranked) and not self._is_outranked:
            self._is_outranked = True
            self._on_outranked(event.by)

    def close(self) -> None:
        """Stop. May be called again."""
        self._driver.close()
