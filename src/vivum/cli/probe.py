"""`vivum health`: for liveness and readiness probes of supervisors and containers."""

import http.client
import time
from typing import Annotated

import typer

from vivum.cli import joining
from vivum.cli.conventions import Failed, JsonOption, command_group, console, write_json
from vivum.cli.running import run_command
from vivum.core.ids import Endpoint
from vivum.live.connecting import Connecting
from vivum.live.failures import NoServiceError
from vivum.runtime.metrics import metrics_place

app = command_group("Ask whether a domain, or one process of it, is well: exit code 0 or 1.")


@app.command()
def health(
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", help="Ask the process that serves metrics here: PORT, or ADDRESS:PORT."),
    ] = None,
    live: Annotated[
        bool,
        typer.Option("--live", help="With --metrics: ask only whether it answers, not whether it is in the domain."),
    ] = False,
    domain: joining.DomainOption = joining.DEFAULT_DOMAIN,
    interface: joining.InterfaceOption = joining.DEFAULT_INTERFACE,
    seeds: joining.SeedsOption = None,
    unicast: joining.UnicastOption = False,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for an answer.")] = 2.0,
    as_json: JsonOption = False,
) -> None:
    """Ask whether a domain's service admits nodes, or with --metrics whether one process is well.

    Exit code 0 if so, 1 if not. A liveness probe uses --metrics PORT --live, a readiness probe --metrics PORT.
    """
    began = time.perf_counter()
    if metrics is not None:
        well, told = _ask_process(metrics_place(metrics), live, timeout)
    else:
        well, told = run_command(
            _ask_domain(joining.prepare(domain, interface, seeds, unicast, embedded=False, timeout_s=timeout))
        )
    took_ms = (time.perf_counter() - began) * 1e3
    if as_json:
        write_json({"well": well, "told": told, "took_ms": round(took_ms, 1)})
    else:
        console().print(f"{told} ({took_ms:.0f} ms)", markup=False)
    if not well:
        raise Failed


def _ask_process(place: Endpoint, live: bool, timeout_s: float) -> tuple[bool, str]:
    asked = http.client.HTTPConnection(place.host, place.port, timeout=timeout_s)
    try:
        asked.request("GET", "/health" if live else "/ready")
        answer = asked.getresponse()
        return answer.status == http.client.OK, answer.read(200).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return False, f"nothing answers at {place}: {error}"
    finally:
        asked.close()


async def _ask_domain(connecting: Connecting) -> tuple[bool, str]:
    try:
        async with connecting as node:
            # The node that asks is one of them.
            return True, f"domain {node.domain} is served, {len(await node.nodes()) - 1} nodes"
    except NoServiceError as error:
        return False, str(error)
