"""Tables of results in Markdown: the mean over the seeds, and how far the seed farthest from it lies."""

from collections.abc import Sequence
from textwrap import fill

from experiments.description import ColumnSpec, Experiment, default_of, measure_at
from experiments.results import Outcome, Spread, Summary, summarize

WIDTH_MAX = 100
"""Characters in a line of a page. A table that is wider becomes several, each with the columns that tell rows apart."""


def make_table(experiment: Experiment, outcomes: list[Outcome]) -> str:
    """Make the table of an experiment, and say which code and seeds gave its numbers, and when it was measured."""
    summaries = summarize(outcomes)
    axes = {path for each in summaries for path in each.axes}
    columns = sorted(experiment.table, key=lambda column: column.value not in axes)
    rows = [[each.heading for each in columns]]
    rows += [[_cell(experiment, each, summary) for each in columns] for summary in summaries]
    codes = ", ".join(sorted({f"{each.commit} (sources {each.source})" for each in outcomes}))
    seeds = ", ".join(map(str, sorted({each.seed for each in outcomes})))
    origin = f"Commit {codes}; seeds {seeds}."
    measured = [measure_at(experiment, each.axes) for each in summaries]
    times = [(each.duration, each.warm_up) for each in measured]
    if len(set(times)) == 1:
        origin += " Measured for {} after {}.".format(*times[0])
    else:
        for row, cells in zip(rows, [("measured for", "after"), *times], strict=True):
            row.extend(cells)
    keys = sum(column.value in axes for column in columns)
    return "\n".join([*make_lines(rows, keys), "", fill(origin, WIDTH_MAX, break_on_hyphens=False)])


def make_lines(rows: Sequence[Sequence[str]], keys: int) -> list[str]:
    """Write rows, headings first, as one table, or as several where one would be too wide for a page.

    The first `keys` columns tell rows apart: each part has them.
    """
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---:|" * len(rows[0]))
    if max(map(len, lines)) <= WIDTH_MAX or len(rows[0]) <= keys + 1:
        return lines
    parts: list[list[list[str]]] = []
    for column in list(zip(*rows, strict=True))[keys:]:
        wider = [[*row, cell] for row, cell in zip(parts[-1], column, strict=True)] if parts else []
        if wider and max(len("| " + " | ".join(row) + " |") for row in wider) <= WIDTH_MAX:
            parts[-1] = wider
        else:
            parts.append([[*row[:keys], cell] for row, cell in zip(rows, column, strict=True)])
    return [line for part in parts for line in [*make_lines(part, keys), ""]][:-1]


def _cell(experiment: Experiment, column: ColumnSpec, summary: Summary) -> str:
    value = summary.axes.get(column.value, summary.numbers.get(column.value, default_of(experiment, column.value)))
    if isinstance(value, Spread):
        return format_spread(value, column.decimals, column.scale)
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value * column.scale:,.{column.decimals}f}"


def format_spread(spread: Spread, decimals: int = 0, scale: float = 1.0) -> str:
    """Write a mean and how far the farthest seed is from it, unless all seeds are the same to these decimals."""
    mean, deviation = (f"{value * scale:,.{decimals}f}" for value in (spread.mean, spread.deviation))
    return mean if not float(deviation.replace(",", "")) else f"{mean} ± {deviation}"
