"""The tables of the papers' figures, from results of sweeps."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from vivum.cli.app import main
from vivum.core.errors import UsageError
from vivum.pipeline.jobs.figures import figures
from vivum.pipeline.jobs.tables import Tables
from vivum.pipeline.sweep import RESULT, Sweep

pytestmark = pytest.mark.slow

REAL = Path(__file__).parents[2] / "experiments"

DESCRIPTION = """
title = "A small one"
figures = "seed 004, Figure 11"
seeds = [1, 2]
baseline = { "traffic.0.senders" = 1 }

[scenario]
nodes = 3
protocol = "qsm"
checkers = []

[[scenario.traffic]]
senders = 1
rate = "max"
size = 100

[[sweep]]
"traffic.0.senders" = [1, 2]
nodes = [5, 10]

[quick]
sweep = [{ nodes = [3] }]

[[plots]]
file = "throughput.png"
title = "Throughput"
x = "nodes"
y = { rate_median = "median", rate_min = "" }
by = "traffic.0.senders"
by_label = "{} sender(s)"
x_label = "nodes"
y_label = "messages/s"

[[plots]]
file = "one.png"
title = "Pending"
x = "rate_median"
y = { pending_mean = "pending" }
where = { "traffic.0.senders" = 2 }
x_label = "messages/s"
y_label = "frames"

[[plots]]
file = "relative.png"
title = "Relative"
x = "nodes"
y = { rate_relative = "share" }
where = { "traffic.0.senders" = 2 }
scale = 100
x_label = "nodes"
y_label = "%"
"""


def rate(axes: dict[str, int], seed: int) -> float:
    return 1000.0 * axes["traffic.0.senders"] + axes["nodes"] + seed


def write(sweep: Sweep, name: str, **row: Any) -> None:
    sweep.out.mkdir(parents=True, exist_ok=True)
    whole = {"commit": "abc", "source": "1", "wall_s": 1.0, "rss_mb": 1.0, **row}
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([whole], schema=RESULT), sweep.out / f"{name}.parquet")


@pytest.fixture
def swept(tmp_path: Path) -> tuple[Path, Path]:
    """The folders of a description and of the results of its points, without running them."""
    folder = tmp_path / "experiments"
    folder.mkdir()
    (folder / "small.toml").write_text(DESCRIPTION)
    sweep = Sweep(folder / "small.toml", tmp_path / "sweeps")
    for each in sweep.points:
        key, value = each.key, rate(each.axes, each.seed)
        numbers = [("rate_median", value), ("rate_min", value / 2), ("pending_mean", 7.0 * each.seed)]
        write(sweep, key, key=key, axes=json.dumps(each.axes), seed=each.seed, numbers=numbers)
    write(sweep, "old", key="old", axes="{}", seed=1, numbers=[("rate_median", 1.0)])
    return tmp_path / "sweeps", folder


def test_every_line_of_every_picture_is_a_row_with_the_mean_of_the_seeds(spark, swept, tmp_path):
    sweeps, experiments = swept
    tables = Tables(str(tmp_path / "tables"))
    counts = figures(spark, sweeps, tables, experiments)
    assert counts == {"figures": 12, "experiment_points": 8, "quarantined": 1}
    rows = tables.read(spark, "gold", "figures").filter("figure = 'throughput'").collect()
    found = {(row.series, row.x): (row.y, row.y_least, row.y_most, row.seeds) for row in rows}
    assert found["median, 2 sender(s)", 10.0] == (2011.5, 2011.0, 2012.0, 2)
    assert found["1 sender(s)", 5.0] == (503.25, 503.0, 503.5, 2)
    assert {(row.experiment, row.papers, row.x_name) for row in rows} == {("small", "seed 004, Figure 11", "nodes")}
    (pending,) = tables.read(spark, "gold", "figures").filter("figure = 'one' and x > 2008").collect()
    assert (pending.x, pending.y, pending.series) == (2011.5, 10.5, "pending")
    relative = tables.read(spark, "gold", "figures").filter("figure = 'relative' and x = 5").collect()
    assert [(row.y_most, row.seeds) for row in relative] == [(pytest.approx(100 * 2006 / 1006), 2)]


def test_rates_are_compared_with_the_baseline_and_what_is_not_described_is_told(spark, swept, tmp_path):
    sweeps, experiments = swept
    tables = Tables(str(tmp_path / "tables"))
    figures(spark, sweeps, tables, experiments)
    points = tables.read(spark, "gold", "experiment_points").collect()
    shares = {
        (json.loads(row.axes)["traffic.0.senders"], json.loads(row.axes)["nodes"], row.seed): row for row in points
    }
    assert shares[2, 5, 1].rate_relative == pytest.approx(2006 / 1006)
    assert shares[1, 10, 2].rate_relative == 1.0
    (left,) = tables.read(spark, "gold", "quarantine", "experiment_points").collect()
    assert (left.key, left.reason) == ("old", "not a point of the experiment as it is described now")


def test_a_sweep_ends_with_tables_and_pictures_and_its_results_make_the_figures(spark, tmp_path):
    words = ["sweep", str(REAL / "load.toml"), "--quick", "--out", str(tmp_path / "sweeps"), "--json"]
    done = subprocess.run([sys.executable, "-m", "vivum.cli", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (report,) = json.loads(done.stdout.splitlines()[-1])["sweeps"]
    assert report["failed"] == {}
    pictures = ["load_processor", "load", "load_tokens", "load_memory", "load_latency"]
    assert [Path(each).stem for each in report["plots"]] == pictures
    assert all(Path(each).stat().st_size > 0 for each in report["plots"])
    assert (tmp_path / "sweeps/load-quick/figures/load-quick.md").read_text().startswith("# From light load")
    tables = Tables(str(tmp_path / "tables"))
    made = figures(spark, tmp_path / "sweeps", tables, REAL)
    assert made["figures"] > 0
    assert made["experiment_points"] == report["points"]
    names = {row.figure for row in tables.read(spark, "gold", "figures").collect()}
    # No point of a quick sweep has an axis for the size of messages, by which the others choose.
    assert names == {"load_latency"}


def test_where_nothing_was_swept_that_is_told(spark, tmp_path):
    with pytest.raises(UsageError, match=r"has no results of .*; run `vivum sweep .*NAME\.toml` first"):
        figures(spark, tmp_path, Tables(str(tmp_path / "tables")), REAL)
    with pytest.raises(UsageError, match="is no folder"):
        figures(spark, tmp_path, Tables(str(tmp_path / "tables")), tmp_path / "none")


def test_the_command_says_without_spark_that_there_are_no_sweeps(tmp_path, capsys):
    assert main(["pipeline", "run", "figures", "--sweeps", str(tmp_path / "none"), "--tables", str(tmp_path)]) == 2
    assert "none: no such folder; run `vivum sweep` first" in capsys.readouterr().err.replace("\n", " ")
