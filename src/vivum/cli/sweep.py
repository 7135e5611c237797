"""`vivum sweep`: an experiment's points as a Spark job."""

import importlib
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from vivum.cli.conventions import Failed, JsonOption, command_group, console, write_json
from vivum.cli.spark_options import MasterOption
from vivum.pipeline.jobs.running import spark_job
from vivum.pipeline.sweep import Sweep

app = command_group("Run an experiment's grid of simulations as a Spark job.")


@app.command()
def sweep(
    experiment: Annotated[Path, typer.Argument(help="A description, such as experiments/load.toml.")],
    master: MasterOption = None,
    out: Annotated[Path, typer.Option(help="Where results go, and are looked for: the same command goes on.")] = Path(
        "out/sweeps"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="Few and short points, to see that it runs.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Also draw the pictures into this folder.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Run all points that have no result yet. Exit code 1 if any failed twice."""
    began = time.perf_counter()
    text = console(as_json)
    job = Sweep(experiment, out, quick=quick)
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=text,
        transient=True,
    )  # fmt: skip
    with spark_job("vivum sweep", master, text) as spark, bar:
        task = bar.add_task(experiment.stem, total=len(job.points))
        report = job.run(spark, lambda done, total: bar.update(task, completed=done, total=total))
    tables, results = importlib.import_module("experiments.tables"), importlib.import_module("experiments.results")
    compared = results.compared(report.outcomes, job.experiment.baseline)
    drawn = []
    if plot is not None and compared:
        plot.mkdir(parents=True, exist_ok=True)
        drawn = importlib.import_module("experiments.plotting").draw(job.experiment, compared, plot)
    for point, error in report.failed.items():
        text.print(f"[red]failed[/] {point}: {error}", highlight=False)
    if as_json:
        write_json(
            {
                "experiment": experiment.stem,
                "points": report.points,
                "done_before": report.before,
                "failed": report.failed,
                "results": str(job.out),
                "plots": [str(each) for each in drawn],
                "wall_s": round(time.perf_counter() - began, 3),
            }
        )
    elif compared:
        text.print(tables.make_table(job.experiment, compared), markup=False)
        text.print(f"{report.points} points, {report.before} done before, {len(report.failed)} failed; {job.out}")
    if report.failed:
        raise Failed
