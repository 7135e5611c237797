"""Check view agreement, views first and virtual synchrony."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from vivum.pipeline.audit.columns import DELIVERED, INSTALLED, LEFT, SENT
from vivum.pipeline.audit.tables import (
    TraceTables,
    life,
    life_column,
    message_words,
    violations,
    witness,
)


def view_agreement(tables: TraceTables) -> DataFrame:
    """Find views that differ between lives, numbers that do not rise, and members that are missing or listed twice."""
    order = Window.partitionBy("g", "r").orderBy("p")
    views = (
        tables.installed.withColumn("before_p", F.lag("p").over(order))
        .withColumn("before_v", F.lag("v").over(order))
        .withColumn("who", life_column("r"))
    )
    which = F.concat(F.lit("view "), F.col("v").cast("string"), F.lit(" of group "), F.col("g").cast("string"))
    installed = F.concat(F.col("who"), F.lit(" installed "), which)
    first = views.groupBy("g", "v").agg(
        F.min_by(F.struct("w", "p", "members", "who"), F.struct("p", "w")).alias("first")
    )
    differing = views.join(first, ["g", "v"]).filter("members <> first.members")
    other = F.when(F.array_sort("members") == F.array_sort("first.members"), F.lit(" in another order")).otherwise(
        F.lit(" with other members")
    )
    differ = violations(
        differing, "view_agreement", F.concat(installed, other, F.lit(" than "), F.col("first.who"), F.lit(" did")),
        witness("first.w", "first.p"), witness("w", "p"),
    )  # fmt: skip
    after = F.when(F.col("before_v").isNull(), F.lit("no view")).otherwise(
        F.concat(F.lit("view "), F.col("before_v").cast("string"))
    )
    falling = violations(
        views.filter("v <= coalesce(before_v, 0)"), "view_agreement",
        F.concat(installed, F.lit(" after "), after, F.lit("; numbers must rise")),
        witness("w", "before_p"), witness("w", "p"),
    )  # fmt: skip
    outside = violations(
        views.filter("not array_contains(members, who)"), "view_agreement",
        F.concat(installed, F.lit(", of which it is not a member")), witness("w", "p"),
    )  # fmt: skip
    doubled = violations(
        views.filter("size(array_distinct(members)) < size(members)"), "view_agreement",
        F.concat(installed, F.lit(", which lists a member twice")), witness("w", "p"),
    )  # fmt: skip
    found = differ.unionByName(falling).unionByName(outside).unionByName(doubled)
    return found.unionByName(_sent_elsewhere(tables)).unionByName(_delivered_elsewhere(tables))


def _sent_elsewhere(tables: TraceTables) -> DataFrame:
    """Find messages that were sent in another view than the last one that their sender installed in its stay."""
    kind = F.col("kind")
    order = Window.partitionBy("g", "s").orderBy("p").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    sent = (
        tables.judged.filter(kind.isin(SENT, INSTALLED, LEFT))
        .select(
            "w", "kind", F.col("position").alias("p"), F.col("group").alias("g"),
            life("node", "incarnation").alias("s"), F.col("sequence").alias("q"), F.col("view").alias("v"),
            F.when(kind == INSTALLED, F.col("position")).alias("view_p"),
            F.when(kind == INSTALLED, F.col("view")).alias("view_v"),
            F.when(kind == LEFT, F.col("position")).alias("left_p"),
        )
        .withColumn("view_p", F.max("view_p").over(order))
        .withColumn("view_v", F.last("view_v", ignorenulls=True).over(order))
        .withColumn("left_p", F.max("left_p").over(order))
        .filter((F.col("kind") == SENT) & (F.col("view_p") > F.coalesce("left_p", F.lit(-1))))
        .filter("v <> view_v")
    )  # fmt: skip
    what = F.concat(
        life_column("s"), F.lit(" sent "), message_words(), F.lit(" in view "), F.col("v").cast("string"),
        F.lit(", but it was in view "), F.col("view_v").cast("string"),
    )  # fmt: skip
    return violations(sent, "view_agreement", what, witness("w", "view_p"), witness("w", "p"))


def _delivered_elsewhere(tables: TraceTables) -> DataFrame:
    """Find deliveries that name another view than the one in which the message was sent."""
    order = Window.partitionBy("g", "s").orderBy("p")
    sends = tables.judged.filter(F.col("kind") == SENT).select(
        "w", F.col("position").alias("p"), F.col("group").alias("g"), life("node", "incarnation").alias("s"),
        F.col("sequence").alias("q"), F.col("view").alias("v"),
    )  # fmt: skip
    # Few rows: one for each view that a sender sent in.
    spans = (
        sends.withColumn("before", F.lag("v").over(order))
        .filter("before is null or before <> v")
        .withColumn("stop", F.lead("q").over(order))
        .select("g", "s", F.struct("w", "p", "q", "v", "stop").alias("span"))
    )
    wrong = tables.deliveries.join(F.broadcast(spans), ["g", "s"]).filter(
        "q >= span.q and (span.stop is null or q < span.stop) and v <> span.v and (w <> span.w or p > span.p)"
    )
    what = F.concat(
        life_column("r"), F.lit(" delivered "), message_words(), F.lit(" as one of view "), F.col("v").cast("string"),
        F.lit(", but it was sent in view "), F.col("span.v").cast("string"),
    )  # fmt: skip
    return violations(wrong, "view_agreement", what, witness("span.w", "span.p"), witness("w", "p"))


def views_first(tables: TraceTables) -> DataFrame:
    """Find messages that overtake their view, and views of a life or of a sender's messages that go back."""
    kind = F.col("kind")
    before = Window.partitionBy("g", "r").orderBy("p").rowsBetween(Window.unboundedPreceding, -1)
    rows = (
        tables.judged.filter(kind.isin(DELIVERED, INSTALLED))
        .select(
            "w", "kind", F.col("position").alias("p"), F.col("group").alias("g"),
            life("node", "incarnation").alias("r"), life("sender", "sender_incarnation").alias("s"),
            F.col("sequence").alias("q"), F.col("view").alias("v"),
            # The newest view has the highest number; of equal ones take the first.
            F.when(kind == INSTALLED, F.struct(F.col("view").alias("v"), (-F.col("position")).alias("p"))).alias("x"),
        )
        .withColumn("newest", F.max("x").over(before))
        .withColumn("newest_p", -F.col("newest.p"))
    )  # fmt: skip
    number, newest = F.col("v").cast("string"), F.col("newest.v").cast("string")
    known = F.when(F.col("newest").isNull(), F.lit("it had installed none")).otherwise(
        F.concat(F.lit("the last that it had installed was "), newest)
    )
    early = violations(
        rows.filter((kind == DELIVERED) & (F.col("v") > F.coalesce("newest.v", F.lit(0)))), "views_first",
        F.concat(
            life_column("r"), F.lit(" delivered "), message_words(), F.lit(" of view "), number, F.lit(", but "), known
        ),
        witness("w", "newest_p"), witness("w", "p"),
    )  # fmt: skip
    falling = violations(
        rows.filter((kind == INSTALLED) & (F.col("v") <= F.col("newest.v"))), "views_first",
        F.concat(
            life_column("r"), F.lit(" installed view "), number, F.lit(" of group "), F.col("g").cast("string"),
            F.lit(" after view "), newest,
        ),
        witness("w", "newest_p"), witness("w", "p"),
    )  # fmt: skip
    return early.unionByName(falling).unionByName(_going_back(rows))


def _going_back(rows: DataFrame) -> DataFrame:
    """Find messages of a view before one that the same life had delivered of the same sender."""
    before = Window.partitionBy("g", "r", "s").orderBy("p").rowsBetween(Window.unboundedPreceding, -1)
    # The newest view has the highest number; of its deliveries take the first.
    delivered = F.struct("v", (-F.col("p")).alias("p"))
    late = (
        rows.filter((F.col("kind") == DELIVERED) & (F.col("v") > 0))
        .withColumn("newest", F.max(delivered).over(before))
        .filter("v < newest.v")
        .withColumn("newest_p", -F.col("newest.p"))
    )
    what = F.concat(
        life_column("r"), F.lit(" delivered "), message_words(), F.lit(" of view "), F.col("v").cast("string"),
        F.lit(" after one of view "), F.col("newest.v").cast("string"), F.lit(" of the same sender"),
    )  # fmt: skip
    return violations(late, "views_first", what, witness("w", "newest_p"), witness("w", "p"))


def virtual_synchrony(tables: TraceTables) -> DataFrame:
    """Find survivors that delivered different messages in a view, and deliveries in another view than the last."""
    wrong = tables.deliveries.filter("v <> coalesce(in_view, 0)")
    now = F.when(F.col("in_view").isNull(), F.lit("it had installed none")).otherwise(
        F.concat(F.lit("it was in view "), F.col("in_view").cast("string"))
    )
    what = F.concat(
        life_column("r"), F.lit(" delivered "), message_words(), F.lit(" in view "), F.col("v").cast("string"),
        F.lit(", but "), now,
    )  # fmt: skip
    misplaced = violations(wrong, "virtual_synchrony", what, witness("w", "in_view_p"), witness("w", "p"))
    return misplaced.unionByName(_survivors(tables)) if INSTALLED in tables.kinds else misplaced


def _survivors(tables: TraceTables) -> DataFrame:
    steps = _steps(tables)
    delivered = tables.deliveries.filter("v = in_view")
    # Sets are compared by a count and two sums of hashes; those that differ are then compared one by one.
    mixed = F.xxhash64("s", "q")
    prints = delivered.groupBy("g", "r", "stay", F.col("in_view").alias("v")).agg(
        F.count("*").alias("count"), F.bit_xor(mixed).alias("mixed"),
        F.sum(mixed.bitwiseAND(F.lit((1 << 31) - 1))).alias("sum"),
    )  # fmt: skip
    marked = (
        steps.join(prints, ["g", "r", "stay", "v"], "left")
        .fillna(0, ["count", "mixed", "sum"])
        .withColumn("print", F.struct("count", "mixed", "sum"))
    )
    first = marked.groupBy("g", "v", "next_v").agg(
        F.min_by(F.struct("w", "r", "stay", "next_p", "print"), F.struct("next_p", "w")).alias("first")
    )
    pairs = marked.join(first, ["g", "v", "next_v"]).filter("print <> first.print")
    # From here on there are few rows: the sets of those that differ.
    sides = [
        (F.col("first.r"), F.col("first.stay"), F.lit(1)),
        (F.col("r"), F.col("stay"), F.lit(2)),
    ]
    each = None
    for receiver, stay, side in sides:
        half = pairs.select(
            "g", "v", "next_v", F.col("first").alias("a"), F.struct("w", "r", "next_p").alias("b"),
            receiver.alias("r"), stay.alias("stay"), side.alias("side"),
        )  # fmt: skip
        each = half if each is None else each.unionByName(half)
    assert each is not None
    held = delivered.select("g", "r", "stay", F.col("in_view").alias("v"), "s", "q", "w", "p")
    only = (
        each.join(held, ["g", "r", "stay", "v"])
        .groupBy("g", "v", "next_v", "a", "b", "s", "q")
        .agg(F.collect_set("side").alias("in_sides"), F.max(F.struct("w", "p")).alias("delivery"))
        .filter("size(in_sides) = 1")
    )
    found = only.groupBy("g", "v", "next_v", "a", "b").agg(
        F.min(F.struct(F.element_at("in_sides", 1).alias("side"), "s", "q", "delivery")).alias("extra"),
        F.count("*").alias("count"),
    ).select("g", "v", "next_v", "a", "b", "count", "extra.*")  # fmt: skip
    one, two = life_column("a.r"), life_column("b.r")
    has = F.when(F.col("side") == 1, one).otherwise(two)
    lacks = F.when(F.col("side") == 1, two).otherwise(one)
    what = F.concat(
        has, F.lit(" and "), lacks, F.lit(" went from view "), F.col("v").cast("string"), F.lit(" to "),
        F.col("next_v").cast("string"), F.lit(" of group "), F.col("g").cast("string"), F.lit(", but only "), has,
        F.lit(" delivered "), message_words(), F.lit("; they differ in "), F.col("count").cast("string"),
        F.lit(" in all"),
    )  # fmt: skip
    return violations(
        found, "virtual_synchrony", what,
        witness("delivery.w", "delivery.p"), witness("a.w", "a.next_p"), witness("b.w", "b.next_p"),
    )  # fmt: skip


def _steps(tables: TraceTables) -> DataFrame:
    """Find every step of a life from one view to the next in the same stay."""
    order = Window.partitionBy("g", "r", "stay").orderBy("p")
    return (
        tables.placed(tables.installed.select("w", "p", "g", "r", "v"))
        .withColumn("next_v", F.lead("v").over(order))
        .withColumn("next_p", F.lead("p").over(order))
        .filter("next_v is not null")
        .select("w", "g", "r", "stay", "v", "next_v", "next_p")
    )
