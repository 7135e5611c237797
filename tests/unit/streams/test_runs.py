"""A protocol of one's own: streams need of it only a region view that takes frames.

That a run is the same as its frames one by one is checked with QSM's, in `tests/property/qsm/test_runs.py`.
"""

from loose_streams import ALICE, ONE, delivered, frames_of
from vivum.core.ids import Endpoint, RegionId, ViewNumber
from vivum.core.limits import Limits
from vivum.core.machine import Effect
from vivum.observe.counters import Counters
from vivum.protocols.streams.receiver import Receiver
from vivum.protocols.streams.runs import ReceiveRoutes, take_run
from vivum.protocols.streams.settings import StreamSettings
from vivum.protocols.streams.stream_receiver import StreamReceiver
from vivum.wire.codec import Frame

HOME = Endpoint("alice", 1)


class Region:
    """Takes frames, and does nothing else with them."""

    def on_data(self, now_ns: int, stream: StreamReceiver, frame: Frame) -> bool:
        return stream.on_data(now_ns, frame)

    def on_run(self, now_ns: int, stream: StreamReceiver, frames: list[Frame]) -> None:
        stream.on_run(now_ns, frames)

    def on_later_run(self, now_ns: int, stream: StreamReceiver, frames: list[Frame]) -> bool:
        return stream.on_later_run(now_ns, frames)


class Scene:
    """One stream of Alice at another node, of which the first frame has come."""

    def __init__(self) -> None:
        counters = Counters()
        receiver = Receiver(Limits(), counters)
        self.stream = StreamReceiver(ALICE, RegionId(1), ViewNumber(1), StreamSettings(), counters, 0)
        receiver.add(self.stream)
        self.frames = frames_of(5)
        self.effects: list[Effect] = []
        self.fifo = receiver.of(ALICE)
        self.routes: ReceiveRoutes = {self.frames[0].stream: (Region(), self.stream, self.fifo, HOME)}
        self.take_one(0)

    def take_one(self, number: int) -> None:
        assert self.stream.on_data(0, self.frames[number])
        self.fifo.deliver(self.effects)

    def take(self, start: int, source: Endpoint = HOME) -> int:
        return take_run(self.routes, 0, source, self.frames, start, self.effects)


def test_frames_that_are_next_are_taken_and_delivered_together() -> None:
    scene = Scene()
    assert scene.take(1) == 5, "the last one is the end mark"
    assert delivered(scene.effects) == [(ONE, number) for number in range(5)]
    assert scene.stream.closed


def test_the_first_frame_repetitions_and_a_stranger_are_left_to_the_way_of_single_frames() -> None:
    scene = Scene()
    assert scene.take(0) == 0
    assert scene.take(1, Endpoint("mallory", 1)) == 0
    scene.take_one(2)
    assert scene.take(1) == 0, "one of them has come"
    scene.take_one(1)
    assert scene.take(3) == 3
    assert delivered(scene.effects) == [(ONE, number) for number in range(5)]


def test_frames_behind_a_gap_are_taken_together_and_wait_for_what_is_missing() -> None:
    scene = Scene()
    assert scene.take(2) == 4
    assert delivered(scene.effects) == [(ONE, 0)]
    assert scene.stream.window.missing(9) == [1, 2]
    scene.take_one(1)
    assert delivered(scene.effects) == [(ONE, number) for number in range(5)]
    assert scene.stream.closed
    assert not scene.stream.held


def test_a_run_behind_a_gap_that_is_larger_than_the_window_is_left_to_single_frames() -> None:
    scene = Scene()
    beyond = scene.stream.window.capacity + 1
    assert not scene.stream.window.add_run(beyond, beyond + 4)
    scene.stream.delivered = -beyond
    assert scene.take(2) == 0, "what waits for another stream counts too"
