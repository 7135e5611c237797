"""Worlds judge each topic by what the entry of its guarantee promises, and by nothing else."""

import asyncio

import pytest

from vivum.core.machine import Delivery, Effect
from vivum.guarantees import BEST_EFFORT, GUARANTEES, KEYED, RELIABLE, Guarantee
from vivum.live.connecting import connect
from vivum.observe.trace import GroupNamed, KeyDelivered, MessagesSkipped, TraceRecord
from vivum.protocols.keyed.keys import SeenKeys, heads_of
from vivum.protocols.keyed.layer import KeyedLayer
from vivum.testing.verdict import WorldVerdict
from vivum.testing.world import World

QUERY = bytes(range(16))


class ForgetfulLayer(KeyedLayer):
    """Knows of no key that came in a run before."""

    def on_effect(self, now_ns: int, effect: Effect) -> None:
        if isinstance(effect, Delivery):
            self.effects += SeenKeys().sift(effect)
        else:
            super().on_effect(now_ns, effect)


ORDERED = Guarantee("ordered", "qsm", (), (*RELIABLE.promises, "total_order"), RELIABLE.liveness, "", "")
FORGETFUL = Guarantee("forgetful", "qsm", (ForgetfulLayer,), KEYED.promises, KEYED.liveness, "", "")


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in (ORDERED, FORGETFUL):
        monkeypatch.setitem(GUARANTEES, each.name, each)


async def chatter(guarantees: tuple[Guarantee, ...]) -> None:
    """Send at the same time as the others, to a topic of each guarantee."""
    async with connect("home") as node:
        topics = [await node.enter(f"/{each.name}", bytes, guarantee=each) for each in guarantees]
        for topic in topics:
            await topic.wait_for_members(2)
        for number in range(20):
            for topic in topics:
                await topic.send(b"%d" % number)
            await asyncio.sleep(0.01)
        await asyncio.sleep(5)


def chat(seed: int, guarantees: tuple[Guarantee, ...], records: list[TraceRecord], **network: float) -> WorldVerdict:
    world = World(seed, trace=records.append, **network)  # type: ignore[arg-type]

    async def rehearse() -> None:
        running = [world.host(name).start(chatter, guarantees) for name in ("ann", "bob")]
        for each in running:
            await each

    world.run(rehearse())
    return world.verdict()


def test_a_new_entry_with_one_more_promise_is_checked_for_its_topics_and_for_no_others() -> None:
    records: list[TraceRecord] = []
    verdict = chat(1, (RELIABLE, ORDERED), records)
    named = {each.group: each.guarantee for each in records if isinstance(each, GroupNamed)}
    assert set(named.values()) == {"reliable", "ordered"}
    # Both carry messages in another order at each node, which reliable topics may.
    assert verdict.violations
    assert {(each.checker, named[each.witnesses[0].group]) for each in verdict.violations} == {  # type: ignore[union-attr]
        ("total_order", "ordered")
    }


@pytest.mark.parametrize("seed", range(6))
def test_best_effort_keeps_what_it_promises_on_a_bad_network(seed: int) -> None:
    records: list[TraceRecord] = []
    verdict = chat(seed, (BEST_EFFORT, RELIABLE), records, loss=0.2, duplicates=0.2, reordering=0.2)
    verdict.check()
    assert verdict.sent == 80
    assert verdict.delivered < 160, "some were lost"


async def publish(guarantee: Guarantee, late_s: float) -> None:
    """Send the same keys as another does."""
    async with connect("home") as node:
        topic = await node.enter("/results", bytes, guarantee=guarantee)
        await topic.wait_for_members(2)
        await asyncio.sleep(late_s)
        (seat,) = await node.take_seats(["/results"], '"bytes"', guarantee, lambda _: None)
        await seat.send([b"a", b"b", b"c"], heads=heads_of(QUERY, 1, 0, 3))
        await topic.send(b"no key")
        await asyncio.sleep(5)


def publish_twice(guarantee: Guarantee) -> tuple[WorldVerdict, list[TraceRecord]]:
    records: list[TraceRecord] = []
    world = World(1, trace=records.append)

    async def rehearse() -> None:
        running = [world.host(f"h{late}").start(publish, guarantee, late) for late in (0, 1)]
        for each in running:
            await each

    world.run(rehearse())
    return world.verdict(), records


def test_a_keyed_topic_hands_a_key_over_once_and_its_trace_shows_it() -> None:
    verdict, records = publish_twice(KEYED)
    verdict.check()
    assert sum(isinstance(each, KeyDelivered) for each in records) == 6
    assert sum(each.stop - each.sequence for each in records if isinstance(each, MessagesSkipped)) == 6


def test_a_layer_that_forgets_keys_is_caught() -> None:
    verdict, _ = publish_twice(FORGETFUL)
    assert {each.checker for each in verdict.violations} == {"keys_once"}
