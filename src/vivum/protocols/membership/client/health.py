"""How well this node itself runs: one that is late must not take the silence of others for death.

After the idea of SWIM's Lifeguard: a node that finds itself late, because its timers fire late or because several
others seem silent to it at once, becomes patient before it accuses. Its score rises with each sign of trouble and
falls slowly while all is well; patience is multiplied by one more than the score. Time that the node overslept does
not count as the silence of others: what they said lies unread in its own socket.
"""

from collections import deque

SCORE_MAX = 4
"""At most five times the patience: so a dead member is found within a stated time by any node."""

NAPS_MAX = 16
"""Naps remembered; older ones are further back than any patience."""


class LocalHealth:
    """The health of one node, as it sees itself by a timer that it looks at now and then."""

    __slots__ = ("_calm_ns", "_late_ns", "_naps", "_well_since_ns", "score")

    def __init__(self, late_ns: int, calm_ns: int) -> None:
        """A look that is late by `late_ns` shows a nap; the score falls by one in `calm_ns` without trouble."""
        self.score = 0
        self._late_ns = late_ns
        self._calm_ns = calm_ns
        self._naps: deque[tuple[int, int]] = deque(maxlen=NAPS_MAX)
        self._well_since_ns = 0

    def on_look(self, now_ns: int, due_ns: int, silent: int, others: int) -> None:
        """Take how late this look is, and how many of the others are silent: more than half is our own trouble."""
        late_ns = now_ns - due_ns
        if late_ns >= self._late_ns:
            self._naps.append((now_ns, late_ns))
        if late_ns >= self._late_ns or (others > 1 and 2 * silent > others):
            # A nap of many intervals is as bad as many naps.
            worse = 1 + late_ns // max(1, 8 * self._late_ns)
            if late_ns >= self._late_ns or now_ns - self._well_since_ns >= self._calm_ns:
                self.score = min(SCORE_MAX, self.score + worse)
                self._well_since_ns = now_ns
        elif self.score and now_ns - self._well_since_ns >= self._calm_ns:
            self.score -= 1
            self._well_since_ns = now_ns

    def patience_ns(self, patience_ns: int) -> int:
        """Lengthen a patience by the score."""
        return patience_ns * (1 + self.score)

    def awake_ns(self, now_ns: int, since_ns: int) -> int:
        """Return for how much of the time since then this node was awake."""
        slept_ns = sum(min(late_ns, end_ns - since_ns) for end_ns, late_ns in self._naps if end_ns > since_ns)
        return now_ns - since_ns - slept_ns
