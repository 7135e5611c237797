"""Decide when a task yields that never has to wait: others on its event loop must get their turn.

Looking at the clock costs as much as a tenth of the work for a small message. So whoever handles one message after the
other looks once in several: after the first one of a turn, then after twice as many each time as long as that is fast,
up to `STEP_MAX`. Where messages take long it looks at each. Work that gets slow of a sudden is noticed after at most
`STEP_MAX` messages.
"""

from collections.abc import Callable
from typing import Protocol

TURN_S = 0.002
"""A task that never has to wait yields to others after this time."""

STEP_MAX = 16
"""Messages between two looks at the clock at most."""


def next_step(step: int, took_s: float) -> int:
    """Return how many messages to handle before the next look, if the last `step` of them took so long."""
    if took_s > TURN_S:
        return 1
    return step if took_s > TURN_S / 4 else min(2 * step, STEP_MAX)


class CountsTurns(Protocol):
    """What the loop calls in the turn after each one in which something was sent: a `Driver`."""

    turns: int
    """How often the loop has called it."""


class SenderTurns:
    """The turns of the tasks that send at a node: when they must yield.

    One for the node: who sends to thousands of topics yields as often. The loop calls the driver in the turn after each
    send. So as long as it has not, all that is sent belongs to one turn, and the first look has the time of its begin.
    """

    def __init__(self, time: Callable[[], float], driver: CountsTurns) -> None:
        self._time = time
        self._driver = driver
        # The turn that senders looked in last.
        self._turns = -1
        self._began_s = 0.0
        self._looked_s = 0.0
        self._step = 1

    def look(self) -> int:
        """Look at the clock: return how many messages may be sent before the next look; 0 if the task must yield."""
        now_s, turns = self._time(), self._driver.turns
        if turns != self._turns:
            self._turns, self._began_s, self._step = turns, now_s, 1
        elif now_s - self._began_s > TURN_S:
            return 0
        else:
            self._step = next_step(self._step, now_s - self._looked_s)
        self._looked_s = now_s
        return self._step

    def on_yielded(self) -> None:
        """Note that a sending task yielded: a new turn has begun."""
        self._turns = -1
