"""Keys once: in one life, a group hands over no two messages with the same key."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from vivum.pipeline.audit.tables import TraceTables, life_column, message_words, violations, witness


def keys_once(tables: TraceTables) -> DataFrame:
    """Find keys that a life was given again. Keys have records of their own, which no other check reads."""
    alike = Window.partitionBy("g", "r", "key")
    again = tables.keys.withColumn("first_p", F.min("p").over(alike)).filter("p > first_p")
    what = F.concat(life_column("r"), F.lit(" delivered "), message_words(), F.lit(" under a key that it had before"))
    return violations(again, "keys_once", what, witness("w", "first_p"), witness("w", "p"))
