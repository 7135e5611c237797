"""A small HTTP server for metrics and probes: `/metrics` as Prometheus reads it, `/health` and `/ready`.

On the event loop of what it tells about: a loop that hangs does not answer, which is what a liveness probe is to find.
Answers GET requests and closes; keeps no connection. Nobody is asked who they are, so the default is loopback.

Limits: `CONNECTIONS_MAX` at once, more are closed at once; a request has `REQUEST_BYTES_MAX` and `REQUEST_S`.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vivum.core.errors import HostError, UsageError
from vivum.core.ids import Endpoint
from vivum.runtime.defaults import LOOPBACK

CONNECTIONS_MAX = 16
REQUEST_BYTES_MAX = 8192
REQUEST_S = 5.0

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Metric:
    """One number. Its name has no prefix; that of a counter ends in `_total`."""

    name: str
    help: str
    value: float
    is_counter: bool = False


def metrics_place(place: str | int) -> Endpoint:
    """Read a port on loopback (9100), or "address:port". Raises `UsageError` for anything else."""
    host, colon, port = str(place).rpartition(":")
    if not (port.isascii() and port.isdecimal()) or int(port) > 65_535 or bool(host) != bool(colon):
        raise UsageError(f"metrics {place!r}: give a port, as in 9100, or address:port, as in 10.0.0.5:9100")
    return Endpoint(host or LOOPBACK, int(port))


def metrics_text(metrics: Sequence[Metric], labels: dict[str, str]) -> str:
    """Write metrics in Prometheus's text format, all with the same labels."""
    marks = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    lines = []
    for each in metrics:
        name = f"vivum_{each.name}"
        lines.append(f"# HELP {name} {each.help}")
        lines.append(f"# TYPE {name} {'counter' if each.is_counter else 'gauge'}")
        lines.append(f"{name}{{{marks}}} {each.value:g}" if each.value % 1 else f"{name}{{{marks}}} {int(each.value)}")
    return "\n".join([*lines, ""])


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class MetricsServer:
    """Answers for one node or service. `text` makes the metrics, `is_ready` tells whether it can serve."""

    def __init__(self, text: Callable[[], str], is_ready: Callable[[], bool]) -> None:
        self._text = text
        self._is_ready = is_ready
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def start(self, place: Endpoint) -> Endpoint:
        """Listen; return where. Raises `HostError` if the port is taken."""
        try:
            self._server = await asyncio.start_server(self._answer, place.host, place.port, limit=REQUEST_BYTES_MAX)
        except OSError as error:
            raise HostError(
                f"metrics cannot be served at {place}: {error.strerror or error}; give another port"
            ) from error
        return Endpoint(*self._server.sockets[0].getsockname()[:2])

    def close(self) -> None:
        """Stop listening, and close what is open. May be called again."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for each in list(self._open):
            each.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= CONNECTIONS_MAX:
            writer.close()
            return
        self._open.add(writer)
        try:
            async with asyncio.timeout(REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                status, kind, body = self._reply(head.split(b"\r\n", 1)[0].split(b" "))
                answer = (
                    f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
                )
                writer.write(f"{answer}\r\n".encode() + body)
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # A client that is slow, gone or sends no request gets no answer.
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    def _reply(self, words: list[bytes]) -> tuple[str, str, bytes]:
        if len(words) != 3 or words[0] != b"GET":
            return "405 Method Not Allowed", "text/plain", b"only GET\n"
        match words[1].partition(b"?")[0]:
            case b"/metrics":
                return "200 OK", TEXT_TYPE, self._text().encode()
            case b"/health":
                return "200 OK", "text/plain", b"alive\n"
            case b"/ready":
                if self._is_ready():
                    return "200 OK", "text/plain", b"ready\n"
                return "503 Service Unavailable", "text/plain", b"not in the domain\n"
        return "404 Not Found", "text/plain", b"there are /metrics, /health and /ready\n"
