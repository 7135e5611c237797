"""Jobs on Spark: bronze, silver and gold tables from recorded logs. Each module is also a program (`program.py`)."""
