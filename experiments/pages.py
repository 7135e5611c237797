"""What is generated in the pages of `docs/experiments`: pictures, tables and targets, each between two marks."""

from pathlib import Path
from textwrap import fill

from experiments.description import Experiment, TargetSpec
from experiments.results import Outcome, summarize
from experiments.tables import WIDTH_MAX, make_table

RESULTS, TARGETS = "results", "targets"


def write_between(page: Path, name: str, text: str) -> None:
    """Put text into a page, in the place of what is there between the marks of this name."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    _, mark, after = rest.partition(end)
    if not mark:
        raise ValueError(f"{page}: has no '{begin}' and '{end}' to write between")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def make_results(experiment: Experiment, outcomes: list[Outcome]) -> str:
    """Make what a page says by itself: the pictures, then the table."""
    pictures = [f"![{each.title}]({each.file})\n" for each in experiment.plots]
    return "\n".join([*pictures, make_table(experiment, outcomes)])


def make_targets(experiments: list[tuple[Experiment, list[Outcome]]]) -> str:
    """Say of each target what the worst of all runs gave, and how long all runs took."""
    lines = [
        fill(f"- {_judge(target, outcomes)}", WIDTH_MAX, subsequent_indent="  ")
        for experiment, outcomes in experiments
        for target in experiment.targets
    ]
    every = [each for _, outcomes in experiments for each in outcomes]
    points = sum(len(summarize(outcomes)) for _, outcomes in experiments)
    codes = ", ".join(sorted({f"{each.commit} (sources {each.source})" for each in every}))
    hours = sum(each.wall_s for each in every) / 3600
    told = f"Commit {codes}: {points} points, {len(every)} runs, {hours:.1f} hours of one core."
    return "\n".join([*lines, "", fill(told, WIDTH_MAX)])


def _judge(target: TargetSpec, outcomes: list[Outcome]) -> str:
    worst = min(
        (
            each.numbers[target.value]
            for each in outcomes
            if target.value in each.numbers
            and all(each.axes.get(path) == value for path, value in target.where.items())
        ),
        default=None,
    )
    if worst is None:
        return f"{target.text}: not measured."
    verdict = "met" if worst >= target.least else "**missed**"
    return f"{target.text}: at least {100 * target.least:g} %; the lowest of all runs {100 * worst:.1f} %: {verdict}."
