"""Memory of messages: it stays with the process between two bursts while a node is open, and leaves with the node."""

import contextlib
import ctypes

KEPT_BYTES = 24 << 20
"""About what a node at full rate holds: frames that are not stable, and messages that are not read yet."""


def keep_heap() -> None:
    """Let the C library keep up to twice `KEPT_BYTES` of free heap.

    Messages of more than 512 bytes come from `malloc`. glibc gives the top of its heap back to the system when 128 KiB
    of it are free, and takes it again, page by page, for the next burst. It raises that limit itself, to twice the
    largest block that the program ever freed, so we free a large one once. Its pages are never touched. Other C
    libraries take no notice.
    """
    bytes(KEPT_BYTES)


def give_back_heap() -> None:
    """Give free heap back to the system, where the C library can be asked to: the node that wanted it is closed."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
