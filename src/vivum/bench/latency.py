"""`vivum bench latency`: how long a message and its answer take, between two processes of this machine.

The same ping-pong over Vivum, over a bare UDP socket and over a pyzmq PAIR. One message is under way at a time; the
first ones warm up and do not count. All pairs of processes are there from the beginning and take turns, a slice of the
rounds each, so that the state of the machine is the same for all. A pair that waits for its turn sleeps.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from vivum.bench.cell import Cell
from vivum.bench.crew import Crew, MissingError, Worker
from vivum.bench.machine import busy_s
from vivum.bench.systems import vivum_topics
from vivum.bench.worker import Control
from vivum.runtime.loop_thread import run_on_loop

WARM_ROUNDS = 200
"""At the beginning of each slice: caches are warm, and who polls after some rounds does so."""

SLICES = 10
"""The number of parts in which the rounds of every pair are run."""

POLL_NS_MAX = 1_000_000
"""The polling raw socket sleeps after this long, so as not to disturb the others in their turn."""

Times = dict[str, list[int]]
"""For each way to do it, how long each round took, in nanoseconds."""

POLL_US = 200
"""How long Vivum polls where it is asked to."""

WORK_US = 20
"""How long a side of `udp_working_` computes before it answers: about what Vivum's Python takes for a message. So this
pair shows what a round trip with such work can be at best."""

PAIRS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("raw_udp_", "raw", {}),
    ("raw_udp_polling_", "raw", {"polls": True}),
    ("udp_working_", "raw", {"work_us": WORK_US}),
    ("udp_on_loop_", "loop", {}),
    ("pyzmq_", "zmq", {}),
    ("", "vivum", {}),
    ("polling_", "vivum", {"poll_us": POLL_US}),
)
"""What the keys of a pair's results begin with, what it does, and its options."""


def measure_latency(
    size: int, rounds: int, settings: dict[str, Any], progress: Callable[[str], None]
) -> dict[str, Any]:
    """Run all ping-pongs; the result has the keys that `vivum bench latency --json` prints."""
    result: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        pairs: dict[str, Worker] = {}
        crews: list[Crew] = []
        taken: dict[str, Times] = {}
        for name, task, further in PAIRS:
            options = {"size": size, "settings": settings, **further}
            try:
                crews.append(stack.enter_context(Crew()))
                pairs[name] = _start_pair(crews[-1], task, options)
            except MissingError as error:
                result[f"{name}skipped"] = str(error)
        before_s, began = _others_s(crews), time.monotonic()
        for number in range(SLICES):
            progress(f"round trips: {number + 1} of {SLICES} slices")
            share = rounds * (number + 1) // SLICES - rounds * number // SLICES
            for name, ping in pairs.items():
                ping.tell(rounds=share)
                for way, each in ping.hear("times")["times"].items():
                    taken.setdefault(name, {}).setdefault(way, []).extend(each)
        result["other_work"] = round(max(0.0, _others_s(crews) - before_s) / (time.monotonic() - began), 2)
    for name, times in taken.items():
        for way, each in times.items():
            result[f"{name}{way}rtt_us_p50"] = _percentile(each, 50)
            result[f"{name}{way}rtt_us_p99"] = _percentile(each, 99)
    raw = result["raw_udp_rtt_us_p50"]
    result["to_raw_udp"] = round(result["rtt_us_p50"] / raw, 3)
    if "pyzmq_rtt_us_p50" in result:
        for name in ("", "polling_"):
            result[f"{name}to_pyzmq"] = round(result[f"{name}rtt_us_p50"] / result["pyzmq_rtt_us_p50"], 3)
    return {**result, "size": size, "rounds": rounds}


def _others_s(crews: Sequence[Crew]) -> float:
    """Return how long processors were busy so far with anything but these workers, in seconds."""
    own = sum(sum(worker.cpu_s()) for crew in crews for worker in crew.workers)
    return busy_s() - own


def _percentile(times_ns: list[int], percent: int) -> float:
    ordered = sorted(times_ns)
    return round(ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] / 1000, 1)


def _start_pair(crew: Crew, task: str, options: dict[str, Any]) -> Worker:
    """Start two processes; the one that is returned does rounds when it is told."""
    if task == "zmq":
        try:
            import zmq  # noqa: F401
        except ImportError:
            raise MissingError("pyzmq is not installed (pip install pyzmq)") from None
    if task == "vivum":
        options |= {"receivers": 1, "groups": 2}
        cell = Cell(options["size"], 1, 1.0)
        options |= vivum_topics.prepare(crew, cell) | cell.place(1)[1]
    echo = crew.start("echo", f"{__name__}:echo_{task}", options)
    options |= echo.hear("ready")
    ping = crew.start("ping", f"{__name__}:ping_{task}", options)
    ping.hear("ready")
    return ping


def _time_rounds(control: Control, turn: Callable[[], object]) -> None:
    clock = time.perf_counter_ns
    control.tell(ready=True)
    while True:
        times = []
        for _ in range(WARM_ROUNDS + control.wait_for("rounds")):
            began = clock()
            turn()
            times.append(clock() - began)
        control.tell(times={"": times[WARM_ROUNDS:]})


def echo_raw(control: Control, options: dict[str, Any]) -> None:
    """Send every datagram back. With `polls` it never sleeps while it waits: what no waking costs.

    With `work_us` it computes for this long before it answers.
    """
    work_ns = 1000 * options.get("work_us", 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("127.0.0.1", 0))
        control.tell(ready=True, port=own.getsockname()[1])
        if not options.get("polls"):
            while True:
                arrived = own.recvfrom(65536)
                _compute(work_ns)
                own.sendto(*arrived)
        own.setblocking(False)
        while True:
            own.sendto(*_polled(own))


def _compute(work_ns: int) -> None:
    """Keep this processor busy for a while."""
    until_ns = time.monotonic_ns() + work_ns
    while time.monotonic_ns() < until_ns:
        pass


def _polled(own: socket.socket) -> tuple[bytes, Any]:
    quiet_ns = time.monotonic_ns() + POLL_NS_MAX
    while time.monotonic_ns() < quiet_ns:
        with contextlib.suppress(BlockingIOError):
            return own.recvfrom(65536)
    own.settimeout(None)
    try:
        return own.recvfrom(65536)
    finally:
        own.setblocking(False)


def ping_raw(control: Control, options: dict[str, Any]) -> None:
    """Send datagrams, and wait for each to come back."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("127.0.0.1", 0))
        own.settimeout(5.0)
        where, payload = ("127.0.0.1", options["port"]), bytes(options["size"])
        work_ns = 1000 * options.get("work_us", 0)

        def turn() -> None:
            own.sendto(payload, where)
            own.recvfrom(65536)
            _compute(work_ns)

        def polled_turn() -> None:
            own.sendto(payload, where)
            _polled(own)

        if options.get("polls"):
            own.setblocking(False)
        _time_rounds(control, polled_turn if options.get("polls") else turn)


def echo_loop(control: Control, _options: dict[str, Any]) -> None:
    """Send every datagram back, on an event loop: what asyncio costs before any protocol."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        own.bind(("127.0.0.1", 0))
        loop.add_reader(own, lambda: own.sendto(*own.recvfrom(65536)))
        control.tell(ready=True, port=own.getsockname()[1])
        await loop.run_in_executor(None, control.hear)

    run_on_loop(run())


def ping_loop(control: Control, options: dict[str, Any]) -> None:
    """Send datagrams from an event loop, and wait for each to come back."""

    async def run() -> None:
        loop, clock = asyncio.get_running_loop(), time.perf_counter_ns
        own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        own.bind(("127.0.0.1", 0))
        where, payload = ("127.0.0.1", options["port"]), bytes(options["size"])
        done = loop.create_future()
        times: list[int] = []
        began = rounds = 0

        def on_readable() -> None:
            nonlocal began
            own.recvfrom(65536)
            times.append(clock() - began)
            if len(times) == rounds:
                done.set_result(None)
                return
            began = clock()
            own.sendto(payload, where)

        loop.add_reader(own, on_readable)
        control.tell(ready=True)
        while True:
            rounds = WARM_ROUNDS + await loop.run_in_executor(None, control.wait_for, "rounds")
            began = clock()
            own.sendto(payload, where)
            async with asyncio.timeout(60.0):
                await done
            control.tell(times={"": times[WARM_ROUNDS:]})
            times.clear()
            done = loop.create_future()

    run_on_loop(run())


def echo_zmq(control: Control, _options: dict[str, Any]) -> None:
    """Send every message back."""
    import zmq

    own = zmq.Context().socket(zmq.PAIR)
    control.tell(ready=True, port=own.bind_to_random_port("tcp://127.0.0.1"))
    while True:
        own.send(own.recv())


def ping_zmq(control: Control, options: dict[str, Any]) -> None:
    """Send messages, and wait for each to come back."""
    import zmq

    own = zmq.Context().socket(zmq.PAIR)
    own.connect(f"tcp://127.0.0.1:{options['port']}")
    own.setsockopt(zmq.RCVTIMEO, 5000)
    payload = bytes(options["size"])

    def turn() -> None:
        own.send(payload)
        own.recv()

    _time_rounds(control, turn)


def echo_vivum(control: Control, options: dict[str, Any]) -> None:
    """Send every message back."""
    vivum_topics.echo(control, options)


def ping_vivum(control: Control, options: dict[str, Any]) -> None:
    """Send messages, and wait for each to come back."""
    vivum_topics.ping(control, {**options, "warm": WARM_ROUNDS})
