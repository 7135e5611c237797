"""A Spark session that is ready for Vivum, on this machine unless told otherwise."""

import atexit
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from vivum.core.errors import HostError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_LEAST = 17
MEMORY = "2g"
"""Memory of the driver, which on one machine does all the work."""

_JAVA = {False: "-XX:+UseParallelGC", True: "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"}
_MASTER = re.compile(r"local$|local\[.+\]$|local-cluster\[.+\]$|spark://.+|yarn$|k8s://.+")
_WAREHOUSE = "spark.sql.warehouse.dir"
_SESSION = {
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
}
"""Settings that can be changed while a session runs. With `spark-submit` its own settings count first."""

_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


def session(
    name: str = "vivum",
    *,
    master: str | None = None,
    memory: str = MEMORY,
    settings: Mapping[str, str] | None = None,
    brief: bool = False,
) -> "SparkSession":
    """Return a Spark session with `format("vivum")`, quiet logs, and this Python for its workers.

    `master` is `local[*]` if not given, or what `spark-submit` was told. With `brief`, Java is told to start fast and
    to stay small: for a minute's work on little data. A session that runs already is used, whatever it was made with.
    Raises `HostError` in one sentence where Java is missing, `UsageError` where PySpark is.
    """
    builder = _spark_session().builder.appName(name)
    if _spark_session().getActiveSession() is None:
        find_java()
    # Then Java runs already, and the settings that it was started with count.
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    where = master or ("" if is_submitted else "local[*]")
    if where and not _MASTER.match(where):
        raise UsageError(
            f"master {where!r} is none that Spark has; write local[*], local[2], spark://HOST:PORT, yarn or k8s://HOST"
        )
    if not is_submitted:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Hostnames of machines in containers often lead nowhere.
    if where.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    chosen = dict(settings or {})
    if not is_submitted:
        ours = {
            "spark.master": where,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": memory,
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()} {_JAVA[brief]}",
            **_SESSION,
        }
        chosen = {**ours, **chosen}
        if _WAREHOUSE not in chosen and _spark_session().getActiveSession() is None:
            chosen[_WAREHOUSE] = _temporary_warehouse()
    elif where:
        chosen["spark.master"] = where
    for key, value in chosen.items():
        builder = builder.config(key, value)
    # PySpark would print every failed query as JSON, beside the exception that it raises.
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    spark: SparkSession = builder.getOrCreate()
    if is_submitted:
        # What the one who submitted it chose counts.
        given = spark.sparkContext.getConf()
        for key, value in _SESSION.items():
            if not given.contains(key) and key not in chosen:
                spark.conf.set(key, value)
    register(spark)
    return spark


def _temporary_warehouse() -> str:
    """Make a folder for tables that Spark is not told a place for: they are known only to this session anyway."""
    made, owner = tempfile.mkdtemp(prefix="vivum-warehouse-"), os.getpid()

    def remove() -> None:
        # A child of a fork that ends runs this too.
        if os.getpid() == owner:
            shutil.rmtree(made, ignore_errors=True)

    atexit.register(remove)
    return made


def register(spark: "SparkSession") -> None:
    """Teach a session `format("vivum")`: read, readStream, write and writeStream.

    Its workers must run a Python that has Vivum: set PYSPARK_PYTHON before the session is made.
    """
    from vivum.pipeline.source.source import VivumSource

    # The source takes filters; Spark refuses such a source while this is off.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(VivumSource)


def find_java() -> Path:
    """Return the Java that Spark will use. Raises `HostError` if there is none, or an old one."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin/java") if home else shutil.which("java")
    advice = "install one (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME to yours"
    if not found or not os.access(found, os.X_OK):
        where = f"JAVA_HOME={home}" if home else "PATH"
        raise HostError(f"Spark needs Java {JAVA_LEAST} or later, and there is none in {where}; {advice}")
    told = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "(?:1\.)?(\d+)', told)
    if match is None or int(match[1]) < JAVA_LEAST:
        version = match[1] if match else "of unknown version"
        raise HostError(f"Spark needs Java {JAVA_LEAST} or later, and {found} is Java {version}; {advice}")
    return Path(found)


def _spark_session() -> "type[SparkSession]":
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise UsageError("the pipeline needs PySpark; install it with: pip install 'vivum[spark]'") from error
    return SparkSession
