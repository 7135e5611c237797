"""eclipse-zenoh: two kinds of peers over TCP, reliable, and the publisher waits when it is too fast."""

import queue
import time
from typing import Any

from vivum.bench.cell import Cell
from vivum.bench.counting import BATCH_MESSAGES
from vivum.bench.crew import Crew, MissingError, free_port
from vivum.bench.worker import Control, Meter, Window, send_in_batches

LABEL = "eclipse-zenoh, reliable"
KEY = "vivum/bench"


def prepare(_crew: Crew, _cell: Cell) -> dict[str, Any]:
    """Look whether the library is there."""
    try:
        import zenoh  # noqa: F401
    except ImportError:
        raise MissingError("eclipse-zenoh is not installed (pip install eclipse-zenoh)") from None
    return {}


def _open(role: str, endpoint: str) -> Any:
    import zenoh

    config = zenoh.Config()
    config.insert_json5("mode", '"peer"')
    # No discovery: nothing else on this network may take part.
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5(f"{role}/endpoints", f'["{endpoint}"]')
    if role == "connect":
        config.insert_json5("listen/endpoints", "[]")
    return zenoh.open(config)


def send(control: Control, options: dict[str, Any]) -> None:
    """Publish to all who subscribed."""
    import zenoh

    endpoint = f"tcp/{options['interface']}:{free_port(options['interface'])}"
    with _open("listen", endpoint) as session:
        publisher = session.declare_publisher(
            KEY,
            congestion_control=zenoh.CongestionControl.BLOCK,
            reliability=zenoh.Reliability.RELIABLE,
        )
        control.tell(ready=True, endpoint=endpoint)
        control.wait_for("meet")
        while not publisher.matching_status.matching:
            time.sleep(0.02)
        # It tells that somebody subscribed, not how many; the others connected at the same time.
        time.sleep(0.5)
        control.tell(met=True)
        put = publisher.put

        def send_batch(batch: list[bytes]) -> None:
            for payload in batch:
                put(payload)

        send_in_batches(control, options["size"], send_batch)


def receive(control: Control, options: dict[str, Any]) -> None:
    """Take what is published, in the callback of the library's thread."""
    with _open("connect", options["endpoint"]) as session:
        window: Window | None = None
        batch: list[bytes] = []
        full: queue.SimpleQueue[list[bytes]] = queue.SimpleQueue()

        def on_sample(sample: Any) -> None:
            nonlocal batch
            batch.append(sample.payload.to_bytes())
            if len(batch) >= BATCH_MESSAGES:
                full.put(batch)
                batch = []

        subscriber = session.declare_subscriber(KEY, on_sample)
        control.tell(ready=True)
        window = Window(control.wait_for("go"))
        meter = Meter(control, options["size"], 1, window)
        while not meter.is_over():
            try:
                meter.take(full.get(timeout=0.1))
            except queue.Empty:
                # The last batch is not full.
                if time.monotonic() > window.stop and batch:
                    last, batch = batch, []
                    meter.take(last)
        subscriber.undeclare()
        meter.report()
