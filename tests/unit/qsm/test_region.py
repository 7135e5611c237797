"""When a region wants its next token: soon while a window fills, by frames or by bytes, else at leisure."""

from loose_streams import ALICE, ONE, config, make_fifo, make_sender, seal
from vivum.core.ids import Incarnation, Member, NodeId, ViewNumber
from vivum.core.limits import Limits
from vivum.observe.counters import Counters
from vivum.protocols.qsm.region import RegionMember
from vivum.protocols.qsm.settings import QsmSettings

LARGE = 60_000
SETTINGS = QsmSettings(frame_bytes_max=LARGE, window_frames=512, window_bytes=80 * LARGE)
"""As on loopback: 80 large frames, or 512 small ones."""


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
