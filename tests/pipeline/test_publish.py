"""What `python -m experiments` writes into the pages, from results that sweeps left."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from experiments.__main__ import publish
from experiments.description import FOLDER, names

from vivum.core.errors import UsageError
from vivum.pipeline.sweep import RESULT, Sweep

pytestmark = pytest.mark.slow

MEASURED = [
    "rate_median", "pending_mean", "ack_ms_mean", "sender_kb_mean", "token_rounds_per_s_0", "token_ms_0", "ack_ms_p99",
    "load_receiver", "losses",
]  # fmt: skip


def write(sweeps: Path, name: str, source: str = "same", **left_out: Any) -> None:
    """Write results as a sweep does, without running anything."""
    sweep = Sweep(FOLDER / f"{name}.toml", sweeps)
    sweep.out.mkdir(parents=True, exist_ok=True)
    for number, each in enumerate(sweep.points):
        if number in left_out.get("but", ()):
            continue
        row = {
            "key": each.key,
            "axes": json.dumps(each.axes),
            "seed": each.seed,
            "commit": "c0ffee",
            "source": source,
            "wall_s": 3600.0,
            "rss_mb": 50.0,
            "numbers": [(value, 100.0 + each.seed) for value in MEASURED],
        }
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row], schema=RESULT), sweep.out / f"{each.key}.parquet")


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """Pages with nothing between their marks."""
    folder = tmp_path / "pages"
    folder.mkdir()
    for name in names():
        (folder / f"{name}.md").write_text(f"# {name}\n\n<!-- results: begin -->\n<!-- results: end -->\n")
    return folder


def test_tables_and_pictures_go_into_the_page(tmp_path, pages):
    write(tmp_path / "sweeps", "cadence")
    publish(["cadence"], tmp_path / "sweeps", pages, is_partial=False)
    text = (pages / "cadence.md").read_text()
    assert text.startswith("# cadence\n\n<!-- results: begin -->\n![")
    assert "| 1,000 | 102.0 ± 1.0 |" in text
    assert "Commit c0ffee (sources same); seeds 1, 2, 3." in text
    assert {each.name for each in pages.glob("*.png")} == {"cadence.png", "cadence_rate.png"}


def test_results_that_are_not_whole_or_not_of_one_code_are_refused_unless_that_is_wanted(tmp_path, pages):
    sweeps = tmp_path / "sweeps"
    write(sweeps, "cadence", but=(0, 1))
    with pytest.raises(UsageError, match="cadence: 2 of 15 points have no result"):
        publish(["cadence"], sweeps, pages, is_partial=False)
    write(sweeps, "cadence", source="other", but=range(2, 15))
    with pytest.raises(UsageError, match=r"several codes \(other, same\)"):
        publish(["cadence"], sweeps, pages, is_partial=False)
    publish(["cadence"], sweeps, pages, is_partial=True)
    assert "sources other" in (pages / "cadence.md").read_text()
    with pytest.raises(UsageError, match="load: 45 of 45 points"):
        publish(["load"], sweeps, pages, is_partial=True)
