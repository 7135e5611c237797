"""A job on a cluster of two workers with a JVM each: LOG TABLES DOMAIN STAGING. Prints what it did as JSON."""

import json
import sys

from vivum.pipeline import session
from vivum.pipeline.jobs.bronze import bronze
from vivum.pipeline.jobs.silver import silver
from vivum.pipeline.jobs.tables import Tables


def main(log: str, folder: str, domain: str, staging: str) -> None:
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    spark = session(
        "clustered",
        master="local-cluster[2,1,1024]",
        memory="1g",
        settings={
            "spark.driver.extraJavaOptions": quick,
            "spark.executor.extraJavaOptions": quick,
            "spark.executor.memory": "512m",
            "spark.sql.shuffle.partitions": "2",
        },
    )
    tables = Tables(folder)
    told = {"bronze": bronze(spark, log, tables), "silver": silver(spark, tables)}
    rows = spark.read.format("vivum").load(log).select("payload").repartition(4)
    told["workers"] = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    rows.write.format("vivum").mode("append").options(topic="/out", domain=domain, staging=staging).save()
    spark.stop()
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
