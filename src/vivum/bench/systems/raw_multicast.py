"""Packed multicast without any reliability: what the kernel and the compiled codec allow, the limit for us.

Messages are packed by `FrameBuilder` into frames as large as the interface carries, 60,000 bytes within a computer.
Between hosts a train of them goes out by `UDP_SEGMENT` and comes in by `UDP_GRO`. `split_trains` and `take_runs` cut
what came. Nothing is repaired: what a receiver's buffer did not take is lost, and what was delivered counts.
"""

import select
import time
from collections.abc import Iterator, Sequence
from typing import Any

from vivum.bench.cell import Cell
from vivum.bench.counting import Source
from vivum.bench.crew import Crew
from vivum.bench.worker import Control, Meter, Window, report_sent
from vivum.core.ids import Channel
from vivum.core.machine import Datagram
from vivum.runtime.interfaces import payload_bytes_of
from vivum.runtime.udp import UdpPort
from vivum.wire.codec import FLAG_CONTINUES, FLAG_MORE, FrameBuilder, split_trains, take_runs
from vivum.wire.gate import domain_tag
from vivum.wire.kinds import Kind
from vivum.wire.trains import TRAIN_BYTES_MAX, address

LABEL = "raw packed multicast (limit)"
CHANNEL = Channel(1)
FRAME_BYTES = 60_000
HEADERS_BYTES = 100
"""More than what a frame has besides a single message."""

RUN_MESSAGES_MAX = 1 << 16
MESSAGE_BYTES_MAX = 1 << 20


def prepare(_crew: Crew, _cell: Cell) -> dict[str, Any]:
    """Choose a domain of our own."""
    return {"domain": domain_tag(f"raw bench {time.monotonic_ns()}")}


def send(control: Control, options: dict[str, Any]) -> None:
    """Pack and send as fast as the kernel takes it."""
    port = UdpPort(options["domain"], options["interface"])
    control.tell(ready=True)
    control.wait_for("meet")
    control.tell(met=True)
    window = Window(control.wait_for("go"))
    source, size = Source(options["size"]), options["size"]
    frame_bytes = min(max(FRAME_BYTES, size + HEADERS_BYTES), payload_bytes_of(options["interface"]))
    builder = FrameBuilder(frame_bytes)
    frames_max = max(1, TRAIN_BYTES_MAX // frame_bytes)
    header = (Kind.DATA, options["domain"], 1, 1, 1, 1)
    # Whole messages that fit a train: each train is cut alone, without what another brought.
    ample = [bytes(size)] * (frames_max * frame_bytes // size + 1)
    limits = (1, True, frames_max, TRAIN_BYTES_MAX)
    _, _, (_, count, _), _ = builder.seal_parts([(1, 0, ample, 0, 0)], *limits, *header, 0, 0)
    before = number = 0
    while (now := time.monotonic()) < window.stop:
        if now < window.start:
            before = source.sent
        parts = [(1, source.sent, source.batch(count), 0, 0)]
        trains, stops, _, _ = builder.seal_parts(parts, *limits, *header, number, 0)
        number += stops.frames
        datagrams: Sequence[Datagram] = address(trains, [CHANNEL])
        while datagrams := port.send(datagrams):
            select.select([], port.sockets[:1], [])
    report_sent(control, source.sent, window, counted=source.sent - before)
    control.hear()
    port.close()


def receive(control: Control, options: dict[str, Any]) -> None:
    """Take what comes, and cut it into messages."""
    port = UdpPort(options["domain"], options["interface"])
    port.listen(CHANNEL)
    source = port.sockets[-1]
    source.settimeout(0.1)
    control.tell(ready=True)
    meter = Meter(control, options["size"], 1, Window(control.wait_for("go")), only_forward=True, idle_s=0.5)
    while not meter.is_over():
        try:
            data = source.recv(65536)
        except TimeoutError:
            continue
        for payloads in _whole(data):
            meter.take(payloads)
    meter.report()
    port.close()


def _whole(data: bytes) -> Iterator[list[bytes]]:
    """Cut a datagram or a train into messages, without the pieces of those that are not all there."""
    for _, _, _, flags, payloads in take_runs(split_trains(data), RUN_MESSAGES_MAX, frozenset(), MESSAGE_BYTES_MAX):
        assert isinstance(payloads, list)
        first = 1 if flags & FLAG_CONTINUES else 0
        yield payloads[first : len(payloads) - 1 if flags & FLAG_MORE else len(payloads)]
