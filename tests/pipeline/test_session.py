"""Sessions of Spark that others make, and those that others on the machine have."""

import os
import subprocess
import sys

import pytest

import vivum.sync

pytestmark = pytest.mark.slow

OWN = """
import sys
from pyspark.sql import SparkSession
from vivum.pipeline import register
fast = {"spark.ui.enabled": "false", "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
spark = SparkSession.builder.master("local[1]").config(map=fast).getOrCreate()
register(spark)
register(spark)
print(spark.read.format("vivum").load(sys.argv[1]).count())
spark.stop()
"""


def test_a_session_of_ones_own_learns_the_format_by_one_call(quotes):
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-c", OWN, str(quotes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.splitlines()[-1:] == ["60"], done.stderr[-3000:]


SHARED = """
import stat, sys
from pathlib import Path
from vivum.pipeline import session

spark = session("shared", master="local[1]", brief=True)
warehouse = Path(spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:"))
spark.range(3).write.saveAsTable("numbers")
print(spark.table("numbers").count(), oct(stat.S_IMODE(warehouse.stat().st_mode)))
rows = spark.range(2).selectExpr("cast(cast(id as string) as binary) payload")
rows.write.format("vivum").mode("append").options(domain=sys.argv[1], topic="/a").save()
spark.stop()
"""


def test_several_users_of_a_machine_do_not_meet_in_the_temporary_folder(tmp_path):
    """F13: the folders had fixed names, and the second user had no permission for them."""
    taken = [tmp_path / "vivum-sink", tmp_path / "vivum-warehouse"]
    for each in taken:
        # Stands for a folder of another user: nobody else can make anything there.
        each.write_bytes(b"")
    domain = f"shared-{os.getpid()}"
    with vivum.sync.connect(domain):
        done = subprocess.run(
            [sys.executable, "-c", SHARED, domain],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "3 0o700"
    assert sorted(each for each in tmp_path.iterdir() if each.name.startswith("vivum")) == taken
