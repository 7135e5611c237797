"""The service of a domain, in worlds of whole programs: it begins once, dies, goes on elsewhere; sides meet."""

import asyncio
from collections.abc import Iterable

import pytest

import vivum
from vivum.testing import World

NAMES = ("a", "b", "c", "d", "e")
TOPICS = ("/t", "/u")
# One seed is enough for the inner loop.
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]


class Domain:
    """Five programs on clocks that are off and drift, in a network that loses, of which all send to two topics."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed=seed, loss=0.01, clock_offset_s=1.0, clock_drift_ppm=200)
        self.nodes: dict[str, vivum.NodeHandle] = {}
        self.topics: dict[tuple[str, str], vivum.Topic[bytes]] = {}
        self.memberships: dict[tuple[str, int], set[tuple[vivum.Member, ...]]] = {}
        """By topic and number of the view: all that programs were told."""

        self.is_quiet = False
        for name in NAMES:
            self.world.host(name)

    def start(self, names: Iterable[str] = NAMES) -> None:
        for name in names:
            self.world.host(name).start(self._take_part, name)

    async def _take_part(self, name: str) -> None:
        async with vivum.connect("d") as node, asyncio.TaskGroup() as tasks:
            self.nodes[name] = node
            for each in TOPICS:
                topic = self.topics[name, each] = await node.enter(each, bytes)
                tasks.create_task(self._send(topic))
                tasks.create_task(self._read(topic))

    async def _send(self, topic: vivum.Topic[bytes]) -> None:
        while not self.is_quiet:
            await topic.send(bytes(100))
            await asyncio.sleep(0.1)

    async def _read(self, topic: vivum.Topic[bytes]) -> None:
        while True:
            try:
                async for each in topic.with_views():
                    if isinstance(each, vivum.TopicView):
                        self.memberships.setdefault((each.topic, each.number), set()).add(each.members)
            except vivum.MissedMessages:
                continue

    @property
    def up(self) -> dict[str, vivum.NodeHandle]:
        """The nodes of the programs that run."""
        return {name: node for name, node in self.nodes.items() if self.world.host(name).is_running}

    @property
    def carriers(self) -> list[str]:
        return [name for name, node in self.up.items() if node.carries_service]

    @property
    def carrier(self) -> str:
        (name,) = self.carriers
        return name

    def lives(self, *without: str) -> dict[str, vivum.Member | None]:
        return {name: node.member for name, node in self.up.items() if name not in without}

    async def settle(self, seconds: float) -> None:
        """Heal everything, let nobody send any more, and wait until what was accepted has come."""
        self.world.heal()
        self.is_quiet = True
        await asyncio.sleep(seconds)

    def check_whole(self) -> None:
        """All programs run, and all their nodes are in one domain."""
        assert self.up.keys() == set(NAMES)
        assert len(self.carriers) == 1
        everybody = set(self.lives().values())
        assert len(everybody) == len(NAMES)
        for topic in self.topics.values():
            assert set(topic.members) == everybody


@pytest.mark.parametrize("seed", range(3))
def test_five_nodes_that_start_at_once_have_one_service(seed: int) -> None:
    domain = Domain(seed)

    async def rehearse() -> None:
        domain.start()
        await asyncio.sleep(2)
        before = domain.lives()
        assert len(domain.carriers) == 1
        await asyncio.sleep(2)
        await domain.settle(5)
        domain.check_whole()
        assert domain.lives() == before

    domain.world.run(rehearse())
    domain.world.verdict().check()


@pytest.mark.parametrize("seed", range(3))
def test_a_node_that_starts_later_joins_those_that_are_there(seed: int) -> None:
    domain = Domain(seed)

    async def rehearse() -> None:
        domain.start("abcd")
        await asyncio.sleep(2)
        before = domain.lives()
        domain.start("e")
        await asyncio.sleep(2)
        await domain.settle(5)
        domain.check_whole()
        assert before.items() <= domain.lives().items()

    domain.world.run(rehearse())
    domain.world.verdict().check()


@pytest.mark.parametrize("seed", SEEDS)
def test_when_the_carrier_dies_a_standby_goes_on_and_no_life_is_lost(seed: int) -> None:
    domain = Domain(seed)

    async def rehearse() -> None:
        domain.start()
        await asyncio.sleep(3)
        dead = domain.carrier
        before = domain.lives(dead)
        domain.world.host(dead).kill()
        await asyncio.sleep(12)
        successor = domain.carrier
        assert domain.lives() == before
        # The dead one starts again, and joins its successor.
        domain.start(dead)
        await domain.settle(20)
        domain.check_whole()
        assert domain.carrier == successor
        assert domain.lives(dead) == before

    domain.world.run(rehearse())
    domain.world.verdict().check()


@pytest.mark.parametrize("datagrams", [1, *(pytest.param(count, marks=pytest.mark.slow) for count in range(2, 21))])
def test_a_carrier_that_dies_between_two_effects_costs_no_life(datagrams: int) -> None:
    """A program enters a topic of its own, so that the service has something to tell all of them when it dies."""
    domain = Domain(1)

    async def rehearse() -> None:
        domain.start()
        await asyncio.sleep(3)
        dead = domain.carrier
        other = next(name for name in NAMES if name != dead)
        before = domain.lives(dead)
        domain.world.host(dead).kill(after_datagrams=datagrams)
        entering = asyncio.create_task(domain.world.host(other).call(domain.nodes[other].enter, "/v", bytes))
        await asyncio.sleep(12)
        assert domain.carrier != dead
        assert domain.lives() == before
        domain.start(dead)
        await domain.settle(20)
        domain.check_whole()
        assert entering.done()

    domain.world.run(rehearse())
    domain.world.verdict().check()


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="B14: a carrier that is back within 2 s begins a new history"
)
def test_a_carrier_that_is_started_again_at_once_costs_no_life() -> None:
    domain = Domain(1)

    async def rehearse() -> tuple[object, object]:
        domain.start()
        await asyncio.sleep(3)
        dead = domain.carrier
        before = domain.lives(dead)
        domain.world.host(dead).kill()
        await asyncio.sleep(1)
        domain.start(dead)
        await asyncio.sleep(11)
        await domain.settle(20)
        return domain.lives(dead), before

    after, before = domain.world.run(rehearse())
    assert after == before


@pytest.mark.parametrize("seed", SEEDS)
def test_a_minority_without_the_service_comes_back_and_its_nodes_get_new_lives(seed: int) -> None:
    domain = Domain(seed)

    async def rehearse() -> None:
        domain.start()
        await asyncio.sleep(3)
        away = [name for name in NAMES if name != domain.carrier][:2]
        before = domain.lives()
        domain.world.split(away)
        await asyncio.sleep(12)
        domain.world.split()
        await asyncio.sleep(5)
        await domain.settle(30)
        domain.check_whole()
        after = domain.lives()
        assert {name for name in NAMES if after[name] != before[name]} == set(away)

    domain.world.run(rehearse())
    domain.world.verdict().check()


@pytest.mark.slow
@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="B1: a service in the minority drops the majority, then confirms what it lacks",
)
def test_what_a_minority_with_the_service_confirms_is_everywhere() -> None:
    domain = Domain(1)

    async def rehearse() -> None:
        domain.start()
        await asyncio.sleep(3)
        domain.world.split([name for name in NAMES if name != domain.carrier][:3])
        await asyncio.sleep(24)
        domain.world.split()
        await asyncio.sleep(3)
        await domain.settle(30)
        domain.check_whole()

    domain.world.run(rehearse())
    assert [each for each in domain.world.verdict().violations if each.checker == "all_delivered"] == []


async def begin_apart(domain: Domain) -> None:
    """Begin with two services, of which one gives way when they hear of each other."""
    domain.world.split("ab")
    domain.start()
    await asyncio.sleep(3)
    assert len(domain.carriers) == 2
    before = domain.lives("a", "b")
    domain.world.split()
    await asyncio.sleep(1)
    await domain.settle(20)
    domain.check_whole()
    assert domain.lives("a", "b") == before


def test_domains_that_began_apart_become_one_when_they_hear_each_other() -> None:
    domain = Domain(1)
    domain.world.run(begin_apart(domain))
    assert domain.world.verdict().failures == ()


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="B2: services that began apart give the same numbers to different views",
)
def test_domains_that_began_apart_never_gave_the_same_number_twice() -> None:
    domain = Domain(1)
    domain.world.run(begin_apart(domain))
    assert all(len(each) == 1 for each in domain.memberships.values())
