"""A configuration service on sockets, in a process of its own. Nodes that carry one use `member_host`."""

from collections.abc import Callable

from vivum.core.ids import Endpoint
from vivum.core.machine import Event
from vivum.node.compose import compose_service
from vivum.observe.counters import counter_list
from vivum.protocols.discovery.beaconer import EndBeacon, ServiceOutranked, StartBeacon
from vivum.protocols.discovery.rank import ServiceInfo
from vivum.protocols.membership.client.allegiance import ROUND_BITS
from vivum.runtime.driver import Driver
from vivum.runtime.environment import current_environment
from vivum.runtime.metrics import Metric, metrics_text


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
        on_outranked: Callable[[ServiceInfo], None],
    ) -> None:
        """Open the port and begin. `on_outranked` is called once, when this service must give way to another."""
        environment = current_environment()
        self._port = environment.open_port(domain, interface, port=port, ttl=ttl, multicast=multicast)
        salt = environment.random().randrange(1, 1 << ROUND_BITS)
        self._parts = compose_service(domain, self._port.endpoint, salt, multicast=multicast)
        self._on_outranked = on_outranked
        self._is_outranked = False
        self._driver = Driver(self._parts.node, self._port, on_event=self._on_event)
        self._driver.start()
        self._driver.submit(StartBeacon())

    @property
    def endpoint(self) -> Endpoint:
        """The service's endpoint; usable as a seed."""
        return self._port.endpoint

    @property
    def nodes(self) -> int:
        """The number of nodes in the domain."""
        info = self._parts.beaconer.info
        return 0 if info is None else info.lives

    def metrics(self, domain: str) -> str:
        """Write the service's metrics as Prometheus reads them."""
        counted = self._parts.counters.as_dict()
        metrics = [Metric("up", "1 while the service runs", 1), Metric("nodes", "Nodes in the domain", self.nodes)]
        metrics += [
            Metric(f"{name}_total", f"{meaning} ({unit})", counted[name], is_counter=True)
            for name, unit, meaning in counter_list()
        ]
        return metrics_text(metrics, {"domain": domain, "node": "service"})

    def _on_event(self, event: Event) -> None:
        if isinstance(event, ServiceOutranked) and not self._is_outranked:
            self._is_outranked = True
            self._on_outranked(event.by)

    def close(self) -> None:
        """Send the farewell and stop. May be called again."""
        self._driver.submit(EndBeacon())
        self._driver.pump()
        self._driver.close()
