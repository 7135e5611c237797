"""The replicated state: the same commands make the same state, from any snapshot on, and names mean what a table says.

The oracle is a table that knows nothing but the rule: the first to name a topic makes it.
"""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivum.core.errors import DecodeError
from vivum.core.ids import GroupId
from vivum.protocols.membership.service.application import ReplicatedDomain, command
from vivum.protocols.membership.settings import ServiceSettings
from vivum.wire.directory import TopicEntry
from vivum.wire.membership import ConfigurationAck, Join, Leave, Subscribe
from vivum.wire.service_log import BatchClosed, TopicsCreated

NAMES = [f"/t{number}" for number in range(12)]
PORTS = range(1, 9)


def draw(rng: Random, state: ReplicatedDomain) -> bytes:
    """Draw a command: often one that makes sense now, sometimes one that makes none, or is none."""
    lives = list(state.service.lives.values())
    life = rng.choice(lives) if lives and rng.random() < 0.9 else None
    member = (rng.randrange(9), rng.randrange(3)) if life is None else life.member
    match rng.choices(["join", "subscribe", "ack", "leave", "batch", "topics", "nonsense"], [4, 8, 4, 1, 6, 4, 1])[0]:
        case "join":
            port = rng.choice(PORTS)
            return command(Join(f"p{port}.{rng.randrange(3)}", rng.randrange(9), "h", port, rng.randrange(1, 1 << 32)))
        case "subscribe":
            groups = rng.sample(range(0, 40, 2), 3)
            bounds = tuple(bound for group in sorted(groups) for bound in (group, group + 1))
            request = 1 if life is None else life.request + rng.choice([0, 1, 1, 1, 2])
            return command(Subscribe(request, bounds, (0, 4)), member)
        case "ack":
            return command(ConfigurationAck(max(0, state.service.epoch + rng.choice([-1, 0, 0, 1]))), member)
        case "leave":
            return command(Leave(), member)
        case "batch":
            return command(BatchClosed())
        case "topics":
            chosen = rng.sample(NAMES, rng.randint(1, 4))
            return command(
                TopicsCreated(tuple(TopicEntry(name, f"type {rng.random()}", "reliable") for name in chosen))
            )
        case _:
            return rng.randbytes(rng.randrange(20))


def groups_of(state: ReplicatedDomain) -> dict[str, tuple[int, str]]:
    return {topic.name: (topic.group, topic.schema) for topic in state.topics.all()}


@given(st.integers(0, 2**32), st.integers(1, 200), st.booleans())
@settings(max_examples=40)
def test_replicas_that_apply_the_same_log_have_the_same_state_whatever_they_began_from(seed, length, is_salted):
    rng = Random(seed)
    first = ReplicatedDomain.found(ServiceSettings(regions_max=4), 7, rng.getrandbits(60) if is_salted else 0)
    second = ReplicatedDomain()
    second.restore(first.snapshot())
    oracle: dict[str, str] = {}
    first.is_watched = True
    for index in range(length):
        drawn = draw(rng, first)
        assert first.apply(index, drawn) == second.apply(index, drawn)
        for done in first.applied:
            if isinstance(done.act, TopicsCreated):
                for entry in done.act.topics:
                    oracle.setdefault(entry.name, entry.schema)
        first.applied.clear()
        assert {name: schema for name, (_, schema) in groups_of(first).items()} == oracle
        if rng.random() < 0.1:
            data = second.snapshot()
            second = ReplicatedDomain()
            second.restore(data)
        assert first.snapshot() == second.snapshot()
    groups = [group for group, _ in groups_of(first).values()]
    assert groups == list(range(groups[0], groups[0] + len(groups))) if groups else True


@given(st.integers(0, 2**32), st.integers(0, 80), st.integers(0, 80))
@settings(max_examples=20)
def test_what_goes_on_from_a_copy_gives_no_number_that_the_former_history_gives(seed, before, after):
    rng = Random(seed)
    former = ReplicatedDomain.found(ServiceSettings(), 7, rng.getrandbits(60))
    for index in range(before):
        former.apply(index, draw(rng, former))
    later = former.fork(11, 9, rng.getrandbits(60))
    assert (later.parent, later.parent_epoch) == (11, former.service.epoch)
    assert groups_of(later) == groups_of(former)
    old = {life.member for life in former.service.lives.values()}
    assert {life.member for life in later.service.lives.values()} == old
    numbers = []
    for state in (former, later):
        epochs, lives = set(), set()
        base = state.service.epoch
        for index in range(after):
            state.apply(index, draw(rng, state))
            epochs.add(state.service.epoch)
            lives |= {life.member for life in state.service.lives.values()} - old
        numbers.append((epochs - {base}, lives))
    (epochs, lives), (later_epochs, later_lives) = numbers
    assert not epochs & later_epochs
    assert not lives & later_lives


def test_at_the_limit_a_topic_without_members_makes_room_and_others_do_not():
    state = ReplicatedDomain(ServiceSettings(topics_max=1))
    for name in ("/a", "/b"):
        state.apply(1, command(TopicsCreated((TopicEntry(name, "", "reliable"),))))
    assert list(groups_of(state)) == ["/b"], "nobody was in the other"
    state.apply(2, command(Join("p", 0, "h", 1)))
    group = groups_of(state)["/b"][0]
    state.apply(3, command(Subscribe(1, (group, group + 1), ()), (1, 1)))
    assert state.has_members(GroupId(group))
    state.apply(4, command(TopicsCreated((TopicEntry("/c", "", "reliable"),))))
    assert list(groups_of(state)) == ["/b"]


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x90"])
def test_what_is_no_snapshot_is_refused_and_changes_nothing(data):
    state = ReplicatedDomain()
    state.apply(1, command(Join("p", 0, "h", 1)))
    before = state.snapshot()
    with pytest.raises(DecodeError, match="state of a domain"):
        state.restore(data)
    assert state.snapshot() == before
