"""Where back copies and the live stream meet: the recorder may be ahead of this node, or behind."""

import asyncio

import vivum
from vivum.core.ids import GroupId, Incarnation, Member, NodeId, ViewNumber
from vivum.core.machine import Delivery
from vivum.live.failures import MissedMessages
from vivum.live.inbox import Inbox
from vivum.live.replay.catching_up import CatchingUp

SENDER = Member(NodeId(99), Incarnation(7))
OTHER = Member(NodeId(98), Incarnation(7))


def run_of(first: int, stop: int, sender: Member = SENDER) -> Delivery:
    payloads = [b"%d" % number for number in range(first, stop)]
    return Delivery(GroupId(1), sender, first, payloads, ViewNumber(1), 0)


def gap_of(first: int, stop: int, sender: Member = SENDER) -> MissedMessages:
    return MissedMessages(f"{first} to {stop - 1} can no longer be had", stop - first, sender, first)


def read_all(inbox: Inbox) -> tuple[list[int], list[MissedMessages]]:
    found: list[int] = []
    told: list[MissedMessages] = []
    while inbox:
        try:
            delivery = inbox.take()
            assert delivery is not None
            found += map(int, delivery.payloads)
        except MissedMessages as missed:
            told.append(missed)
    return found, told


async def caught_up(domain: str, copies: list[Delivery], held: list[Delivery]) -> tuple[CatchingUp, Inbox]:
    """Make a reader that had these back copies, and these live messages meanwhile, and has just gone live."""
    async with vivum.connect(domain) as node:
        topic = await node.enter("/a", bytes)
        inbox = Inbox("/a", 1 << 20, drops_oldest=False)
        made = CatchingUp(node, topic._seat, inbox, "all")
        for each in held:
            made.put(each)
        for each in copies:
            made._hand_on_copy(each)
        made._go_live()
        return made, inbox


def test_what_comes_live_after_its_back_copy_is_left_out(domain_name):
    made, inbox = asyncio.run(caught_up(domain_name, [run_of(0, 800)], [run_of(690, 700)]))
    for live in (run_of(700, 750), run_of(750, 820), run_of(820, 830), run_of(830, 840)):
        made.put(live)
    assert read_all(inbox) == ([*range(840)], [])


def test_live_messages_that_go_further_than_the_copies_follow_them(domain_name):
    made, inbox = asyncio.run(caught_up(domain_name, [run_of(0, 100)], [run_of(90, 110), run_of(110, 120)]))
    made.put(run_of(120, 130))
    assert read_all(inbox) == ([*range(130)], [])


def test_a_hole_between_copies_and_live_messages_is_told_once(domain_name):
    made, inbox = asyncio.run(caught_up(domain_name, [run_of(0, 100)], []))
    made.put(run_of(105, 110))
    made.put(run_of(110, 120))
    found, told = read_all(inbox)
    assert [each.count for each in told] == [5]
    assert found == [*range(100), *range(105, 120)]


def test_a_gap_of_one_sender_does_not_bring_messages_of_another_twice(domain_name):
    made, inbox = asyncio.run(caught_up(domain_name, [run_of(0, 100)], []))
    made.put(run_of(80, 85))
    made.interrupt(gap_of(3, 4, OTHER))
    made.put(run_of(85, 105))
    found, told = read_all(inbox)
    assert found == [*range(105)]
    assert [each.sender for each in told] == [OTHER]


def test_a_gap_that_the_back_copies_have_filled_is_not_told(domain_name):
    made, inbox = asyncio.run(caught_up(domain_name, [run_of(0, 100)], []))
    made.interrupt(gap_of(80, 90))
    made.put(run_of(90, 105))
    assert read_all(inbox) == ([*range(105)], [])


def test_of_a_gap_that_reaches_beyond_the_back_copies_only_the_rest_is_told(domain_name):
    made, inbox = asyncio.run(caught_up(domain_name, [run_of(0, 100)], []))
    made.interrupt(gap_of(95, 103))
    made.put(run_of(103, 110))
    found, told = read_all(inbox)
    assert found == [*range(100), *range(103, 110)]
    assert [(each.first, each.count) for each in told] == [(100, 3)]


def test_a_lost_life_does_not_bring_again_what_the_back_copies_had(domain_name):
    made, inbox = asyncio.run(caught_up(domain_name, [run_of(0, 100)], []))
    made.put(run_of(80, 85))
    made.interrupt(MissedMessages("the node joins again", None))
    made.put(run_of(90, 105))
    found, told = read_all(inbox)
    assert found == [*range(105)]
    assert [each.count for each in told] == [None]


def test_a_gap_during_catching_up_that_no_back_copy_fills_is_told_also_if_the_sender_is_silent_afterwards(domain_name):
    async def scene() -> Inbox:
        async with vivum.connect(domain_name) as node:
            topic = await node.enter("/a", bytes)
            inbox = Inbox("/a", 1 << 20, drops_oldest=False)
            made = CatchingUp(node, topic._seat, inbox, "all")
            made.put(run_of(90, 100))
            made.interrupt(gap_of(100, 105))
            made._hand_on_copy(run_of(0, 100))
            assert made._lacking() == {SENDER: 100}
            made._go_live()
            return inbox

    found, told = read_all(asyncio.run(scene()))
    assert found == [*range(100)]
    assert [(each.first, each.count) for each in told] == [(100, 5)]
