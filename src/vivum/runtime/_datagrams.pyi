"""Receive and send many datagrams with one system call. Implemented by `_datagrams.pyx`; `udp.py` works without it."""

from collections.abc import Callable
from typing import TypeVar, final

P = TypeVar("P")

SOCKETS_LOOKED_AT: int
"""The number of sockets that `look` reads. The loop serves the others."""

def waited_since(came_wall_ns: int, now_wall_ns: int, now_mono_ns: int, empty_wall_ns: int, empty_mono_ns: int) -> int:
    """Return how long a datagram has waited that came at a time of the wall clock, after its socket was empty."""

@final
class Receiver:
    """Drains sockets into `bytes` objects.

    Buffers of what was received are used again when nobody has it any more.
    """

    waited_ns: int
    """How long the last datagram that `receive` took had waited in the kernel; unchanged if it took none."""

    def receive(
        self,
        fd: int,
        bytes_max: int,
        cost: int,
        known: dict[int, P],
        make: Callable[[int], P],
        own: int,
        joins: bytes,
        last: int = -1,
    ) -> list[tuple[P, bytes]]:
        """Take what a socket has, up to about `bytes_max` bytes; each datagram counts `cost` bytes besides its own.

        `known` maps addresses (32 bits of host, 16 of port) to the objects returned as sources; `make` makes the object
        of an unknown address. Datagrams from `own`, an address or -1, are dropped.
        Whole frames of one source and one of the kinds in `joins` that came one behind the other are joined, as the
        kernel joins the datagrams of a train (`UDP_GRO`): links and switches that cut trains deliver them one by one.
        A datagram that begins with the byte `last` ends the reading after the system call that brought it: it stands
        for more than its own bytes.
        """

    def look(
        self, fds: list[int], wait_ns: int, known: dict[int, P], make: Callable[[int], P], own: int
    ) -> list[tuple[P, bytes]]:
        """Take one datagram from any of the first 8 sockets; keep looking for `wait_ns`, without sleeping.

        Begins with the socket that had the last one, but after 16 in a row with the next, so that none starves.
        Datagrams from `own` are dropped, except at the first socket. Other threads run meanwhile.
        """

def send(fd: int, payloads: list[bytes], address: bytes) -> int:
    """Send each payload as a datagram, at most 32; return how many the kernel took, at least one.

    `address` is a packed `sockaddr`. Raises what `sendto` would raise for the first payload.
    """

def send_train(fd: int, data: bytes, option: int, segment: int, address: bytes) -> None:
    """Send datagrams of `segment` bytes by one call, the last of which may be shorter. Raises what `sendmsg` would.

    `option` is `UDP_SEGMENT`, `address` a packed `sockaddr`.
    """
