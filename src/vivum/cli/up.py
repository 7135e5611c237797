"""`vivum up`: the configuration service of a domain as a process of its own."""

import asyncio
import signal
from typing import Annotated

import typer

from vivum.cli import joining
from vivum.cli.conventions import JsonOption, command_group, console, write_json
from vivum.core.errors import HostError
from vivum.live.connecting import meeting_port
from vivum.protocols.discovery.rank import ServiceInfo
from vivum.runtime.interfaces import hears_multicast
from vivum.runtime.loop_thread import run_on_loop
from vivum.runtime.service_host import ServiceHost
from vivum.wire.gate import domain_tag

app = command_group("Run the service of a domain: membership, names of topics, beacon.")


@app.command()
def up(
    domain: joining.DomainOption = joining.DEFAULT_DOMAIN,
    interface: joining.InterfaceOption = joining.DEFAULT_INTERFACE,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="UDP port; 0 lets the system choose.")] = 0,
    unicast: joining.UnicastOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run the service of a domain until Ctrl-C. Nodes find it by its beacon, or by --seed host:port."""
    run_on_loop(_serve(domain, interface, port, unicast, as_json))


async def _serve(domain: str, interface: str, port: int, unicast: bool, as_json: bool) -> None:
    tag = domain_tag(domain)
    multicast = not unicast and hears_multicast(tag, interface)
    if not multicast and not port:
        # Where nodes without multicast look for it by themselves.
        port = meeting_port(tag)
    ended: asyncio.Future[ServiceInfo | None] = asyncio.get_running_loop().create_future()

    def end(by: ServiceInfo | None) -> None:
        if not ended.done():
            ended.set_result(by)

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end, None)
    host = ServiceHost(tag, interface, port=port, multicast=multicast, on_outranked=end)
    out = console(as_json)
    try:
        where = host.endpoint
        way = "by its beacon" if multicast else f"by --seed {where}"
        out.print(f"service of domain [bold]{domain}[/] on {where}; nodes find it {way}. Ctrl-C ends it.")
        by = await ended
        if by is not None:
            raise HostError(
                f"another service of domain {domain!r} runs at {by.endpoint} and is the one to stay; this one ended"
            )
    finally:
        lives = host.nodes
        host.close()
        if as_json:
            write_json({"domain": domain, "endpoint": str(host.endpoint), "nodes_at_end": lives})
