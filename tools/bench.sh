#!/bin/sh
# Runs benchmarks by name and keeps the figures of each in out/<name>.json: the last line of what it prints.
#
#     tools/bench.sh codec simulator

set -eu
cd "$(dirname "$0")/.."
mkdir -p out
for name in "$@"; do
    echo "vivum: benchmark $name"
    .venv/bin/python "bench/$name.py" --json >"out/$name.log"
    cat "out/$name.log"
    tail -n 1 "out/$name.log" >"out/$name.json"
    .venv/bin/python -m json.tool "out/$name.json" >/dev/null || {
        echo "vivum: error: bench/$name.py --json did not end with one JSON object on its last line" >&2
        exit 1
    }
done
