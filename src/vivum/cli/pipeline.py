"""`vivum pipeline`: jobs that make tables from recorded logs, traces and sweeps."""

import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from vivum.cli import joining
from vivum.cli.conventions import JsonOption, MasterOption, command_group, console, say, write_json
from vivum.core.errors import UsageError
from vivum.pipeline.jobs.alerts import publish_alerts
from vivum.pipeline.jobs.bronze import bronze
from vivum.pipeline.jobs.figures import figures
from vivum.pipeline.jobs.market import market
from vivum.pipeline.jobs.operations import operations
from vivum.pipeline.jobs.running import check_writable, spark_job
from vivum.pipeline.jobs.silver import silver
from vivum.pipeline.jobs.surveillance import surveillance
from vivum.pipeline.jobs.tables import Tables
from vivum.pipeline.jobs.watermarks import WATERMARK_DELAY, delay_ms
from vivum.pipeline.source.options import read_options

app = command_group("Make bronze, silver and gold tables from recorded logs, on Spark.")


class JobName(StrEnum):
    """The jobs, in the order in which a row passes them."""

    BRONZE = "bronze"
    SILVER = "silver"
    GOLD = "gold"
    MARKET = "market"
    SURVEILLANCE = "surveillance"
    OPERATIONS = "operations"
    FIGURES = "figures"


@app.callback()
def _group() -> None:
    """Make bronze, silver and gold tables from recorded logs, on Spark."""


@app.command("run")
def run_jobs(
    jobs: Annotated[
        list[JobName], typer.Argument(help="One job or several, run in the order given. gold: market and surveillance.")
    ],
    tables: Annotated[Path, typer.Option(help="The folder of all tables.")] = Path("out/tables"),
    log: Annotated[Path | None, typer.Option(help="The recorded log, for bronze.")] = None,
    topics: Annotated[str, typer.Option(help="Which topics bronze takes.")] = "/**",
    watermark: Annotated[
        str, typer.Option(help="How far rows may come out of order before silver flags them as late, as in '60s'.")
    ] = WATERMARK_DELAY,
    trace: Annotated[Path | None, typer.Option(help="The folder of traces, for operations.")] = None,
    sweeps: Annotated[Path, typer.Option(help="The folder of results of `vivum sweep`, for figures.")] = Path(
        "out/sweeps"
    ),
    experiments: Annotated[Path, typer.Option(help="The folder of the descriptions that were swept.")] = Path(
        "experiments"
    ),
    publish: Annotated[
        bool, typer.Option("--publish-alerts", help="Publish new alerts of surveillance to a topic, each once.")
    ] = False,
    domain: joining.DomainOption = joining.DEFAULT_DOMAIN,
    interface: joining.InterfaceOption = joining.DEFAULT_INTERFACE,
    seeds: joining.SeedsOption = None,
    unicast: joining.UnicastOption = False,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run jobs one after the other, each taking what is new."""
    began = time.perf_counter()
    folder = Tables(str(tables))
    steps: dict[str, Callable[[Any], dict[str, Any]]] = {}
    for job in jobs:
        if job is JobName.BRONZE:
            if log is None:
                raise UsageError("bronze needs a log; give --log DIR, the folder that `vivum record` wrote")
            read_options({"path": str(log), "topics": topics})
            steps["bronze"] = lambda spark: bronze(spark, str(log), folder, topics)
        elif job is JobName.OPERATIONS:
            if trace is None:
                raise UsageError("operations needs traces; give --trace DIR")
            steps["operations"] = lambda spark: operations(spark, str(trace), folder)
        elif job is JobName.FIGURES:
            if not sweeps.is_dir():
                raise UsageError(f"{sweeps}: no such folder; run `vivum sweep` first, or give --sweeps DIR")
            steps["figures"] = lambda spark: figures(spark, sweeps, folder, experiments)
        elif job is JobName.SILVER:
            delay_ms(watermark)
            steps["silver"] = lambda spark: silver(spark, folder, watermark)
        if job in (JobName.GOLD, JobName.MARKET):
            steps["market"] = lambda spark: market(spark, folder)
        if job in (JobName.GOLD, JobName.SURVEILLANCE):
            steps["surveillance"] = lambda spark: surveillance(spark, folder)
    if publish:
        if "surveillance" not in steps:
            raise UsageError("--publish-alerts needs the job surveillance or gold")
        told = {"domain": domain, "interface": interface, "unicast": str(unicast).lower()}
        steps["alerts"] = lambda spark: publish_alerts(spark, folder, {**told, "seeds": ",".join(seeds or ())})
    check_writable(folder.folder)
    text = console(as_json)
    done: dict[str, Any] = {}
    with spark_job("vivum pipeline", master, text) as spark:
        for name, step in steps.items():
            with text.status(name):
                done[name] = step(spark)
            say(f"{name} is done")
    if as_json:
        write_json({"tables": str(folder.folder), **done, "wall_s": round(time.perf_counter() - began, 3)})
    else:
        text.print(_table(done))
        text.print(f"tables in {folder.folder}", markup=False)


def _table(done: dict[str, dict[str, Any]]) -> Table:
    """Draw what each job did: a line for each number that it reports."""
    table = Table(box=None, pad_edge=False)
    for title in ("job", "what"):
        table.add_column(title)
    table.add_column("", justify="right")
    for job, report in done.items():
        for number, (what, value) in enumerate(report.items()):
            shown = f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
            table.add_row("" if number else job, what.replace("_", " "), shown)
    return table
