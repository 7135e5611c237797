"""What runs in each process of a benchmark: takes one task, talks with the parent in lines of JSON, ends with it.

    python -m vivum.bench.worker '{"task": "module:function", "options": {...}}'

The parent says `{"go": ...}` and the like on standard input; answers go to standard output. If the parent dies the
kernel ends this process too, so that nothing is left behind whatever happens.

With `VIVUM_BENCH_PROFILE=/folder` each worker writes a cProfile of its task there, for `docs/PERFORMANCE.md`.
"""

import cProfile
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from vivum.bench.counting import BATCH_MESSAGES, Source, Tally, Timeline

PR_SET_PDEATHSIG = 1
IDLE_S_MAX = 20.0
"""How long a receiver waits for the rest of what was sent without any new message: longer than any timeout of the
protocols, on a busy machine."""


class Control:
    """The worker's end of the line to its parent."""

    def __init__(self) -> None:
        self._answers = os.dup(1)
        # Whatever a library prints must not end up between our lines.
        os.dup2(2, 1)
        self._buffer = b""

    def tell(self, **values: Any) -> None:
        """Send one line to the parent."""
        os.write(self._answers, json.dumps(values).encode() + b"\n")

    def hear(self, timeout_s: float | None = None) -> dict[str, Any] | None:
        """Wait for a line of the parent; None if none came in time. Ends the process when the parent is gone."""
        while b"\n" not in self._buffer:
            readable, _, _ = select.select([0], [], [], timeout_s)
            if not readable:
                return None
            piece = os.read(0, 65536)
            if not piece:
                raise SystemExit(1)
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        heard: dict[str, Any] = json.loads(line)
        return heard

    def wait_for(self, key: str) -> Any:
        """Wait until the parent says something of this name, and return what."""
        while True:
            heard = self.hear()
            if heard is not None and key in heard:
                return heard[key]


class Window:
    """The time that counts, on the clock that all processes of a machine share: from `start` to `stop`, in seconds.

    `began` is when this process heard of it: a sender begins to send then.
    """

    __slots__ = ("began", "seconds", "start", "stop")

    def __init__(self, go: tuple[float, float]) -> None:
        self.began = time.monotonic()
        self.start, self.stop = go
        self.seconds = self.stop - self.start


class Meter:
    """Counts and checks what one receiver gets, and knows when it is over."""

    __slots__ = (
        "_checked",
        "_control",
        "_expected",
        "_heard",
        "_idle_s",
        "_now",
        "_timeline",
        "_window",
        "tally",
    )

    def __init__(
        self,
        control: Control,
        size: int,
        groups: int,
        window: Window,
        *,
        only_forward: bool = False,
        idle_s: float = IDLE_S_MAX,
    ) -> None:
        self.tally = Tally(size, groups, only_forward=only_forward)
        self._control = control
        self._window = window
        self._idle_s = idle_s
        self._expected: int | None = None
        self._heard = time.monotonic()
        self._now = self._heard
        self._checked = self._heard
        self._timeline = Timeline(window.began, window.start, window.stop, groups)

    def take(self, batch: Sequence[bytes], group: int = 0) -> None:
        """Count a batch that just arrived."""
        if not batch:
            return
        self.tally.take(batch, group)
        self._heard = self._now = time.monotonic()
        self._timeline.take(self._now, len(batch), group)

    def is_over(self) -> bool:
        """Return whether all that was sent has come, or nothing more comes. Cheap while the measurement runs."""
        if self._now < self._window.stop:
            self._now = time.monotonic()
            if self._now < self._window.stop:
                return False
        now = time.monotonic()
        if self._expected is None and now - self._checked > 0.05:
            self._checked = now
            heard = self._control.hear(0)
            if heard is not None:
                self._expected = heard["expect"]
        if self._expected is None:
            return False
        arrived = self.tally.received - self.tally.duplicated
        return arrived >= self._expected or now - self._heard > self._idle_s

    def report(self, **further: Any) -> None:
        """Report the result to the parent."""
        tally, timeline = self.tally, self._timeline
        timeline.end_pause(time.monotonic())
        self._control.tell(
            received=tally.received,
            delivered_per_s=sum(timeline.by_group) / self._window.seconds,
            by_group=timeline.by_group,
            longest_pause_s=round(timeline.longest_pause_s, 4),
            by_slot=timeline.slots,
            slots_before=timeline.slots_before,
            duplicated=tally.duplicated,
            out_of_order=tally.out_of_order,
            lost=tally.lost(self._expected or 0),
            **further,
        )


def report_sent(control: Control, sent: int, window: Window, **further: Any) -> None:
    """Report to the parent how much a sender sent within the window, and in all."""
    control.tell(
        sent=sent, sent_per_s=further.pop("counted", sent) / window.seconds, first_sent=window.began, **further
    )


def send_in_batches(control: Control, size: int, send: Callable[[list[bytes]], None]) -> None:
    """Send batch after batch from the parent's word until the window is over; for systems whose calls block."""
    window = Window(control.wait_for("go"))
    source = Source(size)
    before = 0
    while (now := time.monotonic()) < window.stop:
        if now < window.start:
            before = source.sent
        send(source.batch(BATCH_MESSAGES))
    report_sent(control, source.sent, window, counted=source.sent - before)
    control.hear()


def _die_with_parent(parent: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        # It died before we asked.
        raise SystemExit(1)


def run_task() -> None:
    """Run the task of the command line."""
    order = json.loads(sys.argv[1])
    _die_with_parent(order["parent"])
    # The parent decides when to end; Ctrl-C in the terminal reaches it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    module, _, function = order["task"].partition(":")
    task: Callable[[Control, dict[str, Any]], None] = getattr(importlib.import_module(module), function)
    control = Control()
    gc.freeze()
    folder = os.environ.get("VIVUM_BENCH_PROFILE")
    if folder is None:
        task(control, order["options"])
        return
    profile = cProfile.Profile()
    try:
        profile.runcall(task, control, order["options"])
    finally:
        profile.dump_stats(os.path.join(folder, f"{order['name']}.pstats"))


if __name__ == "__main__":
    run_task()
