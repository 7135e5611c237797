"""`vivum up`: a replica of the configuration service in a process of its own."""

import asyncio
from typing import Annotated

import typer

from vivum.cli import joining
from vivum.cli.conventions import JsonOption, command_group, console, say, write_json
from vivum.cli.running import run_until_stopped
from vivum.core.ids import Endpoint
from vivum.live.connecting import meeting_port, seed_endpoint
from vivum.live.handle import LEAVE_S
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
    seed: joining.SeedsOption = None,
    unicast: joining.UnicastOption = False,
    metrics: joining.MetricsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the service of a domain until Ctrl-C. Nodes find it by its beacon, or by --seed host:port.

    It is a node without an application: several of them on different hosts are replicas of each other, and so are the
    oldest other nodes. Where there is no multicast, name the others with --seed and give each a --port.
    """
    place = None if metrics is None else metrics_place(metrics)
    seeds = tuple(map(seed_endpoint, seed or ()))
    run_until_stopped(_serve(domain, interface, port, seeds, unicast, place, as_json))


async def _serve(
    domain: str,
    interface: str,
    port: int,
    seeds: tuple[Endpoint, ...],
    unicast: bool,
    metrics: Endpoint | None,
    as_json: bool,
) -> None:
    tag = domain_tag(domain)
    multicast = not unicast and hears_multicast(tag, interface)
    if not multicast and not port and not seeds:
        # Where nodes without multicast look for it by themselves.
        port = meeting_port(tag)
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(error: Exception) -> None:
        if not ended.done():
            ended.set_exception(error)

    host = ServiceHost(tag, interface, port=port, seeds=seeds, multicast=multicast, on_failed=fail)
    out = console(as_json)
    server = MetricsServer(lambda: host.metrics(domain), lambda: host.is_primary)
    nodes = 0
    try:
        where = host.endpoint
        way = "by its beacon" if multicast else f"by --seed {where}"
        out.print(f"service of domain [bold]{domain}[/] on {where}; nodes find it {way}. Ctrl-C ends it.")
        if metrics is not None:
            say(f"metrics at http://{await server.start(metrics)}/metrics")
        await ended
    finally:
        nodes = host.nodes
        server.close()
        await host.close(LEAVE_S)
        if as_json:
            write_json({"domain": domain, "endpoint": str(host.endpoint), "nodes_at_end": nodes})
