"""What all jobs have in common: a session for the time of the job, and errors in one sentence."""

import logging
import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vivum.core.errors import HostError, UsageError, VivumError
from vivum.pipeline.session import session
from vivum.storage.errors import StorageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OURS = re.compile(r"\bvivum\.[\w.]+\.[A-Z]\w*: (.*)")
"""The last line of a traceback of ours, whichever of our errors it is."""


@contextmanager
def spark_job(name: str, master: str | None, text: Any = None, **options: Any) -> "Iterator[SparkSession]":
    """Give a session and stop it at the end. What Spark wraps around our own errors is taken off again."""
    with ExitStack() as ending:
        # Ctrl-C in the middle of a call to Java: Py4J logs it with tracebacks, and raises it as well.
        logging.getLogger().addFilter(_is_not_of_py4j)
        ending.callback(logging.getLogger().removeFilter, _is_not_of_py4j)
        try:
            with nullcontext() if text is None else text.status("starting Spark"):
                spark = session(name, master=master, **options)
            ending.callback(spark.stop)
            yield spark
        except VivumError:
            raise
        except Exception as error:
            if not type(error).__module__.startswith(("pyspark", "py4j")):
                raise
            raise spark_error(error) from error


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def spark_error(error: Exception) -> VivumError:
    """Find the one sentence in an error of Spark: ours if it began with us, else its first line."""
    told = str(error)
    found = _OURS.findall(told)
    if found:
        return StorageError(found[-1].strip())
    first = next((line.strip() for line in told.splitlines() if line.strip()), type(error).__name__)
    return HostError(f"Spark failed: {first[:300]}")


def check_writable(directory: Path) -> None:
    """Refuse, before any work, an output that cannot be written."""
    parent = directory
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise UsageError(f"cannot write {directory}: {parent} is not a directory; choose another output")
    try:
        with tempfile.TemporaryFile(dir=parent):
            pass
    except OSError as error:
        raise StorageError(f"cannot write {directory}: {error.strerror}; choose another output") from error
