#!/bin/sh
# ruff and mypy over everything. Runs all three even when the first finds something, so that one run shows it all.

set -u
cd "$(dirname "$0")/.."
failed=0
run() {
    echo "vivum: $1"
    shift
    .venv/bin/python -m "$@" || failed=1
}
run "ruff, rules" ruff check .
run "ruff, format" ruff format --check .
run "mypy" mypy
exit "$failed"
