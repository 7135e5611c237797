#!/bin/sh
# The tests that take minutes: soak marks, a large swarm of the simulator, fuzzing of the wire.
#
#     tools/soak.sh SEEDS FUZZ_SECONDS

set -eu
cd "$(dirname "$0")/.."
seeds=$1
fuzz_seconds=$2

# Tests on hosts of network namespaces need them.
tools/packages.sh iproute2 nftables

echo "vivum: tests marked soak"
status=0
.venv/bin/python -m pytest -m soak || status=$?
# 5: no test has the mark.
[ "$status" = 0 ] || [ "$status" = 5 ] || exit "$status"

echo "vivum: swarm of $seeds seeds of QSM"
.venv/bin/vivum sim swarm --protocol qsm --seeds "$seeds" --jobs "$(nproc 2>/dev/null || echo 1)"

echo "vivum: swarm of $seeds seeds of whole programs"
.venv/bin/vivum sim swarm --seeds "$seeds" --jobs "$(nproc 2>/dev/null || echo 1)"

echo "vivum: fuzzing the wire for $fuzz_seconds s"
.venv/bin/python tests/fuzz/fuzz_wire.py -max_total_time="$fuzz_seconds"
