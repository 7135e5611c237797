"""The process of the demo that has Spark: bars and alerts again and again while the market is open, then the audit."""

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from vivum.bench.worker import Control
from vivum.demo.topics import ORDERS, QUOTES, TRADES

BARS_SHOWN = 5
MEMORY = "1g"
POLL_S = 0.5
"""How often the desk looks whether there is anything in the log, before the first round."""


def work(control: Control, options: dict[str, Any]) -> None:
    """Start Spark and make rounds until the market has closed; then one more; then judge the traces."""
    from vivum.pipeline.audit import audit
    from vivum.pipeline.jobs.glance import Glance
    from vivum.pipeline.jobs.running import spark_job
    from vivum.pipeline.jobs.tables import Tables

    folder = Path(options["folder"])
    scratch = folder / "scratch"
    scratch.mkdir()
    # All that Python, Java and Spark put aside is below one folder: it goes away with it, even if they are killed.
    os.environ["TMPDIR"] = tempfile.tempdir = str(scratch)
    settings = {
        "spark.driver.defaultJavaOptions": f"-Djava.io.tmpdir={scratch}",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        # Small data: finding out how to split it costs more than the work.
        "spark.sql.adaptive.enabled": "false",
    }
    with spark_job("vivum demo", "local[2]", memory=MEMORY, settings=settings, brief=True) as spark:
        control.tell(ready=True)
        glance = Glance(
            spark,
            options["log"],
            Tables(str(folder / "tables")),
            {"quotes": f"{QUOTES}/*", "trades": TRADES, "orders": ORDERS},
        )
        sink = {"domain": options["domain"], "trace": options["trace"], "staging": str(scratch / "staging")}
        control.wait_for("open")
        closed = False
        while not closed:
            # Asked before the round: a round that begins after the close sees all of the market.
            closed = _heard(control, "closed")
            began = time.monotonic()
            bars, trades, latest = glance.bars(BARS_SHOWN)
            control.tell(bars=bars, trades=trades, latest=[_bar(row) for row in latest])
            published = glance.publish_new(sink)
            took_s = round(time.monotonic() - began, 1)
            control.tell(round=glance.rounds, alerts=published, took_s=took_s, refused=glance.refused)
        control.tell(finished=True)
        control.wait_for("audit")
        verdict = audit(Path(options["trace"]), spark, progress=lambda name: control.tell(checking=name))
        control.tell(
            verdict="violated" if verdict.violation_count else "holds",
            records=verdict.records,
            checks=verdict.counts,
            witnesses=[str(each) for each in verdict.violations],
        )
    control.tell(ended={})


def _heard(control: Control, key: str) -> bool:
    heard = control.hear(0)
    return heard is not None and key in heard


def _bar(row: Any) -> dict[str, Any]:
    return {
        "symbol": row.symbol,
        "start": row.start.strftime("%H:%M:%S"),
        "open": row.open,
        "high": row.high,
        "low": row.low,
        "close": row.close,
        "volume": row.volume,
        "spread": row.spread,
    }
