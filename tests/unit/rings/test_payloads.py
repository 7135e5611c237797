"""A ring carries whatever its host makes of it: here a minimum and a count, as in `docs/design/rings.md`."""

import msgspec
import pytest

from ring_net.net import TIMES, RingNet
from vivum.core.ids import NodeId
from vivum.core.time import MILLISECOND, SECOND
from vivum.protocols.rings.ladder import RingLadder
from vivum.protocols.rings.placement import Placement
from vivum.wire.rings import RingToken


class PollToken(RingToken, frozen=True, tag=201):
    """The lowest value of those who were asked so far, how many they are, and what the whole view found last."""

    lowest: int
    count: int
    found: tuple[int, int] | None


NOTHING = PollToken(0, 0, 0, 0, 0, (), 1 << 60, 0, None)


class Pollster:
    """A node with a value. Above level 0 it speaks for the ring below, with the result of its last round."""

    def __init__(self, node: NodeId, placement: Placement) -> None:
        self.value = 100 - node
        self.found: tuple[int, int] | None = None
        self.completed: list[PollToken] = []
        self.asked: list[tuple[int, int, int]] = []
        self.ladder: RingLadder[PollToken] = RingLadder(placement, node, self, TIMES, 0)
        self._results: list[tuple[int, int] | None] = [None for _ in self.ladder.rings]

    def begin(self, now_ns: int, level: int) -> PollToken:
        return self._add(msgspec.structs.replace(NOTHING, level=level, found=self.found))

    def pass_through(self, now_ns: int, token: PollToken) -> PollToken:
        self.asked.append((token.level, token.term, token.round))
        self.absorb(now_ns, token)
        return self._add(token)

    def absorb(self, now_ns: int, token: PollToken) -> None:
        self.found = token.found or self.found

    def complete(self, now_ns: int, token: PollToken) -> None:
        self.completed.append(token)
        self._results[token.level] = (token.lowest, token.count)
        if token.level + 1 == len(self.ladder.rings):
            self.found = (token.lowest, token.count)

    def _add(self, token: PollToken) -> PollToken:
        mine = (self.value, 1) if token.level == 0 else self._results[token.level - 1]
        if mine is None:
            return token
        return msgspec.structs.replace(token, lowest=min(token.lowest, mine[0]), count=token.count + mine[1])

    def is_busy(self) -> bool:
        return True

    def interval_ns(self) -> int:
        return 2 * MILLISECOND


def polled(net: RingNet[Pollster]) -> PollToken:
    """The newest round of the top ring that came home."""
    found = net.rounds(level=len(net.placement.levels) - 1)[-1]
    assert isinstance(found, PollToken)
    return found


def test_every_value_is_counted_once_in_every_round() -> None:
    net = RingNet(5, 25, Pollster)
    net.run_for(50 * MILLISECOND)
    rounds = net.members[1].completed
    assert len(rounds) > 20
    assert {(token.lowest, token.count) for token in rounds} == {(95, 5)}
    for member in list(net.members.values())[1:]:
        assert len(member.asked) == len(set(member.asked)) == len(rounds)


def test_the_result_of_a_round_reaches_every_member_in_the_next() -> None:
    net = RingNet(5, 25, Pollster)
    net.run_for(20 * MILLISECOND)
    net.members[3].value = 7
    net.run_for(5 * MILLISECOND)
    assert [member.found for member in net.members.values()] == [(7, 5)] * 5


def test_a_dead_member_is_skipped_and_its_value_does_not_count() -> None:
    net = RingNet(5, 25, Pollster)
    net.run_for(10 * MILLISECOND)
    net.asleep = {5}
    net.run_for(100 * MILLISECOND)
    last = polled(net)
    assert (last.skipped, last.lowest, last.count) == ((5,), 96, 4)


def test_a_sleeper_counts_again_when_it_wakes_and_has_heard_what_was_found_meanwhile() -> None:
    net = RingNet(5, 25, Pollster)
    net.asleep = {5}
    net.run_for(100 * MILLISECOND)
    net.asleep = set()
    net.run_for(20 * MILLISECOND)
    last = polled(net)
    assert (last.skipped, last.lowest, last.count) == ((), 95, 5)
    assert net.members[5].found == (95, 5)


def test_when_the_leader_dies_the_next_leads_and_all_who_are_left_count() -> None:
    net = RingNet(5, 25, Pollster)
    net.run_for(10 * MILLISECOND)
    net.asleep = {1}
    net.run_for(SECOND)
    assert net.leaders() == {2}
    last = polled(net)
    assert (last.leader, last.skipped, last.lowest, last.count) == (2, (1,), 95, 4)


@pytest.mark.parametrize(("nodes", "size", "levels"), [(9, 3, 2), (27, 3, 3), (60, 4, 3)])
def test_leaders_speak_for_their_rings_up_to_the_whole_view(nodes: int, size: int, levels: int) -> None:
    net = RingNet(nodes, size, Pollster)
    net.run_for(SECOND)
    assert len(net.placement.levels) == levels
    assert (polled(net).lowest, polled(net).count) == (100 - nodes, nodes)
    assert {member.found for member in net.members.values()} == {(100 - nodes, nodes)}


def test_when_the_leader_of_leaders_dies_the_whole_view_is_counted_again_without_it() -> None:
    net = RingNet(9, 3, Pollster)
    net.run_for(SECOND)
    net.asleep = {1}
    net.run_for(3 * SECOND)
    last = polled(net)
    assert last.leader != 1
    assert (last.lowest, last.count) == (91, 8)
