"""Send large frames of a UDP port through shared memory, and read those of other nodes.

`send` makes frames readable in the node's own memory, where its `builder` sealed them or where they are copied, and
returns the note to send in their place. `read` turns notes into the frames that they stand for, as `bytes`. A node that
does not have the memory of a note asks for it at a local socket, and gets a descriptor if it belongs to the same user.
Strangers get a refusal, and change nothing.
"""

import contextlib
import socket
import struct
from collections.abc import Callable

from vivum.core.ids import Endpoint
from vivum.runtime.port import Arrived
from vivum.runtime.shared_memory import memory
from vivum.runtime.shared_memory.local_socket import LocalMessage, LocalSocket
from vivum.runtime.shared_memory.notes import COMPLAINT_MARK, NOTE_MARK, local_address
from vivum.runtime.shared_memory.other_memories import OtherMemories
from vivum.runtime.shared_memory.own_memory import OwnMemory
from vivum.wire.codec import FrameBuilder

_ASK = b"?"
_REFUSAL = b"-"
_ANSWER = struct.Struct("!4sH")
"""The owner's endpoint, with a descriptor of its memory."""


class SharedMemory:
    """One node's own memory, and those of the nodes that it hears."""

    def __init__(
        self,
        endpoint: Endpoint,
        buffer_bytes: int,
        send_datagram: Callable[[Endpoint, bytes], None],
        *,
        writes: bool,
    ) -> None:
        """Prepare to read, and if `writes` to write for receive buffers of this size.

        `endpoint` is the source of the node's notes; `send_datagram` sends from there, and may fail silently.
        """
        self.refused = 0
        self._endpoint = endpoint
        self._own = OwnMemory(buffer_bytes, writes)
        self._others = OtherMemories(self._ask, send_datagram)
        try:
            self._local: LocalSocket | None = LocalSocket(local_address(self._own.key))
        except OSError:
            # Nobody could ask for this node's memory. By complaints others learn that it cannot read theirs.
            self._local = None
            self._own.close()

    @property
    def frames_sent(self) -> int:
        """Frames that were sent through shared memory."""
        return self._own.frames_written

    @property
    def frames_missed(self) -> int:
        """Frames that were overwritten before they were read, or whose memory was not available."""
        return self._others.frames_missed

    @property
    def strangers_refused(self) -> int:
        """Notes, complaints, questions and answers that were dropped: malformed, not for us, or from a stranger."""
        return self.refused + self._others.refused

    @property
    def is_open(self) -> bool:
        """Whether large frames are sent through shared memory now."""
        return self._own.is_open

    @property
    def local(self) -> socket.socket | None:
        """The socket at which others ask for memory; `on_local_readable` serves it."""
        return None if self._local is None else self._local.socket

    def close(self) -> None:
        """Close everything. May be called again."""
        if self._local is not None:
            self._local.close()
            self._local = None
        self._own.close()
        self._others.close()

    def builder(self, capacity: int) -> FrameBuilder | None:
        """Return a builder that seals frames in the slots; None if frames of this size do not use them."""
        slots = self._own.slots
        if slots is None or not slots.frame_bytes_min <= capacity <= slots.frame_bytes_max:
            return None
        return FrameBuilder(capacity, slots)

    # What the port sends and receives.

    def send(self, frames: list[bytes]) -> tuple[bytes, int]:
        """Return a note to send in place of the first frames, and how many; 0 if they must go as datagrams."""
        return self._own.put(frames)

    def read(self, source: Endpoint, data: bytes, taken: Arrived) -> bool:
        """Append what a datagram that begins with `MARK` stands for; return whether it was a note."""
        if data.startswith(NOTE_MARK):
            self._others.read(source, data, taken)
            return True
        if not data.startswith(COMPLAINT_MARK):
            # Random bytes: the gate counts them.
            taken.append((source, data))
        elif not self._own.on_complaint(data):
            self.refused += 1
        return False

    # What comes by the local socket.

    def on_local_readable(self) -> Arrived:
        """Answer requests for our memory, map memory that we asked for; return the frames that waited for it."""
        taken: Arrived = []
        if self._local is not None:
            for message in self._local.receive():
                if message.data == _ASK:
                    self._answer(self._local, message)
                else:
                    self._accept(message, taken)
        return taken

    def _ask(self, address: bytes) -> bool:
        if self._local is None:
            return False
        try:
            self._local.send(address, _ASK)
        except BlockingIOError:
            # Its queue is full. Ask again with a later note.
            return True
        except OSError:
            # Nobody is there: it has ended, or is in a container that shares only the network with us.
            return False
        return True

    def _answer(self, local: LocalSocket, message: LocalMessage) -> None:
        if not (message.is_ours and message.address):
            self.refused += 1
        if not message.address:
            return
        # If the answer is lost, it is asked for again.
        with contextlib.suppress(OSError):
            if message.is_ours and self._own.descriptor >= 0:
                host, port = self._endpoint
                answer = _ANSWER.pack(socket.inet_aton(host), port)
                local.send(message.address, answer, self._own.descriptor)
            else:
                # So that it complains, if it was sent a note.
                local.send(message.address, _REFUSAL)

    def _accept(self, message: LocalMessage, taken: Arrived) -> None:
        owner = reader = None
        if message.is_ours and len(message.data) == _ANSWER.size:
            host, port = _ANSWER.unpack(message.data)
            owner = Endpoint(socket.inet_ntoa(host), port)
            reader = memory.open_memory(message.descriptors)
        self._others.on_answer(message.address, owner, reader, taken)


def fault() -> str:
    """Return why nodes of this machine cannot share memory; an empty text if they can."""
    if not memory.IS_AVAILABLE:
        return "the compiled part was not built, or is turned off by VIVUM_PURE"
    shared = SharedMemory(Endpoint("127.0.0.1", 0), 0, lambda *_: None, writes=True)
    try:
        if shared.local is None:
            return "no local sockets are allowed here"
        return "" if shared.is_open else "no memory that can be shared and sealed"
    finally:
        shared.close()
