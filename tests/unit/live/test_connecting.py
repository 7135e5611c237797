"""What `connect` is given wrong it says at once, before anything is opened; and what it does unless told otherwise."""

import inspect
from typing import Any

import pytest

import vivum
import vivum.sync
from vivum.core.errors import UsageError


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"multicast": "maybe"}, "multicast='maybe' is unknown; give True, False or 'probe'"),
        ({"multicast": None}, "multicast=None is unknown"),
        ({"buffer_bytes": 2**40}, "buffer_bytes 1099511627776 is out of range"),
        ({"buffer_bytes": -1}, "buffer_bytes -1 is out of range"),
        ({"name": "\udcff"}, "name '\\udcff' is not text that can be sent"),
        ({"name": "x" * 256}, "has 256 characters, over 255"),
        ({"domain": "\udcff"}, "domain '\\udcff' is not text that can be sent"),
        ({"interface": "::1"}, "interface ::1: Vivum speaks IPv4 only"),
        ({"interface": "\udcff"}, "'\\udcff' is not an IPv4 address"),
        ({"interface": "127.0.0.1\0"}, "is not an IPv4 address"),
        ({"seeds": ["127.0.0.1:²"]}, "seed '127.0.0.1:²' is not host:port"),
        ({"seeds": ["127.0.0.1:٣"]}, "is not host:port"),
        ({"seeds": ["\udcff:1"]}, "seed '\\udcff:1': no address of '\\udcff' is known"),
        ({"seeds": ["a" * 70 + ":1"]}, "no address of"),
        ({"seeds": ["a\0b:1"]}, "no address of"),
        ({"seeds": "127.0.0.1:7000"}, "seeds='127.0.0.1:7000' is one text; give a list"),
    ],
)
def test_wrong_options_are_told_in_one_sentence(options: dict[str, Any], told: str) -> None:
    """R2: some of these were tracebacks, and some were accepted."""
    with pytest.raises(UsageError) as caught:
        vivum.connect(**options)
    assert told in str(caught.value)


def test_a_node_never_polls_unless_it_is_asked_to() -> None:
    """No busy loop in a process that did not ask for one. With 0 the driver never polls (`test_driver.py`)."""
    for connect in (vivum.connect, vivum.sync.connect):
        assert inspect.signature(connect).parameters["poll_us"].default == 0
    assert vivum.connect(multicast=True)._options.poll_ns == 0
    assert vivum.connect(multicast=True, poll_us=200)._options.poll_ns == 200_000
