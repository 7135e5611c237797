"""A UDP port that drops datagrams on purpose: a bad network on a good computer, without root.

For tests, rehearsals and the demo. The datagrams were sent and did reach this computer; the protocols above see no
difference, and repair as after any loss.
"""

from random import Random
from typing import Any

from vivum.runtime.port import Arrived
from vivum.runtime.udp import UdpPort

LOSS_MAX = 0.5
"""The largest share that may be dropped: with more, even membership hardly works."""


class LossyPort(UdpPort):
    """Drops a random share of what arrives, whatever it is: data, repairs, tokens, beacons."""

    def __init__(self, loss: float, *arguments: Any, **options: Any) -> None:
        """Open the port. `loss` is a share of buffers; a buffer is a datagram, or several that the kernel joined."""
        super().__init__(*arguments, **options)
        self._loss = loss
        self._random = Random().random

    def receive(self, bytes_max: int) -> Arrived:
        """Drain the sockets, and drop a share."""
        return self._kept(super().receive(bytes_max))

    def look(self, wait_ns: int) -> Arrived:
        """Take one datagram, or drop it."""
        return self._kept(super().look(wait_ns))

    def _kept(self, taken: Arrived) -> Arrived:
        loss, random = self._loss, self._random
        kept = [each for each in taken if random() >= loss]
        self.lost_on_purpose += len(taken) - len(kept)
        return kept
