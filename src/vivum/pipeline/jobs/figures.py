"""Gold, figures: the numbers of the papers' figures, from the results of sweeps.

Which figures there are, what they show and which points they take is told by the descriptions in `experiments/`, the
same that `vivum sweep` ran. `gold/figures` has a row for each place of each line of each picture: the mean over the
seeds, the least and the most. `gold/experiment_points` has a row for each point with all its numbers, and
`rate_relative` where the experiment has a baseline. Results that are of no use (of a point that is not described any
more, or with axes that cannot be read) go to `gold/quarantine/experiment_points`, with the reason.

    spark-submit figures.py --sweeps DIR --tables DIR [--experiments DIR]
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, types
from pyspark.sql import functions as F

from vivum.core.errors import UsageError
from vivum.pipeline.delta import DeltaFolder
from vivum.pipeline.jobs.program import TABLES, ProgramOption, run_program
from vivum.pipeline.jobs.running import check_writable
from vivum.pipeline.jobs.tables import Tables
from vivum.pipeline.sweep import Sweep

RESULTS = types.StructType(
    [
        types.StructField("key", types.StringType()),
        types.StructField("axes", types.StringType()),
        types.StructField("seed", types.LongType()),
        types.StructField("commit", types.StringType()),
        types.StructField("source", types.StringType()),
        types.StructField("wall_s", types.DoubleType()),
        types.StructField("rss_mb", types.DoubleType()),
        types.StructField("numbers", types.MapType(types.StringType(), types.DoubleType())),
    ]
)
"""What a sweep writes for each point."""

FIGURES = (
    "experiment string, papers string, figure string, title string, x_name string, y_name string, series string, "
    "x double, y double, y_least double, y_most double, seeds bigint, commit string"
)
_AXES = "map<string,string>"


def figures(spark: SparkSession, sweeps: Path, tables: Tables, experiments: Path) -> dict[str, int]:
    """Make the tables anew from all results that are there. Returns how many rows each has."""
    check_writable(tables.folder)
    found = _sweeps(sweeps, experiments)
    if not found:
        raise UsageError(f"{sweeps} has no results of {experiments}; run `vivum sweep {experiments}/NAME.toml` first")
    points: list[DataFrame] = []
    lines = [spark.createDataFrame([], FIGURES)]
    left: list[DataFrame] = []
    for sweep in found:
        mine, bad = _points(spark, sweep)
        points.append(mine)
        left.append(bad)
        lines += [_figure(mine, sweep, plot) for plot in sweep.experiment.plots]
    written = {"figures": lines, "experiment_points": points}
    counts = {name: _write(each, tables.table("gold", name)) for name, each in written.items()}
    quarantine = tables.table("gold", "quarantine", "experiment_points")
    return counts | {"quarantined": _write(left, quarantine)}


def _sweeps(sweeps: Path, experiments: Path) -> list[Sweep]:
    """Find the experiments that have results, whole or quick."""
    if not experiments.is_dir():
        raise UsageError(f"{experiments} is no folder; give the one with the descriptions of the experiments")
    made = [
        Sweep(description, sweeps, quick=quick)
        for description in sorted(experiments.glob("*.toml"))
        for quick in (False, True)
    ]
    return [each for each in made if any(each.out.glob("*.parquet"))]


def _points(spark: SparkSession, sweep: Sweep) -> tuple[DataFrame, DataFrame]:
    """Read the results of one sweep: those that can be used, and those that cannot, with the reason."""
    files = sorted(str(path) for path in sweep.out.glob("*.parquet"))
    wanted = spark.createDataFrame([(each.key, each.seed) for each in sweep.points], "key string, wanted_seed bigint")
    read = (
        spark.read.schema(RESULTS)
        .parquet(*files)
        .withColumn("experiment", F.lit(sweep.out.name))
        .withColumn("at", F.from_json("axes", _AXES, {"mode": "PERMISSIVE"}))
        .join(F.broadcast(wanted), "key", "left")
        .withColumn(
            "reason",
            F.when(F.col("wanted_seed").isNull(), F.lit("not a point of the experiment as it is described now"))
            .when(F.col("at").isNull(), F.lit("its axes are not an object in JSON"))
            .when(F.col("numbers").isNull(), F.lit("it has no numbers")),
        )
        .drop("wanted_seed")
    )
    columns = ["experiment", *RESULTS.fieldNames()]
    bad = read.filter("reason is not null").select(*columns, "reason")
    good = read.filter("reason is null").select(*columns, "at")
    return _compared(good, sweep.experiment.baseline), bad


def _compared(points: DataFrame, baseline: dict[str, Any]) -> DataFrame:
    """Add `rate_relative`: the rate as a share of that of the point that differs only by lying on the baseline."""
    if not baseline:
        return points.withColumn("rate_relative", F.lit(None).cast("double"))
    on = {path: _word(value) for path, value in baseline.items()}
    there = F.create_map(*[F.lit(each) for pair in on.items() for each in pair])
    others = F.map_filter("at", lambda path, _: ~path.isin(*on))
    placed = points.withColumn("place", F.to_json(F.array_sort(F.map_entries(F.map_concat(others, there)))))
    is_base = F.lit(True)
    for path, value in on.items():
        is_base = is_base & (F.col("at")[path] == value)
    base = placed.filter(is_base).select("place", "seed", F.col("numbers")["rate_median"].alias("base"))
    joined = placed.join(base, ["place", "seed"], "left")
    return joined.withColumn("rate_relative", F.col("numbers")["rate_median"] / F.col("base")).drop("place", "base")


def _figure(points: DataFrame, sweep: Sweep, plot: Any) -> DataFrame:
    """Take the lines of one picture from the points, as the picture itself is drawn."""
    chosen = points
    if plot.only_axes:
        chosen = chosen.filter(F.array_sort(F.map_keys("at")) == F.array(*map(F.lit, sorted(plot.only_axes))))
    for path, value in plot.where.items():
        chosen = chosen.filter(F.col("at")[path] == _word(value))
    by = F.col("at")[plot.by] if plot.by else F.lit(None).cast("string")
    before, _, after = plot.by_label.partition("{}")
    told = F.concat(F.lit(before), F.coalesce(by, F.lit("None")), F.lit(after)) if plot.by else F.lit("")
    lines = F.array(
        *[F.struct(F.lit(name).alias("name"), F.lit(label).alias("label")) for name, label in plot.y.items()]
    )
    rows = (
        chosen.withColumn("line", F.explode(lines))
        .withColumn("x", _value(plot.x))
        .withColumn("y", _measured("line.name") * plot.scale)
        .filter("x is not null and y is not null")
        .withColumn("series", F.concat_ws(", ", F.nullif("line.label", F.lit("")), F.nullif(told, F.lit(""))))
    )
    named = {
        "experiment": sweep.out.name, "papers": sweep.experiment.figures, "figure": Path(plot.file).stem,
        "title": plot.title, "x_name": plot.x,
    }  # fmt: skip
    return rows.groupBy("series", F.col("line.name").alias("y_name"), "axes").agg(
        F.avg("x").alias("x_mean"), F.avg("y").alias("y"), F.min("y").alias("y_least"), F.max("y").alias("y_most"),
        F.count_distinct("seed").alias("seeds"),
        F.concat_ws(", ", F.array_sort(F.collect_set("commit"))).alias("commit"),
    ).select(
        *[F.lit(value).alias(name) for name, value in named.items()], "y_name", "series", F.col("x_mean").alias("x"),
        "y", "y_least", "y_most", "seeds", "commit",
    )  # fmt: skip


def _measured(name: str) -> Column:
    """Return the number that a column names."""
    return F.when(F.col(name) == "rate_relative", F.col("rate_relative")).otherwise(F.col("numbers")[F.col(name)])


def _value(name: str) -> Column:
    """An axis or a measured number, as the pictures look it up: axes first."""
    return F.coalesce(F.col("at")[name].try_cast("double"), F.col("numbers")[name])


def _word(value: Any) -> str:
    """Write a value of an axis as Spark reads it from JSON into a map of strings."""
    return value if isinstance(value, str) else json.dumps(value)


def _write(parts: list[DataFrame], table: DeltaFolder) -> int:
    whole = parts[0]
    for each in parts[1:]:
        whole = whole.unionByName(each)
    return table.replace(whole.drop("at").coalesce(1)).rows


def _run(spark: SparkSession, given: Any) -> dict[str, int]:
    return figures(spark, Path(given.sweeps), Tables(given.tables), Path(given.experiments))


if __name__ == "__main__":
    _sweeps_option = ProgramOption("sweeps", "the folder of results of `vivum sweep`")
    _described = ProgramOption("experiments", "the folder of the descriptions", "experiments")
    sys.exit(run_program("figures", _run, _sweeps_option, TABLES, _described))
