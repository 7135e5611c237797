"""What all commands that join a domain have in common: their options, how they join, and what they say about it."""

from pathlib import Path
from typing import Annotated

import typer

from vivum.cli.conventions import say
from vivum.live.connecting import Connecting, connect
from vivum.live.handle import NodeHandle
from vivum.runtime.defaults import read_defaults

DomainOption = Annotated[str, typer.Option("--domain", "-d", help="The domain to join.")]
InterfaceOption = Annotated[
    str, typer.Option(help="IPv4 address of the network to use; loopback stays on this computer.")
]
SeedsOption = Annotated[
    list[str] | None, typer.Option("--seed", help="host:port of a node or service to ask for the domain; repeatable.")
]
UnicastOption = Annotated[bool, typer.Option("--unicast", help="Do not use IP multicast.")]
TraceOption = Annotated[
    Path | None, typer.Option(help="Write what this node sends and delivers into this folder, for `vivum audit`.")
]
LossOption = Annotated[
    float, typer.Option(min=0.0, max=50.0, help="Drop this percentage of what arrives, to rehearse a bad network.")
]
MetricsOption = Annotated[
    str | None,
    typer.Option("--metrics", help="Serve Prometheus metrics on this port: PORT on loopback, or ADDRESS:PORT."),
]

# Read once, when a command that joins is loaded, so that --help shows the defaults that hold here.
_DEFAULTS = read_defaults()
DEFAULT_DOMAIN = _DEFAULTS.domain
DEFAULT_INTERFACE = _DEFAULTS.interface


def prepare(
    domain: str,
    interface: str,
    seeds: list[str] | None,
    unicast: bool,
    *,
    embedded: bool = True,
    timeout_s: float = 10.0,
    trace: Path | None = None,
    loss: float = 0.0,
    metrics: str | None = None,
) -> Connecting:
    """Prepare to join with the options of the command line."""
    return connect(
        domain,
        interface=interface,
        seeds=seeds or _DEFAULTS.seeds,
        multicast=False if unicast else "probe",
        embedded=embedded,
        timeout_s=timeout_s,
        trace=trace,
        loss=loss / 100,
        metrics=metrics,
    )


async def say_joined(node: NodeHandle, then: str) -> None:
    """Say that the node is in the domain, as who and among how many, and what the command does now."""
    others = len(await node.nodes()) - 1
    here = " (its service runs here)" if node.carries_service else ""
    nodes = "no other node" if not others else "1 other node" if others == 1 else f"{others} other nodes"
    say(f"joined {node.domain} as {node.member}{here}, {nodes}; {then}")
