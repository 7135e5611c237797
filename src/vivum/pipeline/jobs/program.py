"""The jobs as programs of their own, for `spark-submit` and for `python -m`.

    python -m vivum.pipeline.jobs.silver --tables DIR [--master spark://host:7077]
    spark-submit --master spark://host:7077 src/vivum/pipeline/jobs/silver.py --tables DIR

Each has its folders as options and `--help`. With `spark-submit` its `--master` and settings count. What the job
answers is one JSON object on the last line of the output; what went wrong is one sentence, and exit code 1, or 2 for
wrong use.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from vivum.core.errors import UsageError, VivumError
from vivum.pipeline.jobs.running import spark_job


class ProgramOption(NamedTuple):
    """An option of a program; one without a default must be given."""

    name: str
    help: str
    default: str | None = None


TABLES = ProgramOption("tables", "the folder of all tables")


def run_program(
    name: str, work: Callable[[Any, Any], Any], *options: ProgramOption, arguments: Sequence[str] | None = None
) -> int:
    """Read the options, give the job a session for its time, print what it answers; return the exit code."""
    parser = argparse.ArgumentParser(prog=name, description=f"The job {name} of Vivum's pipeline.")
    for each in options:
        text = each.help if each.default is None else f"{each.help}; default {each.default!r}"
        parser.add_argument(f"--{each.name}", help=text, default=each.default, required=each.default is None)
    parser.add_argument("--master", help="where Spark runs; default local[*], or what spark-submit was told")
    given = parser.parse_args(arguments)
    try:
        with spark_job(f"vivum {name}", given.master) as spark:
            answer = work(spark, given)
    except VivumError as error:
        sys.stderr.write(f"vivum: error: {' '.join(str(error).splitlines())}\n")
        return 2 if isinstance(error, UsageError) else 1
    sys.stdout.write(f"{json.dumps(answer)}\n")
    return 0
