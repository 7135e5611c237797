"""One cell of a table: one system, one payload size, one number of receivers, measured once.

Senders send as fast as the system lets it. What counts is what each receiver got, as `bytes` in Python, inside a
window of time that all processes know; then all wait until everything that was sent has come, or nothing more comes.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple

from vivum.bench.counting import settled_s
from vivum.bench.crew import ANSWER_S_MAX, Crew, Worker

WARM_S = 1.0
"""Sending before the window: connections, slow start and caches are warm when it opens."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What to measure."""

    size: int
    receivers: int
    seconds: float
    groups: int = 1
    """Topics of each sender."""
    senders: int = 1
    """More than one: only through Vivum, each to topics of its own in which all are members."""
    options: dict[str, Any] = field(default_factory=dict)
    patience_s: float = ANSWER_S_MAX
    """How long to wait for all processes to be ready."""
    places: Sequence[tuple[Sequence[str], str]] = ()
    """Where processes run, if not simply here: a prefix of their command and the address of their interface; for the
    service, each sender and each receiver."""

    def place(self, index: int) -> tuple[Sequence[str], dict[str, Any]]:
        """Return the prefix of a process's command, and the option that names its interface."""
        prefix, address = self.places[index] if self.places else ((), "127.0.0.1")
        return prefix, {"interface": address}


class Used(NamedTuple):
    """Time of processors, in seconds: in its own code, in the kernel for it, and ready but without a processor."""

    user: float
    kernel: float
    starved: float


def _used(worker: Worker) -> Used:
    return Used(*worker.cpu_s(), worker.starved_s())


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured: what senders told together, what each receiver told, and everybody's memory."""

    sent: dict[str, Any]
    received: list[dict[str, Any]]
    met: list[dict[str, Any]]
    senders: list[Worker]
    receivers: list[Worker]
    met_at: float
    start: float
    """When the window opened."""
    seconds: float
    used: list[Used]
    """Inside the window: of each sender, then of each receiver."""

    @property
    def used_senders(self) -> list[Used]:
        """What senders used inside the window."""
        return self.used[: len(self.senders)]

    @property
    def used_receivers(self) -> list[Used]:
        """What receivers used inside the window."""
        return self.used[len(self.senders) :]

    def _rates(self) -> list[float]:
        return [each["delivered_per_s"] for each in self.received]

    @property
    def per_s_min(self) -> float:
        """Messages a second at the slowest receiver."""
        return min(self._rates())

    @property
    def per_s_mean(self) -> float:
        """Messages a second at the average receiver."""
        return sum(self._rates()) / len(self.received)

    @property
    def cpu_ns_sender(self) -> float:
        """Processor time of senders for each message that they sent, in nanoseconds: hardly depends on other work."""
        used = sum(each.user + each.kernel for each in self.used_senders)
        per_s: float = self.sent["sent_per_s"]
        return used / max(1.0, per_s * self.seconds) * 1e9

    @property
    def cpu_ns_receiver(self) -> float:
        """The same for the average receiver, and each message that it got."""
        used = sum(each.user + each.kernel for each in self.used_receivers)
        return used / max(1.0, sum(self._rates()) * self.seconds) * 1e9

    @property
    def starved(self) -> float:
        """The largest part of the window in which a process was ready to run and other work had the processors."""
        return max(each.starved for each in self.used) / self.seconds

    @property
    def settled_s(self) -> float | None:
        """Seconds from the first send until the slowest receiver had 80 % of the steady rate; None if one never had."""
        first_s = self.sent["first_sent"] - self.start
        found = [settled_s(each["by_slot"], each["slots_before"], first_s) for each in self.received]
        known = [each for each in found if each is not None]
        return round(max(known), 3) if len(known) == len(found) else None

    @property
    def per_s_of_senders(self) -> list[float]:
        """Messages a second of each sender at the receiver that got least of them."""
        groups = len(self.received[0]["by_group"]) // len(self.senders)
        return [
            min(sum(each["by_group"][at : at + groups]) for each in self.received) / self.seconds
            for at in range(0, groups * len(self.senders), groups)
        ]

    @property
    def pause_s_max(self) -> float:
        """The longest time inside the window in which a receiver got nothing, in seconds."""
        return float(max(each["longest_pause_s"] for each in self.received))

    @property
    def join_s(self) -> float:
        """Seconds from the first node that began to join until senders saw all members in all groups."""
        began = [each["began"] for each in self.met if "began" in each]
        return self.met_at - min(began) if began else 0.0

    @property
    def lost_in_silence(self) -> int:
        """Messages that did not come to receivers which were not told, from a sender that was not told either."""
        if self.sent.get("counters", {}).get("messages_failed"):
            return 0
        return sum(each["lost"] for each in self.received if not each.get("told"))

    @property
    def told(self) -> list[str]:
        """What receivers were told of losses, the first few."""
        return [text for each in self.received for text in each.get("missed", [])][:4]

    def total(self, key: str) -> int:
        """Add up a count of all receivers."""
        return sum(each[key] for each in self.received)


def together(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """Add up what senders told of themselves; the first send is that of the first."""
    counters: Counter[str] = Counter()
    for each in reports:
        counters.update(each.get("counters", {}))
    return {
        "sent": sum(each["sent"] for each in reports),
        "sent_per_s": sum(each["sent_per_s"] for each in reports),
        "first_sent": min(each["first_sent"] for each in reports),
        "counters": dict(counters),
    }


During = Callable[[Crew, "list[Worker]", float], None]
"""Called again and again while the window is open, with the receivers and the time since it opened, in seconds."""

Met = Callable[[Crew, dict[str, Any], "list[dict[str, Any]]"], None]
"""Called once before sending begins, with the options and what senders and receivers said of themselves."""


def measure(
    system: ModuleType,
    cell: Cell,
    during: During | None = None,
    warm_s: float = WARM_S,
    on_met: Met | None = None,
    on_stop: Callable[[], None] | None = None,
) -> Outcome:
    """Run one cell and end all its processes. Raises `MissingError` if the system is not installed.

    `on_stop` is called when the window is over, while receivers still wait for the rest.
    """
    with Crew() as crew:
        counts = {"receivers": cell.receivers, "groups": cell.groups, "senders": cell.senders}
        options = {"size": cell.size, **counts, **cell.options}
        options |= system.prepare(crew, cell)
        senders = []
        for number in range(cell.senders):
            prefix, where = cell.place(number + 1)
            task, own = f"{system.__name__}:send", {**options, **where, "number": number}
            senders.append(crew.start(f"sender-{number}" if number else "sender", task, own, prefix))
        for each in senders:
            options |= each.hear("ready")
        receivers = []
        for number in range(cell.receivers):
            prefix, where = cell.place(number + 1 + cell.senders)
            task, own = f"{system.__name__}:receive", {**options, **where, "number": number}
            receivers.append(crew.start(f"receiver-{number}", task, own, prefix))
        readies = [each.hear("ready", cell.patience_s) for each in receivers]
        for each in senders:
            each.tell(meet=True)
        met = [*(each.hear("met", cell.patience_s) for each in senders), *readies]
        met_at = time.monotonic()
        if on_met is not None:
            on_met(crew, options, met)
        for worker in crew.workers:
            worker.sample()
        start = time.monotonic() + warm_s
        stop = start + cell.seconds
        for each in (*receivers, *senders):
            each.tell(go=[start, stop])
        crew.watch(start)
        before = [_used(worker) for worker in (*senders, *receivers)]
        crew.watch(stop, None if during is None else lambda now: during(crew, receivers, now - start))
        after = [_used(worker) for worker in (*senders, *receivers)]
        busy = [Used(*(new - old for new, old in zip(*pair, strict=True))) for pair in zip(after, before, strict=True)]
        sent = together([each.hear("sent") for each in senders])
        if on_stop is not None:
            on_stop()
        for each in receivers:
            each.tell(expect=sent["sent"])
        received = [each.hear("received") for each in receivers]
        return Outcome(sent, received, met, senders, receivers, met_at, start, cell.seconds, busy)
