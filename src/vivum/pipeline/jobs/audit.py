"""The audit as a job: which guarantees the traces of all nodes break, as a table of violations with witnesses.

spark-submit audit.py --trace DIR [--out DIR] [--checks fifo,no_duplicate]
"""

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from vivum.pipeline.audit import audit
from vivum.pipeline.jobs.program import ProgramOption, run_program


def _run(spark: SparkSession, given: Any) -> dict[str, Any]:
    checks = given.checks.split(",") if given.checks else None
    found = audit(Path(given.trace), spark, checks=checks, out=Path(given.out) if given.out else None)
    verdict = "violated" if found.violation_count else "holds"
    return {"records": found.records, "violations": found.violation_count, "checks": found.counts, "verdict": verdict}


if __name__ == "__main__":
    _options = [
        ProgramOption("trace", "the folder of traces of all nodes"),
        ProgramOption("out", "where the table of violations goes", ""),
        ProgramOption("checks", "only these, separated by commas; else what the traces promise", ""),
    ]
    sys.exit(run_program("audit", _run, *_options))
