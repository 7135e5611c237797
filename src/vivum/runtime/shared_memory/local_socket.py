"""A local datagram socket that carries descriptors, and knows which user sent each message.

The kernel guarantees the user and the address, which is unique.
"""

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

MESSAGES_MAX = 64
"""The most messages handled in one turn of the loop, so that a flood cannot stop it."""

_CREDENTIALS = struct.Struct("=iII")
_MESSAGE_BYTES = 64


class LocalMessage(NamedTuple):
    """A message from a process of this machine."""

    data: bytes
    descriptors: list[int]
    """Open while the message is handled."""

    address: bytes
    """The sender's address; empty if it has none."""

    is_ours: bool
    """Whether a process of the same user sent it."""


class LocalSocket:
    """Sends and receives small messages within one machine. Never blocks."""

    def __init__(self, address: bytes) -> None:
        """Open it. Raises `OSError` where a sandbox allows no such sockets."""
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            # Before anybody can send: messages without credentials count as a stranger's.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self.socket.bind(address)
        except OSError:
            self.socket.close()
            raise

    def send(self, address: bytes, data: bytes, descriptor: int | None = None) -> None:
        """Send a message, with a descriptor if there is one. Raises `OSError` if no receiver is there or has room."""
        rights = []
        if descriptor is not None:
            rights.append((socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("=i", descriptor)))
        self.socket.sendmsg([data], rights, 0, address)

    def receive(self) -> Iterator[LocalMessage]:
        """Yield what has arrived. Descriptors are closed after each message."""
        space = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(4)
        for _ in range(MESSAGES_MAX):
            try:
                data, ancillary, _, address = self.socket.recvmsg(_MESSAGE_BYTES, space, socket.MSG_CMSG_CLOEXEC)
            except (BlockingIOError, InterruptedError):
                return
            with contextlib.ExitStack() as stack:
                descriptors, user = _attached(ancillary)
                for each in descriptors:
                    stack.callback(os.close, each)
                origin = address if isinstance(address, bytes) else b""
                yield LocalMessage(data, descriptors, origin, user == os.getuid())

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


def _attached(ancillary: list[tuple[int, int, bytes]]) -> tuple[list[int], int]:
    """Return the descriptors that came with a message, and the user who sent it, -1 if unknown."""
    descriptors, user = [], -1
    for level, kind, data in ancillary:
        if level != socket.SOL_SOCKET:
            continue
        if kind == socket.SCM_RIGHTS:
            descriptors += [number for (number,) in struct.iter_unpack("=i", data[: len(data) // 4 * 4])]
        elif kind == socket.SCM_CREDENTIALS and len(data) == _CREDENTIALS.size:
            user = _CREDENTIALS.unpack(data)[1]
    return descriptors, user
