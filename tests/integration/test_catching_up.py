"""Where back copies and the live stream meet: the recorder may be ahead of this node, or behind."""

import asyncio

import vivum
from vivum.core.ids import GroupId, Incarnation, Member, NodeId, ViewNumber
from vivum.core.machine import Delivery
from vivum.live.failures import MissedMessages
from vivum.live.inbox import Inbox
from vivum.live.replay.catching_up import CatchingUp

SENDER = Member(NodeId(99), Incarnation(7))


def run_of(first: int, stop: int) -> Delivery:
    payloads = [b"%d" % number for number in range(first, stop)]
    return Delivery(GroupId(1), SENDER, first, payloads, ViewNumber(1), 0)


def numbers_in(inbox: Inbox) -> list[int]:
    found: list[int] = []
    while (delivery := inbox.take()) is not None:
        found += map(int, delivery.payloads)
    return found


async def caught_up(domain: str, copies: list[Delivery], held: list[Delivery]) -> tuple[CatchingUp, Inbox]:
    """Make a reader that had these back copies, and these live messages meanwhile, and has just gone live."""
    async with vivum.connect(domain) as node:
        topic = await node.enter("/a", bytes)
        inbox = Inbox("/a", 1 << 20, drops_oldest=False)
        made = CatchingUp(node, topic._seat, inbox, "all")
        for each in held:
            made.put(each)
        for each in copies:
            made._hand_on(each)
        made._go_live()
        return made, inbox


def test_what_comes_live_after_its_back_copy_is_left_out(domain_name):
    made, inbox = asyncio.run(caught_up(domain_name, [run_of(0, 800)], [run_of(690, 700)]))
    for live in (run_of(700, 750), run_of(750, 820), run_of(820, 830), run_of(830, 840)):
        made.put(live)
    assert numbers_in(inbox) == list(range(840))


def test_live_messages_that_go_further_than_the_copies_follow_them(domain_name):
    made, inbox = asyncio.run(caught_up(domain_name, [run_of(0, 100)], [run_of(90, 110), run_of(110, 120)]))
    made.put(run_of(120, 130))
    assert numbers_in(inbox) == list(range(130))


def test_a_hole_between_copies_and_live_messages_is_told_once(domain_name):
    made, inbox = asyncio.run(caught_up(domain_name, [run_of(0, 100)], []))
    made.put(run_of(105, 110))
    made.put(run_of(110, 120))
    told: list[MissedMessages] = []
    found: list[int] = []
    while inbox:
        try:
            found += numbers_in(inbox)
        except MissedMessages as missed:
            told.append(missed)
    assert [each.count for each in told] == [5]
    assert found == [*range(105, 120)]
