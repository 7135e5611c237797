"""nats-py with uvloop, through a nats-server on a free port."""

import asyncio
import time
from typing import Any

from vivum.bench.cell import Cell
from vivum.bench.counting import BATCH_MESSAGES, Source
from vivum.bench.crew import Crew, MissingError, free_port
from vivum.bench.worker import Control, Meter, Window, report_sent

LABEL = "nats-py, nats-server"
SUBJECT = "vivum.bench"
PENDING_BYTES = 64 * 1024 * 1024


def prepare(crew: Crew, _cell: Cell) -> dict[str, Any]:
    """Start the server."""
    try:
        import nats  # noqa: F401
        import uvloop  # noqa: F401
    except ImportError as error:
        raise MissingError(f"{error.name} is not installed (pip install nats-py uvloop)") from None
    port = free_port()
    crew.serve(["nats-server", "-a", "127.0.0.1", "-p", str(port)], port)
    return {"port": port}


def send(control: Control, options: dict[str, Any]) -> None:
    """Publish to all who subscribed."""
    import uvloop

    uvloop.run(_send(control, options))


async def _send(control: Control, options: dict[str, Any]) -> None:
    import nats

    client = await nats.connect(f"nats://127.0.0.1:{options['port']}", pending_size=PENDING_BYTES)
    control.tell(ready=True)
    control.wait_for("meet")
    control.tell(met=True)
    window = Window(control.wait_for("go"))
    source = Source(options["size"])
    before = 0
    while (now := time.monotonic()) < window.stop:
        if now < window.start:
            before = source.sent
        for payload in source.batch(BATCH_MESSAGES):
            await client.publish(SUBJECT, payload)
        # Waits for the server's PONG: NATS drops a consumer whose backlog grows past its limit, so a
        # publisher that wants nothing lost must not run ahead without bound.
        await client.flush()
    report_sent(control, source.sent, window, counted=source.sent - before)
    await asyncio.get_running_loop().run_in_executor(None, control.hear)


def receive(control: Control, options: dict[str, Any]) -> None:
    """Take what is published."""
    import uvloop

    uvloop.run(_receive(control, options))


async def _receive(control: Control, options: dict[str, Any]) -> None:
    import nats

    client = await nats.connect(f"nats://127.0.0.1:{options['port']}")
    batch: list[bytes] = []
    meter: Meter | None = None

    async def on_message(message: Any) -> None:
        nonlocal batch
        batch.append(message.data)
        if len(batch) >= BATCH_MESSAGES and meter is not None:
            full, batch = batch, []
            meter.take(full)

    await client.subscribe(SUBJECT, cb=on_message, pending_msgs_limit=0, pending_bytes_limit=0)
    await client.flush()
    control.tell(ready=True)
    window = Window(control.wait_for("go"))
    meter = Meter(control, options["size"], 1, window)
    while not meter.is_over():
        await asyncio.sleep(0.05)
        if time.monotonic() > window.stop and batch:
            last, batch = batch, []
            meter.take(last)
    meter.report()
    await client.close()
