"""What a node keeps of a stream for others."""

import sys

import pytest

from vivum.protocols.streams.frame_cache import FrameCache
from vivum.wire.codec import Frame, FrameBuilder, split_trains
from vivum.wire.kinds import Kind

FULL = 1472


def trains(count: int) -> list[Frame]:
    """Make trains of 44 frames, as a receiver has them."""
    builder, found, sequence = FrameBuilder(FULL), [], 0
    for _ in range(count):
        parts = [(1, sequence, [bytes(1400)] * 44, 0, 0)]
        (train,), _, _, _ = builder.seal_parts(parts, 1, True, 44, 1 << 20, Kind.DATA, 1, 1, 1, 1, 1, sequence, 0)
        found += split_trains(train.data)
        sequence = found[-1].stop
    return found


@pytest.mark.parametrize("kept", [44, 30, 16, 1])
def test_a_cache_holds_little_more_memory_than_its_frames_and_tells_how_much(kept: int) -> None:
    """A node of a large ring keeps few frames of each train: it held 3.3 times what it told, at 110 nodes."""
    cache = FrameCache()
    for train in trains(20):
        cache.add(train.part(train.sequence, train.sequence + kept))
    frames = [cache.get(number) for number in cache.numbers]
    assert len(frames) == len(cache) == 20 * kept
    buffers = {id(frame.data): sys.getsizeof(frame.data) for frame in cache._trains}
    assert cache.size <= sum(buffers.values()) < cache.size + 100 * len(buffers)
    assert cache.size <= 2 * 20 * kept * FULL
    for frame in frames:
        assert frame is not None
        assert frame.to_bytes()[40 + 14 + 2 :][:1400] == bytes(1400)
