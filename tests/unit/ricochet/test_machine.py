"""Lateral error correction: receivers repair each other, senders what is left; nothing comes twice or made up."""

from collections.abc import Callable, Iterable
from random import Random

import pytest

from live_wire.wired import DOMAIN, NO_CHANNEL, Wire
from vivum.core.errors import LimitError, NotNowError, UsageError
from vivum.core.ids import Endpoint, GroupId
from vivum.core.limits import Limits
from vivum.core.machine import Datagram
from vivum.core.time import MILLISECOND, SECOND
from vivum.protocols.commands import GapReported, JoinGroup, LeaveGroup, SendConfirmed, SendFailed, SendMessages, Tuning
from vivum.protocols.ricochet.settings import TimelySettings
from vivum.wire.codec import FrameBuilder, split
from vivum.wire.control import decode_control, encode_control
from vivum.wire.kinds import Kind
from vivum.wire.timely import NAME, LateralRepair, StreamState, TimelyProgress, TimelyReport

GROUP = GroupId(5)
Sent = list[tuple[Endpoint, Datagram]]
Fate = Callable[[Sent], Iterable[tuple[Endpoint, Datagram]]]


def begin(
    nodes: int, timely: TimelySettings | None = None, limits: Limits | None = None
) -> tuple[Wire, list[Endpoint]]:
    wire = Wire(nodes, GROUP, limits=limits, timely=timely)
    for parts in wire.members.values():
        parts.node.submit(wire.now_ns, JoinGroup(GROUP, NO_CHANNEL, (), transport="ricochet"))
    return wire, list(wire.members)


def send(wire: Wire, sender: Endpoint, *payloads: bytes) -> None:
    wire.members[sender].node.submit(wire.now_ns, SendMessages(GROUP, payloads))
    wire.settle()


def got(wire: Wire, receiver: Endpoint) -> list[tuple[int, bytes]]:
    runs = wire.delivered[receiver]
    return [(run.first_sequence + index, payload) for run in runs for index, payload in enumerate(run.payloads)]


def told(wire: Wire, place: Endpoint, event: type) -> list[tuple[int, int]]:
    return [(each.first, each.stop) for each in wire.events[place] if isinstance(each, event)]


def without(kind: Kind, *places: Endpoint) -> Fate:
    """Lose all frames of a kind on their way to some places, or to all."""
    return lambda sent: [
        each for each in sent if split(each[1].data)[0].kind is not kind or (places and each[0] not in places)
    ]


def whole(sent: Sent) -> Sent:
    return sent


def test_messages_arrive_at_once_and_are_confirmed_when_all_have_reported() -> None:
    wire, (sender, *others) = begin(3)
    send(wire, sender, b"a", b"b")
    send(wire, sender, b"c")
    assert all(got(wire, each) == [(0, b"a"), (1, b"b"), (2, b"c")] for each in others)
    assert told(wire, sender, SendConfirmed) == []
    wire.advance(SECOND)
    assert told(wire, sender, SendConfirmed) == [(0, 3)]
    assert wire.members[sender].counters.repairs_sent == 0


def test_a_lost_frame_is_rebuilt_from_another_receivers_repair_before_the_sender_is_asked() -> None:
    wire, (sender, *others) = begin(5)
    send(wire, sender, b"0")
    wire.advance(SECOND)
    wire.fate = without(Kind.GROUP_DATA, others[0])
    send(wire, sender, b"1")
    wire.fate = whole
    wire.advance(59 * MILLISECOND)
    assert got(wire, others[0]) == [(0, b"0"), (1, b"1")]
    counters = wire.members[others[0]].counters
    assert (counters.lateral_rebuilt, counters.naks_sent) == (1, 0)
    assert wire.members[sender].counters.repairs_sent == 0


def test_what_receivers_do_not_repair_is_asked_for() -> None:
    wire, (sender, receiver) = begin(2, TimelySettings(repair_copies=0))
    send(wire, sender, b"0")
    wire.fate = without(Kind.GROUP_DATA)
    send(wire, sender, b"1")
    wire.fate = whole
    send(wire, sender, b"2")
    assert got(wire, receiver) == [(0, b"0")], "messages of a sender stay in order"
    wire.advance(59 * MILLISECOND)
    assert wire.members[receiver].counters.naks_sent == 0
    wire.advance(2 * MILLISECOND)
    assert got(wire, receiver) == [(0, b"0"), (1, b"1"), (2, b"2")]
    assert wire.members[receiver].counters.repairs_received == 1


def test_a_last_frame_that_all_lost_is_found_when_nobody_reports_it() -> None:
    wire, (sender, *others) = begin(3, TimelySettings(repair_copies=0))
    send(wire, sender, b"0")
    wire.advance(SECOND)
    wire.fate = without(Kind.GROUP_DATA)
    send(wire, sender, b"1")
    wire.fate = whole
    wire.advance(160 * MILLISECOND)
    assert all(got(wire, each) == [(0, b"0"), (1, b"1")] for each in others)


def test_who_joins_later_begins_with_its_view_and_lacks_nothing_from_there_on() -> None:
    wire, (sender, other, late) = begin(3)
    wire.members[late].node.submit(wire.now_ns, LeaveGroup(GROUP))
    wire.advance(SECOND)
    send(wire, sender, b"before")
    wire.members[late].node.submit(wire.now_ns, JoinGroup(GROUP, NO_CHANNEL, (), transport="ricochet"))
    wire.advance(SECOND)
    wire.fate = without(Kind.GROUP_DATA, late)
    send(wire, sender, b"lost there")
    wire.fate = whole
    send(wire, sender, b"after")
    wire.advance(SECOND)
    assert got(wire, late) == [(1, b"lost there"), (2, b"after")]
    assert got(wire, other)[0] == (0, b"before")
    assert told(wire, late, GapReported) == []


def test_past_its_deadline_a_frame_is_given_up_and_its_messages_are_told_as_a_gap() -> None:
    wire, (sender, receiver) = begin(2, TimelySettings(deadline_ns=100 * MILLISECOND, repair_copies=0))
    send(wire, sender, b"0")
    wire.fate = without(Kind.GROUP_DATA)
    send(wire, sender, b"1", b"2")
    send(wire, sender, b"3")
    wire.advance(2 * SECOND)
    wire.fate = whole
    send(wire, sender, b"4")
    wire.advance(SECOND)
    delivered = [number for number, _ in got(wire, receiver)]
    missed = [number for first, stop in told(wire, receiver, GapReported) for number in range(first, stop)]
    assert sorted(delivered + missed) == [0, 1, 2, 3, 4]
    assert missed
    assert told(wire, sender, SendConfirmed)[-1][1] == 5


def test_a_topic_may_have_a_deadline_and_an_r_c_of_its_own() -> None:
    wire, (sender, receiver) = begin(2, TimelySettings(repair_copies=0))
    for parts in wire.members.values():
        join = JoinGroup(GROUP, NO_CHANNEL, (), transport="ricochet", tuning=Tuning(100 * MILLISECOND, (2, 3)))
        parts.node.submit(wire.now_ns, join)
    send(wire, sender, b"0")
    wire.advance(50 * MILLISECOND)
    assert wire.members[sender].counters.lateral_sent >= 1
    ours = (Kind.GROUP_DATA, Kind.LATERAL)
    wire.fate = lambda sent: [each for each in sent if split(each[1].data)[0].kind not in ours]
    send(wire, sender, b"1")
    wire.advance(2 * SECOND)
    wire.fate = whole
    send(wire, sender, b"2")
    wire.advance(SECOND)
    assert got(wire, receiver) == [(0, b"0"), (2, b"2")]
    assert told(wire, receiver, GapReported) == [(1, 2)]
    # The next who enters without wishes has those of the node.
    wire.members[sender].node.submit(wire.now_ns, JoinGroup(GROUP, NO_CHANNEL, (), transport="ricochet"))
    before = wire.members[sender].counters.lateral_sent
    send(wire, sender, b"3")
    wire.advance(SECOND)
    assert wire.members[sender].counters.lateral_sent == before


@pytest.mark.parametrize(
    ("transport", "tuning", "what"),
    [
        ("ricochet", Tuning(repair=(9, 5)), r"repair is \(9, 5\); expected r of 1 to 8"),
        ("ricochet", Tuning(deadline_ns=-1), "deadline_ns is -1"),
        ("unrepaired", Tuning(deadline_ns=1), "takes no wishes"),
        ("", Tuning(deadline_ns=1), "takes no wishes"),
    ],
)
def test_wishes_that_cannot_be_are_refused(transport: str, tuning: Tuning, what: str) -> None:
    wire, (sender,) = begin(1)
    with pytest.raises(UsageError, match=what):
        wire.members[sender].node.submit(
            wire.now_ns, JoinGroup(GROUP, NO_CHANNEL, (), transport=transport, tuning=tuning)
        )


def test_a_sender_waits_for_members_when_it_keeps_too_much_and_goes_on_when_they_have_reported() -> None:
    wire, (sender, _) = begin(2, TimelySettings(kept_bytes_max=4000))
    send(wire, sender, bytes(3000))
    with pytest.raises(NotNowError, match=r"3\d{3} bytes wait for members to report"):
        send(wire, sender, bytes(3000))
    wire.advance(SECOND)
    send(wire, sender, bytes(3000))
    assert wire.members[sender].node.room_bytes(GROUP) < 1000


def test_large_messages_are_cut_and_joined_and_too_large_ones_refused() -> None:
    wire, (sender, receiver) = begin(2, limits=Limits(message_bytes_max=20_000))
    payload = Random(1).randbytes(20_000)
    send(wire, sender, b"x", payload, b"y")
    assert got(wire, receiver) == [(0, b"x"), (1, payload), (2, b"y")]
    with pytest.raises(LimitError, match="over message_bytes_max=20000"):
        send(wire, sender, bytes(20_001))


@pytest.mark.parametrize("seed", range(12))
def test_whatever_the_wire_does_all_arrives_once_and_in_order(seed: int) -> None:
    rng = Random(seed)
    wire, (sender, *others) = begin(4)
    held: Sent = []

    def rough(sent: Sent) -> Sent:
        """Lose some, repeat some, and hold some back until later."""
        held.extend(sent)
        out: Sent = []
        rng.shuffle(held)
        for each in held[: rng.randrange(len(held) + 1)]:
            held.remove(each)
            out += [each] * rng.choice([0, 1, 1, 1, 2])
        return out

    ours = (Kind.GROUP_DATA, Kind.LATERAL, Kind.GROUP_WORD)

    def fate(sent: Sent) -> Sent:
        mine = [each for each in sent if split(each[1].data)[0].kind in ours]
        return [each for each in sent if each not in mine] + rough(mine)

    wire.fate = fate
    payloads = [rng.randbytes(rng.choice([0, 3, 700, 4000])) for _ in range(60)]
    for start in range(0, 60, 5):
        send(wire, sender, *payloads[start : start + 5])
        wire.advance(rng.randrange(30) * MILLISECOND)
    wire.fate = whole
    wire.advance(5 * SECOND)
    for each in others:
        assert got(wire, each) == list(enumerate(payloads))
        assert told(wire, each, GapReported) == []
    assert told(wire, sender, SendConfirmed)[-1][1] == 60


def test_what_a_leaver_sent_is_still_repaired_for_a_while() -> None:
    wire, (sender, receiver, _) = begin(3, TimelySettings(repair_copies=0))
    send(wire, sender, b"0")
    wire.fate = without(Kind.GROUP_DATA)
    send(wire, sender, b"1")
    wire.fate = whole
    wire.members[sender].node.submit(wire.now_ns, LeaveGroup(GROUP))
    wire.advance(4 * SECOND)
    assert got(wire, receiver) == [(0, b"0"), (1, b"1")]
    assert told(wire, sender, SendFailed) == []


def test_a_sender_that_leaves_and_comes_back_goes_on_with_its_numbers() -> None:
    wire, (sender, receiver) = begin(2)
    send(wire, sender, b"0")
    wire.members[sender].node.submit(wire.now_ns, LeaveGroup(GROUP))
    wire.advance(4 * SECOND)
    wire.members[sender].node.submit(wire.now_ns, JoinGroup(GROUP, NO_CHANNEL, (), transport="ricochet"))
    wire.advance(SECOND)
    assert wire.members[sender].node.next_sequence(GROUP) == 1
    send(wire, sender, b"1")
    wire.advance(SECOND)
    assert got(wire, receiver) == [(0, b"0"), (1, b"1")]


# Hostile frames.


def injected(wire: Wire, source: Endpoint, target: Endpoint, data: bytes) -> int:
    """Give a node a datagram; return how many frames it refused by that."""
    counters = wire.members[target].counters
    before = counters.frames_refused_state + counters.lateral_refused
    wire.members[target].node.on_datagrams(wire.now_ns, [(source, data)])
    wire.settle()
    return counters.frames_refused_state + counters.lateral_refused - before


def frame_of(sender: tuple[int, int], number: int, payload: bytes, message: int) -> bytes:
    builder = FrameBuilder(1000)
    builder.append(GROUP, message, payload)
    return builder.seal(Kind.GROUP_DATA, DOMAIN, *sender, GROUP, 1 << 20, number, 0)


def test_frames_in_the_name_of_another_are_refused() -> None:
    wire, (sender, receiver, liar) = begin(3)
    send(wire, sender, b"0")
    me = wire.members[sender].node.member
    assert injected(wire, liar, receiver, frame_of((*me,), 1, b"forged", 1)) == 1
    assert injected(wire, Endpoint("10.0.0.9", 1), receiver, frame_of((*me,), 1, b"forged", 1)) == 1
    progress = TimelyProgress(1, (StreamState(GROUP, 0, 1000, 1000, 1 << 40),))
    word = encode_control(Kind.GROUP_WORD, DOMAIN, *me, 0, 0, 0, progress)
    assert injected(wire, liar, receiver, word) == 1
    send(wire, sender, b"1")
    assert got(wire, receiver) == [(0, b"0"), (1, b"1")]


def test_repairs_that_lie_make_no_message_and_stop_nobody() -> None:
    wire, (sender, receiver, liar) = begin(3, TimelySettings(repair_copies=0))
    send(wire, sender, b"0")
    me, other = wire.members[sender].node.member, wire.members[liar].node.member

    def lie(number: int, data: bytes, crc: int = 1) -> None:
        body = LateralRepair(NAME.pack(*me, GROUP, number, crc), data)
        injected(wire, liar, receiver, encode_control(Kind.LATERAL, DOMAIN, *other, 0, 0, 0, body))

    lie(1, b"not a frame at all")
    lie(1, frame_of((*me,), 1, b"wrong sum", 1))
    for far in (2, 1000, 1 << 40, (1 << 64) - 2):
        lie(far, b"")
    wire.advance(SECOND)
    send(wire, sender, b"1")
    wire.advance(SECOND)
    assert got(wire, receiver) == [(0, b"0"), (1, b"1")]
    assert told(wire, receiver, GapReported) == []
    assert wire.members[receiver].counters.lateral_refused >= 2
    assert wire.members[receiver].counters.naks_sent < 20


def test_reports_of_what_was_never_sent_are_refused() -> None:
    wire, (sender, receiver) = begin(2)
    send(wire, sender, b"0")
    me = wire.members[receiver].node.member
    report = TimelyReport(wire.members[sender].node.member.incarnation, ((GROUP, 1 << 40), (99, 1)))
    assert injected(wire, receiver, sender, encode_control(Kind.GROUP_WORD, DOMAIN, *me, 0, 0, 0, report)) == 2
    assert told(wire, sender, SendConfirmed) == []


def test_a_receiver_asks_for_no_more_than_it_may_get() -> None:
    wire, (sender, receiver) = begin(2, TimelySettings(repair_copies=0, resend_frames_max=8))
    asked: list[int] = []

    def watch(sent: Sent) -> Sent:
        for _, datagram in sent:
            (frame,) = split(datagram.data)[:1]
            if frame.kind is Kind.GROUP_WORD:
                body = decode_control(frame)
                for ask in getattr(body, "asks", ()):
                    asked.append(sum(ask.bounds[1::2]) - sum(ask.bounds[::2]))
        return sent

    send(wire, sender, b"first")
    wire.fate = without(Kind.GROUP_DATA)
    for number in range(50):
        send(wire, sender, b"%d" % number)
    wire.fate = watch
    wire.advance(5 * SECOND)
    assert len(got(wire, receiver)) == 51
    assert max(asked) == 8


def test_a_node_that_measures_no_loss_spends_less_on_repairs_as_the_wanted_share_allows() -> None:
    spent = []
    for wanted in (0.0, 0.9):
        wire, (sender, *_) = begin(4, TimelySettings(wanted_recovery=wanted))
        for number in range(300):
            send(wire, sender, b"%d" % number)
            wire.advance(10 * MILLISECOND)
            if number == 150:
                before = sum(parts.counters.lateral_sent for parts in wire.members.values())
        spent.append(sum(parts.counters.lateral_sent for parts in wire.members.values()) - before)
    # (8, 2.3) repairs 90 % where nothing is lost; the default is (8, 5), of which three others can have three.
    assert spent[1] < 0.75 * spent[0]
