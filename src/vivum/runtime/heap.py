"""Keeps the C library from returning the memory of messages to the system between two bursts."""

KEPT_BYTES = 24 << 20
"""About what a node at full rate holds: frames that are not stable, and messages that are not read yet."""


def keep_heap() -> None:
    """Let the C library keep up to twice `KEPT_BYTES` of free heap.

    Messages of more than 512 bytes come from `malloc`. glibc gives the top of its heap back to the system when 128 KiB
    of it are free, and takes it again, page by page, for the next burst: half of a receiver's time at 1,000 bytes. It
    raises that limit itself, to twice the largest block that the program ever freed, so we free a large one once. Its
    pages are never touched. Other C libraries take no notice.
    """
    bytes(KEPT_BYTES)
