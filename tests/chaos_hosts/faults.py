"""What goes wrong in a run, and when: drawn from a seed, so that a run can be had again as far as machines allow."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

Kind = Literal["lose", "kill", "stop", "cut"]

GAP_S = (0.2, 1.8)
"""Between the beginnings of two faults; most of them overlap others."""

KINDS: Sequence[Kind] = ("lose", "lose", "kill", "stop", "stop", "cut")
LOSS_PERCENT = (1, 10)
LOSES_S = (1.0, 5.0)
DOWN_S = (0.3, 4.0)
STOPPED_S = (0.3, 2.0)
CUT_S = (0.3, 5.0)


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong. A target is a host (`lose`, `cut`) or a program (`kill`, `stop`), by its place."""

    at_s: float
    lasts_s: float
    kind: Kind
    target: int
    percent: int = 0

    def __str__(self) -> str:
        what = f"{self.percent} % at host" if self.kind == "lose" else "host" if self.kind == "cut" else "program"
        return f"at {self.at_s:.2f} s {self.kind} {what} {self.target} for {self.lasts_s:.2f} s"


def draw_faults(seed: int, hosts: int, programs: int, seconds: float) -> list[Fault]:
    """Draw the faults of a run. All are over before its end; a target has no two of a kind at once."""
    random = Random(f"faults {seed}")
    drawn: list[Fault] = []
    until_s: dict[tuple[str, int], float] = {}
    at_s = 0.0
    while True:
        at_s += random.uniform(*GAP_S)
        kind = random.choice(KINDS)
        lasts_s = random.uniform(*{"lose": LOSES_S, "kill": DOWN_S, "stop": STOPPED_S, "cut": CUT_S}[kind])
        target = random.randrange(hosts if kind in ("lose", "cut") else programs)
        percent = random.randint(*LOSS_PERCENT) if kind == "lose" else 0
        if at_s >= seconds:
            return drawn
        # A program that is down cannot be stopped; one that is stopped is killed when it goes on, at the earliest.
        key = ("program" if kind in ("kill", "stop") else kind, target)
        if at_s + lasts_s > seconds or until_s.get(key, 0.0) > at_s:
            continue
        until_s[key] = at_s + lasts_s
        drawn.append(Fault(round(at_s, 3), round(lasts_s, 3), kind, target, percent))
