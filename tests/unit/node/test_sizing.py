"""Settings that fit the network under a node."""

import pytest

from vivum.node.sizing import PACING_QUANTUM_NS, WINDOW_FRAMES_MIN, fitting_settings
from vivum.protocols.qsm.settings import QsmSettings

KEPT_FRAMES_BYTES = 64 << 20


@pytest.mark.parametrize("multicast", [True, False])
def test_on_ethernet_frames_fit_the_path_and_a_rate_paces_them(multicast: bool):
    made = fitting_settings(1472, 16 << 20, KEPT_FRAMES_BYTES, multicast)
    assert made.frame_bytes_max == 1472
    assert made.pacing_quantum_ns == PACING_QUANTUM_NS
    assert made.rate_initial == QsmSettings().rate_initial > 0
    assert made.multicast is multicast


def test_on_loopback_frames_are_large_and_the_window_alone_holds_a_sender_back():
    buffer_bytes = 16 << 20
    made = fitting_settings(65_000, buffer_bytes, KEPT_FRAMES_BYTES, True)
    assert made.frame_bytes_max == 65_000
    assert made.rate_initial == 0
    assert 0 < made.window_bytes <= buffer_bytes // 2, "what is sent at once must fit the buffer"
    assert made.cache_frames_max * made.frame_bytes_max > KEPT_FRAMES_BYTES - made.frame_bytes_max


def test_a_small_receive_buffer_makes_frames_smaller_but_not_smaller_than_a_packet():
    made = fitting_settings(65_000, 416 << 10, KEPT_FRAMES_BYTES, True)
    assert made.frame_bytes_max == (416 << 10) // 2 // WINDOW_FRAMES_MIN
    assert fitting_settings(65_000, 4096, KEPT_FRAMES_BYTES, True).frame_bytes_max == 1472
    assert fitting_settings(512, 4096, KEPT_FRAMES_BYTES, True).frame_bytes_max == 512
