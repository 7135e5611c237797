"""How fast the simulator runs on one core with the reference protocol, and how much memory a large world takes.

    python bench/simulator.py [--rounds 5] [--simulated 1.0] [--no-memory] [--json]

- untraced: 50 nodes in one group, one sender of 5,000 messages/s of 1,000 bytes, no checkers, no trace: frame
  arrivals a second of one core's time, which other work on the machine does not take away. The goal is 300,000.
- checked: the same with all safety checkers, every datagram traced and the trace hashed, as `vivum sim run` does it.
- memory: 200 nodes, all in the same 8,192 groups, and one sender that sends to every group once, so that every node
  has 8,192 streams open. Peak resident memory of a process of its own; the goal is below 4,096 MB.

Best of several rounds, since other work slows a round even so. With `--json` the last line is one object.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from vivum.sim.scenario import parse_scenario
from vivum.sim.world import World

ARRIVALS_GOAL = 300_000
MEMORY_GOAL_MB = 4096
GROUPS = 8192


def speed_scenario(simulated_s: float) -> dict[str, Any]:
    return {
        "nodes": 50,
        "duration": f"{simulated_s}s",
        "traffic": [{"senders": 1, "rate": 5000.0, "size": 1000}],
    }


def memory_scenario(groups: int) -> dict[str, Any]:
    """Fast hosts on a fast network: the answers of 199 receivers for each group are not what is measured here."""
    return {
        "nodes": 200,
        "duration": "2500ms",
        "groups": {"count": groups, "pattern": "identical"},
        "network": {"bandwidth": "10Gbit"},
        "host": {"receive_cost": "1us", "send_cost": "1us"},
        "traffic": [{"senders": 1, "rate": groups / 2, "size": 100, "stop": "1999999us"}],
    }


def measure_speed(simulated_s: float, traced: bool) -> dict[str, Any]:
    world = World(parse_scenario(speed_scenario(simulated_s), "bench"), 1, frames=traced, checked=traced)
    began, cpu_began = time.perf_counter(), time.process_time()
    result = world.run()
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
    assert not result.violations
    return {
        "arrivals_per_s": round(result.arrivals / cpu_s),
        "arrivals_per_wall_s": round(result.arrivals / wall_s),
        "events_per_s": round(result.events / cpu_s),
        "arrivals": result.arrivals,
        "deliveries": result.delivered,
        "wall_s": round(wall_s, 3),
    }


def measure_memory(groups: int) -> dict[str, Any]:
    """Run the large world here and tell the peak; call it in a process of its own."""
    began = time.perf_counter()
    world = World(parse_scenario(memory_scenario(groups), "bench"), 1, frames=False, checked=False)
    world.start()
    joined_mb = peak_mb()
    world.advance_to(world.end_ns)
    result = world.finish()
    return {
        "nodes": 200,
        "groups": groups,
        "peak_mb": peak_mb(),
        "joined_mb": joined_mb,
        "deliveries": result.delivered,
        "arrivals": result.arrivals,
        "wall_s": round(time.perf_counter() - began, 1),
    }


def peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def in_a_child(groups: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, "--memory-child", str(groups)], capture_output=True, text=True, check=True
    )
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def commit() -> str:
    """The commit that was measured, with a mark if the tree has changes."""
    folder = Path(__file__).resolve().parent
    try:
        name = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=folder, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return name.stdout.strip()


def machine() -> str:
    """Name the processor and count its cores."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{model}, {os.cpu_count()} cores"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each measurement of speed; the best counts")
    parser.add_argument("--simulated", type=float, default=1.0, help="simulated seconds of a round")
    parser.add_argument("--groups", type=int, default=GROUPS, help="groups of the large world")
    parser.add_argument(
        "--no-memory", action="store_true", help="leave out the large world, which takes a minute or two"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    parser.add_argument("--memory-child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_child is not None:
        print(json.dumps(measure_memory(options.memory_child)))
        return
    results: dict[str, Any] = {}
    for name, traced in (("untraced", False), ("checked", True)):
        rounds = [measure_speed(options.simulated, traced) for _ in range(max(1, options.rounds))]
        best = results[name] = max(rounds, key=lambda each: each["arrivals_per_s"])
        print(
            f"{name:9} {best['arrivals_per_s']:>9,} arrivals/s  ({best['arrivals_per_wall_s']:,} by the wall clock)",
            flush=True,
        )
    goals = {"arrivals_per_s": ARRIVALS_GOAL, "reached": results["untraced"]["arrivals_per_s"] >= ARRIVALS_GOAL}
    if not options.no_memory:
        memory = results["memory"] = in_a_child(options.groups)
        goals |= {"peak_mb": MEMORY_GOAL_MB, "fits": memory["peak_mb"] < MEMORY_GOAL_MB}
        print(
            f"memory    {memory['peak_mb']:>9,} MB peak, {memory['joined_mb']:,} MB when all had joined "
            f"({memory['nodes']} nodes, {memory['groups']:,} groups, {memory['wall_s']} s)"
        )
    if options.json:
        about = {"machine": machine(), "python": platform.python_version(), "commit": commit()}
        print(json.dumps({"benchmark": "simulator", **about, "goal": goals, "results": results}))


if __name__ == "__main__":
    main()
