"""The way out of a node: trains of all streams, and what is kept of streams that ended."""

import pytest

from loose_streams import ALICE, ONE, config
from vivum.core.ids import Channel, GroupId, ViewNumber
from vivum.core.limits import Limits
from vivum.core.machine import Datagram, Effect
from vivum.observe.counters import Counters
from vivum.protocols.commands import SendConfirmed, SendFailed
from vivum.protocols.qsm.send.sender import Sender
from vivum.protocols.qsm.settings import QsmSettings
from vivum.wire.tokens import RegionReport


def test_a_stream_into_a_view_that_concerns_the_sender_again_goes_on_with_its_numbers() -> None:
    """Ours, seed 67: it began with frame 0 again, and receivers took its frames for old ones."""
    sending = Sender(QsmSettings(), Limits(), Counters(), [])
    stream = sending.open(config(1, 1), (Channel(1),))
    sending.accept(ONE, [b"a"], 1, (stream,), ViewNumber(1))
    datagrams: list[Datagram] = []
    sending.make_data(0, 1, ALICE, datagrams, 1 << 20)
    sending.close(stream.key, 0)
    sending.make_data(0, 1, ALICE, datagrams, 1 << 20)
    assert stream.closed
    sending.on_report(
        0, stream, RegionReport(1, stream.next_frame, stream.next_frame, (), 0, confirmed=stream.next_frame)
    )
    sending.retire(0, ())
    assert stream.key not in sending.streams
    again = sending.open(config(1, 1), (Channel(1),))
    assert again is not stream
    assert again.next_frame == stream.next_frame > 0


def test_a_message_whose_only_region_was_given_up_is_reported_as_failed_and_not_confirmed_as_well() -> None:
    counters = Counters()
    effects: list[Effect] = []
    sending = Sender(QsmSettings(), Limits(), counters, effects)
    stream = sending.open(config(1, 1), (Channel(1),))
    sending.accept(ONE, [b"a", b"b"], 2, (stream,), ViewNumber(1))
    sending.make_data(0, 1, ALICE, [], 1 << 20)
    sending.close(stream.key, 0)
    sending.forsake(stream.key)
    (failed,) = [event for event in effects if isinstance(event, SendFailed)]
    assert (failed.first, failed.stop) == (0, 2)
    assert not [event for event in effects if isinstance(event, SendConfirmed)]
    assert (counters.messages_failed, counters.messages_stable) == (2, 0)
    sending.lose_everything()
    assert counters.messages_failed == 2


@pytest.mark.parametrize("way", ["one region", "two regions", "three regions", "many groups", "hybrid"])
def test_frames_leave_in_trains_however_many_streams_and_groups_are_ready(way: str) -> None:
    settings = QsmSettings(frame_bytes_max=1472, window_initial_frames=4096, window_frames=4096)
    sending = Sender(settings, Limits(), Counters(), [])
    regions = {"two regions": 2, "three regions": 3, "hybrid": 2}.get(way, 1)
    streams = tuple(sending.open(config(1 + number, 1), (Channel(1 + number),)) for number in range(regions))
    channel = Channel(65_000) if way == "hybrid" else None
    for number in range(40):
        group = GroupId(1 + number % (20 if way == "many groups" else regions))
        into = streams if channel is not None or regions == 1 else (streams[number % regions],)
        first = number // (20 if way == "many groups" else regions)
        payloads = [bytes(1000)] * 20
        assert sending.accept(group, payloads, 20_000, into, ViewNumber(1), channel) == 20 * first
    datagrams: list[Datagram] = []
    while sending.has_data:
        sending.make_data(0, 1, ALICE, datagrams, 1 << 20)
    frames = sum(each.count for each in datagrams)
    assert frames > 500
    # Trains of up to 44 frames, and a few that end with what is ready.
    assert frames / len(datagrams) > 25
