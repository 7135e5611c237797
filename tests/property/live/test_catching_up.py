"""A replaying reader against a dumb oracle: each message at most once, in order of its sender, every hole told.

Senders number their messages. Back copies and the live stream each bring runs of rising numbers, and each leaves some
out. The live stream reports its gaps, before or after what came below them; a lost life makes it jump without a word
of which messages it jumped over.
"""

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import vivum
from vivum.core.ids import GroupId, Incarnation, Member, NodeId, ViewNumber
from vivum.core.machine import Delivery
from vivum.live.failures import MissedMessages
from vivum.live.handle import NodeHandle
from vivum.live.inbox import Inbox
from vivum.live.replay.catching_up import CatchingUp
from vivum.live.seat import Seat

SENDERS = [Member(NodeId(90 + each), Incarnation(1)) for each in range(3)]


@dataclass(frozen=True)
class Copies:
    """The recorder brings `count` messages of a sender, `skip` behind those that it brought before."""

    sender: int
    skip: int
    count: int


@dataclass(frozen=True)
class Live:
    """The live stream brings the next messages of a sender, behind a gap of `gap` that it reports."""

    sender: int
    gap: int
    count: int
    reports_first: bool
    """The gap is reported before the messages below it come: effects of one turn may be carried out so."""


@dataclass(frozen=True)
class LifeLost:
    """This node joins again; each sender's stream goes on `jump` messages further."""

    jump: int


@dataclass(frozen=True)
class GoLive:
    """The back copies end here."""


small = st.integers(0, 5)
counts = st.integers(1, 6)
steps = st.one_of(
    st.builds(Copies, st.integers(0, 2), st.sampled_from([0, 0, 0, 2]), counts),
    st.builds(Live, st.integers(0, 2), st.sampled_from([0, 0, 0, 1, 4]), counts, st.booleans()),
    st.builds(LifeLost, small),
    st.just(GoLive()),
)


@dataclass(frozen=True)
class Got:
    sender: Member
    number: int


class Reader(Inbox):
    """Writes down what the reader would see, in order."""

    __slots__ = ("seen",)

    def __init__(self, bytes_max: int) -> None:
        super().__init__("/a", bytes_max, drops_oldest=False)
        self.seen: list[Got | MissedMessages] = []

    def put(self, delivery: Delivery) -> None:
        for number, payload in enumerate(delivery.payloads, delivery.first_sequence):
            assert payload == b"%d" % number
            self.seen.append(Got(delivery.sender, number))

    def interrupt(self, told: MissedMessages) -> None:
        self.seen.append(told)


def run_of(sender: Member, first: int, count: int) -> Delivery:
    return Delivery(
        GroupId(1), sender, first, [b"%d" % number for number in range(first, first + count)], ViewNumber(1), 0
    )


@pytest.fixture(scope="module")
def left() -> tuple[NodeHandle, Seat]:
    async def enter() -> tuple[NodeHandle, Seat]:
        async with vivum.connect("catching-up-oracle") as node:
            return node, (await node.enter("/a", bytes))._seat

    return asyncio.run(enter())


def check(seen: list[Got | MissedMessages], known: dict[Member, set[int]]) -> None:
    for sender in SENDERS:
        numbers = [each.number for each in seen if isinstance(each, Got) and each.sender == sender]
        assert numbers == sorted(set(numbers)), f"{sender} twice or out of order: {numbers}"
        reported = [
            number
            for each in seen
            if isinstance(each, MissedMessages) and each.sender == sender and each.first is not None
            for number in range(each.first, each.first + (each.count or 0))
        ]
        told = set(reported)
        assert len(reported) == len(told), f"{sender}: told twice as missing: {reported}"
        assert not told & set(numbers), f"{sender}: told as missing, and delivered: {told & set(numbers)}"
        # Whatever came to this node, or was reported as lost, is delivered or told.
        assert known[sender] <= told | set(numbers), f"{sender}: {known[sender] - told - set(numbers)} in silence"
        # A hole between two messages is told with its numbers, or by a word without any in between.
        last, is_told = None, False
        for each in seen:
            if isinstance(each, MissedMessages):
                is_told |= each.count is None
            elif each.sender == sender:
                if last is not None and not is_told:
                    hole = set(range(last + 1, each.number))
                    assert hole <= told, f"{sender}: {hole - told} in silence"
                last, is_told = each.number, False


@given(
    st.lists(steps, max_size=30),
    st.lists(small, min_size=3, max_size=3),
    st.sampled_from([400, 1 << 20]),
)
@example(
    # Copies are ahead of the live stream of one sender when the gap of another is told.
    steps=[Copies(0, 0, 6), Copies(1, 0, 2), GoLive(), Live(1, 1, 1, True), Live(0, 0, 6, False)],
    begins=[0, 0, 0],
    bytes_max=1 << 20,
)
def test_each_message_comes_once_in_order_and_every_hole_is_told(
    left: tuple[NodeHandle, Seat], steps: list[object], begins: list[int], bytes_max: int
) -> None:
    """B5: a gap of one sender made the reader forget what it had of all others, and deliver it twice."""
    node, seat = left
    reader = Reader(bytes_max)
    made = CatchingUp(node, seat, reader, "all")
    copied = dict.fromkeys(SENDERS, 0)
    lived = dict(zip(SENDERS, begins, strict=True))
    known: dict[Member, set[int]] = {each: set() for each in SENDERS}
    # What comes live from below the first copy is from before the place where the reader began.
    begun = dict.fromkeys(SENDERS, 0)
    for step in [*steps, GoLive()]:
        match step:
            case Copies(index, skip, count) if not made.is_live:
                sender = SENDERS[index]
                first = copied[sender] + skip
                copied[sender] = first + count
                begun[sender] = begun[sender] if known[sender] else first
                known[sender] |= set(range(first, first + count))
                made._hand_on_copy(run_of(sender, first, count))
            case Live(index, gap, count, reports_first):
                sender = SENDERS[index]
                first = lived[sender]
                behind = first + count + gap
                lived[sender] = behind + count
                known[sender] |= set(range(max(first, begun[sender]), lived[sender]))
                told = MissedMessages("a gap", gap, sender, first + count)
                if gap and reports_first:
                    made.interrupt(told)
                made.put(run_of(sender, first, count))
                if gap and not reports_first:
                    made.interrupt(told)
                made.put(run_of(sender, behind, count))
            case LifeLost(jump):
                made.interrupt(MissedMessages("joins again", None))
                lived = {each: number + jump for each, number in lived.items()}
            case GoLive():
                made._go_live()
    check(reader.seen, known)
