"""The stage of the demo: starts every process, follows what they tell, ends them, and adds up what came out.

    with Stage(Play(seconds=30), tell) as stage:
        summary = stage.run()

Whatever ends it, Ctrl-C included, no process and no file is left behind. `tell(what, **values)` is called for
everything that somebody who watches wants to know.
"""

import importlib.util
import os
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from vivum.bench.crew import Crew, Worker
from vivum.core.errors import HostError, UsageError
from vivum.demo.exchange import PATTERNS, symbols
from vivum.demo.processes import adopt_orphans, memory_mb, processes_of, wait_for_end
from vivum.demo.topics import ORDERS, TRADES, quote_topic
from vivum.pipeline.session import find_java

PUBLISHERS = 3
SUBSCRIBERS = 3
SAMPLE_S = 1.0
"""Distance between two looks at the memory of all processes."""

STUCK_S = 180.0
"""If something does not happen within this time, there is a fault. The time that the market is open does not count."""

END_S = 15.0
"""How long processes have to end by themselves, Java's among them."""

Tell = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Play:
    """What is to be played."""

    seconds: float = 30.0
    """How long the market is open."""

    symbols: int = 240
    """Topics of quotes, one a symbol; trades and orders have one each besides."""

    rate: float = 1500.0
    """Messages a second, all publishers together."""

    loss: float = 0.02
    """Share of what arrives that every node throws away."""

    seed: int = 1
    folder: Path | None = None
    """Where log, traces and tables are kept; None: nothing is kept."""


def check_needs() -> None:
    """Raise, in one sentence, if something is missing without which the demo cannot go on: before anything is done."""
    for name in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(name) is None:
            raise UsageError(
                f"the demo needs {name}; run `make demo`, which installs it, or: pip install 'vivum[spark]'"
            )
    find_java()


class Stage:
    """One performance."""

    def __init__(self, play: Play, tell: Tell) -> None:
        self._play = play
        self._tell = tell
        self._began = time.monotonic()
        self._cleanup = ExitStack()
        self._crew = Crew()
        self._domain = f"demo {os.getpid()} {time.monotonic_ns()}"
        self._folder = Path()
        self._seen: dict[str, dict[str, Any]] = {}
        self._said: dict[str, dict[str, Any]] = {}
        self._sent: Counter[str] = Counter()
        self._memory_mb = 0.0
        self._sampled = 0.0
        self._publishers: list[Worker] = []
        self._subscribers: list[Worker] = []
        self._alerts: list[tuple[str, str, str]] = []
        self._published = 0
        self._first_bars_s: float | None = None

    def __enter__(self) -> Self:
        play = self._play
        adopt_orphans()
        if play.folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="vivum-demo-"))
            self._cleanup.callback(shutil.rmtree, self._folder, ignore_errors=True)
        else:
            self._folder = play.folder.absolute()
            if self._folder.exists() and any(self._folder.iterdir()):
                raise UsageError(f"{play.folder} is not empty; name a new folder for what the demo keeps")
            self._folder.mkdir(parents=True, exist_ok=True)
        self._cleanup.callback(self._end_all)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A second Ctrl-C must not interrupt this.
        before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self._cleanup.close()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _end_all(self) -> None:
        sessions = {worker.process.pid for worker in self._crew.workers}
        self._crew.close()
        wait_for_end(sessions, END_S)

    # The play.

    def run(self) -> dict[str, Any]:
        """Play it to the end and return the summary."""
        spark = self._start("spark", "vivum.demo.spark_desk:work", folder=str(self._folder))
        self._start_nodes()
        self._wait_for("ready", self._nodes)
        self._introduce()
        self._wait_for("met", self._publishers)
        self._tell("open", topics=self._play.symbols + 2, nodes=len(self._nodes), loss=self._play.loss)
        for each in self._publishers:
            each.tell(go=True)
        spark.tell(open=True)
        self._wait_for("closed", self._publishers)
        expected = self._expect()
        self._tell("closed", sent=self._sent.total())
        spark.tell(closed=True)
        self._wait_for("complete", [*self._subscribers, self._recorder])
        self._wait_for("finished", [spark])
        self._desk.tell(expect=self._published)
        self._wait_for("complete", [self._desk])
        self._end(self._nodes)
        self._tell("judging")
        spark.tell(audit=True)
        self._wait_for("verdict", [spark])
        self._end([spark])
        return self._summary(expected)

    def _start(self, name: str, task: str, **options: Any) -> Worker:
        common = {
            "name": f"{name}-{os.getpid()}",
            "domain": self._domain,
            "trace": str(self._folder / "trace"),
            "log": str(self._folder / "log"),
            "loss": self._play.loss,
        }
        self._said[name] = {}
        return self._crew.start(name, task, common | options)

    def _start_nodes(self) -> None:
        play = self._play
        names = symbols(play.symbols)
        share = -(-len(names) // PUBLISHERS)
        # The first node carries the domain's service; it is the last to leave.
        self._recorder = self._start("recorder", "vivum.demo.nodes:record")
        self._wait_for("ready", [self._recorder])
        self._desk = self._start("desk", "vivum.demo.nodes:watch_alerts")
        for number in range(PUBLISHERS):
            self._publishers.append(
                self._start(
                    f"publisher-{number + 1}", "vivum.demo.nodes:publish_market", number=number, seconds=play.seconds,
                    symbols=names[number * share : (number + 1) * share], rate=play.rate / PUBLISHERS,
                    seed=play.seed * PUBLISHERS + number,
                )
            )  # fmt: skip
        half = len(names) // 2
        tape = [TRADES, ORDERS]
        quotes = [quote_topic(name) for name in names]
        self._topics = {
            "subscriber-1": quotes + tape,
            "subscriber-2": quotes[:half],
            "subscriber-3": quotes[half:] + tape,
        }
        for name, topics in self._topics.items():
            self._subscribers.append(self._start(name, "vivum.demo.nodes:subscribe", topics=topics))
        self._nodes = [*self._subscribers, self._desk, *self._publishers, self._recorder]

    def _introduce(self) -> None:
        """Tell publishers how many members of each topic to wait for: publishers, subscribers, the recorder."""
        members = Counter({TRADES: PUBLISHERS - 1, ORDERS: PUBLISHERS - 1})
        for topics in self._topics.values():
            members.update(topics)
        for each in self._publishers:
            each.tell(members={topic: count + 2 for topic, count in members.items()})

    def _expect(self) -> dict[str, int]:
        """Tell receivers how many messages were sent to their topics in all."""
        sent: Counter[str] = Counter()
        for each in self._publishers:
            sent.update(self._said[each.name]["closed"])
        self._sent = sent
        expected = {name: sum(sent[topic] for topic in topics) for name, topics in self._topics.items()}
        expected["recorder"] = sent.total()
        for each in [*self._subscribers, self._recorder]:
            each.tell(expect=expected[each.name])
        return expected

    def _end(self, workers: list[Worker]) -> None:
        """Let processes leave in order, one after the other."""
        for each in workers:
            each.tell(end=True)
            self._wait_for("ended", [each])
            each.is_dismissed = True

    # What the processes tell.

    def _wait_for(self, key: str, workers: list[Worker]) -> None:
        """Follow everybody until each of these has told something of this name."""
        deadline = time.monotonic() + STUCK_S + (self._play.seconds if key == "closed" else 0.0)
        while not all(key in self._said[each.name] for each in workers):
            for worker, said in self._crew.hear_any(0.25):
                self._said[worker.name] |= said
                self._on_said(worker.name, said)
            self._look_at_memory()
            if time.monotonic() > deadline:
                late = ", ".join(each.name for each in workers if key not in self._said[each.name])
                raise HostError(f"the demo is stuck: {late} did not tell {key!r} within {STUCK_S:g} s")

    def _on_said(self, name: str, said: dict[str, Any]) -> None:
        match said:
            case {"seen": seen} | {"ended": seen} if seen:
                self._seen[name] = seen
                self._tell("seen", sent=self._count_sent(), **self._totals())
            case {"ready": _}:
                self._tell("ready", name=name)
            case {"latest": latest, "bars": bars, "trades": trades}:
                if self._first_bars_s is None and latest:
                    self._first_bars_s = time.monotonic() - self._began
                self._tell("bars", latest=latest, bars=bars, trades=trades)
            case {"round": number, "alerts": alerts, "took_s": took_s}:
                self._published += alerts
                self._tell("round", number=number, alerts=alerts, took_s=took_s)
            case {"alert": [pattern, symbol, who, evidence]}:
                self._alerts.append((pattern, symbol, who))
                self._tell("alert", pattern=pattern, symbol=symbol, who=who, evidence=evidence)
            case {"checking": check}:
                self._tell("checking", check=check)

    def _count_sent(self) -> int:
        return sum(self._said[each.name].get("sent", 0) for each in self._publishers)

    def _totals(self) -> dict[str, int]:
        keys = ("delivered", "lost_on_purpose", "repaired", "unhad", "failed")
        return {key: sum(seen[key] for seen in self._seen.values()) for key in keys}

    def _look_at_memory(self) -> None:
        now = time.monotonic()
        if now - self._sampled >= SAMPLE_S:
            self._sampled = now
            pids = processes_of({worker.process.pid for worker in self._crew.workers})
            self._memory_mb = max(self._memory_mb, memory_mb([os.getpid(), *pids]))

    # The end.

    def _summary(self, expected: dict[str, int]) -> dict[str, Any]:
        totals = self._totals()
        received = {name: self._said[name]["complete"] for name in expected}
        verdict = self._said["spark"]
        return {
            "seconds": self._play.seconds,
            "seed": self._play.seed,
            "processes": len(self._crew.workers),
            "topics": self._play.symbols + 3,
            "messages": {
                "sent": self._sent.total(),
                "expected": expected,
                "received": received,
                "deliveries": totals["delivered"],
                "failed": totals["failed"],
                "lost": totals["unhad"],
            },
            "network": {
                "loss": self._play.loss,
                "datagrams_lost_on_purpose": totals["lost_on_purpose"],
                "frames_repaired": totals["repaired"],
            },
            "recorder": {"recorded": received["recorder"], "missed": self._seen["recorder"]["missed"]},
            "bars": {
                "made": verdict["bars"],
                "trades": verdict["trades"],
                "rounds": verdict["round"],
                "refused": verdict["refused"],
            },
            "first_bars_s": None if self._first_bars_s is None else round(self._first_bars_s, 1),
            "alerts": self._compare(),
            "audit": {
                "verdict": verdict["verdict"],
                "records": verdict["records"],
                "checks": verdict["checks"],
                "witnesses": verdict["witnesses"],
            },
            "memory_mb": round(self._memory_mb),
            "wall_s": round(time.monotonic() - self._began, 1),
            "folder": None if self._play.folder is None else str(self._folder),
        }

    def _compare(self) -> dict[str, Any]:
        """Hold what came back against what was planted."""
        planted, decoys = self._listed("planted"), self._listed("decoys")
        found = set(self._alerts)
        return {
            "planted": len(planted),
            "found": len(planted & found),
            "not_found": sorted(map(list, planted - found)),
            "not_planted": sorted(map(list, found - planted)),
            "decoys": len(decoys),
            "decoys_reported": len(decoys & found),
            "came_back": len(self._alerts),
            "came_back_twice": len(self._alerts) - len(found),
            "by_pattern": {
                each: {
                    "planted": sum(1 for pattern, _, _ in planted if pattern == each),
                    "found": sum(1 for pattern, _, _ in planted & found if pattern == each),
                }
                for each in PATTERNS
            },
        }

    def _listed(self, key: str) -> set[tuple[str, str, str]]:
        return {tuple(each) for worker in self._publishers for each in self._said[worker.name][key]}
