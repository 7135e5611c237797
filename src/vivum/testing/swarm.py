"""The swarm of whole nodes: worlds made up from a seed, from `connect` to the reader.

Two to six processes find each other, enter topics by name and by pattern, send and read. They come late, leave and come
back, die, start again, pause and are cut off; the one that carries the service dies too. In some worlds a recorder
without a disk runs besides, and readers begin with its back copies. While all this happens the
checkers watch, and every reader checks that what it gets has no hole that it was not told of (safety). Then everything
heals, and at the end each sender's last message must have come to every reader (liveness).

What may be lost is bounded, so that a protocol that gives up in place of repairing does not pass. A process to which
nothing happened keeps its life. No last message is reported as failed, and in a topic of whose processes none was ever
harmed no message is.

`vivum sim run swarm:live --seed N` replays a world, `vivum sim swarm --protocol live` runs many.

Not made up, since it is known not to hold yet (a configuration service without consensus):

- a split that leaves the carrier of the service without a strict majority, or one during which it dies;
- a process that starts or enters a topic between the end of a carrier and the healing: names are not replicated;
- a carrier that ends while others have just gone, or starts again at once: then a new service begins, with a new
  history, in place of one that takes over;
- a pause of the carrier for longer than `CARRIER_PAUSE_S_MAX`, which is to the others a split;
- splits and losses before the domain has formed, and newcomers that begin a service of their own because they do not
  hear of the one that is there: until it is found, their topics have groups that nobody else has.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

from vivum.checkers.checker import Violation
from vivum.core.ids import Member
from vivum.core.randomness import RandomSource
from vivum.guarantees import BEST_EFFORT, KEYED, RELIABLE, TIMELY, Guarantee
from vivum.live.connecting import connect
from vivum.live.event import TopicEvent
from vivum.live.failures import MissedMessages, NoRecorderError, NoServiceError, SendFailedError
from vivum.live.handle import NodeHandle
from vivum.live.subscription import Subscription
from vivum.live.topic import Topic
from vivum.observe.trace import Tracer
from vivum.sim.swarm import SeedVerdict
from vivum.sim.world import Result
from vivum.testing.archive import Archive
from vivum.testing.world import SimulatedHost, World

LIVE = "live"
LIVE_TIMELY = "live:timely"
"""Worlds of whole programs: with reliable topics, or with timely ones in their place."""

DOMAIN = "swarm"

FORM_S = 4.0
"""By then the first processes have found each other."""

SETTLE_S = 12.0
"""Longer than any time-out of the protocols."""

TAKE_OVER_S = 12.0
"""How much longer it takes if the carrier of the service has gone."""

FINAL_S = 40.0
"""How long the last messages may take to be confirmed: what was sent to the dead is given up after 15 s."""

ARRIVAL_S = 3.0
"""How long they may take to arrive, on a network without faults."""

CARRIER_PAUSE_S_MAX = 0.3

SPARED_PAUSE_S = 1.0
SPARED_LOSS = 0.1
"""A process that sleeps for longer, or loses more, may lose its life."""

DATAGRAMS_MAX = 20
"""How many datagrams a process that dies may still send."""

DYING_S = 0.5
"""After this time it is dead, however much it has sent."""

DEATH_NOTICED_S = 14.0
"""By then a death is known, also of a node that nobody watches."""

KINDS = ("kill", "kill", "start", "start", "pause", "pause", "split", "join", "loss", "end", "carrier")
"""What may happen next, the usual more often."""

SEED_PORT = 7000
"""Where the first two hosts are found in worlds without multicast."""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What one process does in one topic."""

    name: str
    guarantee: Guarantee
    receives: bool
    gap_s: float | None
    """Seconds between two sends; None if it does not send."""

    burst: int
    """Messages that are sent at once."""

    size: int
    leaves_at_s: float | None
    away_s: float
    replays: bool = False
    """Whether it begins with back copies."""


@dataclass(slots=True)
class Actor:
    """One host, what its processes are to do, and what the present one has done."""

    host: SimulatedHost
    topics: tuple[TopicPlan, ...]
    pattern: str | None
    seeds: tuple[str, ...]
    port: int
    node: NodeHandle | None = None
    sending: dict[str, Topic[bytes]] = field(default_factory=dict)
    readers: list["Reading"] = field(default_factory=list)
    entered: set[str] = field(default_factory=set)
    """The topics of its plan that it is in."""

    is_spared: bool = True
    """Whether nothing has happened to its process that could cost its life."""

    is_unharmed: bool = True
    """The same of all processes that this host ever had."""

    life: Member | None = None
    """The life of its node once it was in a domain that had formed. None before that."""

    failed_before: dict[str, int] = field(default_factory=dict)
    """By topic: how many of its messages had failed when the domain had formed."""

    is_quiet: bool = False
    """Whether its senders are to stop."""

    is_newcomer: bool = False
    """Whether its next process joins a domain that is there."""

    is_bound: bool = False
    """Whether it must stay in its topics."""

    ends: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_up(self) -> bool:
        """Whether its process runs, and is not about to die."""
        process = self.host.process
        return process is not None and process.is_running and not process.is_dying

    @property
    def is_settled(self) -> bool:
        """Whether it is in all topics of its plan."""
        return self.node is not None and len(self.entered) == len(self.topics)

    def harm(self) -> None:
        """Note that something happens to its process that may cost its life, or others their messages."""
        self.is_spared = self.is_unharmed = False

    def note_life(self) -> None:
        """Note with what its process is in a domain that has formed."""
        self.life = None if self.node is None else self.node.member
        self.failed_before = {name: topic.statistics().failed for name, topic in self.sending.items()}

    def may_be_in(self, name: str) -> bool:
        """Return whether its processes may enter a topic."""
        return self.pattern is not None or any(plan.name == name for plan in self.topics)

    @property
    def carries(self) -> bool:
        """Whether the configuration service is here."""
        return self.is_up and self.node is not None and self.node.carries_service


class Reading:
    """A reader of one topic or pattern that checks what it gets."""

    def __init__(self, names: tuple[str, ...], gaps_allowed: bool) -> None:
        self.names = names
        """The topics that it must hear of at the end; none for a pattern that matches by itself."""

        self.is_present = True
        self.finals: set[tuple[str, str]] = set()
        """The last messages that came: topic and host."""

        self._gaps_allowed = gaps_allowed
        self._next: dict[tuple[str, Member], int] = {}

    async def run(self, source: Topic[bytes] | Subscription[bytes]) -> None:
        """Read to the end."""
        while self.is_present:
            try:
                async for event in source:
                    self._take(event)
                self.is_present = False
            except MissedMessages:
                # Where streams go on after this nobody can say.
                self._next.clear()

    def _take(self, event: TopicEvent[bytes]) -> None:
        stream = (event.topic, event.sender)
        expected = self._next.get(stream)
        if expected is not None and event.sequence != expected:
            is_late = event.sequence < expected
            if is_late or not self._gaps_allowed:
                raise AssertionError(
                    f"reader of {event.topic} got message {event.sequence} of {event.sender} instead of {expected}"
                )
        self._next[stream] = event.sequence + 1
        if event.value.startswith(b"final "):
            self.finals.add((event.topic, event.value[6:].decode()))


async def _program(actor: Actor) -> None:
    """Do what the plan says until told to end."""
    actor.node, actor.sending, actor.readers, actor.entered, actor.ends = None, {}, [], set(), asyncio.Event()
    actor.is_spared, actor.life, actor.failed_before = True, None, {}
    is_newcomer = actor.is_newcomer
    async with _connected(actor) as node:
        actor.node = node
        if is_newcomer:
            actor.note_life()
        async with asyncio.TaskGroup() as tasks:
            work = [tasks.create_task(_take_part(actor, node, plan)) for plan in actor.topics]
            if actor.pattern is not None:
                work.append(tasks.create_task(_subscribe(actor, node, actor.pattern)))
            await actor.ends.wait()
            for task in work:
                task.cancel()


@asynccontextmanager
async def _connected(actor: Actor) -> AsyncIterator[NodeHandle]:
    embedded = not actor.is_newcomer
    while True:
        with suppress(NoServiceError):
            node = await connect(DOMAIN, port=actor.port, seeds=actor.seeds, embedded=embedded)
            break
    async with node:
        yield node


async def _take_part(actor: Actor, node: NodeHandle, plan: TopicPlan) -> None:
    if plan.leaves_at_s is not None:
        await _stay(actor, node, plan, plan.leaves_at_s)
        await asyncio.sleep(plan.away_s)
    await _stay(actor, node, plan, None)


async def _stay(actor: Actor, node: NodeHandle, plan: TopicPlan, lasts_s: float | None) -> None:
    """Be in a topic, read and send, for a time or until cancelled."""
    topic = await _enter(node, plan)
    actor.entered.add(plan.name)
    if plan.gap_s is not None and plan.guarantee.is_gap_free:
        actor.sending[plan.name] = topic
    async with asyncio.TaskGroup() as tasks:
        if plan.receives:
            reader = Reading((plan.name,), not plan.guarantee.is_gap_free)
            actor.readers.append(reader)
            tasks.create_task(reader.run(topic))
        sending = tasks.create_task(_send(actor, topic, plan))
        try:
            if lasts_s is not None:
                await asyncio.sleep(lasts_s)
            if lasts_s is None or actor.is_bound:
                await asyncio.Event().wait()
        finally:
            sending.cancel()
            actor.entered.discard(plan.name)
            actor.sending.pop(plan.name, None)
            actor.failed_before.pop(plan.name, None)
            # The reader comes to its end.
            await topic.leave()


async def _enter(node: NodeHandle, plan: TopicPlan) -> Topic[bytes]:
    replay = "all" if plan.replays else None
    while True:
        # The recorder may be late, or cut off.
        with suppress(NoRecorderError):
            return await node.enter(plan.name, bytes, guarantee=plan.guarantee, receive=plan.receives, replay=replay)


async def _send(actor: Actor, topic: Topic[bytes], plan: TopicPlan) -> None:
    number = 0
    while plan.gap_s is not None and not actor.is_quiet:
        payloads = [(b"%d " % (number + index)).ljust(plan.size, b".") for index in range(plan.burst)]
        number += plan.burst
        await topic.send_many(payloads)
        await asyncio.sleep(plan.gap_s)


async def _record(names: tuple[str, ...], seeds: tuple[str, ...]) -> None:
    while True:
        with suppress(NoServiceError):
            async with connect(DOMAIN, seeds=seeds, embedded=False) as node:
                await Archive(node, names).run()


async def _subscribe(actor: Actor, node: NodeHandle, pattern: str) -> None:
    async with node.subscribe(pattern, bytes) as subscription:
        reader = Reading((), False)
        actor.readers.append(reader)
        await reader.run(subscription)


class LiveWorld:
    """The world of one seed."""

    def __init__(self, seed: int, trace: Tracer | None = None, plain: Guarantee = RELIABLE) -> None:
        """Make it up. Most topics have the guarantee `plain`."""
        rng = self._rng = RandomSource(seed).fork("live swarm")
        self._loss = rng.choice([0.0, 0.0, 0.01, 0.05, 0.1, 0.2])
        multicast = rng.random() < 0.85
        self.world = World(
            seed,
            duplicates=rng.choice([0.0, 0.0, 0.02]),
            reordering=rng.choice([0.0, 0.0, 0.02]),
            delay_s=rng.choice([0.00005, 0.0002, 0.002]),
            bandwidth_bps=rng.choice([10, 100, 1000]) * 1_000_000,
            socket_bytes=rng.choice([65_536, 212_992, 425_984]),
            clock_offset_s=rng.choice([0.0, 1.0]),
            clock_drift_ppm=rng.choice([0, 200]),
            multicast=multicast,
            trace=trace,
        )
        self.faults_s = rng.uniform(4.0, 12.0)
        self._is_bereft = False
        # Else the others die first, and then the service is left alone.
        self._loses_carrier = rng.random() < 0.4
        self._missed_until = 0.0
        self._cut: list[Actor] = []
        names = [f"/plant/{place}/{number}" for number, place in enumerate(rng.sample(["hall", "yard", "roof"] * 2, 4))]
        guarantees = {name: rng.choice([plain, plain, plain, KEYED, BEST_EFFORT]) for name in names}
        self.actors = [self._make_actor(index, guarantees, multicast) for index in range(rng.randint(2, 6))]
        # A source of its own, so that worlds without a recorder are as they were before there was one.
        draw = RandomSource(seed).fork("live swarm", "recorder")
        self._recorded: tuple[str, ...] = ()
        if draw.random() < 0.25:
            self._recorded = tuple(name for name in names if guarantees[name] is RELIABLE)
            for actor in self.actors:
                actor.topics = tuple(
                    replace(plan, replays=plan.name in self._recorded and draw.random() < 0.5) for plan in actor.topics
                )
        self._deaths = RandomSource(seed).fork("live swarm", "deaths")
        # Before `FORM_S` the domain forms; some come later.
        self._late = [actor for actor in self.actors[2:] if rng.random() < 0.3]

    def _make_actor(self, index: int, guarantees: dict[str, Guarantee], multicast: bool) -> Actor:
        rng = self._rng
        chosen = rng.sample(sorted(guarantees), rng.randint(1, min(3, len(guarantees))))
        return Actor(
            self.world.host(f"h{index + 1}"),
            tuple(self._make_plan(name, guarantees[name]) for name in chosen),
            rng.choice([None, None, "/plant/**", "/plant/*/1"]),
            () if multicast else (f"h1:{SEED_PORT}", f"h2:{SEED_PORT}"),
            0 if multicast or index > 1 else SEED_PORT,
        )

    def _make_plan(self, name: str, guarantee: Guarantee) -> TopicPlan:
        rng = self._rng
        receives, leaves = rng.random() < 0.8, rng.random() < 0.2
        # Either often, or much at a time: worlds are for what happens between nodes, not for load.
        gap_s, burst = rng.choice([(None, 1), (0.1, 1), (0.1, 1), (0.5, 1), (0.5, 5), (2.0, 30)])
        size = rng.choice([10, 100, 1000, 3000])
        leaves_at_s, away_s = rng.uniform(1.0, 8.0), rng.uniform(0.0, 2.0)
        return TopicPlan(name, guarantee, receives, gap_s, burst, size, leaves_at_s if leaves else None, away_s)

    # The course of the world.

    def run(self) -> Result:
        """Run it to the end."""
        world = self.world
        violations: list[Violation] = []
        try:
            self.world.run(self._live())
        except Exception as error:
            violations.append(Violation("whole_nodes", f"{type(error).__name__}: {error}", ()))
        verdict = world.verdict()
        violations += verdict.violations
        violations += [Violation("whole_nodes", text, ()) for text in verdict.failures]
        return Result(
            verdict.seed,
            verdict.trace_hash,
            world.scheduler.events,
            world.records,
            verdict.simulated_s,
            verdict.sent,
            0,
            verdict.delivered,
            world.network.arrivals,
            dict(sorted(world.network.losses.items())),
            {},
            None,
            None,
            violations,
        )

    async def _live(self) -> None:
        rng, loop = self._rng, asyncio.get_running_loop()
        # Some worlds begin with one process, in others all look for a service at once.
        stagger_s = rng.choice([0.0, 0.3, 1.0])
        for actor in self.actors:
            if actor not in self._late:
                actor.host.start(_program, actor)
                await asyncio.sleep(rng.uniform(0.0, stagger_s))
        if self._recorded:
            # Nothing happens to it: what it did not record nobody can replay.
            self.world.host("recorder").start(_record, self._recorded, self.actors[0].seeds)
        await asyncio.sleep(max(0.0, FORM_S - loop.time()))
        for actor in self.actors:
            actor.note_life()
            actor.is_newcomer = True
        self._lose(self._loss)
        stop = loop.time() + self.faults_s
        for actor in self._late:
            loop.call_later(rng.uniform(0.0, self.faults_s), self._start, actor)
        while loop.time() < stop:
            await asyncio.sleep(rng.uniform(0.05, 1.5))
            self._strike()
        self.world.heal()
        self._cut = []
        for actor in self.actors:
            actor.is_quiet = True
        await asyncio.sleep(SETTLE_S + (TAKE_OVER_S if self._is_bereft else 0.0))
        self._is_bereft = False
        if rng.random() < 0.7:
            for actor in self.actors:
                self._start(actor)
            await asyncio.sleep(SETTLE_S)
        await self._say_last_words()

    def _start(self, actor: Actor) -> None:
        if not actor.host.is_running and not self._is_bereft and actor not in self._cut:
            actor.host.start(_program, actor)

    def _strike(self) -> None:
        """Let something go wrong, if it may."""
        rng = self._rng
        kind = rng.choice(KINDS)
        if self._loses_carrier and not self._is_bereft and kind in ("kill", "end"):
            kind = "carrier"
        up = [actor for actor in self.actors if actor.is_up]
        carriers = [actor for actor in up if actor.carries]
        others = [actor for actor in up if not actor.carries]
        is_calm = not self._cut and not self._is_bereft and len(carriers) == 1
        if kind == "start":
            for actor in self.actors:
                self._start(actor)
        elif kind == "join":
            self._join()
        elif kind == "loss":
            self._lose(rng.choice([0.0, 0.05, 0.2]))
        elif kind == "carrier" and is_calm and self._may_be_bereft(up):
            self._is_bereft = True
            for actor in up:
                actor.is_bound = True
                actor.harm()
            self._end(carriers[0], rng.random() < 0.3)
        elif kind == "split" and is_calm and not self._is_anyone_asleep(up) and (len(up) - 1) // 2:
            self._cut = rng.sample(others, rng.randint(1, (len(up) - 1) // 2))
            for actor in self._cut:
                actor.harm()
            self.world.split([actor.host for actor in self._cut])
            asyncio.get_running_loop().call_later(rng.uniform(0.3, 8.0), self._join)
        elif kind == "pause" and up:
            self._pause(rng.choice(self._cut or up), up)
        elif kind in ("kill", "end") and not self._is_bereft:
            # Those that are cut off may die; of the others a majority must stay.
            may_die = [actor for actor in self._cut if actor.is_up] if self._cut else others
            if may_die and not self._is_anyone_asleep(up):
                self._end(rng.choice(may_die), kind == "end")

    def _join(self) -> None:
        self.world.split()
        self._cut = []

    def _pause(self, actor: Actor, up: list[Actor]) -> None:
        """Pause one process. Only one sleeps for long at a time: several are to the carrier a lost majority."""
        long_s = CARRIER_PAUSE_S_MAX if actor.carries or self._is_anyone_asleep(up) else 3.0
        duration_s = self._rng.uniform(0.01, long_s)
        if duration_s >= SPARED_PAUSE_S:
            actor.harm()
        actor.host.pause(duration_s)

    def _lose(self, share: float) -> None:
        if share > SPARED_LOSS:
            for actor in self.actors:
                actor.harm()
        self.world.loss(share)

    def _may_be_bereft(self, up: list[Actor]) -> bool:
        """Return whether a standby will take over: all are there, and nobody died whom the service may still count."""
        if len(up) < 3 or self._is_anyone_asleep(up) or self.world.loop.time() < self._missed_until:
            return False
        return all(actor.is_settled for actor in up)

    @staticmethod
    def _is_anyone_asleep(actors: list[Actor]) -> bool:
        return any(actor.host.process is not None and actor.host.process.is_asleep for actor in actors)

    def _end(self, actor: Actor, politely: bool) -> None:
        self._missed_until = self.world.loop.time() + DEATH_NOTICED_S
        if politely:
            self.world.note(f"end of {actor.host.name}")
            actor.ends.set()
        else:
            actor.harm()
            process = actor.host.process
            assert process is not None
            actor.host.kill(after_datagrams=self._deaths.choice([0, self._deaths.randint(1, DATAGRAMS_MAX)]))
            # It may have little to say.
            asyncio.get_running_loop().call_later(DYING_S, process.kill)

    # The end.

    async def _say_last_words(self) -> None:
        """Let every sender send once more, and see that all who read have it."""
        up = [actor for actor in self.actors if actor.is_up and actor.node is not None]
        said: set[tuple[str, str]] = set()
        for actor in up:
            # A process that took long to connect would leave a topic while others speak.
            actor.is_bound = True
        for actor in up:
            for name, topic in list(actor.sending.items()):
                said.add((name, actor.host.name))
                await self._say_last_word(actor, topic)
        await asyncio.sleep(ARRIVAL_S)
        for actor in up:
            for reader in actor.readers:
                lacking = sorted(each for each in said - reader.finals if each[0] in reader.names)
                if reader.is_present and lacking:
                    raise AssertionError(f"{actor.host.name} reads {reader.names} but lacks the last of {lacking}")
            self._check_bounds(actor)

    def _check_bounds(self, actor: Actor) -> None:
        """See that a process lost nothing for nothing."""
        assert actor.node is not None
        if actor.is_spared and actor.life is not None and actor.node.member != actor.life:
            raise AssertionError(f"{actor.host.name} was spared, and yet its life {actor.life} ended")
        for name, topic in actor.sending.items():
            failed = topic.statistics().failed - actor.failed_before.get(name, 0)
            if failed and all(each.is_unharmed for each in self.actors if each.may_be_in(name)):
                raise AssertionError(
                    f"{failed} messages of {actor.host.name} to {name} failed although nothing happened to its members"
                )

    @staticmethod
    async def _say_last_word(actor: Actor, topic: Topic[bytes]) -> None:
        async def flush() -> None:
            # What failed while there were faults is told now.
            while True:
                with suppress(SendFailedError):
                    await topic.flush()
                    break

        async def say() -> None:
            await flush()
            failed = topic.statistics().failed
            await topic.send(f"final {actor.host.name}".encode())
            await flush()
            if topic.statistics().failed != failed:
                raise AssertionError(
                    f"the last message of {actor.host.name} to {topic.name} failed although everything had healed"
                )

        try:
            async with asyncio.timeout(FINAL_S):
                await actor.host.call(say)
        except TimeoutError:
            statistics = topic.statistics()
            raise AssertionError(
                f"the last message of {actor.host.name} to {topic.name} was not confirmed within {FINAL_S:g} s: "
                f"{statistics.sent} sent, {statistics.stable} stable, view {topic.view}"
            ) from None


def plain_guarantee(protocol: str) -> Guarantee:
    """Return the guarantee that most topics have in the worlds of `--protocol`."""
    return TIMELY if protocol == LIVE_TIMELY else RELIABLE


def run_live_seed(seed: int, protocol: str = LIVE) -> SeedVerdict:
    """Run the world of one seed."""
    result = LiveWorld(seed, plain=plain_guarantee(protocol)).run()
    return SeedVerdict(seed, tuple(map(str, result.violations)), result.events, result.trace_hash)
