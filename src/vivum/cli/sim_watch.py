"""`vivum sim watch`: a small cluster, simulated and drawn in the terminal.

Runs the built-in scenario `quickstart`, slowed down to be watched, tells what goes wrong as it goes wrong, and ends
with the verdict of the checkers.
"""

import time
from collections import deque
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from vivum.cli.conventions import Failed, JsonOption, console, write_json
from vivum.core.time import MILLISECOND, SECOND
from vivum.observe.trace import FaultInjected, FrameDropped, NodeStopped, TraceRecord
from vivum.sim.host import Host
from vivum.sim.library import find_scenario
from vivum.sim.world import Result, World

SCENARIO = "quickstart"
FRAME_NS = 100 * MILLISECOND
"""Simulated time between two pictures."""

BAR = 32
"""Width of the longest bar, in characters."""


class _Watcher:
    """Counts what the picture shows, from the trace."""

    def __init__(self) -> None:
        self.lost: dict[int, int] = {}
        self.crashes: dict[int, int] = {}
        self.news: deque[str] = deque(maxlen=6)

    def __call__(self, record: TraceRecord) -> None:
        if isinstance(record, FrameDropped):
            self.lost[record.node] = self.lost.get(record.node, 0) + 1
        elif isinstance(record, FaultInjected):
            self.news.append(f"{record.time_ns / SECOND:5.1f} s  {record.cause}")
        elif isinstance(record, NodeStopped):
            self.crashes[record.node] = self.crashes.get(record.node, 0) + 1


def watch(
    seconds: Annotated[float, typer.Option(min=0.0, help="How long it takes at least.")] = 6.0,
    seed: Annotated[int, typer.Option(min=0, help="Decides everything that is random.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Watch a small cluster survive loss, a sleeping node and a crash; then hear whether every guarantee held."""
    began = time.perf_counter()
    watcher = _Watcher()
    world = World(find_scenario(SCENARIO, seed), seed, watcher)
    out = console(as_json)
    out.print(f"[bold]Vivum, simulated[/]: {world.scenario.description} (seed {seed}).")
    out.print("Every message must reach every member of its group once, in order, whatever is lost.\n")
    world.start()
    pictures = world.end_ns // FRAME_NS
    with Live(_picture(world, watcher), console=out, auto_refresh=False, transient=not out.is_terminal) as live:
        for number in range(1, pictures + 1):
            world.advance_to(number * FRAME_NS)
            live.update(_picture(world, watcher), refresh=out.is_terminal)
            ahead_s = seconds * number / pictures - (time.perf_counter() - began)
            if ahead_s > 0:
                time.sleep(ahead_s)
    if not out.is_terminal:
        out.print(_picture(world, watcher))
    result = world.finish()
    wall_s = time.perf_counter() - began
    if as_json:
        write_json(_as_json(result, wall_s))
    else:
        _print_verdict(result)
    if result.violations:
        raise Failed


def _picture(world: World, watcher: _Watcher) -> RenderableType:
    most = max((_delivered(host) for host in world.hosts.values()), default=1) or 1
    table = Table(box=None, pad_edge=False)
    for title in ("node", "state", "delivered"):
        table.add_column(title)
    for title in ("", "lost", "repaired"):
        table.add_column(title, justify="right")
    for number, host in world.hosts.items():
        delivered = _delivered(host)
        repaired = host.node.counters.repairs_received if host.node is not None else 0
        table.add_row(
            f"{number}.{host.incarnation}",
            _state(host),
            Text("█" * (BAR * delivered // most), style="cyan"),
            f"{delivered:,}",
            f"{watcher.lost.get(number, 0):,}",
            f"{repaired:,}",
        )
    clock = f"simulated time {world.scheduler.now_ns / SECOND:4.1f} s of {world.end_ns / SECOND:.0f} s"
    return Group(table, Text(f"\n{clock}"), *(Text(f"  {line}", style="yellow") for line in watcher.news))


def _delivered(host: Host) -> int:
    return host.node.counters.messages_delivered if host.node is not None else 0


def _state(host: Host) -> Text:
    if host.node is None:
        return Text("crashed", style="red")
    return Text("asleep", style="yellow") if host.is_asleep else Text("up", style="green")


def _as_json(result: Result, wall_s: float) -> dict[str, object]:
    return {
        "scenario": SCENARIO,
        "seed": result.seed,
        "accepted": result.accepted,
        "delivered": result.delivered,
        "datagrams_lost": sum(result.losses.values()),
        "violations": len(result.violations),
        "trace_hash": result.trace_hash,
        "wall_s": round(wall_s, 3),
    }


def _print_verdict(result: Result) -> None:
    out = console()
    lost = sum(result.losses.values())
    out.print(
        f"\n{result.accepted:,} messages sent, {result.delivered:,} deliveries; "
        f"{lost:,} of {result.arrivals + lost:,} datagrams were lost on the way."
    )
    for violation in result.violations:
        out.print(f"[red]violated[/] {violation}")
    if not result.violations:
        out.print("[green]Every guarantee held:[/] nothing twice, nothing made up, no gap, nothing forgotten.")
        out.print(f"Look closer: [bold]vivum sim show {SCENARIO} --seed {result.seed}[/]")
