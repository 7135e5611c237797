#!/bin/sh
# Runs benchmarks by name and keeps the figures of each in out/<name>.json: the last line of what it prints.
# A name is a file of bench/, a command of `vivum bench`, `sweep`: a short sweep of an experiment on Spark, or
# one of the commands between hosts of network namespaces (root): `peers-hosts`, `peers-hosts-buffers`,
# `peers-hosts-unicast`, `link`, `link-1gbit`, `link-2-senders`, `link-4-senders`, `sleeper`.
#
#     tools/bench.sh codec simulator peers throughput latency link

set -eu
cd "$(dirname "$0")/.."
mkdir -p out
for name in "$@"; do
    echo "vivum: benchmark $name"
    status=0
    if [ -f "bench/$name.py" ]; then
        .venv/bin/python "bench/$name.py" --json >"out/$name.log" || status=$?
    else
        case $name in
            peers) set -- bench peers --rounds 3 --seconds 2 ;;
            plain) set -- bench plain --seconds 2 ;;
            peers-hosts) set -- bench peers --hosts --rounds 3 --seconds 2 ;;
            peers-hosts-buffers) set -- bench peers --hosts --rounds 3 --seconds 2 --buffer-bytes 212992 ;;
            peers-hosts-unicast) set -- bench peers --hosts --rounds 3 --seconds 2 --no-multicast ;;
            link-1gbit) set -- bench link --rate 1gbit ;;
            link-2-senders) set -- bench link --rate 1gbit --senders 2 ;;
            # One receiver: all are members, and with four receivers two processors carried 40 % of it.
            link-4-senders) set -- bench link --rate 1gbit --senders 4 --receivers 1 ;;
            sweep) set -- sweep experiments/load.toml --quick --out out/bench-sweeps ;;
            *) set -- bench "$name" ;;
        esac
        .venv/bin/vivum "$@" --json >"out/$name.log" || status=$?
    fi
    if [ "$status" != 0 ]; then
        # Hosts of network namespaces need root and programs; all else must work everywhere.
        case $name in link* | peers-hosts* | sleeper) ;; *) exit "$status" ;; esac
        rm -f "out/$name.log"
        continue
    fi
    cat "out/$name.log"
    tail -n 1 "out/$name.log" >"out/$name.json"
    .venv/bin/python -m json.tool "out/$name.json" >/dev/null || {
        echo "vivum: error: benchmark $name --json did not end with one JSON object on its last line" >&2
        exit 1
    }
done
