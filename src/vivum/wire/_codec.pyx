# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: auto_pickle=False
"""The compiled codec: frames made and split. Format: `docs/design/wire.md`.

The twin `_twin.py` has the same names and the same behaviour to the byte and to the error; change both or neither.
This module knows bytes and numbers, nothing of members, views or time.

Rules that keep it from reading or writing past a buffer:
- A pointer into a buffer is dereferenced only after an explicit comparison with its end, on the same few lines.
- A `Frame` points into an immutable `bytes` object that it holds, at offsets that `split` validated, and
  nothing can set them afterwards: attributes are read-only, and it cannot be built or unpickled from Python.
- Foreign buffers are held through the buffer protocol while they are used, since Python code may run in between.
"""

cimport cython
from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from vivum.wire._arguments cimport get_buffer, whole
from vivum.wire._body cimport check_body
from vivum.wire._layout cimport *

from vivum.wire import layout, refusals
from vivum.wire._window import BEYOND, DUPLICATE, NEW, WINDOW_MAX, SequenceWindow, measure, xor_into
from vivum.wire.kinds import Kind

cdef extern from "Python.h":
    # Raw pointers: a payload moves from its maker into its list without reference counting in between.
    PyObject* raw_bytes "PyBytes_FromStringAndSize" (const char*, Py_ssize_t) except NULL
    void raw_set_item "PyList_SET_ITEM" (PyObject*, Py_ssize_t, PyObject*) noexcept
    list PyList_New(Py_ssize_t)
    bytes PyBytes_FromStringAndSize(const char*, Py_ssize_t)

VERSION = C_VERSION
HEADER_BYTES = C_HEADER
RUN_HEADER_BYTES = C_RUN_HEADER
FRAME_BYTES_MAX = C_FRAME_MAX
CAPACITY_MIN = C_CAPACITY_MIN
COUNT_MAX = C_COUNT_MAX
GROUP_MAX = C_GROUP_MAX
FLAG_CONTINUES = C_CONTINUES
FLAG_MORE = C_MORE
SEQUENCE_MAX = C_SEQUENCE_MAX

# Kinds as two bit masks and a table, read once from the one list of them.
cdef uint64_t KNOWN_MASK = sum(1 << kind for kind in layout.KNOWN_KINDS)
cdef uint64_t MESSAGE_MASK = sum(1 << kind for kind in layout.MESSAGE_KINDS)
cdef uint8_t KIND_RESENT = Kind.RESENT
cdef tuple KIND_OF = tuple(Kind(number) if number in layout.KNOWN_KINDS else None for number in range(64))


cdef inline bint is_kind(uint64_t kind, uint64_t mask) noexcept nogil:
    return kind < 64 and (mask >> kind) & 1


# --- Splitting -------------------------------------------------------------------------------------------------


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
        if is_kind(p[1], MESSAGE_MASK):
            fault = check_body(base, at + C_HEADER, at + length, &fault_at)
            if fault:
                raise refusals.bad_body(fault, fault_at)
        frame = Frame.__new__(Frame)
        frame._kind = p[1]
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


# --- Packing ---------------------------------------------------------------------------------------------------


cdef struct Header:
    uint8_t kind
    uint32_t domain
    uint32_t sender
    uint16_t incarnation
    uint16_t key_epoch
    uint32_t region
    uint32_t view
    uint64_t sequence
    uint64_t sent_ns


cdef int read_header(
    Header* header, bint has_messages, kind, domain, sender, incarnation, region, view, sequence, sent_ns, key_epoch
) except -1:
    """Check all fields of a header before a byte is written."""
    cdef uint64_t number = whole(kind, "kind", 0, 255)
    cdef uint64_t mask = MESSAGE_MASK if has_messages else KNOWN_MASK & ~MESSAGE_MASK
    if not is_kind(number, mask):
        raise refusals.wrong_kind(number, has_messages)
    header.kind = <uint8_t>number
    header.domain = <uint32_t>whole(domain, "domain", 0, U32)
    header.sender = <uint32_t>whole(sender, "sender", 0, U32)
    header.incarnation = <uint16_t>whole(incarnation, "incarnation", 0, U16)
    header.region = <uint32_t>whole(region, "region", 0, U32)
    header.view = <uint32_t>whole(view, "view", 0, U32)
    header.sequence = whole(sequence, "sequence", 0, C_SEQUENCE_MAX)
    header.sent_ns = whole(sent_ns, "sent_ns", 0, U64)
    header.key_epoch = <uint16_t>whole(key_epoch, "key_epoch", 0, U16)
    return 0


cdef void write_header(uint8_t* p, const Header* header, Py_ssize_t length) noexcept:
    p[0] = C_VERSION
    p[1] = header.kind
    store16(p + 2, <uint32_t>length)
    store32(p + 4, header.domain)
    store32(p + 8, header.sender)
    store16(p + 12, header.incarnation)
    store16(p + 14, header.key_epoch)
    store32(p + 16, header.region)
    store32(p + 20, header.view)
    store64(p + 24, header.sequence)
    store64(p + 32, header.sent_ns)


@cython.final
cdef class FrameBuilder:
    """A frame under construction; see the stub."""

    cdef uint8_t* _buffer
    cdef readonly Py_ssize_t capacity
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t count
    # The open run: offset of its header (0: none is open), group, messages in it, and the sequence that continues it.
    # A run that ends with the beginning of a message is not open.
    cdef Py_ssize_t _run
    cdef uint32_t _run_group
    cdef uint32_t _run_count
    cdef uint64_t _run_next

    def __cinit__(self, capacity):
        self.capacity = <Py_ssize_t>whole(capacity, "capacity", C_CAPACITY_MIN, C_FRAME_MAX)
        self._buffer = <uint8_t*>malloc(self.capacity)
        if self._buffer == NULL:
            raise MemoryError()
        self._reset()

    def __dealloc__(self):
        free(self._buffer)

    cdef void _reset(self) noexcept:
        self.size = C_HEADER
        self.count = 0
        self._run = 0

    @property
    def empty(self):
        return self.count == 0

    cdef inline bint _continues(self, uint32_t group, uint64_t sequence) noexcept:
        return (
            self._run != 0 and group == self._run_group and sequence == self._run_next
            and self._run_count < C_COUNT_MAX
        )

    cdef inline bint _put(self, uint32_t group, uint64_t sequence, const void* payload, Py_ssize_t size) noexcept:
        """Write one message if it fits; the only place that grows a run."""
        cdef uint8_t* p = self._buffer + self.size
        cdef Py_ssize_t left = self.capacity - self.size
        if self._continues(group, sequence):
            if size > left - C_LENGTH:
                return False
            self._run_count += 1
            store16(self._buffer + self._run + 12, self._run_count)
        else:
            if size > left - (C_RUN_HEADER + C_LENGTH):
                return False
            store32(p, group)
            store64(p + 4, sequence)
            store16(p + 12, 1)
            self._run = self.size
            self._run_group = group
            self._run_count = 1
            p += C_RUN_HEADER
        store16(p, <uint32_t>size)
        memcpy(p + C_LENGTH, payload, size)
        self.size = (p - self._buffer) + C_LENGTH + size
        self.count += 1
        self._run_next = sequence + 1
        return True

    cdef bint _put_object(self, uint32_t group, uint64_t sequence, object payload) except -1:
        cdef Py_buffer view
        cdef bint done
        if PyBytes_CheckExact(payload):
            return self._put(group, sequence, PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))
        get_buffer(payload, &view, "payload")
        done = self._put(group, sequence, view.buf, view.len)
        PyBuffer_Release(&view)
        return done

    def append(self, group, sequence, payload):
        cdef uint64_t number = whole(group, "group", 0, C_GROUP_MAX)
        return self._put_object(<uint32_t>number, whole(sequence, "sequence", 0, C_SEQUENCE_MAX), payload)

    def extend(self, group, first_sequence, payloads, start=0):
        cdef uint32_t number = <uint32_t>whole(group, "group", 0, C_GROUP_MAX)
        cdef uint64_t first = whole(first_sequence, "first_sequence", 0, C_SEQUENCE_MAX)
        cdef list as_list = None
        cdef tuple as_tuple = None
        cdef object payload
        cdef Py_ssize_t index, stop
        cdef Py_ssize_t size = self.size, count = self.count, run = self._run
        cdef uint32_t run_group = self._run_group, run_count = self._run_count
        cdef uint64_t run_next = self._run_next
        if isinstance(payloads, list):
            as_list = <list>payloads
            stop = len(as_list)
        elif isinstance(payloads, tuple):
            as_tuple = <tuple>payloads
            stop = len(as_tuple)
        else:
            raise refusals.not_a_list(payloads)
        index = <Py_ssize_t>whole(start, "start", 0, stop)
        if stop and first > C_SEQUENCE_MAX - <uint64_t>(stop - 1):
            raise refusals.out_of_range("first_sequence", first_sequence, 0, C_SEQUENCE_MAX - <uint64_t>(stop - 1))
        try:
            while index < stop:
                if as_list is not None:
                    # A foreign payload may run Python code that shortens the list under us.
                    if index >= len(as_list):
                        break
                    payload = as_list[index]
                else:
                    payload = as_tuple[index]
                if not self._put_object(number, first + <uint64_t>index, payload):
                    break
                index += 1
        except BaseException:
            self.size = size
            self.count = count
            self._run = run
            self._run_group = run_group
            self._run_count = run_count
            self._run_next = run_next
            if run:
                store16(self._buffer + run + 12, run_count)
            raise
        return index

    def append_fragment(self, group, sequence, flags, payload, total=None):
        cdef uint32_t number = <uint32_t>whole(group, "group", 0, C_GROUP_MAX)
        cdef uint64_t sequence_number = whole(sequence, "sequence", 0, C_SEQUENCE_MAX)
        cdef uint32_t bits = <uint32_t>whole(flags, "flags", 0, U32)
        cdef uint32_t whole_size = 0
        cdef Py_ssize_t extra = 0, overhead
        cdef bint goes_on
        cdef Py_buffer view
        cdef uint8_t* run
        cdef uint8_t* p
        if bits == 0 or bits & C_GROUP_MAX:
            raise refusals.wrong_flags(bits)
        if (total is not None) != (bits == C_MORE):
            raise refusals.wrong_total(bits == C_MORE)
        if total is not None:
            whole_size = <uint32_t>whole(total, "total", 1, U32)
            extra = C_TOTAL
        get_buffer(payload, &view, "payload")
        try:
            if view.len == 0:
                raise refusals.empty_fragment()
            # Only the beginning of a message can be behind others in a run. Asked for here, since taking hold of a
            # foreign payload may run Python code.
            goes_on = bits == C_MORE and self._continues(number, sequence_number)
            overhead = (0 if goes_on else C_RUN_HEADER) + C_LENGTH + extra
            if view.len > self.capacity - self.size - overhead:
                raise refusals.no_room(overhead + view.len, self.capacity - self.size)
            p = self._buffer + self.size
            if goes_on:
                run = self._buffer + self._run
                self._run_count += 1
                store32(run, load32(run) | C_MORE)
                store16(run + 12, self._run_count)
            else:
                store32(p, number | bits)
                store64(p + 4, sequence_number)
                store16(p + 12, 1)
                self._run = self.size
                self._run_group = number
                self._run_count = 1
                p += C_RUN_HEADER
            store16(p, <uint32_t>(extra + view.len))
            p += C_LENGTH
            if extra:
                store32(p, whole_size)
                p += C_TOTAL
            memcpy(p, view.buf, view.len)
            self.size = (p - self._buffer) + view.len
            self.count += 1
            self._run_next = sequence_number + 1
            if bits & C_MORE:
                self._run = 0
        finally:
            PyBuffer_Release(&view)

    def room(self, group, sequence):
        cdef uint32_t number = <uint32_t>whole(group, "group", 0, C_GROUP_MAX)
        cdef uint64_t sequence_number = whole(sequence, "sequence", 0, C_SEQUENCE_MAX)
        cdef Py_ssize_t left = self.capacity - self.size - C_LENGTH
        if not self._continues(number, sequence_number):
            left -= C_RUN_HEADER
        return left if left >= 0 else -1

    def seal(self, kind, domain, sender, incarnation, region, view, sequence, sent_ns, key_epoch=0, pad_to=0):
        cdef Header header
        cdef Py_ssize_t padded
        cdef bytes frame
        cdef uint8_t* p
        read_header(&header, True, kind, domain, sender, incarnation, region, view, sequence, sent_ns, key_epoch)
        padded = <Py_ssize_t>whole(pad_to, "pad_to", 0, self.capacity)
        if padded < self.size:
            padded = self.size
        frame = PyBytes_FromStringAndSize(NULL, padded)
        p = <uint8_t*>PyBytes_AS_STRING(frame)
        write_header(p, &header, padded)
        memcpy(p + C_HEADER, self._buffer + C_HEADER, self.size - C_HEADER)
        memset(p + self.size, 0, padded - self.size)
        self._reset()
        return frame


def seal_control(kind, domain, sender, incarnation, region, view, sequence, sent_ns, body, key_epoch=0):
    cdef Header header
    cdef Py_buffer source
    cdef bytes frame
    cdef uint8_t* p
    read_header(&header, False, kind, domain, sender, incarnation, region, view, sequence, sent_ns, key_epoch)
    get_buffer(body, &source, "body")
    try:
        if source.len > C_FRAME_MAX - C_HEADER:
            raise refusals.out_of_range("length of body", source.len, 0, C_FRAME_MAX - C_HEADER)
        frame = PyBytes_FromStringAndSize(NULL, C_HEADER + source.len)
        p = <uint8_t*>PyBytes_AS_STRING(frame)
        write_header(p, &header, C_HEADER + source.len)
        memcpy(p + C_HEADER, source.buf, source.len)
    finally:
        PyBuffer_Release(&source)
    return frame


def resend(frame):
    cdef Py_buffer view
    cdef const uint8_t* p
    cdef bytes copy
    get_buffer(frame, &view, "frame")
    try:
        p = <const uint8_t*>view.buf
        if (
            view.len < C_HEADER or p[0] != C_VERSION or load16(p + 2) != view.len
            or not is_kind(p[1], MESSAGE_MASK)
        ):
            raise refusals.not_a_data_frame()
        if p[1] == KIND_RESENT and PyBytes_CheckExact(frame):
            return frame
        copy = PyBytes_FromStringAndSize(<const char*>p, view.len)
        (<uint8_t*>PyBytes_AS_STRING(copy))[1] = KIND_RESENT
        return copy
    finally:
        PyBuffer_Release(&view)
