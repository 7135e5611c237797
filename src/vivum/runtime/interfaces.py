"""Find out what a network interface carries: its largest datagram, and whether multicast works on it."""

import errno
import fcntl
import select
import socket
import struct
from contextlib import closing

from vivum.core.errors import HostError, VivumError
from vivum.core.ids import Channel
from vivum.core.machine import Datagram
from vivum.runtime.udp import UdpPort, no_socket_error, packed_interface

SIOCGIFADDR = 0x8915
SIOCGIFMTU = 0x8921

HEADERS_BYTES = 28
"""IP and UDP headers of one datagram."""

PAYLOAD_BYTES_DEFAULT = 1472
PAYLOAD_BYTES_MAX = 65_000
"""The largest payload on loopback and jumbo links: below UDP's 65,507, with room for what repair adds."""

PROBES = 20
"""How many multicasts must go unheard before multicast counts as broken: a lossy network may lose a single one."""

PROBE_S = 0.01
"""How long to wait for the echo of each probe; within one computer it takes microseconds."""

PROBE_CHANNEL = Channel(65_535)

_REQUEST = struct.Struct("16s240x")


def mtu_of(interface: str) -> int | None:
    """Return the MTU of the interface that has this IPv4 address, in bytes; None if it cannot be found."""
    wanted = packed_interface(interface)
    try:
        return _mtu_of(wanted)
    except OSError as error:
        raise no_socket_error(error) from error


def _mtu_of(wanted: bytes) -> int | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            request = _REQUEST.pack(name.encode()[:15])
            try:
                found = fcntl.ioctl(any_socket, SIOCGIFADDR, request)
                if found[20:24] == wanted or (wanted[0] == 127 and found[20] == 127):
                    (mtu,) = struct.unpack_from("=i", fcntl.ioctl(any_socket, SIOCGIFMTU, request), 16)
                    return int(mtu)
            except OSError:
                # An interface without an IPv4 address.
                continue
    return None


def payload_bytes_of(interface: str) -> int:
    """Return the largest UDP payload that leaves this interface unfragmented, in bytes, up to `PAYLOAD_BYTES_MAX`."""
    mtu = mtu_of(interface)
    return PAYLOAD_BYTES_DEFAULT if mtu is None else max(512, min(mtu - HEADERS_BYTES, PAYLOAD_BYTES_MAX))


def hears_multicast(domain: int, interface: str, probes: int = PROBES) -> bool:
    """Send multicasts on the interface; return whether another socket of this computer hears one of them.

    Shows whether this computer can send and hear multicast now, not what switches and clouds do with it. Takes up to
    10 ms for each of the `probes`; one is enough for a caller that repeats the test.
    Raises `HostError` if there are too few descriptors for the test.
    """
    try:
        with closing(UdpPort(domain, interface)) as sender, closing(UdpPort(domain, interface)) as listener:
            listener.listen(PROBE_CHANNEL)
            for _ in range(probes):
                sender.send([Datagram(PROBE_CHANNEL, b"probe")])
                if any(select.select(listener.sockets[1:], [], [], PROBE_S)):
                    return True
            return False
    except HostError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.EMFILE, errno.ENFILE):
            raise
        return False
    except (VivumError, OSError, ValueError):
        return False
