# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: auto_pickle=False
"""The compiled way in: buffers cut into frames, frames into messages. `_codec` exports it.

The twin `_frames_twin.py` has the same names and the same behaviour to the byte and to the error; change both or
neither. The rules against reading past a buffer are those of `_codec.pyx`.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from vivum.wire._arguments cimport whole
from vivum.wire._body cimport check_body
from vivum.wire._header cimport is_kind
from vivum.wire._layout cimport *

from collections.abc import Sequence

from vivum.wire import layout, refusals
from vivum.wire.kinds import Kind

cdef extern from "Python.h":
    # Raw pointers: a payload moves from its maker into its list without reference counting in between.
    PyObject* raw_bytes "PyBytes_FromStringAndSize" (const char*, Py_ssize_t) except NULL
    void raw_set_item "PyList_SET_ITEM" (PyObject*, Py_ssize_t, PyObject*) noexcept
    list PyList_New(Py_ssize_t)
    bytes PyBytes_FromStringAndSize(const char*, Py_ssize_t)

# Kinds as two bit masks and a table, read once from the one list of them.
cdef uint64_t KNOWN_MASK = sum(1 << kind for kind in layout.KNOWN_KINDS)
cdef uint64_t MESSAGE_MASK = sum(1 << kind for kind in layout.MESSAGE_KINDS)
cdef tuple KIND_OF = tuple(Kind(number) if number in layout.KNOWN_KINDS else None for number in range(64))


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
    cdef readonly bytes data
    cdef readonly Py_ssize_t start
    cdef uint8_t _kind
    # How many runs of messages there are in it, and where the last ends in `data`: padding may follow.
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
        cdef list runs = []
        cdef list payloads
        cdef const uint8_t* p
        cdef const uint8_t* stop
        cdef uint32_t tag
        cdef uint64_t first
        cdef Py_ssize_t index, count, size
        # The second test holds for what `split` made; it is for a blank frame from `Frame.__new__`.
        if not is_kind(self._kind, MESSAGE_MASK) or self.length < C_HEADER:
            return runs
        p = <const uint8_t*>PyBytes_AS_STRING(self.data) + self.start
        stop = p + self.length
        p += C_HEADER
        while stop - p >= C_RUN_HEADER:
            count = load16(p + 12)
            if count == 0:
                break
            tag = load32(p)
            first = load64(p + 4)
            p += C_RUN_HEADER
            payloads = PyList_New(count)
            for index in range(count):
                size = load16(p)
                raw_set_item(<PyObject*>payloads, index, raw_bytes(<const char*>p + C_LENGTH, size))
                p += C_LENGTH + size
            runs.append((tag & C_GROUP_MAX, first, tag & ~C_GROUP_MAX, payloads))
        return runs

    def body(self):
        if self.length < C_HEADER:
            return b""
        return PyBytes_FromStringAndSize(PyBytes_AS_STRING(self.data) + self.start + C_HEADER, self.length - C_HEADER)

    def to_bytes(self):
        if self.length < C_HEADER:
            return b""
        if self.length == PyBytes_GET_SIZE(self.data):
            return self.data
        return PyBytes_FromStringAndSize(PyBytes_AS_STRING(self.data) + self.start, self.length)

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
        frame._runs = runs
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
        frame.start = at
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
        raise refusals.made_by_joint_run()

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
        start = frame.start + C_HEADER + C_RUN_HEADER
        count = load16(<const uint8_t*>PyBytes_AS_STRING(frame.data) + start - C_LENGTH)
        run._pieces.append((frame.data, start, count))
        run.payload_bytes += frame._stop - start - C_LENGTH * count
        run._count += count
        if frame.data is not before:
            before = frame.data
            run.held_bytes += PyBytes_GET_SIZE(before)
        at += 1
    return run if run.payload_bytes >= run.held_bytes // 2 else None


def joint_run(frames, start, messages_max, packed=frozenset()):
    cdef list held = frames
    cdef Py_ssize_t stop = len(held), at = <Py_ssize_t>whole(start, "start", 0, stop), end = at, place = 0
    cdef uint64_t count = 0, most = whole(messages_max, "messages_max", 0, U64), first = 0
    cdef uint32_t tag = 0
    cdef const uint8_t* p
    cdef Py_ssize_t index, size
    cdef Frame frame, head = None
    cdef PackedRun run
    cdef list payloads
    while end < stop:
        frame = <Frame?>held[end]
        if frame._runs != 1:
            break
        p = <const uint8_t*>PyBytes_AS_STRING(frame.data) + frame.start + C_HEADER
        if head is None:
            tag = load32(p)
            first = load64(p + 4)
            if tag > C_GROUP_MAX:
                break
            head = frame
        elif load32(p) != tag or load64(p + 4) != first + count or frame.sent_ns != head.sent_ns:
            break
        if count and count + load16(p + 12) > most:
            break
        count += load16(p + 12)
        end += 1
    if count == 0:
        return None
    if packed and tag in packed:
        run = packed_run(held, at, end)
        if run is not None:
            return end, tag, first, run
    payloads = PyList_New(count)
    while at < end:
        frame = held[at]
        p = <const uint8_t*>PyBytes_AS_STRING(frame.data) + frame.start + C_HEADER
        index = place
        place += load16(p + 12)
        p += C_RUN_HEADER
        while index < place:
            size = load16(p)
            raw_set_item(<PyObject*>payloads, index, raw_bytes(<const char*>p + C_LENGTH, size))
            p += C_LENGTH + size
            index += 1
        at += 1
    return end, tag, first, payloads
