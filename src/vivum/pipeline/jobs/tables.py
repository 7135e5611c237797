"""Where the tables of the pipeline are, below one folder, and the schemas that they have.

bronze/deliveries      raw deliveries, by date and topic
bronze/types.json      the types of the topics, from the log
silver/<Type>          typed, each message once; `is_late` where the watermark had passed it
silver/quarantine      payloads that are not of their type, with the reason
gold/<name>            what people look at
gold/quarantine        rows that make no sense to a gold job, with the reason
gold/new_alerts        each alert when it was first seen; published from here
checkpoints/<job>      how far each job is
"""

from pathlib import Path

from pyspark.sql import types

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
        self.folder = Path(folder).absolute()

    def path(self, *names: str) -> str:
        """Return the place of a table."""
        return str(self.folder.joinpath(*names))

    def there(self, *names: str) -> bool:
        """Return whether a table exists."""
        folder = self.folder.joinpath(*names)
        return folder.is_dir() and any(folder.iterdir())

    def silver_checkpoint(self, type_name: str) -> str:
        """Return where the stream that makes a silver table notes how far it is."""
        return self.path("checkpoints", f"silver-{type_name}")

    def committed(self, *names: str) -> bool:
        """Return whether a stream has ever finished a batch into a table; a failed first batch leaves its folder."""
        notes = self.folder.joinpath(*names, "_spark_metadata")
        return notes.is_dir() and any(each.stem.isdecimal() for each in notes.iterdir())
