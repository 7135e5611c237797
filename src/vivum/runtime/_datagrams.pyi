"""Many datagrams for one call of the kernel; what `_datagrams.pyx` offers. `udp.py` goes on without it."""

from collections.abc import Callable
from typing import TypeVar, final

P = TypeVar("P")

SOCKETS_LOOKED_AT: int
"""So many sockets `look` looks at; the loop serves the others."""

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
        """Take what a socket has, up to about so many bytes where each datagram `cost`s some besides its own.

        `known` maps addresses, 32 bits of host and 16 of port, to what stands for their place; `make` makes that of an
        address that is not known. What comes from `own`, an address or -1, is left out.
        Where one begins with the byte `last`, at most eight are taken: it stands for more than its bytes.
        """

    def look(
        self, fds: list[int], wait_ns: int, known: dict[int, P], make: Callable[[int], P], own: int
    ) -> list[tuple[P, bytes]]:
        """Take one datagram of any of the first 8 sockets, in turn; look again and again for so long, without sleeping.

        It begins with the socket that had the last one, but not for ever: none is starved by another.
        What comes from `own` is left out but at the first socket. Other threads run meanwhile.
        """

def send(fd: int, payloads: list[bytes], address: bytes) -> int:
    """Send each as a datagram to an address as the kernel has it, at most 16; return how many it took, at least one.

    Raises what `sendto` would raise for the first.
    """

def send_one(fd: int, data: bytes, address: bytes) -> None:
    """Send one datagram to an address as the kernel has it. Raises what `sendto` raises."""
