"""A node that has a replica of the configuration service and no application: `vivum up`.

It takes part like any other node, so it finds the domain that is there or founds one, and its replica is chosen by its
age like any other's.
"""

from collections.abc import Callable

from vivum.core.errors import UsageError
from vivum.core.ids import Endpoint
from vivum.core.limits import Limits
from vivum.core.machine import Delivery, Event, InstallView
from vivum.observe.counters import counter_list
from vivum.runtime.environment import BUFFER_BYTES, current_environment
from vivum.runtime.member_host import HostOptions, MemberHost
from vivum.runtime.metrics import Metric, metrics_text


class ServiceHost:
    """Runs such a node on the current event loop."""

    def __init__(
        self,
        domain: int,
        interface: str,
        *,
        port: int = 0,
        seeds: tuple[Endpoint, ...] = (),
        ttl: int = 1,
        multicast: bool = True,
        on_failed: Callable[[Exception], None],
    ) -> None:
        """Open the port and begin. With `seeds`, other services of the domain, this one needs a `port`."""
        if seeds and not port:
            raise UsageError("a service with seeds needs a port of its own, at which they find it")
        environment = current_environment()
        if seeds:
            own = Endpoint(environment.address(interface), port)
            seeds = tuple(sorted({*seeds, own}))
        options = HostOptions(
            domain,
            f"service of {environment.default_name()}",
            interface,
            port,
            seeds,
            is_meeting_port=False,
            embedded=True,
            multicast=multicast,
            ttl=ttl,
            buffer_bytes=BUFFER_BYTES,
            limits=Limits(),
            shared_memory=False,
        )
        self._host = MemberHost(options, _ignore, _ignore, _ignore, _do_nothing, on_failed)
        self._host.start()

    @property
    def endpoint(self) -> Endpoint:
        """The node's endpoint; usable as a seed."""
        return self._host.endpoint

    @property
    def nodes(self) -> int:
        """The number of other nodes in the domain, as far as this one knows: exactly, where it leads."""
        info = self._host.service_info
        return 0 if info is None else max(0, info.lives - 1)

    @property
    def is_primary(self) -> bool:
        """Whether a leader of the service is heard."""
        return self._host.is_primary

    def metrics(self, domain: str) -> str:
        """Write the service's metrics as Prometheus reads them."""
        counted = self._host.counters.as_dict()
        metrics = [
            Metric("up", "1 while the service runs", 1),
            Metric("nodes", "Other nodes in the domain", self.nodes),
            Metric("primary", "1 while a leader of the service is heard", int(self._host.is_primary)),
        ]
        metrics += [
            Metric(f"{name}_total", f"{meaning} ({unit})", counted[name], is_counter=True)
            for name, unit, meaning in counter_list()
        ]
        return metrics_text(metrics, {"domain": domain, "node": "service"})

    async def close(self, leave_s: float) -> None:
        """Hand over what it leads, leave, and stop. May be called again."""
        await self._host.close(leave_s)


def _ignore(_: Delivery | InstallView | Event) -> None:
    """Take what nobody here waits for."""


def _do_nothing() -> None:
    """Wake nobody."""
