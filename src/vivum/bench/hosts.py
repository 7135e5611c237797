"""Give each process of a cell a host of its own: hosts of network namespaces, MTU 1,500, without a limit."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from vivum.bench.cell import Cell
from vivum.bench.namespaces import Cut, NetnsNetwork


@contextlib.contextmanager
def on_hosts(cell: Cell) -> Iterator[Cell]:
    """Make the hosts, for the service, each sender and each receiver; they go away at the end of the `with`."""
    with NetnsNetwork(1 + cell.senders + cell.receivers, cut=Cut.NOWHERE) as network:
        yield replace(cell, places=network.places)
