"""What benchmarks show to people."""

import io

from rich.console import Console

from vivum.cli.bench import table_of


def shown(result: dict[str, object]) -> list[list[str]]:
    out = io.StringIO()
    Console(file=out, width=200).print(table_of(result))
    return [line.split(None, 1) for line in out.getvalue().splitlines()]


def test_figures_lists_of_them_and_what_was_told_have_lines() -> None:
    """Ours: where a receiver was told of a gap, all that had been measured for minutes was lost in an error."""
    result = {"ratio": 0.913, "rates_one": [1200, 1300], "told": ["gap of 3", "gap of 4"], "stop_one": {"a": 1}}
    assert [[word.strip() for word in line] for line in shown(result)] == [
        ["ratio", "0.913"],
        ["rates_one", "1,200, 1,300"],
        ["told", "gap of 3"],
        ["told", "gap of 4"],
    ]
    assert table_of({"told": []}).row_count == 0
