"""No creation: what is delivered was sent before, by that life, to that group, with that content."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from vivum.pipeline.audit.tables import TraceTables, life_column, message_words, violations, witness

MESSAGE = ("g", "s", "q")


def no_creation(tables: TraceTables) -> DataFrame:
    """Find deliveries of what was not sent, and numbers that were used twice.

    Across writers there is no common order: a delivery before its send is then a matter of clocks, and passes. What a
    killed sender sent last is in nobody's trace: it is unknown, and passes too.
    """
    sent = tables.sends.groupBy(*MESSAGE).agg(
        F.min_by(F.struct("w", "p", "d"), "p").alias("sent"), F.count("*").alias("times")
    )
    got = tables.deliveries.groupBy(*MESSAGE).agg(
        F.min("d").alias("low"), F.max("d").alias("high"), F.min(F.struct("w", "p")).alias("first_of_writer")
    )
    unsure = (
        got.join(sent, list(MESSAGE), "left")
        .filter(
            "sent is null or low <> sent.d or high <> sent.d "
            "or (first_of_writer.w = sent.w and first_of_writer.p < sent.p) or first_of_writer.w <> sent.w"
        )
        .select(*MESSAGE, "sent")
    )
    judged = tables.deliveries.join(unsure, list(MESSAGE)).withColumn(
        "unsent", F.col("sent").isNull() | ((F.col("sent.w") == F.col("w")) & (F.col("p") < F.col("sent.p")))
    )
    who = F.concat(life_column("r"), F.lit(" delivered "), message_words())
    had_not = F.concat(who, F.lit(", which had not been sent"))
    unsent = violations(_known_unsent(tables, judged.filter("unsent")), "no_creation", had_not, witness("w", "p"))
    other = F.concat(
        who, F.lit(" with digest 0x"), F.lower(F.lpad(F.hex("d"), 8, "0")), F.lit(", but it was sent with 0x"),
        F.lower(F.lpad(F.hex("sent.d"), 8, "0")),
    )  # fmt: skip
    changed = violations(
        judged.filter("not unsent and d <> sent.d"), "no_creation", other,
        witness("sent.w", "sent.p"), witness("w", "p"),
    )  # fmt: skip
    return unsent.unionByName(changed).unionByName(_sent_twice(tables, sent))


def _known_unsent(tables: TraceTables, unsent: DataFrame) -> DataFrame:
    """Leave out what may have been sent behind the end of a trace: a killed node did not write its last records.

    The trace of a life that ended in order says so. Where one writer has all records none can be missing.
    """
    if len(tables.writers) == 1:
        return unsent
    last = tables.sends.groupBy("g", "s").agg(F.max("q").alias("last_q"))
    ended = tables.ended.withColumn("is_ended", F.lit(True))
    known = unsent.join(last, ["g", "s"], "left").join(F.broadcast(ended), "s", "left")
    return known.filter("is_ended or q <= last_q")


def _sent_twice(tables: TraceTables, sent: DataFrame) -> DataFrame:
    again = (
        tables.sends.join(sent.filter("times > 1").select(*MESSAGE), list(MESSAGE), "left_semi")
        .withColumn("first_p", F.min("p").over(Window.partitionBy(*MESSAGE)))
        .filter("p > first_p")
    )
    what = F.concat(life_column("s"), F.lit(" sent two messages as "), message_words())
    return violations(again, "no_creation", what, witness("w", "first_p"), witness("w", "p"))
