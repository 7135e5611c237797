"""Cycles in a union of orders: given several sequences of the same things, is there one order that agrees
with all?

There is one exactly when the graph that joins each thing to the next one in each sequence has no cycle.
Knows nothing of messages: things are small integers, and an order is a sequence of them.

A cycle is told as *hops*. A hop rides along one order from an earlier to a later place, however far; so
two receivers that disagree on two messages make a cycle of two hops, whatever lies between. The cycle
returned has the fewest hops of all in its component when at most `STARTS_MAX` things are candidates for
lying on it, otherwise the fewest of those tried.

Cost: linear in the total length of the orders; where there are cycles, times `STARTS_MAX` at most.
"""

from collections.abc import Sequence
from typing import NamedTuple

STARTS_MAX = 64
"""Things of one component from which cycles are searched: bounds the work when everything disagrees."""


class Hop(NamedTuple):
    """A ride along `order`, from the place `start` to the later place `stop`."""

    order: int
    start: int
    stop: int


def find_cycles(orders: Sequence[Sequence[int]], thing_count: int) -> list[list[Hop]]:
    """Find a cycle of few hops in every component of things that cannot be ordered; none when all can."""
    after = _successors(orders, thing_count)
    tangled = _not_sortable(after)
    if not tangled:
        return []
    return [_fewest_hops(component, orders) for component in _components(after, tangled)]


def _successors(orders: Sequence[Sequence[int]], thing_count: int) -> list[list[int]]:
    """List for each thing what follows it directly in any order, each once."""
    after: list[list[int]] = [[] for _ in range(thing_count)]
    for order in orders:
        previous = -1
        for thing in order:
            if previous >= 0 and thing != previous:
                known = after[previous]
                if thing not in known:
                    known.append(thing)
            previous = thing
    return after


def _not_sortable(after: list[list[int]]) -> list[int]:
    """Sort topologically (Kahn 1962) and return the things that are left: on cycles, or behind them."""
    waiting = [0] * len(after)
    for following in after:
        for thing in following:
            waiting[thing] += 1
    ready = [thing for thing, count in enumerate(waiting) if count == 0]
    while ready:
        for thing in after[ready.pop()]:
            waiting[thing] -= 1
            if waiting[thing] == 0:
                ready.append(thing)
    return [thing for thing, count in enumerate(waiting) if count]


def _components(after: list[list[int]], things: list[int]) -> list[list[int]]:
    """Find the strongly connected components of two things or more (Tarjan 1972, with a stack of our own)."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    path: list[int] = []
    on_path: set[int] = set()
    components = []
    for root in things:
        if root in number:
            continue
        calls = [(root, iter(after[root]))]
        number[root] = low[root] = len(number)
        path.append(root)
        on_path.add(root)
        while calls:
            thing, following = calls[-1]
            for other in following:
                if other not in number:
                    number[other] = low[other] = len(number)
                    path.append(other)
                    on_path.add(other)
                    calls.append((other, iter(after[other])))
                    break
                if other in on_path:
                    low[thing] = min(low[thing], number[other])
            else:
                calls.pop()
                if calls:
                    caller = calls[-1][0]
                    low[caller] = min(low[caller], low[thing])
                if low[thing] == number[thing]:
                    component = []
                    while thing in on_path:
                        component.append(path.pop())
                        on_path.discard(component[-1])
                    if len(component) > 1:
                        components.append(sorted(component))
    return sorted(components)


def _fewest_hops(component: list[int], orders: Sequence[Sequence[int]]) -> list[Hop]:
    """Find a cycle through the component with few hops."""
    inside = set(component)
    # Each order without the things outside, and the places that the rest have in the whole order.
    places = [[place for place, thing in enumerate(order) if thing in inside] for order in orders]
    routes = [[orders[route][place] for place in kept] for route, kept in enumerate(places)]
    stops: dict[int, list[tuple[int, int]]] = {thing: [] for thing in component}
    nexts: dict[int, set[int | None]] = {thing: set() for thing in component}
    for route, things in enumerate(routes):
        for at, thing in enumerate(things):
            stops[thing].append((route, at))
            nexts[thing].add(things[at + 1] if at + 1 < len(things) else None)
    # A shortest cycle changes routes, and can be made to change where the two part: where not all routes go
    # on to the same thing.
    starts = [thing for thing in component if len(nexts[thing]) > 1][:STARTS_MAX]
    best: list[Hop] = []
    for start in starts:
        hops = _shortest_round_trip(start, routes, stops)
        if hops and (not best or len(hops) < len(best)):
            best = hops
            if len(best) <= 2:
                break
    return [Hop(hop.order, places[hop.order][hop.start], places[hop.order][hop.stop]) for hop in best]


def _shortest_round_trip(start: int, routes: list[list[int]], stops: dict[int, list[tuple[int, int]]]) -> list[Hop]:
    """Search breadth first, a hop a level, from a thing back to itself. Each place is passed once."""
    came: dict[int, tuple[int, Hop]] = {}
    passed_from = [len(route) for route in routes]
    level = [start]
    while level:
        next_level = []
        for thing in level:
            for route, at in stops[thing]:
                for place in range(at + 1, min(passed_from[route] + 1, len(routes[route]))):
                    other = routes[route][place]
                    hop = Hop(route, at, place)
                    if other == start:
                        hops = [hop]
                        while thing != start:
                            thing, hop = came[thing]
                            hops.append(hop)
                        return hops[::-1]
                    if other not in came:
                        came[other] = (thing, hop)
                        next_level.append(other)
                passed_from[route] = min(passed_from[route], at)
        level = next_level
    return []
