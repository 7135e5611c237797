"""Lets the C library and the interpreter keep the memory that messages come and go in."""

import contextlib

from vivum.wire.codec import COMPILED

KEPT_BYTES = 24 << 20
"""About what a node at full rate has in hand: frames that are not stable, and messages that are not read yet."""

KEPT_ARENAS = 8
"""Arenas of the interpreter, of a MiB each, that stay when all small objects in them are gone: about what a node has in
hand of small messages."""

KEPT_SLABS = 256
"""Slabs of 64 KiB for messages of more than 512 bytes, which stay once they were used: 16 MiB, most of `KEPT_BYTES`.
Past them the C library serves, as it does without."""


def keep_heap() -> None:
    """Let the C library keep up to twice `KEPT_BYTES` of free heap.

    Messages of more than 512 bytes come from `malloc`. glibc gives the end of its heap back to the system when 128 KiB
    of it are free, and takes it again, page by page, for the next burst: 15 % of a receiver's time at 1,000 bytes. It
    raises that limit by itself to twice the largest block that the program ever freed, so we free a large one once;
    its pages are never touched. Other C libraries take no notice.

    The work of its `malloc` and `free` was another 16 % of such a receiver: blocks of that size are too large for its
    quick lists, so each is joined with its neighbours and split off again. Up to 4,096 bytes slabs serve (`_slabs`).

    Smaller ones come from the interpreter's arenas, which it gives back as soon as they are empty: at the end of every
    batch of messages. A fifth of a receiver's time at 100 bytes were new pages for the next. Some are kept (`_arenas`).
    """
    bytes(KEPT_BYTES)
    if COMPILED:
        # Where it was not built all works as before.
        with contextlib.suppress(ImportError):
            from vivum.runtime import _arenas

            _arenas.keep(KEPT_ARENAS)
        with contextlib.suppress(ImportError):
            from vivum.runtime import _slabs

            _slabs.keep(KEPT_SLABS)
