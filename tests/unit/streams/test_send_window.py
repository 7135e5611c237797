"""How a window opens, and what bounds it."""

from vivum.core.time import MILLISECOND
from vivum.protocols.streams.send_window import SendWindow
from vivum.protocols.streams.settings import StreamSettings

SETTINGS = StreamSettings(window_frames=1024, window_bytes=1024 * 1472, window_initial_frames=32)


class Stream:
    """A sender that always fills its window; a round takes some time."""

    def __init__(self, settings: StreamSettings = SETTINGS) -> None:
        self.window = SendWindow(settings, 0)
        self.now_ns = self.first = self.next_frame = 0

    def round(self, took_ns: int = MILLISECOND, lost: int = 0, fill: bool = True) -> int:
        """Send, wait and hear that all is stable; return how large the window is then."""
        self.next_frame = self.first + (self.window.frames if fill else 1)
        self.window.on_sent(self.next_frame - self.first)
        self.window.on_lost(lost)
        self.now_ns += took_ns
        self.first = self.next_frame
        self.window.on_stable(self.now_ns, self.first, self.next_frame)
        return self.window.frames


def test_the_window_doubles_in_each_round_in_which_it_was_full_until_it_is_open() -> None:
    stream = Stream()
    assert [stream.round() for _ in range(7)] == [64, 128, 256, 512, 1024, 1024, 1024]


def test_a_window_that_is_not_full_stays() -> None:
    stream = Stream()
    assert [stream.round(fill=False) for _ in range(3)] == [32, 32, 32]


def test_a_round_that_takes_much_longer_than_the_shortest_fills_a_queue_and_opens_nothing() -> None:
    stream = Stream()
    assert stream.round(60 * MILLISECOND) == 64, "long rounds alone say nothing: the rings are large"
    assert stream.round(66 * MILLISECOND) == 128
    assert stream.round(70 * MILLISECOND) == 128
    assert stream.round(61 * MILLISECOND) == 256


def test_a_round_of_which_the_region_lacks_much_halves_the_window_and_single_losses_do_not() -> None:
    stream = Stream()
    for _ in range(3):
        stream.round()
    assert stream.round(lost=25) == 512, "a tenth of 256"
    assert stream.round(lost=200) == 256
    assert [stream.round(lost=1000) for _ in range(5)] == [128, 64, 32, 32, 32]


def test_the_smallest_buffer_of_the_region_bounds_the_window_and_senders_share_it() -> None:
    stream = Stream()
    for _ in range(6):
        stream.round()
    stream.window.fit(512 * 1472, 1)
    assert (stream.window.frames, stream.window.bytes) == (512, 512 * 1472)
    stream.window.fit(512 * 1472, 2)
    assert (stream.window.frames, stream.window.bytes) == (512, 256 * 1472), "small frames need little of a buffer"
    stream.window.fit(512 * 1472, 4)
    assert (stream.window.frames, stream.window.bytes) == (256, 128 * 1472)
    stream.window.fit(0, 1)
    assert stream.window.frames == 1024, "nobody told of a buffer"


def test_a_member_that_tells_of_a_tiny_buffer_leaves_the_sender_a_frame() -> None:
    stream = Stream()
    stream.window.fit(1, 1000)
    assert stream.window.frames == 1


def test_where_a_rate_paces_the_stream_the_window_is_open_and_later_goes_on_from_what_was_on_its_way() -> None:
    stream = Stream()
    stream.window.pace(True, 10)
    assert stream.window.frames == 1024
    stream.window.pace(False, 100)
    assert stream.window.frames == 200
    stream.window.pace(True, 10)
    stream.window.pace(False, 3)
    assert stream.window.frames == 32


def test_a_window_that_a_rate_has_left_small_opens_again_though_rounds_are_slower_than_before() -> None:
    """A burst of loss set a rate; when that was lifted the sender stayed at 30 % until the next burst, 1.5 s later."""
    stream = Stream()
    for _ in range(4):
        stream.round(2 * MILLISECOND)
    stream.window.pace(True, 0)
    stream.window.pace(False, 14)
    assert stream.window.frames == 32
    assert [stream.round(60 * MILLISECOND) for _ in range(3)] == [64, 128, 256]
