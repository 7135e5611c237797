"""How a link loses, doubles and reorders datagrams: small shipped tools, one class each.

Every model is asked once for each arrival at one receiver, with that receiver's own random source.
"""

from random import Random


class IndependentLoss:
    """Each datagram is lost with the same probability, whatever happened to the one before."""

    __slots__ = ("probability",)

    def __init__(self, probability: float) -> None:
        self.probability = probability

    def loses(self, rng: Random) -> bool:
        """Return whether this arrival is lost."""
        return rng.random() < self.probability


class BurstLoss:
    """Losses come in bursts (Gilbert's model): while a burst lasts everything is lost, between bursts nothing.

    `rate` is the share of datagrams lost in the long run, `length` the mean number lost in a row.
    """

    __slots__ = ("_begin", "_end", "_inside")

    def __init__(self, rate: float, length: float) -> None:
        self._end = 1.0 / length
        # Share of time inside = begin / (begin + end) = rate.
        self._begin = self._end * rate / (1.0 - rate)
        self._inside = False

    def loses(self, rng: Random) -> bool:
        """Return whether this arrival is lost."""
        if self._inside:
            self._inside = rng.random() >= self._end
        else:
            self._inside = rng.random() < self._begin
        return self._inside


LossModel = IndependentLoss | BurstLoss
