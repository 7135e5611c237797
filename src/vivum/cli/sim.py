"""`vivum sim`: run, watch and swarm simulations."""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from vivum.cli.conventions import Failed, JsonOption, command_group, console, write_json
from vivum.cli.sim_watch import watch
from vivum.core.errors import UsageError
from vivum.node.build import PROTOCOLS
from vivum.observe.trace import FrameDropped, FrameReceived, FrameSent, Tracer, TraceRecord
from vivum.sim.library import MINORITY, SWARM, built_in_names, find_scenario
from vivum.sim.replicas.kv_world import KV, KvWorld, make_up_stores, run_store_seed
from vivum.sim.replicas.swarm import CONSENSUS, make_up_replicas, run_replica_seed
from vivum.sim.replicas.world import ReplicaWorld
from vivum.sim.swarm import run_seed, run_swarm
from vivum.sim.timeline import line_of
from vivum.sim.world import Result, World
from vivum.storage.traces import TraceWriter
from vivum.testing import swarm as live_swarm

LIVE, LIVE_TIMELY = live_swarm.LIVE, live_swarm.LIVE_TIMELY
"""The swarm of whole programs, where others name a protocol. `live` is what `swarm` alone means: what users run."""

app = command_group("Run, watch and swarm deterministic simulations.")
app.command()(watch)

ScenarioArgument = Annotated[
    str,
    typer.Argument(
        help=f"A TOML file, the name of a built-in scenario, '{SWARM}', or '{SWARM}:PROTOCOL'.",
        metavar="SCENARIO",
    ),
]
SeedOption = Annotated[int, typer.Option(min=0, help="Decides everything that is random.")]


def _progress(as_json: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console(as_json),
        transient=True,
    )


@app.command()
def run(
    scenario: ScenarioArgument,
    seed: SeedOption = 1,
    trace: Annotated[
        Path | None, typer.Option(help="Also write all trace records to Parquet files in this folder.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run one scenario and check its guarantees. Exit code 1 if any was violated."""
    whole = _whole_world(scenario)
    description = None if whole else find_scenario(scenario, seed)
    began = time.perf_counter()
    promises = () if description is None else description.checkers
    writer = TraceWriter(trace, "sim", promises=promises) if trace is not None else None
    try:
        with _progress(as_json) as progress:
            task = progress.add_task(f"{scenario}, seed {seed}", total=100)
            if whole is not None:
                result = whole(seed, writer)
            else:
                assert description is not None
                world = World(description, seed, writer)
                result = world.run(lambda share: progress.update(task, completed=round(100 * share)))
    finally:
        if writer is not None:
            writer.close()
    wall_s = time.perf_counter() - began
    if as_json:
        write_json(_as_json(scenario, result, wall_s))
    else:
        _print_result(scenario, result, wall_s)
    if result.violations:
        raise Failed


def _whole_world(scenario: str) -> Callable[[int, Tracer | None], Result] | None:
    """Return what runs a world that is no scenario: of whole programs, or of replicas."""
    if scenario in (SWARM, f"{SWARM}:{LIVE}"):
        return lambda seed, trace: live_swarm.LiveWorld(seed, trace).run()
    if scenario == f"{SWARM}:{LIVE_TIMELY}":
        return lambda seed, trace: live_swarm.LiveWorld(seed, trace, live_swarm.plain_guarantee(LIVE_TIMELY)).run()
    if scenario == f"{SWARM}:{CONSENSUS}":
        return lambda seed, trace: ReplicaWorld(make_up_replicas(seed), seed, trace, frames=trace is not None).run()
    if scenario == f"{SWARM}:{KV}":
        return lambda seed, trace: KvWorld(make_up_stores(seed), seed, trace, frames=trace is not None).run()
    return None


def _as_json(scenario: str, result: Result, wall_s: float) -> dict[str, object]:
    return {
        "scenario": scenario,
        "seed": result.seed,
        "trace_hash": result.trace_hash,
        "events": result.events,
        "violations": len(result.violations),
        "witnesses": [str(violation) for violation in result.violations],
        "wall_s": round(wall_s, 3),
        "records": result.records,
        "simulated_s": result.simulated_s,
        "accepted": result.accepted,
        "refused": result.refused,
        "delivered": result.delivered,
        "arrivals": result.arrivals,
        "latency_us_p50": result.latency_us_p50,
        "latency_us_p99": result.latency_us_p99,
        "losses": result.losses,
        "counters": result.counters,
    }


def _print_result(scenario: str, result: Result, wall_s: float) -> None:
    out = console()
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_row("simulated", f"{result.simulated_s:g} s in {wall_s:.2f} s, {result.events:,} events")
    table.add_row("messages", f"{result.accepted:,} accepted, {result.delivered:,} deliveries")
    lost = ", ".join(f"{count:,} {cause}" for cause, count in result.losses.items()) or "none"
    table.add_row("datagrams", f"{result.arrivals:,} arrivals; lost: {lost}")
    if result.latency_us_p50 is not None and result.latency_us_p99 is not None:
        table.add_row(
            "latency", f"{result.latency_us_p50:,.0f} µs median, {result.latency_us_p99:,.0f} µs 99th percentile"
        )
    table.add_row("trace", f"{result.trace_hash} ({result.records:,} records)")
    out.print(f"[bold]{scenario}[/], seed {result.seed}")
    out.print(table)
    for violation in result.violations:
        out.print(f"[red]violated[/] {violation}", markup=True)
        for witness in violation.witnesses:
            out.print("   " + line_of(witness), markup=False)
    if not result.violations:
        out.print("[green]all guarantees hold[/]")


@app.command()
def swarm(
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to run.")] = 200,
    first_seed: Annotated[int, typer.Option(min=0, help="The first of them.")] = 1,
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0 means one for each core.")] = 0,
    protocol: Annotated[
        str,
        typer.Option(
            help="What the worlds run: live, live:timely (whole programs), consensus, kv, or nodes of a protocol."
        ),
    ] = LIVE,
    minority: Annotated[
        bool, typer.Option("--minority", help="Split every world of 'qsm', with the service on the smaller side.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run worlds that are made up from seeds: faults, then healing, then everything must become whole.

    Exit code 1 if any seed failed; the command that replays it is printed.
    """
    known = (*PROTOCOLS, LIVE, LIVE_TIMELY, CONSENSUS, KV)
    if protocol not in known:
        raise UsageError(f"--protocol {protocol}: unknown; allowed: {', '.join(sorted(known))}")
    if minority and protocol in (LIVE, LIVE_TIMELY):
        raise UsageError("--minority: whole programs are not made up with the service in the minority; --protocol qsm")
    if minority and protocol in (CONSENSUS, KV):
        raise UsageError("--minority: replicas of a log have no service; every split leaves some in the minority")
    name = SWARM if protocol == LIVE else f"{SWARM}:{protocol}"
    if minority:
        name += f":{MINORITY}"
    began = time.perf_counter()
    out = console(as_json)
    failed: list[int] = []
    events = 0
    with _progress(as_json) as progress:
        task = progress.add_task("swarm", total=seeds)
        own = {
            LIVE: live_swarm.run_live_seed,
            LIVE_TIMELY: live_swarm.run_live_seed,
            CONSENSUS: run_replica_seed,
            KV: run_store_seed,
        }
        run_one = own.get(protocol) or partial(run_seed, minority=minority)
        for verdict in run_swarm(first_seed, seeds, jobs or os.cpu_count() or 1, protocol, run_one):
            events += verdict.events
            progress.advance(task)
            if verdict.violations:
                failed.append(verdict.seed)
                out.print(f"[red]seed {verdict.seed}[/] {verdict.violations[0]}")
                out.print(f"   replay: vivum sim run {name} --seed {verdict.seed}", markup=False)
    wall_s = time.perf_counter() - began
    if as_json:
        write_json(
            {
                "seeds": seeds,
                "first_seed": first_seed,
                "failed": failed,
                "events": events,
                "wall_s": round(wall_s, 3),
            }
        )
    elif failed:
        out.print(f"[red]{len(failed)} of {seeds} seeds failed[/] in {wall_s:.1f} s")
    else:
        out.print(f"[green]all {seeds} seeds hold[/], {events:,} events in {wall_s:.1f} s")
    if failed:
        raise Failed


class _Filter:
    """Keeps the records that a reader asked for, as far as there is room; counts the rest."""

    def __init__(self, nodes: list[int], groups: list[int], frames: bool, limit: int) -> None:
        self.kept: list[TraceRecord] = []
        self.more = 0
        self._nodes = set(nodes)
        self._groups = set(groups)
        self._frames = frames
        self._limit = limit

    def __call__(self, record: TraceRecord) -> None:
        if isinstance(record, FrameSent | FrameReceived | FrameDropped) and not self._frames:
            return
        if self._nodes and record.node and record.node not in self._nodes:
            return
        group = getattr(record, "group", None)
        if self._groups and group is not None and group not in self._groups:
            return
        if len(self.kept) < self._limit:
            self.kept.append(record)
        else:
            self.more += 1


@app.command()
def show(
    scenario: ScenarioArgument,
    seed: SeedOption = 1,
    node: Annotated[list[int] | None, typer.Option(help="Only these nodes; may be given several times.")] = None,
    group: Annotated[list[int] | None, typer.Option(help="Only these groups; likewise.")] = None,
    frames: Annotated[bool, typer.Option("--frames", help="Show every datagram as well.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many lines.")] = 200,
) -> None:
    """Run one scenario and print what happened as a readable timeline (times in microseconds)."""
    wanted = _Filter(node or [], group or [], frames, limit)
    sink: Tracer = wanted
    whole = _whole_world(scenario)
    if whole is not None:
        result = whole(seed, sink)
    else:
        description = find_scenario(scenario, seed)
        for number in node or []:
            if not 1 <= number <= description.nodes:
                raise UsageError(f"--node {number}: this scenario has nodes 1 to {description.nodes}")
        result = World(description, seed, sink).run()
    out = console()
    for record in wanted.kept:
        out.print(line_of(record), markup=False)
    if wanted.more:
        out.print(f"… {wanted.more:,} more; --limit shows more, --node and --group choose")
    for violation in result.violations:
        out.print(f"[red]violated[/] {violation}")
    if result.violations:
        raise Failed


@app.command("list")
def list_scenarios(as_json: JsonOption = False) -> None:
    """List the scenarios that come with Vivum."""
    found = {name: find_scenario(name, 0).description for name in built_in_names()}
    if as_json:
        write_json({"scenarios": found})
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, description in found.items():
        table.add_row(f"[bold]{name}[/]", description)
    table.add_row(f"[bold]{SWARM}[/]", "Whole programs in a world made up from the seed: anything may fail")
    table.add_row(f"[bold]{SWARM}:qsm[/]", "The same with nodes of one protocol alone")
    table.add_row(f"[bold]{SWARM}:{LIVE_TIMELY}[/]", "The same with timely topics in place of reliable ones")
    table.add_row(f"[bold]{SWARM}:{CONSENSUS}[/]", "The same with the replicas of a log")
    table.add_row(f"[bold]{SWARM}:{KV}[/]", "The same with a key-value store on them")
    console().print(table)
