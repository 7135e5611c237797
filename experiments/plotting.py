"""Pictures of results: one PNG for each plot that an experiment describes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt

from experiments.description import Experiment, PlotSpec
from experiments.results import Outcome


def draw(experiment: Experiment, outcomes: list[Outcome], folder: Path) -> list[Path]:
    """Draw all plots of an experiment; return their files."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_draw_one(plot, outcomes, folder / plot.file) for plot in experiment.plots]


def _draw_one(plot: PlotSpec, outcomes: list[Outcome], path: Path) -> Path:
    figure, axes = plt.subplots(figsize=(7.2, 4.2), dpi=110)
    for label, xs, ys in _series(plot, outcomes):
        axes.plot(xs, ys, marker="o", markersize=4, label=label)
    for (label, value), style in zip(plot.lines.items(), ("--", ":", "-."), strict=False):
        axes.axhline(value, linestyle=style, linewidth=1.2, color="dimgrey", label=label)
    if plot.log_x:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:,.0f}")
    if plot.log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.set(title=plot.title, xlabel=plot.x_label, ylabel=plot.y_label)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
    return path


def _series(plot: PlotSpec, outcomes: list[Outcome]) -> Iterator[tuple[str, list[Any], list[float]]]:
    """One line for each value of the axis `by` and each measured number."""
    groups = list(dict.fromkeys(outcome.axes.get(plot.by) for outcome in outcomes)) if plot.by else [None]
    for group in groups:
        chosen = [each for each in outcomes if not plot.by or each.axes.get(plot.by) == group]
        chosen = [each for each in chosen if _is_wanted(plot, each)]
        for number, label in plot.y.items():
            values: list[dict[str, Any]] = [{**each.numbers, **each.axes} for each in chosen]
            pairs = sorted((each[plot.x], each[number]) for each in values if plot.x in each and number in each)
            if pairs:
                parts = [part for part in (label, plot.by_label.format(group) if plot.by else "") if part]
                yield ", ".join(parts), [x for x, _ in pairs], [y for _, y in pairs]


def _is_wanted(plot: PlotSpec, outcome: Outcome) -> bool:
    if plot.only_axes and set(outcome.axes) != set(plot.only_axes):
        return False
    return all(outcome.axes.get(path) == value for path, value in plot.where.items())
