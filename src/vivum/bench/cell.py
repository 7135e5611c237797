"""One cell of a table: one system, one payload size, one number of receivers, measured once.

The sender sends as fast as the system lets it. What counts is what each receiver got, as `bytes` in Python, inside a
window of time that all processes know; then all wait until everything that was sent has come, or nothing more comes.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple

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
    options: dict[str, Any] = field(default_factory=dict)
    patience_s: float = ANSWER_S_MAX
    """How long to wait for all processes to be ready."""
    places: Sequence[tuple[Sequence[str], str]] = ()
    """Where processes run, if not simply here: a prefix of their command and the address of their interface; for the
    service, the sender and each receiver."""

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
    """What was measured: what the sender told, what each receiver told, and everybody's memory."""

    sent: dict[str, Any]
    received: list[dict[str, Any]]
    met: list[dict[str, Any]]
    sender: Worker
    receivers: list[Worker]
    met_at: float
    seconds: float
    used: list[Used]
    """Inside the window: of the sender, then of each receiver."""

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
        """Processor time of the sender for each message that it sent, in nanoseconds: hardly depends on other work."""
        used = self.used[0]
        per_s: float = self.sent["sent_per_s"]
        return (used.user + used.kernel) / max(1.0, per_s * self.seconds) * 1e9

    @property
    def cpu_ns_receiver(self) -> float:
        """The same for the average receiver, and each message that it got."""
        used = sum(each.user + each.kernel for each in self.used[1:])
        return used / max(1.0, sum(self._rates()) * self.seconds) * 1e9

    @property
    def starved(self) -> float:
        """The largest part of the window in which a process was ready to run and other work had the processors."""
        return max(each.starved for each in self.used) / self.seconds

    @property
    def join_s(self) -> float:
        """Seconds from the first node that began to join until the sender saw all members in all groups."""
        began = [each["began"] for each in self.met if "began" in each]
        return self.met_at - min(began) if began else 0.0

    @property
    def lost_in_silence(self) -> int:
        """Messages that did not come to receivers which were not told, from a sender that was not told either."""
        if self.sent.get("counters", {}).get("messages_failed"):
            return 0
        return sum(each["lost"] for each in self.received if not each.get("told"))

    def total(self, key: str) -> int:
        """Add up a count of all receivers."""
        return sum(each[key] for each in self.received)


During = Callable[[Crew, "list[Worker]", float], None]
"""Called again and again while the window is open, with the receivers and the time since it opened, in seconds."""

Met = Callable[[Crew, dict[str, Any], "list[dict[str, Any]]"], None]
"""Called once before sending begins, with the options and what sender and receivers said of themselves."""


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
        options = {"size": cell.size, "receivers": cell.receivers, "groups": cell.groups, **cell.options}
        options |= system.prepare(crew, cell)
        prefix, where = cell.place(1)
        sender = crew.start("sender", f"{system.__name__}:send", {**options, **where}, prefix)
        options |= sender.hear("ready")
        receivers = []
        for number in range(cell.receivers):
            prefix, where = cell.place(number + 2)
            task, own = f"{system.__name__}:receive", {**options, **where, "number": number}
            receivers.append(crew.start(f"receiver-{number}", task, own, prefix))
        readies = [each.hear("ready", cell.patience_s) for each in receivers]
        sender.tell(meet=True)
        met = sender.hear("met", cell.patience_s)
        met_at = time.monotonic()
        if on_met is not None:
            on_met(crew, options, [met, *readies])
        for worker in crew.workers:
            worker.sample()
        start = time.monotonic() + warm_s
        stop = start + cell.seconds
        for each in (*receivers, sender):
            each.tell(go=[start, stop])
        crew.watch(start)
        before = [_used(worker) for worker in (sender, *receivers)]
        crew.watch(stop, None if during is None else lambda now: during(crew, receivers, now - start))
        after = [_used(worker) for worker in (sender, *receivers)]
        busy = [Used(*(new - old for new, old in zip(*pair, strict=True))) for pair in zip(after, before, strict=True)]
        sent = sender.hear("sent")
        if on_stop is not None:
            on_stop()
        for each in receivers:
            each.tell(expect=sent["sent"])
        received = [each.hear("received") for each in receivers]
        return Outcome(sent, received, [met, *readies], sender, receivers, met_at, cell.seconds, busy)
