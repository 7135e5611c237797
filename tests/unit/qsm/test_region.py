"""What a member says of its streams, when its region wants the next token, and when the region may go."""

import msgspec

from loose_streams import ALICE, ONE, config, frames_of, make_fifo, make_sender, seal
from vivum.core.ids import Incarnation, Member, NodeId, ViewNumber
from vivum.core.limits import Limits
from vivum.observe.counters import Counters
from vivum.protocols.qsm.region import EMPTY_TOKEN, RegionMember
from vivum.protocols.qsm.settings import QsmSettings
from vivum.protocols.streams.sender_fifo import SenderFifo
from vivum.wire.tokens import NOBODY, StreamRecord

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


def hearing_region(frames: int, size: int) -> RegionMember:
    """Make the region of a node that leads it and heard so many frames of another, one by one."""
    other = Member(NodeId(2), Incarnation(1))
    region = RegionMember(config(), ALICE, SETTINGS, Limits(), Counters(), make_fifo().add, 0)
    stream = region.stream_of(other, 0)
    assert stream is not None
    sender = make_sender(frame_bytes_max=LARGE, window_frames=512, window_bytes=80 * LARGE)
    for number in range(frames):
        sender.feed(ONE, number, [bytes(size)], ViewNumber(1))
        assert region.on_data(number, stream, seal(sender, now_ns=number, bytes_max=LARGE))
    return region


def test_small_frames_hurry_a_token_when_they_are_an_eighth_of_the_window_in_frames() -> None:
    for made in (busy_region, hearing_region):
        assert made(63, 64).interval_ns() == SETTINGS.token_busy_ns_max
        assert made(64, 64).interval_ns() == SETTINGS.token_busy_ns_min


def test_large_frames_hurry_a_token_when_they_are_an_eighth_of_the_window_in_bytes() -> None:
    for made in (busy_region, hearing_region):
        assert made(9, LARGE - 100).interval_ns() == SETTINGS.token_busy_ns_max
        assert made(11, LARGE - 100).interval_ns() == SETTINGS.token_busy_ns_min


def test_a_round_that_begins_measures_the_same() -> None:
    for made, size, count in ((busy_region, 64, 64), (hearing_region, LARGE - 100, 11)):
        region = made(count, size)
        region.begin(count, 0)
        assert region.interval_ns() == SETTINGS.token_busy_ns_min
    region = hearing_region(20, 64)
    region.begin(20, 0)
    assert region.interval_ns() == SETTINGS.token_busy_ns_max


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
