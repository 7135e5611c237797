"""Keeps some of the interpreter's arenas that it gives back; what `_arenas.pyx` offers. See `heap.py`."""

def keep(count: int) -> None:
    """From now on keep up to so many arenas of this process; more, if more were asked for before."""

def count() -> int:
    """Tell how many are kept now, unused."""
