"""What a member says of its streams, when its region wants the next token, and when the region may go."""

from dataclasses import replace

import msgspec

from loose_streams import ALICE, ONE, config, frames_of, make_fifo, make_sender, seal
from vivum.core.ids import Incarnation, Member, NodeId, ViewNumber
from vivum.core.limits import Limits
from vivum.observe.counters import Counters
from vivum.protocols.qsm.region import CAUTION_NS, EMPTY_TOKEN, LEAD_AFTER, ROUND_FRAMES, RegionMember
from vivum.protocols.qsm.settings import QsmSettings
from vivum.protocols.streams.sender_fifo import SenderFifo
from vivum.wire.tokens import NOBODY, StreamRecord, Token

LARGE = 60_000
SETTINGS = QsmSettings(frame_bytes_max=LARGE, window_frames=512, window_bytes=80 * LARGE)
"""As on loopback: 80 large frames, or 512 small ones."""

BOB = Member(NodeId(2), Incarnation(1))


def busy_region(frames: int, size: int) -> RegionMember:
    """Make the region of node 1, its leader, in which node 1 sent so many frames of one message of this size."""
    region = RegionMember(config(), ALICE, SETTINGS, Limits(), Counters(), make_fifo().add, 0)
    sender = make_sender(frame_bytes_max=LARGE, window_frames=512, window_bytes=80 * LARGE)
    region.send_by(sender)
    for number in range(frames):
        sender.feed(ONE, number, [bytes(size)], ViewNumber(1))
        seal(sender, now_ns=number, bytes_max=LARGE)
        region.on_sent(number)
    return region


def hearing_region(frames: int, size: int, settings: QsmSettings = SETTINGS) -> RegionMember:
    """Make the region of a node that leads it and heard so many frames of another, one by one."""
    other = Member(NodeId(2), Incarnation(1))
    region = RegionMember(config(), ALICE, settings, Limits(), Counters(), make_fifo().add, 0)
    stream = region.stream_of(other, 0)
    assert stream is not None
    sender = make_sender(frame_bytes_max=LARGE, window_frames=512, window_bytes=80 * LARGE)
    for number in range(frames):
        sender.feed(ONE, number, [bytes(size)], ViewNumber(1))
        assert region.on_data(number, stream, seal(sender, now_ns=number, bytes_max=LARGE))
    return region


def test_small_frames_hurry_a_token_when_they_are_an_eighth_of_the_window_in_frames() -> None:
    wide = replace(SETTINGS, window_frames=1024)
    assert hearing_region(127, 64, wide).interval_ns() == SETTINGS.token_busy_ns_max
    assert hearing_region(128, 64, wide).interval_ns() == SETTINGS.token_busy_ns_min


def test_frames_hurry_a_token_when_they_cost_as_much_as_a_round() -> None:
    for made in (busy_region, hearing_region):
        assert made(ROUND_FRAMES - 1, 64).interval_ns() == SETTINGS.token_busy_ns_max
        assert made(ROUND_FRAMES, 64).interval_ns() == SETTINGS.token_busy_ns_min


def test_of_a_small_window_half_may_be_unstable() -> None:
    small = replace(SETTINGS, frame_bytes_max=1472, window_frames=144, window_bytes=144 * 1472)
    assert hearing_region(71, 64, small).interval_ns() == SETTINGS.token_busy_ns_max
    assert hearing_region(72, 64, small).interval_ns() == SETTINGS.token_busy_ns_min
    tiny = replace(small, window_frames=16, window_bytes=16 * 1472)
    assert hearing_region(8, 64, tiny).interval_ns() == SETTINGS.token_busy_ns_min


def test_large_frames_hurry_a_token_when_they_are_an_eighth_of_the_window_in_bytes() -> None:
    for made in (busy_region, hearing_region):
        assert made(9, LARGE - 100).interval_ns() == SETTINGS.token_busy_ns_max
        assert made(11, LARGE - 100).interval_ns() == SETTINGS.token_busy_ns_min


def result_of(region: RegionMember, **told: int) -> Token:
    """Make the result of a round that this node led, in which the other member said that it has as much as this one."""
    token = region.begin(0, 0)
    vote = msgspec.structs.replace(token.rate, **told)
    others = tuple(msgspec.structs.replace(record, slowest=BOB.node) for record in token.streams)
    return msgspec.structs.replace(token, leader=ALICE.node, streams=others, rate=vote)


def test_after_a_round_only_what_came_since_it_began_hurries_the_next() -> None:
    for since, interval_ns in ((0, SETTINGS.token_busy_ns_max), (ROUND_FRAMES, SETTINGS.token_busy_ns_min)):
        region = hearing_region(200, 64)
        assert region.interval_ns() == SETTINGS.token_busy_ns_min
        result = result_of(region)
        (stream,) = region.streams.values()
        for _ in range(since):
            stream.window.announce(stream.window.stop + 1)
        region.complete(0, result)
        assert (stream.stable, region.interval_ns()) == (200, interval_ns)


def test_what_a_sender_knows_to_be_stable_hurries_nothing_though_its_report_is_still_to_come() -> None:
    region = busy_region(200, 64)
    token = region.begin(0, 0)
    (own,) = token.streams
    heard = msgspec.structs.replace(own, prefix=200, slowest=BOB.node, delivered=200)
    region.complete(0, msgspec.structs.replace(token, leader=ALICE.node, streams=(heard,)))
    assert region.own is not None
    assert region.own.first == 0
    assert region.interval_ns() == SETTINGS.token_busy_ns_max


def test_a_smaller_buffer_in_the_region_lets_fewer_frames_hurry_a_token() -> None:
    region = hearing_region(63, 64)
    region.complete(0, result_of(region, buffer_bytes=SETTINGS.window_bytes // 4))
    (stream,) = region.streams.values()
    stream.window.announce(63 + 63)
    region.complete(0, result_of(region, buffer_bytes=SETTINGS.window_bytes // 4))
    assert region.interval_ns() == SETTINGS.token_busy_ns_max
    stream.window.announce(63 + 63 + 64)
    region.complete(0, result_of(region, buffer_bytes=SETTINGS.window_bytes // 4))
    assert region.interval_ns() == SETTINGS.token_busy_ns_min


def test_a_member_that_lost_frames_tells_the_smaller_window_until_nothing_was_lost_for_a_while() -> None:
    settings = replace(SETTINGS, window_bytes_sure=SETTINGS.window_bytes // 2)
    region = RegionMember(config(), BOB, settings, Limits(), Counters(), make_fifo().add, 0)
    stream = region.stream_of(ALICE, 0)
    assert stream is not None

    def told(now_ns: int) -> int:
        return region.pass_through(now_ns, EMPTY_TOKEN).rate.buffer_bytes

    frames = frames_of(4)
    assert told(0) == settings.window_bytes
    for number in (0, 2):
        region.on_data(1, stream, frames[number])
    # Frame 1 may still be on its way at the first token behind it.
    assert (told(2), told(3)) == (settings.window_bytes, settings.window_bytes_sure)
    region.on_data(4, stream, frames[1])
    assert told(3 + CAUTION_NS - 1) == settings.window_bytes_sure
    assert told(3 + CAUTION_NS) == settings.window_bytes


def region_of_bob() -> tuple[RegionMember, SenderFifo]:
    """Make what Bob has of a region, and of the first three frames of Alice, of which he lacks the second."""
    fifo = make_fifo()
    region = RegionMember(config(), BOB, QsmSettings(), Limits(), Counters(), fifo.add, 0)
    stream = region.stream_of(ALICE, 0)
    assert stream is not None
    frames = frames_of(2)
    for number in (0, 2):
        region.on_data(0, stream, frames[number])
    fifo.deliver([])
    return region, fifo


def said_by(region: RegionMember) -> StreamRecord:
    (record,) = region.pass_through(0, EMPTY_TOKEN).streams
    return record


def test_a_member_says_what_it_has_and_how_much_of_that_it_has_delivered() -> None:
    region, fifo = region_of_bob()
    record = said_by(region)
    assert (record.prefix, record.behind, record.delivered) == (1, NOBODY, 1)
    (stream,) = region.streams.values()
    region.on_data(0, stream, frames_of(2)[1])
    record = said_by(region)
    assert (record.prefix, record.behind, record.delivered) == (3, NOBODY, 1)
    fifo.deliver([])
    assert said_by(region).delivered == 3
    region.leave()
    stream.on_status(9, False, 0, 0)
    assert said_by(region).delivered == 9, "who left needs nothing"


def test_who_gave_a_frame_up_is_not_behind_and_never_delivered_it() -> None:
    region, fifo = region_of_bob()
    (stream,) = region.streams.values()
    stream.sender_gone = True
    stream.give_up_next()
    fifo.deliver([])
    record = said_by(region)
    assert (record.prefix, record.behind, record.delivered) == (3, NOBODY, 1)


def test_a_region_is_not_quiet_while_a_sender_has_something_that_is_not_confirmed() -> None:
    region, fifo = region_of_bob()
    (stream,) = region.streams.values()
    region.on_data(0, stream, frames_of(2)[1])
    fifo.deliver([])
    record = StreamRecord(*ALICE, 3, 3, 3, True, 3, 3, NOBODY, NOBODY, confirmed=1, delivered=1)
    region.absorb(0, msgspec.structs.replace(EMPTY_TOKEN, streams=(record,)))
    assert not region.is_quiet
    stream.sender_gone = True
    assert region.is_quiet
    stream.sender_gone = False
    region.absorb(0, msgspec.structs.replace(EMPTY_TOKEN, streams=(msgspec.structs.replace(record, confirmed=3),)))
    assert region.is_quiet


def sending_region(me: Member, nodes: int = 3) -> RegionMember:
    """Make the region of a node whose stream fills its window of 16 frames."""
    settings = replace(SETTINGS, ring_nodes_max=25)
    region = RegionMember(config(nodes=nodes), me, settings, Limits(), Counters(), make_fifo().add, 0)
    own = make_sender(window_frames=16)
    region.send_by(own)
    for number in range(16):
        own.feed(ONE, number, [bytes(64)], ViewNumber(1))
        seal(own)
    return region


def leader_after(region: RegionMember, reports: int, sharers: int = 1) -> int:
    for number in range(reports):
        region.on_report(number, sharers)
    return region.ladder.rings[0].leader


def test_the_only_sender_takes_the_lead_when_report_after_report_finds_its_window_full() -> None:
    assert leader_after(sending_region(BOB), LEAD_AFTER - 1) == ALICE.node
    region = sending_region(BOB)
    assert leader_after(region, LEAD_AFTER) == BOB.node
    assert region.ladder.rings[0].next_deadline_ns() <= LEAD_AFTER


def test_who_shares_the_window_or_does_not_fill_it_leaves_the_lead_where_it_is() -> None:
    assert leader_after(sending_region(BOB), 2 * LEAD_AFTER, sharers=2) == ALICE.node
    region = sending_region(BOB)
    assert region.own is not None
    leader_after(region, LEAD_AFTER - 1)
    region.own.window.was_full = False
    leader_after(region, 1)
    region.own.window.was_full = True
    assert leader_after(region, LEAD_AFTER - 1) == ALICE.node


def test_with_several_rings_nobody_takes_the_lead_for_its_own_stream() -> None:
    assert leader_after(sending_region(BOB, nodes=26), 2 * LEAD_AFTER) == ALICE.node
