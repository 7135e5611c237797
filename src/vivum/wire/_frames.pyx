# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: auto_pickle=False
"""The compiled way in: buffers cut into frames, frames into messages. `_codec` exports it.

The twin `_frames_twin.py` has the same names and the same behaviour to the byte and to the error; change both or
neither. The rules against reading past a buffer are those of `_codec.pyx`.

The twin knows no frames that are lent (`_slots.pyx`). What is in them may change at any time, so nothing that was checked
in one is relied on: what is cut is checked against the frame's end again, and is not used if the frame was gone then.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from vivum.wire._arguments cimport whole
from vivum.wire._body cimport check_body
from vivum.wire._header cimport is_kind
from vivum.wire._layout cimport *
from vivum.wire._slots cimport Lent

from collections.abc import Sequence

from vivum.wire import layout, refusals
from vivum.wire.kinds import Kind

cdef extern from *:
    """
    /* The same value for the test and for the use, whoever writes there meanwhile. */
    static uint16_t load16_once(const uint8_t* p) {
        return (uint16_t)(((const volatile uint8_t*)p)[0] | ((const volatile uint8_t*)p)[1] << 8);
    }
    static void copy_once(uint8_t* to, const uint8_t* from, size_t size) {
        memcpy(to, from, size);
        __asm__ __volatile__("" ::: "memory");
    }
    """
    uint16_t load16_once(const uint8_t*) noexcept nogil
    void copy_once(uint8_t*, const uint8_t*, size_t) noexcept nogil

cdef extern from "Python.h":
    # Raw pointers: a payload moves from its maker into its list without reference counting in between.
    PyObject* raw_bytes "PyBytes_FromStringAndSize" (const char*, Py_ssize_t) except NULL
    void raw_set_item "PyList_SET_ITEM" (PyObject*, Py_ssize_t, PyObject*) noexcept
    list PyList_New(Py_ssize_t)
    Py_ssize_t PyList_GET_SIZE(list) noexcept
    bytes PyBytes_FromStringAndSize(const char*, Py_ssize_t)

# Kinds as two bit masks and a table, read once from the one list of them.
cdef uint64_t KNOWN_MASK = sum(1 << kind for kind in layout.KNOWN_KINDS)
cdef uint64_t MESSAGE_MASK = sum(1 << kind for kind in layout.MESSAGE_KINDS)
cdef tuple KIND_OF = tuple(Kind(number) if number in layout.KNOWN_KINDS else None for number in range(64))


cdef const uint8_t* cut_run(
    const uint8_t* p, const uint8_t* stop, list payloads, Py_ssize_t place, Py_ssize_t count
) except? NULL:
    """Copy messages that lie one behind the other into a list; tell where the last ends, NULL if that is past `stop`."""
    cdef Py_ssize_t size
    while count:
        if stop - p < C_LENGTH:
            return NULL
        size = load16_once(p)
        p += C_LENGTH
        if stop - p < size:
            return NULL
        raw_set_item(<PyObject*>payloads, place, raw_bytes(<const char*>p, size))
        p += size
        place += 1
        count -= 1
    return p


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
    # What it is in, and where it begins there; of a frame that is lent, who lends it, until it is kept.
    cdef bytes _data
    cdef const uint8_t* _base
    cdef Lent _lent
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

    @property
    def data(self):
        self._own()
        return self._data

    def keep(self):
        cdef bytes copied
        cdef const uint8_t* base
        cdef Py_ssize_t stop = 0, runs = 0
        if self._lent is None:
            return True
        copied = PyBytes_FromStringAndSize(<const char*>self._base, self.length)
        base = <const uint8_t*>PyBytes_AS_STRING(copied)
        # Who lends it might have changed it since it was checked, without a new stamp: not by mistake, but in malice.
        if not self._lent.is_there():
            return False
        if base[0] != C_VERSION or base[1] != self._kind or load16(base + 2) != self.length:
            return False
        if is_kind(self._kind, MESSAGE_MASK) and check_body(base, C_HEADER, self.length, &stop, &runs):
            return False
        self._data = copied
        self._base = base
        self._runs = runs
        self._stop = stop
        self.start = 0
        self._lent = None
        return True

    cdef int _own(self) except -1:
        if self._lent is not None and not self.keep():
            raise refusals.frame_gone()
        return 0

    def messages(self):
        cdef list runs
        self._own()
        runs = []
        self._cut(runs, 0)
        return [run[1:] for run in runs]

    cdef bint _cut(self, list runs, Py_ssize_t index) except -1:
        """Append all runs with an index before each; tell whether they are there, or the frame was gone."""
        cdef list payloads
        cdef const uint8_t* p = self._base + C_HEADER
        cdef const uint8_t* stop = self._base + self.length
        cdef uint32_t tag
        cdef uint64_t first
        cdef Py_ssize_t count, place = len(runs)
        # The second test holds for what `split` made; it is for a blank frame from `Frame.__new__`.
        if not is_kind(self._kind, MESSAGE_MASK) or self.length < C_HEADER:
            return True
        while stop - p >= C_RUN_HEADER:
            count = load16(p + 12)
            if count == 0:
                break
            tag = load32(p)
            first = load64(p + 4)
            if self._lent is not None and (tag > C_GROUP_MAX or first > C_SEQUENCE_MAX - <uint64_t>(count - 1)):
                # Pieces of messages, for which more must hold.
                del runs[place:]
                return self.keep() and self._cut(runs, index)
            payloads = PyList_New(count)
            p = cut_run(p + C_RUN_HEADER, stop, payloads, 0, count)
            if p == NULL:
                return False
            runs.append((index, tag & C_GROUP_MAX, first, tag & ~C_GROUP_MAX, payloads))
        return self._lent is None or self._lent.is_there()

    def body(self):
        if self.length < C_HEADER:
            return b""
        self._own()
        return PyBytes_FromStringAndSize(<const char*>self._base + C_HEADER, self.length - C_HEADER)

    def to_bytes(self):
        if self.length < C_HEADER:
            return b""
        self._own()
        if self.length == PyBytes_GET_SIZE(self._data):
            return self._data
        return PyBytes_FromStringAndSize(<const char*>self._base, self.length)

    def __repr__(self):
        kind = KIND_OF[self._kind & 63]
        return (
            f"Frame({kind.name if kind is not None else '?'} #{self.sequence} of {self.sender}.{self.incarnation}"
            f" in region {self.region} view {self.view}, {self.length} bytes)"
        )


def split(data):
    cdef bytes held = None
    cdef Lent lent = None
    cdef const uint8_t* base
    cdef const uint8_t* p
    cdef uint8_t header[C_HEADER]
    cdef Py_ssize_t total, left, length, at = 0, fault_at = 0
    cdef Py_ssize_t runs
    cdef int fault
    cdef list frames = []
    cdef Frame frame
    if PyBytes_CheckExact(data):
        held = <bytes>data
    elif type(data) is Lent:
        lent = <Lent>data
        if lent.size < C_HEADER or load16(lent.start + 2) != lent.size:
            # Not one frame: what nobody needs lends.
            held = lent.copy()
            lent = None
            if held is None:
                return frames
    elif isinstance(data, (bytes, bytearray, memoryview)):
        held = bytes(data)
    else:
        raise refusals.not_bytes_like("data", data)
    total = PyBytes_GET_SIZE(held) if lent is None else lent.size
    if total == 0:
        raise refusals.empty_buffer()
    base = <const uint8_t*>PyBytes_AS_STRING(held) if lent is None else lent.start
    while at < total:
        p = base + at
        left = total - at
        if lent is not None:
            # Its fields may change at any time: they are looked at once. There is one frame, of at least a header.
            copy_once(header, p, C_HEADER)
            p = header
        if p[0] != C_VERSION:
            raise refusals.wrong_version(p[0], at)
        if left < C_HEADER:
            raise refusals.torn_header(at, left)
        if not is_kind(p[1], KNOWN_MASK):
            raise refusals.unknown_kind(p[1], at)
        length = load16(p + 2)
        if length < C_HEADER or length > C_FRAME_MAX or length > left or (lent is not None and length != left):
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
        frame._data = held
        frame._lent = lent
        frame._base = base + at
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
        start = frame.start + C_HEADER + C_RUN_HEADER
        count = load16(frame._base + C_HEADER + C_RUN_HEADER - C_LENGTH)
        run._pieces.append((frame._data, start, count))
        run.payload_bytes += frame._stop - start - C_LENGTH * count
        run._count += count
        if frame._data is not before:
            before = frame._data
            run.held_bytes += PyBytes_GET_SIZE(before)
        at += 1
    return run if run.payload_bytes >= run.held_bytes // 2 else None


def take_runs(frames, messages_max, packed=frozenset()):
    cdef list held = frames, runs = []
    cdef Py_ssize_t stop = len(held), at = 0, end, place
    cdef uint64_t count, most = whole(messages_max, "messages_max", 0, U64), first
    cdef uint32_t tag
    cdef Frame frame
    cdef PackedRun run
    cdef list payloads
    while at < stop:
        frame = <Frame?>held[at]
        end = joint_end(held, at, most, &tag, &first, &count)
        if end == at:
            place = len(runs)
            if not frame._cut(runs, at):
                del runs[place:]
                return at, runs
            at += 1
            continue
        if packed and tag in packed:
            place = at
            while place < end and (<Frame>held[place]).keep():
                place += 1
            run = packed_run(held, at, place) if place == end else None
            if run is not None:
                runs.append((at, tag, first, 0, run))
                at = end
                continue
        payloads = PyList_New(count)
        runs.append((at, tag, first, 0, payloads))
        place = 0
        while at < end:
            frame = held[at]
            count = load16(frame._base + C_HEADER + 12)
            if (
                count > <uint64_t>(PyList_GET_SIZE(payloads) - place)
                or cut_run(
                    frame._base + C_HEADER + C_RUN_HEADER, frame._base + frame.length, payloads, place, count
                ) == NULL
                or (frame._lent is not None and not frame._lent.is_there())
            ):
                del payloads[place:]
                if place == 0:
                    runs.pop()
                return at, runs
            place += count
            at += 1
        if place == 0:
            runs.pop()
        elif place < PyList_GET_SIZE(payloads):
            # Somebody changed a count after it was added up, and behaves as if nothing was.
            del payloads[place:]
    return at, runs


cdef Py_ssize_t joint_end(
    list frames, Py_ssize_t at, uint64_t most, uint32_t* tag, uint64_t* first, uint64_t* count
) except -1:
    """Find how far frames from one on have one run each, without flags, that goes on with the one before."""
    cdef const uint8_t* p
    cdef Frame frame, head = None
    count[0] = 0
    while at < len(frames):
        frame = <Frame?>frames[at]
        if frame._runs != 1:
            break
        p = frame._base + C_HEADER
        if head is None:
            tag[0] = load32(p)
            first[0] = load64(p + 4)
            if tag[0] > C_GROUP_MAX or first[0] > C_SEQUENCE_MAX - C_COUNT_MAX:
                break
            head = frame
        elif load32(p) != tag[0] or load64(p + 4) != first[0] + count[0] or frame.sent_ns != head.sent_ns:
            break
        if count[0] and count[0] + load16(p + 12) > most:
            break
        count[0] += load16(p + 12)
        at += 1
    return at
