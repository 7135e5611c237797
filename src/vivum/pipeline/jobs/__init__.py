"""Jobs on Spark: bronze, silver and gold tables from recorded logs. Each module also runs with `spark-submit`."""
