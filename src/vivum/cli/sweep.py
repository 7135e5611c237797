"""`vivum sweep`: the points of experiments as a Spark job."""

import importlib
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from vivum.cli.conventions import Failed, JsonOption, MasterOption, command_group, console, write_json
from vivum.pipeline.jobs.running import check_writable, spark_job
from vivum.pipeline.sweep import SETTINGS, Sweep, SweepReport, Task, Watch, run_sweeps

app = command_group("Run the simulations of experiments as a Spark job.")


@app.command()
def sweep(
    experiments: Annotated[list[Path], typer.Argument(help="Descriptions, such as experiments/load.toml.")],
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
    """Run all points that have no result of this code yet. Exit code 1 if any failed twice."""
    began = time.perf_counter()
    text = console(as_json)
    sweeps = [Sweep(each, out, quick=quick, traces=traces) for each in experiments]
    for each in sweeps:
        check_writable(each.out)
    if plot is not None:
        check_writable(plot)
    show = _Show(sum(len(each.points) for each in sweeps), text)
    with spark_job("vivum sweep", master, text, settings=SETTINGS) as spark, show.bar:
        reports = run_sweeps(spark, sweeps, show)
    told = [
        _conclude(each, report, plot or each.out / "figures", text, as_json)
        for each, report in zip(sweeps, reports, strict=True)
    ]
    if as_json:
        write_json({"sweeps": told, "wall_s": round(time.perf_counter() - began, 3)})
    if any(report.failed for report in reports):
        raise Failed


class _Show(Watch):
    """A line for each point that is finished, and a bar on a terminal."""

    def __init__(self, points: int, text: Console) -> None:
        super().__init__()
        self._points = points
        self._text = text
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=text,
            transient=True,
        )  # fmt: skip
        self._line = self.bar.add_task("sweep", total=points)

    def show_begin(self) -> None:
        before = self._points - len(self.tasks)
        self.bar.update(self._line, completed=before)
        self._say(f"{self._points} runs, {before} done before; some {_minutes(self.left_s)}, {self.processors} at once")

    def show_finished(self, task: Task, took_s: float) -> None:
        done = self._points - len(self.tasks) + len(self.wall_s)
        self.bar.update(self._line, completed=done)
        self._say(f"{done}/{self._points} {task.name}: took {took_s:.0f} s, {_minutes(self.left_s)} left")

    def _say(self, line: str) -> None:
        self._text.print(line, highlight=False, markup=False, soft_wrap=True)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"


def _conclude(job: Sweep, report: SweepReport, folder: Path, text: Console, as_json: bool) -> dict[str, Any]:
    """Show the table of a sweep, draw its pictures, and say how it went."""
    tables, results = importlib.import_module("experiments.tables"), importlib.import_module("experiments.results")
    compared = results.compared(report.outcomes, job.experiment.baseline)
    drawn: list[Path] = []
    if compared:
        table = tables.make_table(job.experiment, compared)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{job.out.name}.md").write_text(f"# {job.experiment.title}\n\n{table}\n", encoding="utf-8")
        drawn = _draw(job, compared, folder, text)
        if not as_json:
            text.print(table, markup=False, soft_wrap=True)
    for point, error in report.failed.items():
        text.print(f"[red]failed[/] {point}: {error}", highlight=False)
    text.print(f"{report.points} points, {report.before} done before, {len(report.failed)} failed; {job.out}")
    return {
        "experiment": job.name,
        "points": report.points,
        "done_before": report.before,
        "failed": report.failed,
        "results": str(job.out),
        "plots": [str(each) for each in drawn],
    }


def _draw(job: Sweep, outcomes: list[Any], folder: Path, text: Console) -> list[Path]:
    """Draw the pictures, or say what is missing for it: the results are there all the same."""
    try:
        plotting = importlib.import_module("experiments.plotting")
    except ImportError as error:
        text.print(f"no pictures: {error}; install matplotlib and run the same command again", markup=False)
        return []
    drawn: list[Path] = plotting.draw(job.experiment, outcomes, folder)
    return drawn
