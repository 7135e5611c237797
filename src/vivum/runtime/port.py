"""The interface between a driver and a network: UDP sockets on a real computer, a simulated link in tests."""

from collections.abc import Callable, Sequence
from typing import Protocol

from vivum.core.ids import Channel, Endpoint
from vivum.core.machine import Datagram

Arrived = list[tuple[Endpoint, bytes]]
"""Arrived buffers with their sources; each is one datagram, or several that the kernel joined."""


class Port(Protocol):
    """One node's access to the network. Never blocks; calls back when there is something to do."""

    endpoint: Endpoint
    """The endpoint for unicast datagrams."""

    @property
    def waited_ns(self) -> int:
        """How long the data that was taken last had waited here, or less; 0 where that is not known."""
        ...

    def now_ns(self) -> int:
        """Return the node's time: nanoseconds since 1970, never going back."""
        ...

    def attach(self, on_readable: Callable[[], None]) -> None:
        """Call back, from the current event loop, whenever something can be read."""
        ...

    def receive(self, bytes_max: int) -> Arrived:
        """Take what has arrived, up to about this many bytes."""
        ...

    def look(self, wait_ns: int) -> Arrived:
        """Take one datagram. If there is none, keep looking for at most this long, without sleeping."""
        ...

    def send(self, datagrams: Sequence[Datagram]) -> Sequence[Datagram]:
        """Send datagrams in order; return those for which there was no room.

        Of a train that stopped in the middle the rest comes back, as a train. What can never be sent (too large, no
        route, not an address) is dropped and counted.
        """
        ...

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Call back once when there is room again."""
        ...

    def listen(self, channel: Channel) -> None:
        """Listen on a channel from now on."""
        ...

    def unlisten(self, channel: Channel) -> None:
        """Stop listening on a channel."""
        ...

    def close(self) -> None:
        """Close everything and drop callbacks. May be called again."""
        ...
