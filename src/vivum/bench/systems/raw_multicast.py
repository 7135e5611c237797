"""Packed multicast without any reliability: what the kernel and the compiled codec allow, the limit for us.

Frames are packed by `FrameBuilder`, go out by `UDP_SEGMENT`, come in by `UDP_GRO` and are cut by `split`. Nothing is
repaired: what a receiver's buffer did not take is lost, and what was delivered counts.
"""

import select
import time
from typing import Any

from vivum.bench.cell import Cell
from vivum.bench.counting import Source
from vivum.bench.crew import Crew
from vivum.bench.worker import Control, Meter, Window, report_sent
from vivum.core.ids import Channel
from vivum.core.machine import Datagram
from vivum.runtime.udp import UdpPort
from vivum.wire.codec import FrameBuilder, split
from vivum.wire.gate import domain_tag
from vivum.wire.kinds import Kind

LABEL = "raw packed multicast (limit)"
CHANNEL = Channel(1)
FRAME_BYTES = 60_000
FRAMES_PER_SEND = 1


def prepare(_crew: Crew, _cell: Cell) -> dict[str, Any]:
    """Choose a domain of our own."""
    return {"domain": domain_tag(f"raw bench {time.monotonic_ns()}")}


def send(control: Control, options: dict[str, Any]) -> None:
    """Pack and send as fast as the kernel takes it."""
    port = UdpPort(options["domain"])
    control.tell(ready=True)
    control.wait_for("meet")
    control.tell(met=True)
    window = Window(control.wait_for("go"))
    source = Source(options["size"])
    builder = FrameBuilder(options.get("frame_bytes", FRAME_BYTES))
    per_frame = max(1, builder.extend(1, 0, source.batch(options.get("frame_bytes", FRAME_BYTES) // options["size"])))
    builder.seal(Kind.DATA, options["domain"], 1, 1, 1, 1, 0, 0)
    source = Source(options["size"])
    before = number = 0
    while (now := time.monotonic()) < window.stop:
        if now < window.start:
            before = source.sent
        datagrams = []
        for _ in range(options.get("frames_per_send", FRAMES_PER_SEND)):
            builder.extend(1, source.sent, source.batch(per_frame))
            datagrams.append(Datagram(CHANNEL, builder.seal(Kind.DATA, options["domain"], 1, 1, 1, 1, number, 0)))
            number += 1
        while datagrams:
            taken = port.send(datagrams)
            del datagrams[:taken]
            if datagrams:
                select.select([], port.sockets[:1], [])
    report_sent(control, source.sent, window, counted=source.sent - before)
    control.hear()
    port.close()


def receive(control: Control, options: dict[str, Any]) -> None:
    """Take what comes, and cut it into messages."""
    port = UdpPort(options["domain"])
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
        for frame in split(data):
            for _, _, _, payloads in frame.messages():
                meter.take(payloads)
    meter.report()
    port.close()
