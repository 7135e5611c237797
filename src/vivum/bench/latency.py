"""`vivum bench latency`: how long a message and its answer take, between two processes of this machine.

The same ping-pong over Vivum, over a bare UDP socket and over a pyzmq PAIR. One message is under way at a time; the
first ones warm up and do not count.
"""

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Any

from vivum.bench.cell import Cell
from vivum.bench.crew import Crew, MissingError
from vivum.bench.loops import run_fast
from vivum.bench.systems import vivum_topics
from vivum.bench.worker import Control

WARM_ROUNDS = 200


def measure_latency(
    size: int, rounds: int, settings: dict[str, Any], progress: Callable[[str], None]
) -> dict[str, Any]:
    """Run all ping-pongs; the result has the keys that `vivum bench latency --json` prints."""
    result: dict[str, Any] = {}
    for name, task in (("raw_udp_", "raw"), ("udp_on_loop_", "loop"), ("pyzmq_", "zmq"), ("", "vivum")):
        progress(f"round trips: {task}")
        try:
            times = _ping_pong(task, size, rounds, settings)
        except MissingError as error:
            result[f"{name}skipped"] = str(error)
            continue
        for kind, each in times.items():
            result[f"{name}{kind}rtt_us_p50"] = _percentile(each, 50)
            result[f"{name}{kind}rtt_us_p99"] = _percentile(each, 99)
    raw = result["raw_udp_rtt_us_p50"]
    result["to_raw_udp"] = round(result["rtt_us_p50"] / raw, 3)
    return {**result, "size": size, "rounds": rounds}


def _percentile(times_ns: list[int], percent: int) -> float:
    ordered = sorted(times_ns)
    return round(ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] / 1000, 1)


def _ping_pong(task: str, size: int, rounds: int, settings: dict[str, Any]) -> dict[str, list[int]]:
    with Crew() as crew:
        options: dict[str, Any] = {"size": size, "rounds": rounds}
        if task == "zmq":
            try:
                import zmq  # noqa: F401
            except ImportError:
                raise MissingError("pyzmq is not installed (pip install pyzmq)") from None
        if task == "vivum":
            options |= {"receivers": 1, "groups": 1, "settings": settings}
            cell = Cell(size, 1, 1.0)
            options |= vivum_topics.prepare(crew, cell) | cell.place(1)[1]
        echo = crew.start("echo", f"{__name__}:echo_{task}", options)
        options |= echo.hear("ready")
        ping = crew.start("ping", f"{__name__}:ping_{task}", options)
        told = ping.hear("times")
        return {"": told["times"]} | ({"awaited_": told["awaited"]} if "awaited" in told else {})


def _time_rounds(control: Control, rounds: int, turn: Callable[[], object]) -> None:
    times = []
    clock = time.perf_counter_ns
    for _ in range(WARM_ROUNDS + rounds):
        began = clock()
        turn()
        times.append(clock() - began)
    control.tell(times=times[WARM_ROUNDS:])


def echo_raw(control: Control, _options: dict[str, Any]) -> None:
    """Send every datagram back."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("127.0.0.1", 0))
        control.tell(ready=True, port=own.getsockname()[1])
        while True:
            data, source = own.recvfrom(65536)
            own.sendto(data, source)


def ping_raw(control: Control, options: dict[str, Any]) -> None:
    """Send datagrams, and wait for each to come back."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("127.0.0.1", 0))
        own.settimeout(5.0)
        where, payload = ("127.0.0.1", options["port"]), bytes(options["size"])

        def turn() -> None:
            own.sendto(payload, where)
            own.recvfrom(65536)

        _time_rounds(control, options["rounds"], turn)


def echo_loop(control: Control, _options: dict[str, Any]) -> None:
    """Send every datagram back, on an event loop: what asyncio costs before any protocol."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        own.bind(("127.0.0.1", 0))
        loop.add_reader(own, lambda: own.sendto(*own.recvfrom(65536)))
        control.tell(ready=True, port=own.getsockname()[1])
        await loop.run_in_executor(None, control.hear)

    run_fast(run())


def ping_loop(control: Control, options: dict[str, Any]) -> None:
    """Send datagrams from an event loop, and wait for each to come back."""

    async def run() -> None:
        loop, clock = asyncio.get_running_loop(), time.perf_counter_ns
        own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        own.bind(("127.0.0.1", 0))
        where, payload = ("127.0.0.1", options["port"]), bytes(options["size"])
        done = loop.create_future()
        times: list[int] = []
        began = 0

        def on_readable() -> None:
            nonlocal began
            own.recvfrom(65536)
            times.append(clock() - began)
            if len(times) == WARM_ROUNDS + options["rounds"]:
                done.set_result(None)
                return
            began = clock()
            own.sendto(payload, where)

        loop.add_reader(own, on_readable)
        began = clock()
        own.sendto(payload, where)
        async with asyncio.timeout(60.0):
            await done
        control.tell(times=times[WARM_ROUNDS:])

    run_fast(run())


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

    _time_rounds(control, options["rounds"], turn)


def echo_vivum(control: Control, options: dict[str, Any]) -> None:
    """Send every message back."""
    vivum_topics.echo(control, options)


def ping_vivum(control: Control, options: dict[str, Any]) -> None:
    """Send messages, and wait for each to come back."""
    vivum_topics.ping(control, {**options, "warm": WARM_ROUNDS})
