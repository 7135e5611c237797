"""What a node takes from its environment: a port, multicast or none, randomness, a name, a sink for its trace.

`ThisComputer` is the real environment, with UDP sockets and the system's randomness. Programs in a simulated process
have another (`vivum.testing`). The current one is in a context variable, so that `vivum.connect()` needs no argument
for it.
"""

import os
import random
import secrets
import socket
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Protocol

from vivum.observe.trace import TraceRecord
from vivum.runtime.defaults import Defaults, read_defaults
from vivum.runtime.heap import HeapReserve
from vivum.runtime.interfaces import PROBES, hears_multicast, payload_bytes_of
from vivum.runtime.lossy import LossyPort
from vivum.runtime.port import Port
from vivum.runtime.shared_memory.shared_memory import SharedMemory
from vivum.runtime.udp import UdpPort

BUFFER_BYTES = 8 * 1024 * 1024
"""Size requested for each socket's buffers. The system may grant less; `vivum doctor` says so."""


class NodePort(Port, Protocol):
    """A port, with the facts that a live node needs about it."""

    shared_memory: SharedMemory | None
    """Memory shared with other nodes of this computer, or None."""

    lost_on_purpose: int
    """Arrived datagrams that were dropped on purpose."""

    unsendable: int
    """Datagrams that the system refused to send."""

    receive_buffer_bytes: int
    """The receive buffer that the system granted."""


class TraceSink(Protocol):
    """Where a node's trace goes."""

    def __call__(self, record: TraceRecord) -> None:
        """Take one record."""
        ...

    def close(self) -> None:
        """Write the rest. Raises `VivumError` if records are missing. May be called again."""
        ...


class Environment(Protocol):
    """The environment of a node."""

    polls: bool
    """Whether keeping the event loop awake can save time."""

    def address(self, interface: str) -> str:
        """Return the address by which others reach this interface."""
        ...

    def resolve(self, host: str) -> str:
        """Return the address of a host. Raises `OSError` if there is none."""
        ...

    def hears_multicast(self, domain: int, interface: str, probes: int = PROBES) -> bool:
        """Return whether multicast works on an interface, after at most this many tries."""
        ...

    def payload_bytes(self, interface: str) -> int:
        """Return the largest datagram that leaves an interface unfragmented, in bytes."""
        ...

    def open_port(
        self,
        domain: int,
        interface: str,
        *,
        port: int = 0,
        buffer_bytes: int = BUFFER_BYTES,
        ttl: int = 1,
        multicast: bool = True,
        shared_memory: bool | None = None,
        loss: float = 0.0,
    ) -> NodePort:
        """Open a port; the options are those of `UdpPort` and `LossyPort`. Raises `HostError` if it is taken."""
        ...

    def reserve_heap(self) -> HeapReserve | None:
        """Keep free heap for the messages of one node; return None where that saves nothing."""
        ...

    def random(self) -> random.Random:
        """Make a source of randomness."""
        ...

    def default_name(self) -> str:
        """Make a name for a node that has none, different in every start of a program."""
        ...

    def defaults(self) -> Defaults:
        """Return what stands for arguments of `connect` that were not given."""
        ...

    def trace_sink(self, domain: str) -> TraceSink | None:
        """Return a sink for a new node's trace, besides the one that its program asks for; None for no other."""
        ...


class ThisComputer:
    """The computer that the interpreter runs on."""

    polls = True

    def address(self, interface: str) -> str:
        """Return the interface itself: its name is its address."""
        return interface

    def resolve(self, host: str) -> str:
        """Ask the system's resolver."""
        return socket.gethostbyname(host)

    def hears_multicast(self, domain: int, interface: str, probes: int = PROBES) -> bool:
        """Send probes on the interface."""
        return hears_multicast(domain, interface, probes)

    def payload_bytes(self, interface: str) -> int:
        """Return the payload that fits the interface's MTU."""
        return payload_bytes_of(interface)

    def open_port(
        self,
        domain: int,
        interface: str,
        *,
        port: int = 0,
        buffer_bytes: int = BUFFER_BYTES,
        ttl: int = 1,
        multicast: bool = True,
        shared_memory: bool | None = None,
        loss: float = 0.0,
    ) -> NodePort:
        """Open UDP sockets."""
        made = partial(LossyPort, loss) if loss else UdpPort
        return made(
            domain,
            interface,
            port=port,
            buffer_bytes=buffer_bytes,
            ttl=ttl,
            multicast=multicast,
            shared_memory=shared_memory,
        )

    def reserve_heap(self) -> HeapReserve | None:
        """Reserve what a node at full rate needs."""
        return HeapReserve()

    def random(self) -> random.Random:
        """Make a source seeded by the system."""
        return random.Random()

    def default_name(self) -> str:
        """Join host name, process id, and a random part."""
        return f"{socket.gethostname()[:100]}/{os.getpid()}/{secrets.token_hex(4)}"

    def defaults(self) -> Defaults:
        """Return those of the user's environment variables and file."""
        return read_defaults()

    def trace_sink(self, domain: str) -> TraceSink | None:  # noqa: ARG002
        """Return None: only the program decides whether it is traced."""
        return None


_CURRENT: ContextVar[Environment] = ContextVar("vivum environment", default=ThisComputer())  # noqa: B039

current_environment: Callable[[], Environment] = _CURRENT.get
"""Return the environment of the running task or callback."""

set_environment = _CURRENT.set
"""Set the environment of the current context, and of all tasks and callbacks that are started in it."""
