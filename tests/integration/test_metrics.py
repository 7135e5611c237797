"""Metrics and probes of a node on real sockets."""

import asyncio
import contextlib
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

import vivum
from vivum.core.ids import Endpoint
from vivum.runtime.metrics import CONNECTIONS_MAX


async def get(place: Endpoint, path: str) -> tuple[int, str]:
    def ask() -> tuple[int, str]:
        try:
            with urlopen(f"http://{place}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as refused:
            with refused:
                return refused.code, refused.read().decode()

    return await asyncio.to_thread(ask)


def test_a_node_tells_its_counters_and_whether_it_is_ready(domain_name: str) -> None:
    async def scene() -> None:
        async with vivum.connect(domain_name, name="n1") as node:
            place = await node.serve_metrics(Endpoint("127.0.0.1", 0))
            topic = await node.enter("/a", bytes)
            await topic.send(b"x")
            await topic.flush()
            status, text = await get(place, "/metrics")
            assert status == 200
            lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
            labels = f'{{domain="{domain_name}",node="n1"}}'
            assert lines[f"vivum_up{labels}"] == lines[f"vivum_topics{labels}"] == "1"
            assert lines[f"vivum_messages_accepted_total{labels}"] == "1"
            assert await get(place, "/ready") == (200, "ready\n")
            assert await get(place, "/health?x=1") == (200, "alive\n")
            assert (await get(place, "/other"))[0] == 404
        with pytest.raises(OSError, match="refused"):
            await get(place, "/metrics")

    asyncio.run(scene())


def test_a_port_that_is_taken_is_one_sentence_and_leaves_nothing_open(domain_name: str) -> None:
    async def scene() -> None:
        taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = taken.sockets[0].getsockname()[1]
        with pytest.raises(vivum.HostError, match=f"metrics cannot be served at 127.0.0.1:{port}"):
            await vivum.connect(domain_name, metrics=port)
        taken.close()

    asyncio.run(scene())


def test_clients_that_send_nothing_do_not_keep_others_out_for_long(domain_name: str) -> None:
    """Past the limit new ones are closed at once; torn and overlong requests get no answer."""

    async def scene() -> None:
        async with vivum.connect(domain_name) as node:
            place = await node.serve_metrics(Endpoint("127.0.0.1", 0))
            silent = [await asyncio.open_connection(place.host, place.port) for _ in range(CONNECTIONS_MAX)]
            await asyncio.sleep(0)
            reader, writer = await asyncio.open_connection(place.host, place.port)
            assert await reader.read() == b""
            writer.close()
            for _, each in silent:
                each.write(b"x" * 20_000)
            for each, writer in silent:
                with contextlib.suppress(ConnectionError):
                    assert await each.read() == b""
                writer.close()
            assert (await get(place, "/health"))[0] == 200

    asyncio.run(scene())
