"""What a change of membership costs: a node of many topics, and the service of a domain that shatters into regions.

    python bench/membership.py [--json]

- view change: one node joins a region of 110 members. The time that each member takes from the record of the region to
  the views of its topics, for groups that are neighbours and for groups of which no two are, and with layers (KEYED).
- merging: nodes choose 10 of 200 groups at random (nothing can be merged), or 9 to 12 of one of 300 tastes and one at
  random (much can). The first batch has all of them; then nodes change their groups, one in a batch.

Prints one line for each case, in milliseconds of processor time. With `--json` the last line is one object.
"""

import argparse
import json
import random
import time

from vivum.bench.machine import about
from vivum.core.ids import Endpoint, GroupId, NodeId
from vivum.core.ranges import RangeSet
from vivum.guarantees import KEYED, RELIABLE
from vivum.live.seat import MemberChanges, Seat, install_views
from vivum.node.stacks import Stacks
from vivum.protocols.membership.client.view import ConfigurationView
from vivum.protocols.membership.service.state import ConfigurationService
from vivum.wire.membership import ConfigurationChanges, MemberAddress, RegionRecord

CHANGES = 100

GOAL_MS = 50
"""For each view change, at each member."""


class Transport:
    """What the stacks of the topics stand on: nothing is sent here."""

    transport = "qsm"


def view_change(members, topics, step, guarantee):
    """Time one change for a node whose groups are `step` apart; the best of five."""
    groups = RangeSet((group, group + 1) for group in range(0, topics * step, step))
    seats = {GroupId(group): Seat(None, f"/t{group}", GroupId(group), "bytes", guarantee) for group in groups}
    stacks, changes = Stacks({"qsm": Transport()}), MemberChanges()
    for seat in seats.values():
        seat.holders = 1
        stacks.join(seat.join_command())
    view, times = ConfigurationView(1024), []
    for epoch in range(1, 7):
        nodes = [MemberAddress(node, 1, node, "h", node) for node in range(1, members + epoch)]
        record = RegionRecord(1, epoch, 1, tuple(nodes), tuple(groups.bounds()))
        start = time.process_time()
        view.apply(epoch - 1, epoch, ConfigurationChanges((record,), (), ()))
        install_views(stacks.lift(epoch, view.bundles(groups)), seats, changes)
        times.append(time.process_time() - start)
    what = {"guarantee": guarantee.name, "members": members, "topics": topics, "apart": step}
    return what | {"ms": round(1000 * min(times[1:]), 2)}


def merging(nodes, pick):
    """Time the first batch of a domain, and single changes after it."""
    service, times = ConfigurationService(), []
    for number in range(nodes):
        life = service.join(f"p{number}", NodeId(0), Endpoint("h", number + 1))
        service.subscribe(life, 1, pick(), RangeSet())
    for number in range(1 + CHANGES):
        start = time.process_time()
        service.close_batch()
        times.append(1000 * (time.process_time() - start))
        life = service.lives[NodeId(number + 1)]
        service.subscribe(life, 2, pick(), life.groups.copy())
    first, changes = times[0], sorted(times[1:])
    figures = {"first": first, "median": changes[CHANGES // 2], "highest": changes[-1]}
    return {"nodes": nodes, "regions": len(service.regions)} | {key: round(ms, 2) for key, ms in figures.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    options = parser.parse_args()
    results = []

    def show(case, figures):
        results.append({"case": case} | figures)
        print(json.dumps(results[-1]), flush=True)

    rng = random.Random(1)
    tastes = [rng.sample(range(600), 12) for _ in range(300)]

    def at_random():
        return RangeSet((group, group + 1) for group in rng.sample(range(200), 10))

    def by_taste():
        groups = {*rng.sample(rng.choice(tastes), rng.randint(9, 12)), rng.randrange(600)}
        return RangeSet((group, group + 1) for group in groups)

    for guarantee in (RELIABLE, KEYED):
        for members, topics, step in ((3, 8192, 1), (110, 8192, 1), (110, 8192, 2)):
            show("view change", view_change(members, topics, step, guarantee))
    slowest = max(each["ms"] for each in results)
    for name, nodes, pick in (("random", 1100, at_random), ("random", 2000, at_random), ("tastes", 2000, by_taste)):
        show(f"merging, {name}", merging(nodes, pick))
    if options.json:
        goal = {"view_change_ms": GOAL_MS, "reached_ms": slowest}
        print(json.dumps({"benchmark": "membership", **about(), "goal": goal, "results": results}))


if __name__ == "__main__":
    main()
