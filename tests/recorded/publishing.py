"""A driver that publishes a log through the sink, to be killed: LOG CHECKPOINT DOMAIN ROWS_PER_BATCH [TRACE]."""

import sys

from vivum.pipeline import session

# A JVM that lives for seconds is not worth compiling for.
SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
}


def main(log: str, checkpoint: str, domain: str, rows: str, *trace: str) -> None:
    spark = session("publishing", master="local[2]", memory="1g", settings=SETTINGS)
    query = (
        spark.readStream.format("vivum").option("maxRowsPerTrigger", rows).load(log).select("payload")
        # A shuffle: rows come in another order each time that a batch is computed.
        .repartition(2)
        .writeStream.format("vivum").option("topic", "/results").option("domain", domain)
        .option("waitForMembers", "1").option("checkpointLocation", checkpoint)
        .options(**({"trace": trace[0]} if trace else {}))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
