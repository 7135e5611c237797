"""Joining a domain: `vivum.connect`."""

import os
from collections.abc import Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal

from vivum.core.errors import UsageError
from vivum.core.ids import Endpoint
from vivum.core.limits import Limits
from vivum.live.handle import NodeHandle
from vivum.live.tracing import begin_trace
from vivum.runtime.environment import BUFFER_BYTES, current_environment
from vivum.runtime.lossy import LOSS_MAX
from vivum.runtime.member_host import HostOptions
from vivum.runtime.polling import POLL_US_MAX
from vivum.wire.gate import domain_tag

LOOPBACK = "127.0.0.1"

JOIN_S = 10.0
"""How long `connect` looks for the service and waits for a place."""

POLL_US = 200
"""How long a node polls for the next small message before it sleeps, where answers come within that time."""


class Connecting:
    """A node that is about to join: await it, or use it with `async with`."""

    def __init__(self, domain: str, options: HostOptions, timeout_s: float, trace: Path | None) -> None:
        self._domain = domain
        self._trace = trace
        self._options = options
        self._timeout_s = timeout_s
        self._node: NodeHandle | None = None

    async def _join(self) -> NodeHandle:
        trace = begin_trace(self._domain, self._options.name, self._trace)
        node = NodeHandle(self._domain, self._options, trace)
        try:
            await node.join(self._timeout_s)
        except BaseException:
            node.close_now()
            raise
        return node

    def __await__(self) -> Generator[object, None, NodeHandle]:
        return self._join().__await__()

    async def __aenter__(self) -> NodeHandle:
        self._node = await self._join()
        return self._node

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._node is not None:
            await self._node.close()


def connect(
    domain: str = "default",
    *,
    name: str | None = None,
    interface: str = LOOPBACK,
    port: int = 0,
    seeds: Sequence[str] = (),
    embedded: bool = True,
    multicast: bool | Literal["probe"] = "probe",
    ttl: int = 1,
    timeout_s: float = JOIN_S,
    buffer_bytes: int = BUFFER_BYTES,
    limits: Limits | None = None,
    trace: str | os.PathLike[str] | None = None,
    loss: float = 0.0,
    poll_us: int = POLL_US,
    shared_memory: bool = True,
) -> Connecting:
    """Join a domain: `async with vivum.connect("demo") as node:` or `node = await vivum.connect("demo")`.

    `interface` is the IPv4 address of the network to use; loopback joins the processes of this computer. The domain's
    service is found by a beacon on a multicast channel, or by asking `seeds`, a list of "host:port" of nodes or
    services. If there is none and `embedded` is true, this node carries one; with seeds, only a node whose own
    `interface` and `port` are among them does. Where IP multicast does not work, `multicast=False` sends every
    receiver its own copy; "probe" tries it out. `ttl` is how many routers multicasts pass, plus one.
    `trace` is a folder where the node writes what it sent and delivered, for `vivum audit`; it costs speed. `loss` is a
    share of what arrives, 0 to 0.5, that is thrown away on purpose, to rehearse a bad network.
    `poll_us` is how many microseconds the event loop is kept awake for the next message, where small ones come within
    that time one after the other: it saves the waking, and takes a processor that nobody else wants while they come. 0
    lets the loop sleep at once. With `shared_memory`, large frames on loopback go through memory that the processes of
    one user share, and not through the kernel; where that cannot be, they go as all else does.
    Raises `NoServiceError` if no service answers within `timeout_s` seconds.
    """
    tag = domain_tag(domain)
    if not 0 <= port < 65_536 or not 1 <= ttl < 256:
        raise UsageError(f"port {port} or ttl {ttl} is out of range; ports are 0 to 65535, ttl is 1 to 255")
    if not 0.0 <= loss <= LOSS_MAX:
        raise UsageError(f"loss {loss:g} is out of range; it is a share of what arrives, 0 to {LOSS_MAX:g}")
    if not 0 <= poll_us <= POLL_US_MAX:
        raise UsageError(f"poll_us {poll_us} is out of range; it is 0, for never, to {POLL_US_MAX:,} microseconds")
    environment = current_environment()
    places = tuple(map(seed_endpoint, seeds))
    wants_multicast = environment.hears_multicast(tag, interface) if multicast == "probe" else multicast
    meets = not wants_multicast and not places
    if meets:
        # The nodes of one computer meet at a port that follows from the domain: who has it carries the service.
        places = (Endpoint(environment.address(interface), meeting_port(tag)),)
    options = HostOptions(
        tag,
        name or environment.default_name(),
        interface,
        port,
        places,
        meets,
        embedded,
        wants_multicast,
        ttl,
        buffer_bytes,
        limits or Limits(),
        loss,
        poll_us * 1000 if environment.polls else 0,
        shared_memory,
    )
    return Connecting(domain, options, timeout_s, None if trace is None else Path(trace))


def meeting_port(tag: int) -> int:
    """Tell the port at which the nodes of one computer meet without multicast: below those that systems give away."""
    return 10_000 + tag % 20_000


def seed_endpoint(seed: str) -> Endpoint:
    """Read "host:port", with the host as a name or an IPv4 address."""
    host, colon, port = seed.rpartition(":")
    if not colon or not port.isdigit() or not 0 < int(port) < 65_536:
        raise UsageError(f"seed {seed!r} is not host:port, as in 10.0.0.1:7000")
    try:
        return Endpoint(current_environment().resolve(host), int(port))
    except OSError as error:
        raise UsageError(f"seed {seed!r}: no address of {host!r} is known ({error.strerror})") from error
