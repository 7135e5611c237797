"""Simulated applications: they send at a rate, wait when a send is refused, and go on after a restart.

Every payload begins with its sender and a running number, so no two payloads are equal, and a digest in the trace tells
them apart.
"""

from collections.abc import Sequence
from struct import Struct

from vivum.core.ids import GroupId
from vivum.core.randomness import RandomSource
from vivum.core.time import SECOND
from vivum.protocols.commands import SendMessages
from vivum.sim.engine import Scheduler
from vivum.sim.host import Host
from vivum.sim.scenario import TrafficSpec

_STAMP = Struct("<IQ")
BATCH = 16
"""Messages that a sender at rate "max" offers at once: few, so that a queue fills to the last message."""

BATCH_BYTES = 65_536
"""Largest size of such a batch, unless a single message is larger: a batch above a queue's limit is never accepted."""


class Application:
    """One sender of one kind of traffic on one host."""

    def __init__(
        self,
        host: Host,
        scheduler: Scheduler,
        spec: TrafficSpec,
        groups: Sequence[GroupId],
        stop_ns: int,
        rng: RandomSource,
    ) -> None:
        self.offered = 0
        self.refused = 0
        self._host = host
        self._scheduler = scheduler
        self._spec = spec
        self._groups = groups
        self._stop_ns = stop_ns
        self._rng = rng
        self._next_group = 0
        self._waiting: SendMessages | None = None
        self._filler = bytes(max(0, spec.size - _STAMP.size))
        if groups:
            scheduler.at(max(int(spec.start), scheduler.now_ns), self._tick)

    def _tick(self, _: None) -> None:
        if self._scheduler.now_ns >= self._stop_ns:
            self._waiting = None
            return
        if self._waiting is None:
            self._offer()
        if self._spec.rate != "max":
            mean_ns = SECOND / self._spec.rate
            if self._spec.arrival == "poisson":
                mean_ns *= self._rng.expovariate(1.0)
            self._scheduler.at(self._scheduler.now_ns + max(1, round(mean_ns)), self._tick)

    def on_room(self) -> None:
        """Offer refused messages again after the host did something, and new ones of a sender at rate "max"."""
        if self._waiting is not None and self._waiting.group not in self._groups:
            self._waiting = None
        if self._scheduler.now_ns >= self._stop_ns:
            self._waiting = None
        elif self._waiting is not None or (self._spec.rate == "max" and self._scheduler.now_ns >= self._spec.start):
            self._offer()

    def _offer(self) -> None:
        while True:
            if not self._groups:
                return
            if self._waiting is None:
                self._waiting = self._make()
            if not self._host.submit(self._waiting):
                self.refused += 1
                return
            self._waiting = None
            if self._spec.rate != "max":
                return

    def _make(self) -> SendMessages:
        if self._spec.choose == "random":
            group = self._rng.choice(self._groups)
        else:
            # Some groups may have been left since.
            index = self._next_group % len(self._groups)
            group = self._groups[index]
            self._next_group = (index + 1) % len(self._groups)
        count = max(1, min(BATCH, BATCH_BYTES // max(1, self._spec.size))) if self._spec.rate == "max" else 1
        payloads = []
        for _ in range(count):
            self.offered += 1
            payloads.append((_STAMP.pack(self._host.node_id, self.offered) + self._filler)[: self._spec.size])
        return SendMessages(group, payloads)
