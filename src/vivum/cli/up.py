"""`vivum up`: the configuration service of a domain as a process of its own."""

import asyncio
from typing import Annotated

import typer

from vivum.cli import joining
from vivum.cli.conventions import JsonOption, command_group, console, say, write_json
from vivum.cli.running import run_until_stopped
from vivum.core.errors import HostError
from vivum.core.ids import Endpoint
from vivum.live.connecting import meeting_port
from vivum.protocols.discovery.rank import ServiceInfo
from vivum.runtime.interfaces import hears_multicast
from vivum.runtime.metrics import MetricsServer, metrics_place
from vivum.runtime.service_host import ServiceHost
from vivum.wire.gate import domain_tag

app = command_group("Run the service of a domain: membership, names of topics, beacon.")


@app.command()
def up(
    domain: joining.DomainOption = joining.DEFAULT_DOMAIN,
    interface: joining.InterfaceOption = joining.DEFAULT_INTERFACE,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="UDP port; 0 lets the system choose.")] = 0,
    unicast: joining.UnicastOption = False,
    metrics: joining.MetricsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the service of a domain until Ctrl-C. Nodes find it by its beacon, or by --seed host:port."""
    place = None if metrics is None else metrics_place(metrics)
    run_until_stopped(_serve(domain, interface, port, unicast, place, as_json))


async def _serve(
    domain: str, interface: str, port: int, unicast: bool, metrics: Endpoint | None, as_json: bool
) -> None:
    tag = domain_tag(domain)
    multicast = not unicast and hears_multicast(tag, interface)
    if not multicast and not port:
        # Where nodes without multicast look for it by themselves.
        port = meeting_port(tag)
    ended: asyncio.Future[ServiceInfo | None] = asyncio.get_running_loop().create_future()

    def end(by: ServiceInfo | None) -> None:
        if not ended.done():
            ended.set_result(by)

    host = ServiceHost(tag, interface, port=port, multicast=multicast, on_outranked=end)
    out = console(as_json)
    server = MetricsServer(lambda: host.metrics(domain), lambda: True)
    try:
        where = host.endpoint
        way = "by its beacon" if multicast else f"by --seed {where}"
        out.print(f"service of domain [bold]{domain}[/] on {where}; nodes find it {way}. Ctrl-C ends it.")
        if metrics is not None:
            say(f"metrics at http://{await server.start(metrics)}/metrics")
        by = await ended
        if by is not None:
            raise HostError(
                f"another service of domain {domain!r} runs at {by.endpoint} and is the one to stay; this one ended"
            )
    finally:
        lives = host.nodes
        server.close()
        host.close()
        if as_json:
            write_json({"domain": domain, "endpoint": str(host.endpoint), "nodes_at_end": lives})
