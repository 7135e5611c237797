#!/bin/sh
# The tests that take minutes: soak marks, a large swarm of the simulator, fuzzing of the wire, chaos between hosts.
#
#     tools/soak.sh SEEDS FUZZ_SECONDS CHAOS_MINUTES

set -eu
cd "$(dirname "$0")/.."
seeds=$1
fuzz_seconds=$2
chaos_minutes=$3

# Tests on hosts of network namespaces need them.
tools/packages.sh iproute2 nftables

echo "vivum: tests marked soak"
for pure in 0 source; do
    status=0
    VIVUM_PURE=$pure .venv/bin/python -m pytest -m "soak$([ $pure = 0 ] || echo ' and plain')" || status=$?
    # 5: no test has the mark.
    [ "$status" = 0 ] || [ "$status" = 5 ] || exit "$status"
done

echo "vivum: the README as a newcomer follows it"
tools/newcomer.sh

echo "vivum: swarm of $seeds seeds of QSM"
.venv/bin/vivum sim swarm --protocol qsm --seeds "$seeds" --jobs "$(nproc 2>/dev/null || echo 1)"

echo "vivum: swarm of $seeds seeds of whole programs"
.venv/bin/vivum sim swarm --seeds "$seeds" --jobs "$(nproc 2>/dev/null || echo 1)"

echo "vivum: swarm of $seeds seeds of replicas of a log"
.venv/bin/vivum sim swarm --protocol consensus --first-seed 10001 --seeds "$seeds" --jobs "$(nproc 2>/dev/null || echo 1)"
.venv/bin/vivum sim swarm --protocol kv --first-seed 10001 --seeds "$seeds" --jobs "$(nproc 2>/dev/null || echo 1)"

echo "vivum: fuzzing the wire for $fuzz_seconds s"
.venv/bin/python tests/fuzz/fuzz_wire.py -max_total_time="$fuzz_seconds"

echo "vivum: chaos between hosts for $chaos_minutes minutes"
.venv/bin/python tests/chaos_hosts/run.py --minutes "$chaos_minutes" --keep out/chaos
