"""Token rings, sentence by sentence of `docs/design/rings.md`."""

import msgspec
import pytest

from ring_net.net import BareToken, bare_net
from vivum.core.ids import NodeId
from vivum.core.time import MILLISECOND, SECOND
from vivum.wire.rings import TokenReceipt


def test_a_token_passes_every_member_once_and_comes_home() -> None:
    net = bare_net(5)
    net.run_for(MILLISECOND)
    assert [member.passed for member in net.members.values()] == [[], *[[(0, 0, 1)]] * 4]
    assert [token.skipped for token in net.members[1].completed] == [()]


def test_rounds_are_one_at_a_time_and_numbered() -> None:
    net = bare_net(4)
    net.run_for(100 * MILLISECOND)
    rounds = [token.round for token in net.rounds()]
    assert rounds == list(range(1, len(rounds) + 1))
    assert len(rounds) == 50


def test_an_idle_ring_has_one_round_a_second() -> None:
    net = bare_net(4, busy=False)
    net.run_for(10 * SECOND + 500 * MILLISECOND)
    assert len(net.rounds()) == 11
    assert net.leaders() == {1}


def test_a_single_member_finishes_its_rounds_by_itself() -> None:
    net = bare_net(1)
    net.run_for(10 * MILLISECOND)
    assert len(net.rounds()) > 2
    assert net.sent == []


def test_who_does_not_answer_twice_within_10_ms_is_passed_over() -> None:
    net = bare_net(4)
    net.asleep = {3}
    net.run_for(25 * MILLISECOND)
    first, *_ = net.rounds()
    assert first.skipped == (3,)
    tries = [message for source, target, message in net.sent if target == 3 and isinstance(message, BareToken)]
    assert [3 in message.skipped for message in tries[:2]] == [False, False]
    assert all(3 in message.skipped for message in tries[2:]), "later ones are courtesy copies"


def test_one_who_was_passed_over_gets_a_courtesy_copy_and_is_taken_in_again_when_it_answers() -> None:
    net = bare_net(4)
    net.asleep = {3}
    net.run_for(50 * MILLISECOND)
    net.asleep = set()
    net.run_for(10 * MILLISECOND)
    assert net.members[3].absorbed
    assert net.rounds()[-1].skipped == ()
    assert net.members[3].passed[-1][2] >= net.rounds()[-1].round


def test_an_unresponsive_member_that_left_the_region_gets_few_courtesy_copies() -> None:
    net = bare_net(3)
    net.asleep = {3}
    for member in net.members.values():
        member.ladder.gone.add(NodeId(3))
    net.run_for(50 * MILLISECOND)
    net.sent.clear()
    rounds = len(net.rounds())
    net.run_for(100 * MILLISECOND)
    copies = [each for each in net.sent if each[1] == 3]
    assert 0 < len(copies) <= (len(net.rounds()) - rounds) // 8 + 1
    assert net.rounds()[-1].skipped == (3,)


def test_two_who_left_the_region_and_took_each_other_for_dead_find_together_again() -> None:
    """Ours: each led the ring alone, and the view never became quiet."""
    net = bare_net(2)
    net.members[1].ladder.gone.add(NodeId(2))
    net.members[2].ladder.gone.add(NodeId(1))
    net.asleep = {1}
    net.run_for(SECOND)
    net.asleep = {2}
    net.run_for(SECOND)
    net.asleep = set()
    assert net.leaders() == {1, 2}
    net.run_for(SECOND)
    assert len(net.leaders()) == 1
    assert net.rounds()[-1].skipped == ()


def test_a_member_that_left_the_region_and_still_answers_takes_part() -> None:
    net = bare_net(3)
    net.members[1].ladder.gone.add(NodeId(2))
    net.run_for(10 * MILLISECOND)
    assert net.members[2].passed


def test_when_the_leader_falls_silent_another_leads_on_with_a_higher_term() -> None:
    net = bare_net(4)
    net.run_for(10 * MILLISECOND)
    net.asleep = {1}
    net.run_for(SECOND)
    assert net.leaders() == {2}
    last = net.rounds()[-1]
    assert last.term > 0
    assert last.leader == 2
    assert last.skipped == (1,)


def test_a_leader_that_dies_while_the_token_is_under_way_is_replaced_by_the_one_after_it_at_once() -> None:
    net = bare_net(4)
    net.run_for(10 * MILLISECOND)
    rounds = len(net.rounds())
    net.run_for(150_000)
    net.asleep = {1}
    net.run_for(60 * MILLISECOND)
    assert len(net.rounds()) > rounds
    assert net.leaders() <= {2, 3, 4}


def test_an_old_leader_learns_from_a_receipt_that_it_leads_no_more() -> None:
    net = bare_net(4)
    net.run_for(10 * MILLISECOND)
    net.asleep = {1}
    net.run_for(SECOND)
    net.asleep = set()
    net.run_for(100 * MILLISECOND)
    assert net.leaders() == {2}
    assert net.members[1].ladder.rings[0].leader == 2
    assert net.rounds()[-1].skipped == ()


def test_a_leader_that_was_passed_over_in_an_old_round_does_not_forget_the_one_under_way() -> None:
    """Ours: the copy waited in the queue of a busy sender. Nothing went round for 0.2 s, until the watch was over."""
    net = bare_net(4)
    net.run_for(10 * MILLISECOND + 50_000)
    leader, rounds = net.members[1], len(net.rounds())
    under_way = leader.ladder.rings[0].round
    assert under_way == rounds + 1
    late = msgspec.structs.replace(_token(term=0, round_=under_way - 2, leader=1), skipped=(1,))
    leader.ladder.rings[0].on_token(net.now_ns, NodeId(4), late)
    net.run_for(20 * MILLISECOND)
    assert [token.round for token in net.rounds()] == list(range(1, rounds + 11))
    assert net.leaders() == {1}
    assert leader.absorbed == [], "it is older than what the leader itself decided since"


def test_a_late_copy_for_one_who_was_passed_over_tells_the_leader_that_it_is_awake_and_changes_nothing_else() -> None:
    net = bare_net(4, busy=False)
    net.run_for(MILLISECOND)
    member = net.members[3]
    member.ladder.rings[0].round = 7
    absorbed = list(member.absorbed)
    late = msgspec.structs.replace(_token(term=0, round_=5, leader=1), skipped=(3,))
    member.ladder.rings[0].on_token(net.now_ns, NodeId(2), late)
    assert [target for target, _ in member.ladder.rings[0].take_messages(net.now_ns)] == [2, 1]
    assert (member.ladder.rings[0].round, member.absorbed) == (7, absorbed)


def test_a_token_of_an_older_term_is_confirmed_and_not_handled() -> None:
    net = bare_net(3, busy=False)
    net.run_for(MILLISECOND)
    ring = net.members[2].ladder.rings[0]
    ring.term = 5
    passed = list(net.members[2].passed)
    ring.on_token(net.now_ns, NodeId(1), _token(term=4, round_=99, leader=1))
    ((target, receipt),) = ring.take_messages(net.now_ns)
    assert (target, receipt.term) == (1, 5)
    assert net.members[2].passed == passed


def test_a_token_that_comes_twice_is_handled_once() -> None:
    net = bare_net(3, busy=False)
    net.run_for(MILLISECOND)
    ring = net.members[2].ladder.rings[0]
    for _ in range(2):
        ring.on_token(net.now_ns, NodeId(1), _token(term=0, round_=2, leader=1))
        ring.take_messages(net.now_ns)
    assert net.members[2].passed.count((0, 0, 2)) == 1


def _token(term: int, round_: int, leader: int) -> BareToken:
    return BareToken(0, 0, term, round_, leader, ())


# Levels.


@pytest.mark.parametrize(("nodes", "size", "levels"), [(4, 2, 2), (9, 3, 2), (9, 2, 4), (27, 3, 3), (60, 4, 3)])
def test_rings_of_every_level_go_round(nodes: int, size: int, levels: int) -> None:
    net = bare_net(nodes, size)
    net.run_for(200 * MILLISECOND)
    assert len(net.placement.levels) == levels
    for level, plans in enumerate(net.placement.levels):
        for plan in plans:
            assert net.rounds(level, plan.number)[-1].skipped == ()


def test_who_does_not_lead_below_sends_the_token_to_the_one_who_does() -> None:
    net = bare_net(4, 2)
    net.run_for(10 * MILLISECOND)
    net.asleep = {3}
    net.run_for(2 * SECOND)
    # 4 leads its ring now, and speaks for it above.
    assert net.members[4].ladder.rings[0].is_leader
    assert net.members[4].passed[-1][0] == 1
    net.asleep = set()
    net.members[1].ladder.rings[1]._contacts.clear()
    net.run_for(100 * MILLISECOND)
    receipts = [m for s, _, m in net.sent if s == 3 and isinstance(m, TokenReceipt) and m.level == 1 and not m.round]
    assert receipts, "asked again, it names the one who leads"
    assert net.rounds(1)[-1].skipped == ()


@pytest.mark.parametrize(("nodes", "size"), [(4, 2), (9, 3), (9, 2)])
@pytest.mark.parametrize("victim", [1, 3, 4])
def test_whoever_sleeps_for_a_while_is_in_all_rings_again_when_it_wakes(nodes: int, size: int, victim: int) -> None:
    net = bare_net(nodes, size)
    net.run_for(20 * MILLISECOND)
    net.asleep = {victim}
    net.run_for(3 * SECOND)
    net.asleep = set()
    net.run_for(5 * SECOND)
    for level, plans in enumerate(net.placement.levels):
        for plan in plans:
            inside = {node for slot in plan.slots for node in slot}
            assert len(net.leaders(level) & inside) == 1
            assert net.rounds(level, plan.number)[-1].skipped == ()


def test_two_who_take_each_other_for_the_leader_do_not_send_a_token_back_and_forth_for_ever() -> None:
    net = bare_net(6, 3)
    net.run_for(10 * MILLISECOND)
    for node, other in ((4, 5), (5, 4), (6, 4)):
        net.members[node].ladder.rings[0].leader = NodeId(other)
        net.members[node].ladder.rings[0]._start_ns = None
    net.sent.clear()
    net.run_for(20 * MILLISECOND)
    assert sum(isinstance(m, BareToken) and m.level == 1 and t in (4, 5, 6) for _, t, m in net.sent) < 60
