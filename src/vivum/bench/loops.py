"""The event loop that benchmarks run on: uvloop where it is installed, asyncio's own elsewhere."""

import asyncio
from collections.abc import Coroutine
from typing import Any


def run_fast(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end on the fastest loop there is."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)
