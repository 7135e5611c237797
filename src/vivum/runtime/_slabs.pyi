"""Makes blocks of 513 to 4,096 bytes for the interpreter; what `_slabs.pyx` offers. See `heap.py`."""

def keep(count: int) -> bool:
    """From now on use up to so many slabs of 64 KiB in this process; more, if more were asked for before.

    The thread that asks first owns them, until it ends: blocks are made for it alone. False: nothing was done, since
    somebody else stands between the interpreter and the C library (tracemalloc, a profiler, debug hooks,
    `PYTHONMALLOC=malloc`), or it is no interpreter with a lock on Linux.
    """

def count() -> int:
    """Tell how many slabs are used now; they stay."""

def holds(address: int) -> bool:
    """Tell whether the memory at this address is of a slab."""
