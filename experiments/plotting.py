"""Pictures of results: one PNG for each plot that an experiment describes.

A point is the mean over its seeds; its bar goes from the least to the most of them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib import ticker

from experiments.description import Experiment, PlotSpec
from experiments.results import Outcome, Spread, Summary, summarize

Line = tuple[str, list[float], list[Spread]]


def draw(experiment: Experiment, outcomes: list[Outcome], folder: Path) -> list[Path]:
    """Draw all plots of an experiment; return their files."""
    folder.mkdir(parents=True, exist_ok=True)
    summaries = summarize(outcomes)
    return [_draw_one(plot, summaries, folder / plot.file) for plot in experiment.plots]


def _draw_one(plot: PlotSpec, summaries: list[Summary], path: Path) -> Path:
    figure, axes = plt.subplots(figsize=(7.2, 4.2), dpi=110)
    for label, xs, spreads in lines_of(plot, summaries):
        means = [each.mean * plot.scale for each in spreads]
        below = [(each.mean - each.least) * plot.scale for each in spreads]
        above = [(each.most - each.mean) * plot.scale for each in spreads]
        axes.errorbar(xs, means, yerr=(below, above), marker="o", markersize=4, capsize=3, label=label)
    for (label, curve), marker in zip(plot.curves.items(), "s^v", strict=False):
        axes.plot(curve.x, curve.y, marker=marker, markersize=4, linestyle="--", color="dimgrey", label=label)
    for (label, value), style in zip(plot.lines.items(), ("--", ":", "-."), strict=False):
        axes.axhline(value, linestyle=style, linewidth=1.2, color="dimgrey", label=label)
    if plot.log_x:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:,.0f}")
    if plot.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter(ticker.LogFormatter(minor_thresholds=(2, 0.5)))
    else:
        axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.set(title=plot.title, xlabel=plot.x_label, ylabel=plot.y_label)
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize=8)
    figure.tight_layout()
    # Without the version of matplotlib in it: the same results give the same file.
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)
    return path


def lines_of(plot: PlotSpec, summaries: list[Summary]) -> Iterator[Line]:
    """Return one line for each value of the axis `by` and each measured number: its label, x and y."""
    chosen = [each for each in summaries if _is_wanted(plot, each)]
    groups = list(dict.fromkeys(each.axes.get(plot.by) for each in chosen)) if plot.by else [None]
    for group in groups:
        mine = [each for each in chosen if not plot.by or each.axes.get(plot.by) == group]
        for number, label in plot.y.items():
            found = [(_x(plot, each), each.numbers[number]) for each in mine if number in each.numbers]
            pairs = sorted((x, y) for x, y in found if x is not None)
            if pairs:
                parts = [part for part in (label, plot.by_label.format(group) if plot.by else "") if part]
                yield ", ".join(parts), [x for x, _ in pairs], [y for _, y in pairs]


def _x(plot: PlotSpec, summary: Summary) -> Any:
    """Return where a point lies: its axis, or the mean of a measured number."""
    if plot.x in summary.axes:
        return summary.axes[plot.x]
    return summary.numbers[plot.x].mean if plot.x in summary.numbers else None


def _is_wanted(plot: PlotSpec, summary: Summary) -> bool:
    if plot.only_axes and set(summary.axes) != set(plot.only_axes):
        return False
    return all(summary.axes.get(path) == value for path, value in plot.where.items())
