"""The receiver's side of a stream, whatever the protocol: what is new, what is kept, where it ends."""

from loose_streams import ALICE, again, frames_of, make_receiver
from vivum.core.ids import RegionId, ViewNumber
from vivum.observe.counters import Counters
from vivum.protocols.streams.settings import StreamSettings
from vivum.protocols.streams.stream_receiver import StreamReceiver
from vivum.wire.codec import Frame


def test_a_frame_that_comes_twice_is_new_once_and_a_wasted_repair_is_counted() -> None:
    stream, frames = make_receiver(), frames_of(2)
    assert stream.on_data(0, frames[0])
    assert not stream.on_data(0, again(frames[0]))
    assert stream._counters.repairs_wasted == 1
    assert stream.on_data(0, again(frames[1]))
    assert stream._counters.repairs_received == 1


def test_closed_belongs_to_an_end_and_not_to_the_stream_for_ever() -> None:
    stream, frames = make_receiver(), frames_of(3)
    stream.on_status(2, True, 0, 0)
    assert stream.closed
    for frame in frames[:2]:
        stream.on_data(0, frame)
    assert stream.closed
    # The sender came back to this view.
    stream.on_data(0, frames[2])
    assert not stream.closed
    stream.on_status(2, True, 0, 0)
    assert not stream.closed, "old news"


class Thrifty(StreamReceiver):
    """Keeps every third frame for others."""

    def __init__(self) -> None:
        super().__init__(ALICE, RegionId(1), ViewNumber(1), StreamSettings(), Counters(), 0)
        self._holds_none = False

    def _held_of(self, frame: Frame) -> list[Frame]:
        return [each for each in frame.cut() if each.sequence % 3 == 0]


def test_a_protocol_says_which_frames_are_kept_for_others_and_by_default_none_is() -> None:
    frames = frames_of(8)
    for stream, kept in ((make_receiver(), []), (Thrifty(), [0, 3, 6])):
        stream.on_data(0, frames[0])
        stream.delivered = 1
        stream.on_run(0, frames[1:])
        assert [frame.sequence for frame in stream.serve((0, 8), 64)] == kept
