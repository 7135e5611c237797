"""The data pipeline on Spark: source and sink, jobs, audit, sweeps. The only package that imports pyspark.

from vivum import pipeline
spark = pipeline.session()
spark.read.format("vivum").load("out/log").show()
"""

from vivum.pipeline.progress import rows_behind
from vivum.pipeline.session import register, session

__all__ = ["register", "rows_behind", "session"]
