"""What commands on Spark print."""

import io
import logging

from rich.console import Console

from vivum.cli.pipeline import _table
from vivum.pipeline.jobs.running import _is_not_of_py4j


def test_what_each_job_did_is_a_table_with_a_line_for_each_number():
    out = io.StringIO()
    Console(file=out, width=80).print(_table({"bronze": {"rows": 1234, "new_files": 2}, "market": {"bars": 7}}))
    lines = [line.split() for line in out.getvalue().splitlines()]
    assert lines[1:] == [["bronze", "rows", "1,234"], ["new", "files", "2"], ["market", "bars", "7"]]


def test_what_py4j_logs_beside_the_error_that_it_raises_is_left_out():
    def record(path: str) -> logging.LogRecord:
        return logging.LogRecord("root", logging.ERROR, path, 1, "interrupted", (), None)

    assert not _is_not_of_py4j(record("/venv/site-packages/py4j/java_gateway.py"))
    assert _is_not_of_py4j(record("/home/me/my_py4j_job.py"))
