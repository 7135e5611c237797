"""redis-py pub/sub, with pipelines, through a redis-server on a free port."""

import time
from typing import Any

from vivum.bench.cell import Cell
from vivum.bench.counting import BATCH_MESSAGES
from vivum.bench.crew import Crew, MissingError, free_port
from vivum.bench.worker import Control, Meter, Window, send_in_batches

LABEL = "redis-py, redis-server"
CHANNEL = b"vivum bench"


def prepare(crew: Crew, _cell: Cell) -> dict[str, Any]:
    """Start the server, without files and without a limit on what waits for a subscriber."""
    try:
        import redis  # noqa: F401
    except ImportError:
        raise MissingError("redis is not installed (pip install redis hiredis)") from None
    port = free_port()
    limit = ["--client-output-buffer-limit", "pubsub 0 0 0"]
    command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no", *limit]
    crew.serve(command, port)
    return {"port": port}


def send(control: Control, options: dict[str, Any]) -> None:
    """Publish to all who subscribed, a batch in one round trip."""
    import redis

    client = redis.Redis(port=options["port"])
    control.tell(ready=True)
    control.wait_for("meet")
    while client.pubsub_numsub(CHANNEL)[0][1] < options["receivers"]:
        time.sleep(0.02)
    control.tell(met=True)

    def send_batch(batch: list[bytes]) -> None:
        pipeline = client.pipeline(transaction=False)
        for payload in batch:
            pipeline.publish(CHANNEL, payload)
        pipeline.execute()

    send_in_batches(control, options["size"], send_batch)


def receive(control: Control, options: dict[str, Any]) -> None:
    """Take what is published."""
    import redis

    subscription = redis.Redis(port=options["port"]).pubsub()
    subscription.subscribe(CHANNEL)
    while (first := subscription.parse_response()) is None or first[0] != b"subscribe":
        pass
    control.tell(ready=True)
    meter = Meter(control, options["size"], 1, Window(control.wait_for("go")))
    # Below `get_message`, which makes a dictionary of every message: the fastest way that the library offers.
    take = subscription.parse_response
    batch: list[bytes] = []
    while not meter.is_over():
        # Not with a timeout of the socket: past it the library connects again, and what comes meanwhile is lost.
        while len(batch) < BATCH_MESSAGES and (response := take(block=False, timeout=0.1)) is not None:
            batch.append(response[2])
        meter.take(batch)
        batch = []
    meter.report()
