"""What the kernel knows of other processes of this computer: whether anybody has a UDP port.

A process that died has none, at once, while its silence takes seconds to mean anything. Linux lists the sockets of the
network namespace; elsewhere nothing is known, and nobody is found gone.
"""

import socket
import struct
from collections.abc import Collection

from vivum.core.ids import Endpoint

SOCKETS = "/proc/net/udp"
ANY_ADDRESS = "00000000"


def endpoints_gone(endpoints: Collection[Endpoint], listing: str = SOCKETS) -> list[Endpoint]:
    """Return those of these endpoints of this computer that no process has."""
    try:
        with open(listing, encoding="ascii") as file:
            lines = file.read().splitlines()[1:]
    except OSError:
        return []
    bound = {line.split(maxsplit=2)[1] for line in lines}
    found: list[Endpoint] = []
    for each in endpoints:
        address = f"{struct.unpack('=I', socket.inet_aton(each.host))[0]:08X}"
        if f"{address}:{each.port:04X}" not in bound and f"{ANY_ADDRESS}:{each.port:04X}" not in bound:
            found.append(each)
    return found
