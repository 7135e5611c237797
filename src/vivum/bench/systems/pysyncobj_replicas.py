"""PySyncObj: a Raft in Python over TCP; three processes, the same work. It keeps its log in memory."""

import time
from typing import Any

from vivum.bench.worker import Control

LABEL = "pysyncobj"


def replicate(control: Control, options: dict[str, Any]) -> None:
    """Be one replica; if it leads, call when the parent says so."""
    from pysyncobj import SyncObj, SyncObjConf, replicated

    class Counting(SyncObj):  # type: ignore[misc]
        def __init__(self, own: str, others: list[str]) -> None:
            # Its own thread would wait for ticks; called in a loop it never does.
            # A period of 10 ms in place of 100: it sends what is new once in each.
            conf = SyncObjConf(
                autoTick=False, appendEntriesUseBatch=True, commandsQueueSize=1_000_000, appendEntriesPeriod=0.01
            )
            super().__init__(own, others, conf)
            self.count = 0

        @replicated  # type: ignore[untyped-decorator]
        def add(self, command: bytes) -> None:  # noqa: ARG002
            self.count += 1

    own, others = options["own"], options["others"]
    obj = Counting(own, others)
    control.tell(place=own)
    control.wait_for("places")
    done = 0

    def on_done(_: Any, error: Any) -> None:
        nonlocal done
        assert not error, f"pysyncobj failed with {error}"
        done += 1

    command, told = bytes(options["size"]), False
    while True:
        obj.doTick(0.002)
        if not told and obj._isLeader() and obj.isReady():
            told = True
            control.tell(leads=True)
        heard = control.hear(0)
        if heard is None:
            continue
        if "end" in heard:
            return
        if "count" in heard:
            control.tell(count=obj.count)
        elif "pipeline" in heard:
            window, warm_s, seconds = heard["pipeline"]
            sent, done, start, counted, began = 0, 0, 0.0, 0, time.monotonic()
            while (now := time.monotonic()) < began + warm_s + seconds:
                if not start and now >= began + warm_s:
                    start, counted = now, done
                while sent - done < window:
                    obj.add(command, callback=on_done)
                    sent += 1
                obj.doTick(0.001)
            rate = (done - counted) / (time.monotonic() - start)
            while done < sent:
                obj.doTick(0.001)
            control.tell(commits_per_s=rate, total=done)
        elif "one_by_one" in heard:
            times = []
            for _ in range(heard["one_by_one"]):
                before, start_ns = done, time.perf_counter_ns()
                obj.add(command, callback=on_done)
                while done == before:
                    obj.doTick(0.001)
                times.append((time.perf_counter_ns() - start_ns) / 1000)
            control.tell(times_us=times)
