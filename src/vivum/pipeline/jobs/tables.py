"""Where the tables of the pipeline are, below one folder, and the schemas that they have. All are Delta tables.

bronze/deliveries      raw deliveries, by date
bronze/types.json      the types of the topics, from the log
silver/<Type>          typed, each message once; `is_late` where the watermark had passed it
silver/quarantine      payloads that are not of their type, with the reason
gold/<name>            what people look at
gold/quarantine        rows that make no sense to a gold job, with the reason
gold/new_alerts        each alert when it was first seen; published from here
checkpoints/<job>      how far the streams of bronze and of published alerts are
"""

from pyspark.sql import DataFrame, SparkSession, types

from vivum.pipeline.delta import DeltaFolder
from vivum.pipeline.source.options import read_path

RAW = types.StructType(
    [
        types.StructField("offset", types.LongType(), False),
        types.StructField("topic", types.StringType(), False),
        types.StructField("sender", types.LongType(), False),
        types.StructField("incarnation", types.LongType(), False),
        types.StructField("sequence", types.LongType(), False),
        types.StructField("view", types.LongType(), False),
        types.StructField("position", types.LongType(), True),
        types.StructField("sent_ns", types.LongType(), False),
        types.StructField("delivered_ns", types.LongType(), False),
        types.StructField("payload", types.BinaryType(), False),
    ]
)
"""What bronze keeps: the columns of a log."""

MESSAGE_KEY = ("topic", "sender", "incarnation", "sequence")
"""What makes a message the same message."""


class Tables:
    """The folder of all tables."""

    def __init__(self, folder: str) -> None:
        self.folder = read_path("tables", folder)

    def path(self, *names: str) -> str:
        """Return the place of a table."""
        return str(self.folder.joinpath(*names))

    def table(self, *names: str) -> DeltaFolder:
        """Return a table, which may not exist yet."""
        return DeltaFolder(self.path(*names))

    def there(self, *names: str) -> bool:
        """Return whether a table exists."""
        return self.table(*names).exists

    def read(self, spark: SparkSession, *names: str) -> DataFrame:
        """Read the newest version of a table."""
        return self.table(*names).read(spark)

    def every(self) -> list[DeltaFolder]:
        """List all tables."""
        logs = sorted(self.folder.rglob("_delta_log"))
        return [DeltaFolder(str(each.parent)) for each in logs]
