"""Large frames between the nodes of one machine: in shared memory, not through the kernel.

The kernel copies a datagram of 64 KB twice for one receiver, into pages that are in no cache: half of what a frame
costs a sender. So a node on loopback seals large frames on a *board*, memory that others may read, and sends a
*note* that says where they are. To all above it is a network like any other: who reads too late finds the slot used
for another frame, which is a lost datagram, and is repaired as one. Repairs, small frames and all else go as
datagrams.

Who hears a note of a board that it does not have asks for it at a local socket whose name follows from the board's,
and gets a descriptor of the memory. Nothing has a name in a file system, so nothing is left behind however a process
ends. Notes wait for the answer. Both sides must be of one user. The memory can neither be written nor shrunk by who
gets it, and who gets it makes sure of the latter, since to read what is not there any more would end the process. If
it does not come to that, for another user, another container, or a build without the compiled part, the listener
complains, and the sender goes back to datagrams for a while: what was lost meanwhile is repaired.
"""

import contextlib
import fcntl
import mmap
import os
import secrets
import socket
import struct
import time
from collections import deque
from typing import TYPE_CHECKING

from vivum.core.ids import Endpoint
from vivum.wire.codec import COMPILED

if TYPE_CHECKING:
    from vivum.runtime import _board
    from vivum.wire import _slots

    READABLE: bool
else:
    try:
        from vivum.runtime import _board
        from vivum.wire import _slots
    except ImportError:
        _board = None
    READABLE = _board is not None and COMPILED and hasattr(os, "memfd_create")

BOARD_FRAME_BYTES_MIN = 32_768
"""Smaller frames are not worth it."""

NOTE_FRAMES_MAX = 8
"""Frames for one note: what a receiver handles at once."""

SLOTS_MIN = 16
"""Slots of a board, however small receive buffers are."""

KEPT_BYTES = 64 << 20
"""Frames that are kept for members that sleep or are behind. Memory that was never needed is not taken."""

BOARDS_MAX = 64
"""Boards of others that a node keeps; at the limit the one that was silent for longest goes."""

HELD_NOTES_MAX = 64
"""Notes that wait for their boards. What comes beyond that is lost."""

ASK_S = 0.1
"""How long an answer may take before a board is asked for again, and the least time between two complaints."""

ASKED_MAX = 64
"""Boards that are asked for at once: who makes up names does not get further."""

PLAIN_S = 10.0
PLAIN_S_MAX = 600.0
"""For how long a sender does without its board after a complaint; each time for twice as long, up to the limit."""

SILENT_S = 10.0
"""A board from which nothing came for so long is let go when another comes: its owner may be gone."""

BOARD_MARK = b"\xb6"
"""What notes and complaints begin with; frames begin with their version."""

NOTE_MARK = BOARD_MARK + b"VBN"
NOTE = struct.Struct("=4sIQ")
"""Mark, number of frames, name of the board; then 8 bytes for each frame."""

STAMP_BYTES = 8

COMPLAINT_MARK = BOARD_MARK + b"VBC"
COMPLAINT = struct.Struct("=4sQ")

_ANSWER = struct.Struct("=Q")
_CREDENTIALS = struct.Struct("=iII")

F_SEAL_FUTURE_WRITE = 0x10
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | F_SEAL_FUTURE_WRITE


class Boards:
    """One node's own board, and those of the nodes that it hears."""

    def __init__(self, buffer_bytes: int, writes: bool = True) -> None:
        """Prepare to read, and to write if it `writes`, to those who have receive buffers of so many bytes."""
        self.written = 0
        """Frames that went this way."""

        self.missed = 0
        """Frames that were written over before they were read, or whose board could not be had."""

        self.refused = 0
        """Notes and answers that nobody can have meant for us."""

        self.name = secrets.randbits(64)
        self.socket = self._open()
        self.slots: _slots.SlotPool | None = None
        """Where large frames should be made, so that they need not be copied."""

        self._descriptor = -1
        self._written: bytes | None = None
        self._note = (b"", 0)
        # Without the local socket nobody could ask for the board.
        can_write = writes and READABLE and self.socket is not None and self._make(buffer_bytes)
        self._plain_until = 0.0 if can_write else float("inf")
        self._plain_s = PLAIN_S
        # By name: where the owner is, the board, and when it was read last.
        self._others: dict[int, tuple[Endpoint, _board.Board]] = {}
        self._read_at: dict[int, float] = {}
        self._held: deque[tuple[Endpoint, bytes, int]] = deque()
        self._asked: dict[int, tuple[float, Endpoint]] = {}

    def _open(self) -> socket.socket | None:
        """Open the local socket; None where a sandbox allows none: then others are told that we cannot read."""
        try:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        except OSError:
            return None
        try:
            made.bind(_address(self.name))
            made.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        except OSError:
            made.close()
            return None
        return made

    def close(self) -> None:
        """Let everything go."""
        if self.socket is not None:
            self.socket.close()
        self._others.clear()
        # Frames that somebody still has keep their memory.
        self.slots = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    # Out.

    @property
    def is_open(self) -> bool:
        """Tell whether large frames may be written: nobody complained of late."""
        return not self._plain_until or time.monotonic() >= self._plain_until

    def write(self, frames: list[bytes]) -> tuple[bytes, int]:
        """Show the first frames; return the note to send for them and how many it is of, none if no slot is free."""
        if self.slots is None:
            return b"", 0
        if frames[0] is not self._written or len(frames) > 1:
            # Where everybody gets a copy of its own, one frame comes again and again.
            self._note = _board.write(self.slots, self.name, frames)
            self.written += self._note[1]
            self._written = frames[0] if len(frames) == 1 and type(frames[0]) is bytes else None
        return self._note

    def _make(self, buffer_bytes: int) -> bool:
        # Copies rest in as much memory as receive buffers have; a window is half of that. Beside them what is kept for
        # those who sleep, what is under way, and what is not known to be old yet: a frame is where it was made as long
        # as anybody may ask for it.
        copies = max(SLOTS_MIN, buffer_bytes // _slots.SLOT_BYTES)
        size = (KEPT_BYTES // _slots.SLOT_BYTES + 3 * copies) * _slots.SLOT_BYTES
        try:
            self._descriptor = os.memfd_create("vivum", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(self._descriptor, size)
            memory = mmap.mmap(self._descriptor, size)
            fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, SEALS)
        except OSError:
            # No memory, or a kernel before 5.1: datagrams serve.
            return False
        self.slots = _slots.SlotPool(memory, copies)
        return True

    def on_complaint(self, data: bytes) -> None:
        """Somebody cannot read the board: do without it for a while."""
        if len(data) == COMPLAINT.size and COMPLAINT.unpack(data)[1] == self.name:
            self._go_plain()
        else:
            self.refused += 1

    def _go_plain(self) -> None:
        now = time.monotonic()
        if now >= self._plain_until:
            self._plain_until = now + self._plain_s
            self._plain_s = min(2 * self._plain_s, PLAIN_S_MAX)

    # In.

    def read(self, source: Endpoint, note: bytes, taken: list[tuple[Endpoint, bytes]]) -> bytes | None:
        """Append the frames that a note refers to, or let it wait for its board; return a complaint if that is due."""
        _, count, name = NOTE.unpack_from(note) if len(note) >= NOTE.size else (b"", 0, 0)
        if not 0 < count <= NOTE_FRAMES_MAX or len(note) != NOTE.size + STAMP_BYTES * count:
            self.refused += 1
            return None
        known = self._others.get(name)
        if known is None:
            return self._miss(source, note, name, count)
        owner, board = known
        if owner != source:
            self.refused += 1
            return None
        self.missed += board.read(note, source, taken)
        self._read_at[name] = time.monotonic()
        return None

    def _miss(self, source: Endpoint, note: bytes, name: int, count: int) -> bytes | None:
        is_due = self._may_ask(name, source)
        if READABLE and self.socket is not None and (is_due or name in self._asked):
            try:
                if is_due:
                    self.socket.sendto(b"", _address(name))
            except OSError:
                # Nobody is there: of a container that shares no more than the network with us, or gone.
                pass
            else:
                self._held.append((source, note, name))
                if len(self._held) > HELD_NOTES_MAX:
                    self.missed += NOTE.unpack_from(self._held.popleft()[1])[1]
                return None
        self.missed += count
        return COMPLAINT.pack(COMPLAINT_MARK, name) if is_due else None

    def _may_ask(self, name: int, source: Endpoint) -> bool:
        """Tell whether it is time to ask for a board, or to complain of it, and count that as done."""
        now = time.monotonic()
        asked = self._asked.get(name)
        if asked is not None and now - asked[0] < ASK_S:
            return False
        if asked is None and len(self._asked) >= ASKED_MAX:
            self._asked = {each: known for each, known in self._asked.items() if now - known[0] < ASK_S}
            if len(self._asked) >= ASKED_MAX:
                return False
        self._asked[name] = (now, source)
        return True

    def on_readable(self) -> tuple[list[tuple[Endpoint, bytes]], list[tuple[Endpoint, bytes]]]:
        """Answer who asks for our board, take boards that we asked for; return frames that waited, and complaints."""
        taken: list[tuple[Endpoint, bytes]] = []
        complaints: list[tuple[Endpoint, bytes]] = []
        assert self.socket is not None
        while True:
            try:
                data, ancillary, _, address = self.socket.recvmsg(64, socket.CMSG_SPACE(12) + socket.CMSG_SPACE(4))
            except (BlockingIOError, InterruptedError):
                return taken, complaints
            descriptors, user = _attached(ancillary)
            try:
                if not data:
                    self._answer(address, user)
                else:
                    self._accept(data, descriptors, user, address, taken, complaints)
            finally:
                for each in descriptors:
                    os.close(each)

    def _answer(self, address: object, user: int) -> None:
        if not isinstance(address, bytes) or self.slots is None:
            self.refused += 1
            return
        attached = []
        if user == os.getuid():
            attached.append((socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("=i", self._descriptor)))
        else:
            self._go_plain()
        assert self.socket is not None
        # Who does not hear the answer asks again.
        with contextlib.suppress(OSError):
            self.socket.sendmsg([_ANSWER.pack(self.name)], attached, 0, address)

    def _accept(
        self,
        data: bytes,
        descriptors: list[int],
        user: int,
        address: object,
        taken: list[tuple[Endpoint, bytes]],
        complaints: list[tuple[Endpoint, bytes]],
    ) -> None:
        name = _ANSWER.unpack(data)[0] if len(data) == _ANSWER.size else -1
        asked = self._asked.pop(name, None)
        if asked is None or address != _address(name):
            self.refused += 1
            return
        _, source = asked
        held, self._held = self._held, deque()
        memory = _map(descriptors) if user == os.getuid() else None
        if memory is not None:
            self._forget_silent()
            self._others[name] = (source, _board.Board(memory, name))
            self._read_at[name] = time.monotonic()
        else:
            complaints.append((source, COMPLAINT.pack(COMPLAINT_MARK, name)))
        for each in held:
            if each[2] != name:
                self._held.append(each)
            elif memory is not None:
                self.read(each[0], each[1], taken)
            else:
                self.missed += NOTE.unpack_from(each[1])[1]

    def _forget_silent(self) -> None:
        oldest_first = sorted(self._read_at, key=self._read_at.__getitem__)
        silent_before = time.monotonic() - SILENT_S
        for name in oldest_first:
            if self._read_at[name] < silent_before or len(self._others) >= BOARDS_MAX:
                del self._read_at[name], self._others[name]


def board_fault() -> str:
    """Tell why nodes of this machine cannot share memory; nothing if they can."""
    if not READABLE:
        return "the compiled part was not built, or is turned off by VIVUM_PURE"
    boards = Boards(0)
    try:
        if boards.socket is None:
            return "no local sockets are allowed here"
        return "" if boards.slots is not None else "no memory that can be shared and sealed"
    finally:
        boards.close()


def _address(name: int) -> bytes:
    """Tell where a board is asked for: names that begin with a zero are in no file system."""
    return b"\0vivum-board-%016x" % name


def _attached(ancillary: list[tuple[int, int, bytes]]) -> tuple[list[int], int]:
    """Tell the descriptors that came with a datagram, and the user who sent it, -1 if unknown."""
    descriptors, user = [], -1
    for level, kind, data in ancillary:
        if level != socket.SOL_SOCKET:
            continue
        if kind == socket.SCM_RIGHTS:
            descriptors += [number for (number,) in struct.iter_unpack("=i", data[: len(data) // 4 * 4])]
        elif kind == socket.SCM_CREDENTIALS and len(data) == _CREDENTIALS.size:
            user = _CREDENTIALS.unpack(data)[1]
    return descriptors, user


def _map(descriptors: list[int]) -> mmap.mmap | None:
    """Map a board for reading, if it is one, and if nobody can shrink it under us."""
    if len(descriptors) != 1:
        return None
    try:
        if fcntl.fcntl(descriptors[0], fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
            size = os.fstat(descriptors[0]).st_size
            if size and size % _slots.SLOT_BYTES == 0:
                return mmap.mmap(descriptors[0], size, mmap.MAP_SHARED, mmap.PROT_READ)
    except OSError:
        # No memory to map, or nothing that can be sealed.
        pass
    return None
