# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: auto_pickle=False
"""The compiled codec: frames made, and the other compiled parts under one name. Format: `docs/design/wire.md`.

The twin `_codec_twin.py` has the same names and the same behaviour to the byte and to the error; change both or neither.
This module knows bytes and numbers, nothing of members, views or time.

Rules that keep it from reading or writing past a buffer:
- A pointer into a buffer is dereferenced only after an explicit comparison with its end, on the same few lines.
- A `Frame` (`_frames.pyx`) points into an immutable `bytes` object that it holds, at offsets that `split` validated, and
  nothing can set them afterwards: attributes are read-only, and it cannot be built or unpickled from Python.
- Foreign buffers are held through the buffer protocol while they are used, since Python code may run in between.
"""

cimport cython
from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.ref cimport PyObject, Py_XDECREF
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from vivum.wire._arguments cimport get_buffer, whole
from vivum.wire._frame_bytes cimport FrameBytes, FrameMemory
from vivum.wire._header cimport Header, read_header, write_header
from vivum.wire._layout cimport *

from vivum.wire import layout, refusals
from vivum.wire._cuts import seal_cut
from vivum.wire._frames import Frame, PackedRun, consecutive, split, take_runs
from vivum.wire._relabel import relabel, resend
from vivum.wire._window import BEYOND, DUPLICATE, NEW, WINDOW_MAX, SequenceWindow, measure, xor_into

cdef extern from "Python.h":
    # Raw pointers: a frame is written and cut before anybody else has it.
    PyObject* raw_bytes "PyBytes_FromStringAndSize" (const char*, Py_ssize_t) except NULL
    char* raw_string "PyBytes_AS_STRING" (PyObject*) noexcept
    # Borrowed: a list keeps what is in it.
    PyObject* raw_item "PyList_GET_ITEM" (PyObject*, Py_ssize_t) noexcept
    bint raw_is_bytes "PyBytes_CheckExact" (PyObject*) noexcept
    Py_ssize_t raw_size "PyBytes_GET_SIZE" (PyObject*) noexcept
    int raw_resize "_PyBytes_Resize" (PyObject**, Py_ssize_t) except -1
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

cdef struct Part:
    # Messages of a group, borrowed: whose they are, the number of the first in the list, and which of them are meant.
    PyObject* payloads
    uint64_t first
    Py_ssize_t start
    Py_ssize_t stop
    uint32_t group

cdef struct End:
    # Up to which message a part is in a frame.
    Py_ssize_t frame
    Py_ssize_t part
    Py_ssize_t stop


cdef void* grown(void* memory, size_t size) except NULL:
    cdef void* larger = realloc(memory, size)
    if larger == NULL:
        raise MemoryError()
    return larger


cdef uint64_t MESSAGE_MASK = sum(1 << kind for kind in layout.MESSAGE_KINDS)
cdef uint64_t CONTROL_MASK = sum(1 << kind for kind in layout.KNOWN_KINDS) & ~MESSAGE_MASK


@cython.final
cdef class FrameBuilder:
    """A frame under construction; see the stub."""

    # The frame itself, a `bytes` object that nobody else has yet or room in a memory, and where its bytes are.
    cdef PyObject* _frame
    cdef FrameBytes _room
    cdef FrameMemory _memory
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

    def __cinit__(self, capacity, FrameMemory memory=None):
        cdef uint64_t most = C_FRAME_MAX if memory is None else min(C_FRAME_MAX, memory.frame_bytes_max)
        self.capacity = <Py_ssize_t>whole(capacity, "capacity", C_CAPACITY_MIN, most)
        self._memory = memory
        self._reset()

    def __dealloc__(self):
        Py_XDECREF(self._frame)

    cdef int _reset(self) except -1:
        """Begin a frame where it will stay: in the memory, or in a `bytes` object that is cut to its size at the end."""
        cdef FrameBytes room = self._memory.room() if self._memory is not None else None
        if room is None:
            self._frame = raw_bytes(NULL, self.capacity)
            self._buffer = <uint8_t*>raw_string(self._frame)
        else:
            self._frame = NULL
            self._buffer = room.start
        self._room = room
        self._begin()
        return 0

    cdef void _begin(self) noexcept:
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

    cdef object _finish(self, const Header* header, Py_ssize_t padded):
        """Hand the frame over, and begin the next one."""
        cdef PyObject* made
        cdef bytes frame
        cdef FrameBytes room = self._room
        write_header(self._buffer, header, padded)
        memset(self._buffer + self.size, 0, padded - self.size)
        if room is not None:
            if padded < self._memory.frame_bytes_min:
                frame = PyBytes_FromStringAndSize(<const char*>self._buffer, padded)
                self._begin()
                return frame
            self._reset()
            room.size = padded
            return room
        made = self._frame
        # First: where there is no memory for the next frame, this one is as it was.
        self._reset()
        if padded < self.capacity:
            raw_resize(&made, padded)
        frame = <bytes>made
        Py_XDECREF(made)
        return frame

    def seal(self, kind, domain, sender, incarnation, region, view, sequence, sent_ns, key_epoch=0, pad_to=0):
        cdef Header header
        cdef Py_ssize_t padded
        read_header(
            &header, MESSAGE_MASK, True, kind, domain, sender, incarnation, region, view, sequence, sent_ns, key_epoch
        )
        padded = <Py_ssize_t>whole(pad_to, "pad_to", 0, self.capacity)
        return self._finish(&header, padded if padded > self.size else self.size)

    def seal_one(
        self, group, message, payload, kind, domain, sender, incarnation, region, view, sequence, sent_ns
    ):
        cdef Header header
        cdef uint32_t number = <uint32_t>whole(group, "group", 0, C_GROUP_MAX)
        cdef uint64_t which = whole(message, "message", 0, C_SEQUENCE_MAX)
        cdef Py_ssize_t size
        cdef bytes frame
        cdef uint8_t* p
        if not PyBytes_CheckExact(payload):
            return None
        size = PyBytes_GET_SIZE(payload)
        if size > self.capacity - (C_HEADER + C_RUN_HEADER + C_LENGTH):
            return None
        read_header(
            &header, MESSAGE_MASK, True, kind, domain, sender, incarnation, region, view, sequence, sent_ns, 0
        )
        # Of its own size: one from the beginning of which a frame is cut costs as much as all else here.
        frame = PyBytes_FromStringAndSize(NULL, C_HEADER + C_RUN_HEADER + C_LENGTH + size)
        p = <uint8_t*>PyBytes_AS_STRING(frame)
        write_header(p, &header, C_HEADER + C_RUN_HEADER + C_LENGTH + size)
        p += C_HEADER
        store32(p, number)
        store64(p + 4, which)
        store16(p + 12, 1)
        store16(p + C_RUN_HEADER, <uint32_t>size)
        memcpy(p + C_RUN_HEADER + C_LENGTH, PyBytes_AS_STRING(payload), size)
        return frame

    def seal_runs(
        self, parts, frames_max, bytes_max, kind, domain, sender, incarnation, region, view, sequence, sent_ns
    ):
        cdef Header header
        cdef uint64_t left = whole(frames_max, "frames_max", 0, U64), most = whole(bytes_max, "bytes_max", 0, U64)
        cdef uint64_t made = 0, first
        cdef Py_ssize_t count, part, index, last, stop, end, size
        cdef Py_ssize_t written = 0, room
        cdef list frames = [], packed = []
        cdef list payloads
        cdef tuple held, each
        cdef Part* known
        cdef End* notes = NULL
        cdef uint8_t* p
        cdef PyObject* item
        if type(parts) is not list:
            raise refusals.not_a_list(parts)
        # Nobody can take a list of messages away while this has it.
        held = tuple(parts)
        count = len(held)
        room = count + 16
        known = <Part*>malloc((count + 1) * sizeof(Part))
        try:
            notes = <End*>malloc(room * sizeof(End))
            if known == NULL or notes == NULL:
                raise MemoryError()
            for part in range(count):
                if type(held[part]) is not tuple or len(held[part]) != 4:
                    raise refusals.not_a_part(held[part])
                each = <tuple>held[part]
                known[part].group = <uint32_t>whole(each[0], "group", 0, C_GROUP_MAX)
                first = known[part].first = whole(each[1], "first_sequence", 0, C_SEQUENCE_MAX)
                if type(each[2]) is not list:
                    raise refusals.not_a_list(each[2])
                payloads = <list>each[2]
                stop = known[part].stop = len(payloads)
                known[part].start = <Py_ssize_t>whole(each[3], "start", 0, stop)
                if stop and first > C_SEQUENCE_MAX - <uint64_t>(stop - 1):
                    raise refusals.out_of_range("first_sequence", each[1], 0, C_SEQUENCE_MAX - <uint64_t>(stop - 1))
                known[part].payloads = <PyObject*>payloads
            read_header(
                &header, MESSAGE_MASK, True, kind, domain, sender, incarnation, region, view, sequence, sent_ns, 0
            )
            if self.count:
                raise refusals.frame_begun(self.count)
            part = 0
            index = known[0].start if count else 0
            # No Python code runs in here, not even of a collector: nothing that it looks at is made. So lists stay as
            # they are, and their objects with them.
            while left and made < most and header.sequence <= C_SEQUENCE_MAX:
                last = part
                end = index
                if not self._find_end(known, count, &last, &end):
                    break
                # What was added up fits behind the header, with one for each run: no run has more than 32,726 messages.
                p = self._buffer + C_HEADER
                while True:
                    stop = end if part == last else known[part].stop
                    if index < stop:
                        store32(p, known[part].group)
                        store64(p + 4, known[part].first + <uint64_t>index)
                        store16(p + 12, <uint32_t>(stop - index))
                        p += C_RUN_HEADER
                        while index < stop:
                            item = raw_item(known[part].payloads, index)
                            size = raw_size(item)
                            store16(p, <uint32_t>size)
                            memcpy(p + C_LENGTH, raw_string(item), size)
                            p += C_LENGTH + size
                            index += 1
                        if written == room:
                            room *= 2
                            notes = <End*>grown(notes, room * sizeof(End))
                        notes[written].frame = len(frames)
                        notes[written].part = part
                        notes[written].stop = stop
                        written += 1
                    if part == last:
                        break
                    part += 1
                    index = known[part].start
                self.size = p - self._buffer
                made += <uint64_t>self.size
                frames.append(self._finish(&header, self.size))
                header.sequence += 1
                left -= 1
            for last in range(written):
                if notes[last].frame == len(packed):
                    packed.append([])
                each = <tuple>held[notes[last].part]
                first = known[notes[last].part].first + <uint64_t>notes[last].stop
                (<list>packed[notes[last].frame]).append((each[0], first))
        finally:
            free(known)
            free(notes)
        return frames, packed, (part, index)

    cdef bint _find_end(self, Part* parts, Py_ssize_t count, Py_ssize_t* part, Py_ssize_t* index) noexcept:
        """Find the message that does not fit a frame any more that begins here, but would fit one of its own."""
        cdef Py_ssize_t number = part[0], at = index[0], whole_room = self.capacity - C_HEADER, room = whole_room, size
        cdef Py_ssize_t head = C_RUN_HEADER
        cdef PyObject* item
        while number < count:
            if at >= parts[number].stop:
                number += 1
                at = parts[number].start if number < count else 0
                head = C_RUN_HEADER
                continue
            item = raw_item(parts[number].payloads, at)
            if not raw_is_bytes(item):
                return False
            size = C_LENGTH + raw_size(item)
            if head + size > room:
                part[0] = number
                index[0] = at
                return C_RUN_HEADER + size <= whole_room
            room -= head + size
            head = 0
            at += 1
        return False


def seal_control(kind, domain, sender, incarnation, region, view, sequence, sent_ns, body, key_epoch=0):
    cdef Header header
    cdef Py_buffer source
    cdef bytes frame
    cdef uint8_t* p
    read_header(
        &header, CONTROL_MASK, False, kind, domain, sender, incarnation, region, view, sequence, sent_ns, key_epoch
    )
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
