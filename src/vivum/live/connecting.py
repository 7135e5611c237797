"""Joining a domain: `vivum.connect`."""

import os
from collections.abc import Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal

from vivum.core.errors import UsageError
from vivum.core.ids import Endpoint
from vivum.core.limits import Limits
from vivum.core.text import check_text
from vivum.live.failures import NoServiceError
from vivum.live.handle import NodeHandle
from vivum.live.tracing import begin_trace
from vivum.runtime.environment import BUFFER_BYTES, current_environment
from vivum.runtime.lossy import LOSS_MAX
from vivum.runtime.member_host import HostOptions
from vivum.runtime.metrics import metrics_place
from vivum.runtime.polling import POLL_US_MAX
from vivum.runtime.udp import packed_interface
from vivum.wire.gate import domain_tag

JOIN_S = 10.0
"""How long `connect` looks for the service and waits to be admitted."""

BUFFER_BYTES_MAX = 1 << 30
"""More than any system grants: the kernel counts in 31 bits."""

NODE_NAME_CHARACTERS_MAX = 255
"""The longest name of a node."""

POLL_US = 0
"""Never poll by default: no busy loop in a process that did not ask for one."""


class Connecting:
    """A node that is about to join. Await it, or use it with `async with`."""

    def __init__(
        self, domain: str, options: HostOptions, timeout_s: float, trace: Path | None, metrics: Endpoint | None = None
    ) -> None:
        self._domain = domain
        self._metrics = metrics
        self._trace = trace
        self._options = options
        self._timeout_s = timeout_s
        self._node: NodeHandle | None = None

    async def _join(self) -> NodeHandle:
        trace = begin_trace(self._domain, self._options.name, self._trace)
        try:
            node = NodeHandle(self._domain, self._options, trace)
        except BaseException:
            if trace is not None:
                trace.close(0)
            raise
        try:
            if self._metrics is not None:
                # Before the node joins: a probe may ask whether it is ready.
                await node.serve_metrics(self._metrics)
            await node.join(self._timeout_s)
        except NoServiceError as error:
            node.close_now()
            self._explain(error)
            raise
        except BaseException:
            node.close_now()
            raise
        return node

    def _hears_network(self) -> bool:
        options = self._options
        return current_environment().hears_multicast(options.domain, options.interface, probes=1)

    def _explain(self, error: NoServiceError) -> None:
        """Raise an error that says so if the network was down at the start and still is."""
        options = self._options
        if options.awaits_network and not self._hears_network():
            raise NoServiceError(
                f"the node waited for its network: {options.interface} has heard no multicast, not even its own, so no "
                "service was begun; bring the network up, or where it carries no multicast pass seeds= or "
                f"multicast=False ({error})"
            ) from None

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
    domain: str | None = None,
    *,
    name: str | None = None,
    interface: str | None = None,
    port: int = 0,
    seeds: Sequence[str] | None = None,
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
    metrics: int | str | None = None,
) -> Connecting:
    """Join a domain: `async with vivum.connect("demo") as node:` or `node = await vivum.connect("demo")`.

    Domain, interface and seeds that are not given come from the environment (`VIVUM_DOMAIN`, `VIVUM_INTERFACE`,
    `VIVUM_SEEDS`) or from `~/.config/vivum.toml`; else they are "default", loopback and none.
    `interface` is the IPv4 address of the network to use; loopback joins the processes of this computer. The domain's
    service is found by a beacon on a multicast channel, or by asking `seeds`, a list of "host:port" of nodes or
    services. If there is none and `embedded` is true, this node carries one; with seeds, only a node whose own
    `interface` and `port` are among them does. Where IP multicast does not work, `multicast=False` sends every
    receiver its own copy; "probe" tests it. On a network, without seeds, a node whose probe fails keeps probing and
    carries no service until the network works. `ttl` is how many routers multicasts pass, plus one.
    `trace` is a folder where the node writes what it sent and delivered, for `vivum audit`; it costs speed. `loss` is a
    share of what arrives, 0 to 0.5, that is dropped on purpose, to rehearse a bad network.
    `poll_us` keeps the event loop awake for up to this many microseconds for the next message while small messages
    follow each other within that time. It saves waking the process, and keeps a processor busy meanwhile; 200 suits
    requests and answers on one computer. By default the loop sleeps at once. With `shared_memory`, large frames on
    loopback go through memory that the processes of one user share, instead of the kernel; where that is impossible,
    they go as datagrams. With `metrics`, a port on loopback or "address:port", the node serves Prometheus metrics at
    `/metrics` and answers probes at `/health` and `/ready`.
    Raises `NoServiceError` if no service answers within `timeout_s` seconds.
    """
    environment = current_environment()
    given = environment.defaults()
    domain = given.domain if domain is None else domain
    interface = given.interface if interface is None else interface
    seeds = given.seeds if seeds is None else seeds
    if multicast == "probe" and given.unicast:
        multicast = False
    tag = domain_tag(check_text(domain, "domain"))
    if name and len(check_text(name, "name")) > NODE_NAME_CHARACTERS_MAX:
        raise UsageError(f"the name {name[:20]!r}… has {len(name)} characters, over {NODE_NAME_CHARACTERS_MAX}")
    packed_interface(interface)
    if not 0 <= port < 65_536 or not 1 <= ttl < 256:
        raise UsageError(f"port {port} or ttl {ttl} is out of range; ports are 0 to 65535, ttl is 1 to 255")
    if not 0.0 <= loss <= LOSS_MAX:
        raise UsageError(f"loss {loss:g} is out of range; it is a share of what arrives, 0 to {LOSS_MAX:g}")
    if not 0 <= poll_us <= POLL_US_MAX:
        raise UsageError(f"poll_us {poll_us} is out of range; it is 0, for never, to {POLL_US_MAX:,} microseconds")
    if not 0 < buffer_bytes <= BUFFER_BYTES_MAX:
        raise UsageError(f"buffer_bytes {buffer_bytes} is out of range; it is 1 to {BUFFER_BYTES_MAX:,}")
    if multicast not in (True, False, "probe"):
        raise UsageError(f"multicast={multicast!r} is unknown; give True, False or 'probe'")
    if isinstance(seeds, str):
        raise UsageError(f"seeds={seeds!r} is one text; give a list of host:port")
    places = tuple(map(seed_endpoint, seeds))
    wants_multicast = environment.hears_multicast(tag, interface) if multicast == "probe" else multicast
    awaits_network = multicast == "probe" and not (wants_multicast or places or is_loopback(interface))
    if awaits_network:
        # The network may be down only for a moment: do not decide against multicast for the node's whole life.
        wants_multicast = True
    meets = not wants_multicast and not places
    if meets:
        # The nodes of one computer meet at a port that follows from the domain; its owner carries the service.
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
        awaits_network,
    )
    place = None if metrics is None else metrics_place(metrics)
    return Connecting(domain, options, timeout_s, None if trace is None else Path(trace), place)


def is_loopback(interface: str) -> bool:
    """Return whether this is a loopback address."""
    return interface.startswith("127.")


def meeting_port(tag: int) -> int:
    """Return the port at which nodes of one computer meet without multicast: below those that systems hand out."""
    return 10_000 + tag % 20_000


def seed_endpoint(seed: str) -> Endpoint:
    """Read "host:port", with the host as a name or an IPv4 address."""
    host, colon, port = seed.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 65_536:
        raise UsageError(f"seed {seed!r} is not host:port, as in 10.0.0.1:7000")
    try:
        return Endpoint(current_environment().resolve(host), int(port))
    except (OSError, ValueError, TypeError) as error:
        # Also for a host that is not text, has an overlong part, or contains a zero byte.
        cause = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"seed {seed!r}: no address of {host!r} is known ({cause})") from error
