# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: auto_pickle=False
"""The compiled way in: buffers cut into frames, frames into messages. `_codec` exports it.

The twin `_frames_twin.py` has the same names and the same behaviour to the byte and to the error; change both or
neither. The rules against reading past a buffer are those of `_codec.pyx`.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from vivum.wire._arguments cimport whole
from vivum.wire._body cimport check_body
from vivum.wire._copies cimport *
from vivum.wire._header cimport is_kind
from vivum.wire._layout cimport *

from collections.abc import Sequence

from vivum.wire import layout, refusals
from vivum.wire.kinds import Kind
from vivum.wire.spread import LIST_SEQUENCE

# Kinds as two bit masks and a table, read once from the one list of them.
cdef uint64_t KNOWN_MASK = sum(1 << kind for kind in layout.KNOWN_KINDS)
cdef uint64_t MESSAGE_MASK = sum(1 << kind for kind in layout.MESSAGE_KINDS)
cdef uint64_t LIST = LIST_SEQUENCE
cdef tuple KIND_OF = tuple(Kind(number) if number in layout.KNOWN_KINDS else None for number in range(64))


cdef class Frame


@cython.final
@cython.internal
cdef class Taken:
    """Runs of messages that were taken out of frames, the last of which others may go on with."""

    cdef list frames
    cdef object packed
    cdef uint64_t messages_max
    cdef list runs
    # The messages of the last run, for all of which there is room, and how many are there. Frames before `end` begin
    # with the rest.
    cdef list payloads
    cdef Py_ssize_t filled
    cdef Py_ssize_t end

    cdef int begin(self, Py_ssize_t index, uint32_t tag, uint64_t first, Py_ssize_t count, Frame of) except -1:
        """Begin a run with some messages, and room for those that go on with it if it is the last of a frame."""
        cdef uint64_t total = count
        self.end = index + 1
        if of is not None and index + 1 < PyList_GET_SIZE(self.frames):
            self.end = joint_end(self, index, of, tag, first, &total)
        self.payloads = PyList_New(total)
        self.filled = 0
        self.runs.append((index, tag & C_GROUP_MAX, first, tag & ~C_GROUP_MAX, self.payloads))
        return 0


cdef Taken take_nothing(frames, object packed, uint64_t messages_max):
    cdef Taken taken = Taken.__new__(Taken)
    # A list of our own: what was counted ahead of cutting must still be there when it is cut.
    taken.frames = list(frames)
    taken.packed = packed
    taken.messages_max = messages_max
    taken.runs = []
    return taken


@cython.final
@cython.freelist(64)
cdef class Frame:
    """One validated frame inside a received buffer; see the stub."""

    cdef readonly uint16_t length
    cdef readonly uint32_t domain
    cdef readonly uint32_t sender
    cdef readonly uint16_t incarnation
    cdef readonly uint16_t key_epoch
    cdef readonly uint32_t region
    cdef readonly uint32_t view
    cdef readonly uint64_t sequence
    cdef readonly uint64_t sent_ns
    cdef readonly Py_ssize_t start
    # What it is in, and where it begins there.
    cdef readonly bytes data
    cdef const uint8_t* _base
    cdef uint8_t _kind
    # Where its messages begin, behind a list of regions if there is one, how many runs there are of them, and where the
    # last ends in `data`: padding may follow.
    cdef Py_ssize_t _begin
    cdef Py_ssize_t _runs
    cdef Py_ssize_t _stop

    def __init__(self):
        raise refusals.made_by_split()

    @property
    def kind(self):
        return KIND_OF[self._kind & 63]

    @property
    def body_start(self):
        return self.start + C_HEADER

    @property
    def body_stop(self):
        return self.start + self.length

    @property
    def stream(self):
        return (self.sender, self.incarnation, self.region, self.view)

    def messages(self):
        cdef list runs = [], payloads
        cdef const uint8_t* p
        cdef const uint8_t* stop
        cdef uint32_t tag
        cdef uint64_t first
        cdef Py_ssize_t count
        # The second test holds for what `split` made; it is for a blank frame from `Frame.__new__`.
        if not is_kind(self._kind, MESSAGE_MASK) or self.length < C_HEADER:
            return runs
        p = self._base + C_HEADER
        stop = self._base + self.length
        while stop - p >= C_RUN_HEADER:
            count = load16(p + 12)
            if count == 0:
                break
            tag = load32(p)
            first = load64(p + 4)
            payloads = PyList_New(count)
            p = cut_run(p + C_RUN_HEADER, payloads, 0, count)
            runs.append((tag & C_GROUP_MAX, first, tag & ~C_GROUP_MAX, payloads))
        return runs

    cdef void _note_runs(self, Py_ssize_t runs) noexcept:
        cdef const uint8_t* p = self._base + C_HEADER
        cdef Py_ssize_t behind
        self._begin = C_HEADER
        self._runs = runs
        if runs and load32(p) == C_GROUP_MAX and load64(p + 4) == LIST and load16(p + 12) == 1:
            behind = C_HEADER + C_RUN_HEADER + C_LENGTH + load16(p + C_RUN_HEADER)
            self._begin = behind
            self._runs = runs - 1

    cdef int _cut(self, Taken taken, Py_ssize_t index, Py_ssize_t begin) except -1:
        """Take all runs from a place on out."""
        cdef const uint8_t* p = self._base + begin
        cdef const uint8_t* stop = self._base + self.length
        cdef uint32_t tag
        cdef Py_ssize_t count, left = self._runs
        cdef bint goes_on = index < taken.end
        # The second test holds for what `split` made; it is for a blank frame from `Frame.__new__`.
        if not is_kind(self._kind, MESSAGE_MASK) or self.length < C_HEADER:
            return 0
        while stop - p >= C_RUN_HEADER:
            count = load16(p + 12)
            if count == 0:
                break
            tag = load32(p)
            left -= 1
            if not goes_on:
                taken.begin(index, tag, load64(p + 4), count, self if left == 0 else None)
            goes_on = False
            p = cut_run(p + C_RUN_HEADER, taken.payloads, taken.filled, count)
            taken.filled += count
        return 0

    def body(self):
        if self.length < C_HEADER:
            return b""
        return PyBytes_FromStringAndSize(<const char*>self._base + C_HEADER, self.length - C_HEADER)

    def to_bytes(self):
        if self.length < C_HEADER:
            return b""
        if self.length == PyBytes_GET_SIZE(self.data):
            return self.data
        return PyBytes_FromStringAndSize(<const char*>self._base, self.length)

    def __repr__(self):
        kind = KIND_OF[self._kind & 63]
        return (
            f"Frame({kind.name if kind is not None else '?'} #{self.sequence} of {self.sender}.{self.incarnation}"
            f" in region {self.region} view {self.view}, {self.length} bytes)"
        )


def split(data):
    cdef bytes held
    cdef const uint8_t* base
    cdef const uint8_t* p
    cdef Py_ssize_t total, left, length, at = 0, fault_at = 0
    cdef Py_ssize_t runs
    cdef int fault
    cdef list frames = []
    cdef Frame frame
    if PyBytes_CheckExact(data):
        held = <bytes>data
    elif isinstance(data, (bytes, bytearray, memoryview)):
        held = bytes(data)
    else:
        raise refusals.not_bytes_like("data", data)
    total = PyBytes_GET_SIZE(held)
    if total == 0:
        raise refusals.empty_buffer()
    base = <const uint8_t*>PyBytes_AS_STRING(held)
    while at < total:
        p = base + at
        left = total - at
        if p[0] != C_VERSION:
            raise refusals.wrong_version(p[0], at)
        if left < C_HEADER:
            raise refusals.torn_header(at, left)
        if not is_kind(p[1], KNOWN_MASK):
            raise refusals.unknown_kind(p[1], at)
        length = load16(p + 2)
        if length < C_HEADER or length > C_FRAME_MAX or length > left:
            raise refusals.wrong_length(length, at, left)
        if load64(p + 24) > C_SEQUENCE_MAX:
            raise refusals.frame_sequence(at)
        runs = 0
        if is_kind(p[1], MESSAGE_MASK):
            fault = check_body(base, at + C_HEADER, at + length, &fault_at, &runs)
            if fault:
                raise refusals.bad_body(fault, fault_at)
        frame = Frame.__new__(Frame)
        frame._kind = p[1]
        frame._stop = fault_at
        frame.length = <uint16_t>length
        frame.domain = load32(p + 4)
        frame.sender = load32(p + 8)
        frame.incarnation = load16(p + 12)
        frame.key_epoch = load16(p + 14)
        frame.region = load32(p + 16)
        frame.view = load32(p + 20)
        frame.sequence = load64(p + 24)
        frame.sent_ns = load64(p + 32)
        frame.data = held
        frame._base = base + at
        frame.start = at
        frame._note_runs(runs)
        frames.append(frame)
        at += length
    return frames


def consecutive(frames, start=0):
    cdef list held = frames
    cdef Py_ssize_t stop = len(held), index = <Py_ssize_t>whole(start, "start", 0, stop)
    cdef Frame before, frame
    if index == stop:
        return 0
    before = <Frame?>held[index]
    index += 1
    while index < stop:
        frame = <Frame?>held[index]
        if (
            frame._kind != before._kind or frame.sender != before.sender or frame.incarnation != before.incarnation
            or frame.region != before.region or frame.view != before.view or frame.sequence != before.sequence + 1
        ):
            break
        before = frame
        index += 1
    return index - <Py_ssize_t>start


@cython.final
cdef class PackedRun:
    """Messages that were not cut; see the stub."""

    cdef list _pieces
    cdef readonly Py_ssize_t payload_bytes
    cdef readonly Py_ssize_t held_bytes
    cdef Py_ssize_t _count

    def __init__(self):
        raise refusals.made_by_take_runs()

    @property
    def pieces(self):
        # A copy: what `cut` relies on is nobody's to change.
        return list(self._pieces)

    def __len__(self):
        return self._count

    def __iter__(self):
        return iter(self.cut())

    def __getitem__(self, index):
        return self.cut()[index]

    def cut(self):
        cdef list payloads = PyList_New(self._count)
        cdef const uint8_t* p
        cdef Py_ssize_t at, size, place = 0, stop
        cdef bytes data
        cdef tuple piece
        for piece in self._pieces:
            data = piece[0]
            at = piece[1]
            stop = place + <Py_ssize_t>piece[2]
            p = <const uint8_t*>PyBytes_AS_STRING(data) + at
            while place < stop:
                size = load16(p)
                raw_set_item(<PyObject*>payloads, place, raw_bytes(<const char*>p + C_LENGTH, size))
                p += C_LENGTH + size
                place += 1
        return payloads

    def extend(self, PackedRun other not None):
        self._pieces.extend(other._pieces)
        self.payload_bytes += other.payload_bytes
        self.held_bytes += other.held_bytes
        self._count += other._count

    def __repr__(self):
        return f"PackedRun({self._count} messages, {self.payload_bytes} bytes)"


Sequence.register(PackedRun)


cdef PackedRun packed_run(list frames, Py_ssize_t at, Py_ssize_t end):
    """Make a run of frames that have one run of messages each; None if most of what it would hold is not its own."""
    cdef PackedRun run = PackedRun.__new__(PackedRun)
    cdef Py_ssize_t start, count
    cdef bytes before = None
    cdef Frame frame
    run._pieces = []
    while at < end:
        frame = frames[at]
        start = frame.start + frame._begin + C_RUN_HEADER
        count = load16(frame._base + frame._begin + 12)
        run._pieces.append((frame.data, start, count))
        run.payload_bytes += frame._stop - start - C_LENGTH * count
        run._count += count
        if frame.data is not before:
            before = frame.data
            run.held_bytes += PyBytes_GET_SIZE(before)
        at += 1
    return run if run.payload_bytes >= run.held_bytes // 2 else None


def take_runs(frames, messages_max, packed=frozenset()):
    cdef Taken taken = take_nothing(frames, packed, whole(messages_max, "messages_max", 0, U64))
    cdef Py_ssize_t at = 0
    cdef Frame frame
    while at < len(taken.frames):
        frame = <Frame?>taken.frames[at]
        if packed and frame._runs == 1 and at >= taken.end and take_packed(taken, at, frame):
            at = taken.end
            continue
        frame._cut(taken, at, frame._begin)
        at += 1
    return taken.runs


cdef bint take_packed(Taken taken, Py_ssize_t at, Frame frame) except -1:
    """Take a run without cutting it, of frames that have nothing else in them; False if that cannot be."""
    cdef const uint8_t* p = frame._base + frame._begin
    cdef uint32_t tag = load32(p)
    cdef uint64_t first, count
    cdef Py_ssize_t end
    cdef PackedRun run
    if tag not in taken.packed:
        return False
    first = load64(p + 4)
    count = load16(p + 12)
    end = joint_end(taken, at, frame, tag, first, &count)
    run = packed_run(taken.frames, at, end)
    if run is None:
        return False
    taken.payloads = None
    taken.end = end
    taken.runs.append((at, tag, first, 0, run))
    return True


cdef Py_ssize_t joint_end(
    Taken taken, Py_ssize_t at, Frame head, uint32_t tag, uint64_t first, uint64_t* count
) except -1:
    """Find how far frames behind one begin with what goes on with its last run, and add up how many messages it has."""
    cdef const uint8_t* p
    cdef Frame frame = head
    cdef uint64_t more
    cdef bint is_packed = bool(taken.packed) and tag in taken.packed
    at += 1
    # Numbers of marks are no sequence, and pieces of messages are joined by others.
    if tag >= C_GROUP_MAX:
        return at
    while at < len(taken.frames):
        frame = <Frame?>taken.frames[at]
        # Those that may stay uncut are not joined with others.
        if frame._runs == 0 or frame.sent_ns != head.sent_ns or (is_packed and (frame._runs == 1) != (head._runs == 1)):
            break
        p = frame._base + frame._begin
        more = load16(p + 12)
        if (
            load32(p) != tag or load64(p + 4) != first + count[0] or more == 0
            or first + count[0] > C_SEQUENCE_MAX - (more - 1) or count[0] + more > taken.messages_max
        ):
            break
        count[0] += more
        at += 1
        if frame._runs > 1:
            break
    return at
