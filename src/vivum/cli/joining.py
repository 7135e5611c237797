"""What all commands that join a domain have in common: their options, and how they join."""

from pathlib import Path
from typing import Annotated

import typer

from vivum.live.connecting import LOOPBACK, Connecting, connect

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

DEFAULT_DOMAIN = "default"
DEFAULT_INTERFACE = LOOPBACK


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
) -> Connecting:
    """Prepare to join with the options of the command line."""
    return connect(
        domain,
        interface=interface,
        seeds=seeds or (),
        multicast=False if unicast else "probe",
        embedded=embedded,
        timeout_s=timeout_s,
        trace=trace,
        loss=loss / 100,
    )
