"""pyzmq: PUB/SUB over TCP. `XPUB` with `XPUB_NODROP` is a `PUB` that waits instead of dropping at its mark."""

from typing import Any

from vivum.bench.cell import Cell
from vivum.bench.counting import BATCH_MESSAGES
from vivum.bench.crew import Crew, MissingError
from vivum.bench.worker import Control, Meter, Window, send_in_batches

LABEL = "pyzmq PUB/SUB, TCP"
HIGH_WATER_MARK = 100_000


def prepare(_crew: Crew, _cell: Cell) -> dict[str, Any]:
    """Look whether the library is there."""
    try:
        import zmq  # noqa: F401
    except ImportError:
        raise MissingError("pyzmq is not installed (pip install pyzmq)") from None
    return {}


def send(control: Control, options: dict[str, Any]) -> None:
    """Publish to all who subscribed."""
    import zmq

    context = zmq.Context()
    socket = context.socket(zmq.XPUB)
    socket.setsockopt(zmq.XPUB_NODROP, 1)
    # Every subscription is told, not only the first of its kind: we count them.
    socket.setsockopt(zmq.XPUB_VERBOSE, 1)
    socket.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
    address = f"tcp://{options['interface']}"
    port = socket.bind_to_random_port(address)
    control.tell(ready=True, endpoint=f"{address}:{port}")
    control.wait_for("meet")
    for _ in range(options["receivers"]):
        socket.recv()
    control.tell(met=True)
    put = socket.send

    def send_batch(batch: list[bytes]) -> None:
        for payload in batch:
            put(payload)

    send_in_batches(control, options["size"], send_batch)


def receive(control: Control, options: dict[str, Any]) -> None:
    """Take what is published."""
    import zmq

    context = zmq.Context()
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK)
    socket.setsockopt(zmq.RCVTIMEO, 100)
    socket.setsockopt(zmq.SUBSCRIBE, b"")
    socket.connect(options["endpoint"])
    control.tell(ready=True)
    meter = Meter(control, options["size"], 1, Window(control.wait_for("go")))
    take = socket.recv
    batch: list[bytes] = []
    while not meter.is_over():
        try:
            for _ in range(BATCH_MESSAGES):
                batch.append(take())
        except zmq.Again:
            pass
        meter.take(batch)
        batch = []
    meter.report()
