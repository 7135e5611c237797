"""Tables of results in Markdown, written into the page of an experiment between two marks."""

from pathlib import Path

from experiments.description import ColumnSpec, Experiment, default_of
from experiments.results import Outcome

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"

WIDTH_MAX = 100
"""Characters in a line of a page. A table that is wider becomes several, whose rows are numbered."""


def make_table(experiment: Experiment, outcomes: list[Outcome]) -> str:
    """Make the table of an experiment, and name the code that gave its numbers."""
    columns = experiment.table
    codes = sorted({f"{each.commit} (sources {each.source})" for each in outcomes})
    rows = [[each.heading for each in columns]]
    rows += [[_cell(experiment, each, outcome) for each in columns] for outcome in outcomes]
    if len(codes) > 1:
        # Each row says which code gave it.
        for row, commit in zip(rows, ["commit", *(each.commit for each in outcomes)], strict=True):
            row.append(commit)
    lines = make_lines(rows)
    measure = experiment.measure
    seeds = ", ".join(map(str, experiment.seeds))
    lines += ["", f"Commit {', '.join(codes)}; measured for {measure.duration} after {measure.warm_up}; seed {seeds}."]
    return "\n".join(lines)


def make_lines(rows: list[list[str]]) -> list[str]:
    """Write rows, headings first, as one table, or as several where one would be too wide for a page."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---:|" * len(rows[0]))
    if max(map(len, lines)) <= WIDTH_MAX:
        return lines
    numbers = ["#", *map(str, range(1, len(rows)))]
    parts: list[list[list[str]]] = []
    for column in zip(*rows, strict=True):
        wider = [[*row, cell] for row, cell in zip(parts[-1], column, strict=True)] if parts else []
        if wider and max(len(" | ".join(row)) for row in wider) <= WIDTH_MAX - 4:
            parts[-1] = wider
        else:
            parts.append([[number, cell] for number, cell in zip(numbers, column, strict=True)])
    return [line for part in parts for line in [*make_lines(part), ""]][:-1]


def _cell(experiment: Experiment, column: ColumnSpec, outcome: Outcome) -> str:
    known = {**outcome.numbers, **outcome.axes, "wall_s": outcome.wall_s, "rss_mb": outcome.rss_mb}
    value = known.get(column.value, default_of(experiment, column.value))
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    return f"{value * column.scale:,.{column.decimals}f}"


def write_into(page: Path, table: str) -> None:
    """Put a table into a page, in the place of the one that is there."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"{page}: has no '{BEGIN}' and '{END}' to write between")
    page.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")
