"""Which endpoints of this computer nobody has, by the kernel's list of sockets."""

import socket
import sys
from pathlib import Path

import pytest

from vivum.core.ids import Endpoint
from vivum.runtime.neighbours import endpoints_gone

LISTING = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout
  409: 0100007F:1F90 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 21 2 0000000000000000 0
 1409: 00000000:2328 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 22 2 0000000000000000 0
"""


@pytest.mark.skipif(sys.byteorder != "little", reason="the listing is one of a little-endian computer")
def test_a_port_that_is_in_no_line_is_free_and_one_of_all_addresses_is_taken(tmp_path: Path) -> None:
    listing = tmp_path / "udp"
    listing.write_text(LISTING)
    here, elsewhere, everywhere = Endpoint("127.0.0.1", 8080), Endpoint("127.0.0.2", 8080), Endpoint("127.0.0.1", 9000)
    assert endpoints_gone([here, elsewhere, everywhere], str(listing)) == [elsewhere]


def test_where_the_kernel_tells_nothing_nobody_is_gone(tmp_path: Path) -> None:
    assert endpoints_gone([Endpoint("127.0.0.1", 1)], str(tmp_path / "none")) == []


@pytest.mark.skipif(not Path("/proc/net/udp").exists(), reason="not Linux")
def test_a_socket_that_is_closed_is_gone_at_once() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(("127.0.0.1", 0))
        place = Endpoint(*made.getsockname())
        assert endpoints_gone([place]) == []
    assert endpoints_gone([place]) == [place]
