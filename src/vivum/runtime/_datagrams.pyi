"""Many datagrams for one call of the kernel; what `_datagrams.pyx` offers. `udp.py` goes on without it."""

from collections.abc import Callable
from typing import TypeVar, final

P = TypeVar("P")

SOCKETS_LOOKED_AT: int
"""The most sockets that `look` looks at; the loop serves the others."""

@final
class Receiver:
    """Drains sockets into `bytes` objects."""

    def receive(
        self,
        fd: int,
        bytes_max: int,
        cost: int,
        known: dict[int, P],
        make: Callable[[int], P],
        own: int,
        last: int = -1,
    ) -> list[tuple[P, bytes]]:
        """Return what a socket has, up to about `bytes_max`, where each datagram `cost`s some bytes besides its own.

        `known` maps addresses (32 bits of host and 16 of port) to endpoints; `make` makes the endpoint of an unknown
        address. Datagrams from `own`, an address or -1, are left out. Where a datagram begins with the byte `last`, at
        most eight are taken: it stands for more than its bytes.
        """

    def look(
        self, fds: list[int], wait_ns: int, known: dict[int, P], make: Callable[[int], P], own: int
    ) -> list[tuple[P, bytes]]:
        """Return one datagram of any of the first 8 sockets; look again for up to `wait_ns`, without sleeping.

        Begins with the socket that had the last one, but not forever: no socket starves another. Datagrams from `own`
        are left out, except at the first socket. Other threads run meanwhile.
        """

def send(fd: int, payloads: list[bytes], address: bytes) -> int:
    """Send at most 16 datagrams to an address in the kernel's form; return how many it took, at least one.

    Raises what `sendto` would raise for the first.
    """

def send_one(fd: int, data: bytes, address: bytes) -> None:
    """Send one datagram to an address in the kernel's form. Raises what `sendto` raises."""
