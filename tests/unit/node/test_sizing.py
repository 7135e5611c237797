"""Settings that fit the network under a node."""

import pytest

from vivum.node.sizing import (
    PACING_QUANTUM_NS,
    SMALL_FRAME_COST_BYTES,
    TRAIN_FRAME_COST_BYTES,
    WINDOW_FRAMES_MIN,
    fitting_settings,
)

KEPT_FRAMES_BYTES = 64 << 20


@pytest.mark.parametrize("multicast", [True, False])
def test_on_ethernet_frames_fit_the_path_and_a_window_the_buffer(multicast: bool):
    made = fitting_settings(1472, 16 << 20, KEPT_FRAMES_BYTES, multicast)
    assert made.frame_bytes_max == 1472
    assert made.pacing_quantum_ns == PACING_QUANTUM_NS
    assert made.window_frames * SMALL_FRAME_COST_BYTES <= 16 << 20
    assert made.multicast is multicast


def test_on_loopback_frames_are_large():
    buffer_bytes = 16 << 20
    made = fitting_settings(65_000, buffer_bytes, KEPT_FRAMES_BYTES, True)
    assert made.frame_bytes_max == 65_000
    assert 0 < made.window_bytes <= buffer_bytes // 2, "what is sent at once must fit the buffer"
    assert made.cache_frames_max * made.frame_bytes_max > KEPT_FRAMES_BYTES - made.frame_bytes_max


def test_a_small_receive_buffer_makes_frames_smaller_but_not_smaller_than_a_packet():
    made = fitting_settings(65_000, 416 << 10, KEPT_FRAMES_BYTES, True)
    assert made.frame_bytes_max == (416 << 10) // 2 // WINDOW_FRAMES_MIN
    assert fitting_settings(65_000, 4096, KEPT_FRAMES_BYTES, True).frame_bytes_max == 1472
    assert fitting_settings(512, 4096, KEPT_FRAMES_BYTES, True).frame_bytes_max == 512


def test_a_small_buffer_takes_a_larger_window_of_trains_and_a_sure_one_of_whatever_comes():
    made = fitting_settings(1472, 425_984, KEPT_FRAMES_BYTES, True)
    assert (made.window, made.window_frames) == (224, 224)
    assert made.window_bytes_sure == 144 * 1472
    assert made.window_frames * TRAIN_FRAME_COST_BYTES <= 425_984
    assert made.window_bytes_sure // 1472 * SMALL_FRAME_COST_BYTES <= 425_984


@pytest.mark.parametrize(("payload_bytes", "buffer_bytes"), [(1472, 16 << 20), (65_000, 425_984), (8972, 425_984)])
def test_the_window_is_sure_where_the_buffer_or_frames_are_large(payload_bytes: int, buffer_bytes: int):
    made = fitting_settings(payload_bytes, buffer_bytes, KEPT_FRAMES_BYTES, True)
    assert made.window_bytes_sure == made.window_bytes <= buffer_bytes // 2
