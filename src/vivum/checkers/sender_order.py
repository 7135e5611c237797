"""Sender order: FIFO that may have holes, as best effort promises. In one stay, the numbers of a stream
only rise.

The same as `fifo` with unreported holes allowed.
"""

from vivum.checkers.fifo import Fifo


class SenderOrder(Fifo):
    """Finds deliveries out of the sender's order. Witnesses: the last one, the late one."""

    name = "sender_order"
    gaps_allowed = True
