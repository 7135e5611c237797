"""`vivum sweep`: an experiment's points as a Spark job."""

import importlib
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from vivum.cli.conventions import Failed, JsonOption, MasterOption, command_group, console, write_json
from vivum.pipeline.jobs.running import check_writable, spark_job
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
    traces: Annotated[
        bool, typer.Option("--traces", help="Keep the trace of each point too, in 'traces' beside the results.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the pictures into this folder; default: 'figures' beside the results.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run all points that have no result yet. Exit code 1 if any failed twice."""
    began = time.perf_counter()
    text = console(as_json)
    job = Sweep(experiment, out, quick=quick, traces=traces)
    check_writable(job.out)
    if plot is not None:
        check_writable(plot)
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
    table = tables.make_table(job.experiment, compared) if compared else ""
    if compared:
        folder = plot or job.out / "figures"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{job.out.name}.md").write_text(f"# {job.experiment.title}\n\n{table}\n", encoding="utf-8")
        drawn = _draw(job, compared, folder, text)
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
        text.print(table, markup=False)
        text.print(f"{report.points} points, {report.before} done before, {len(report.failed)} failed; {job.out}")
    if report.failed:
        raise Failed


def _draw(job: Sweep, outcomes: list[Any], folder: Path, text: Console) -> list[Path]:
    """Draw the pictures, or say what is missing for it: the results are there all the same."""
    try:
        plotting = importlib.import_module("experiments.plotting")
    except ImportError as error:
        text.print(f"no pictures: {error}; install matplotlib and run the same command again", markup=False)
        return []
    drawn: list[Path] = plotting.draw(job.experiment, outcomes, folder)
    return drawn
