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
from vivum.wire._frames import Frame, PackedRun, consecutive, single_frames, split, split_trains, take_runs
from vivum.wire._relabel import relabel, resend
from vivum.wire._window import BEYOND, DUPLICATE, NEW, WINDOW_MAX, SequenceWindow, measure
from vivum.wire.trains import Train, frames_in_train

cdef extern from "Python.h":
    # Raw pointers: a frame is written and cut before anybody else has it.
    PyObject* raw_bytes "PyBytes_FromStringAndSize" (const char*, Py_ssize_t) except NULL
    char* raw_string "PyBytes_AS_STRING" (PyObject*) noexcept
    # Borrowed: a list keeps what is in it.
    PyObject* raw_item "PyList_GET_ITEM" (PyObject*, Py_ssize_t) noexcept
    bint raw_is_bytes "PyBytes_Check" (PyObject*) noexcept
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
    # Messages of a group, borrowed: whose they are, the number of the first in the list, which of them are meant, and
    # how many bytes of the first of those are in frames already.
    PyObject* payloads
    uint64_t first
    Py_ssize_t start
    Py_ssize_t stop
    Py_ssize_t cut
    uint32_t group

cdef struct Place:
    # A message of a part, the bytes of it that are in frames, and those of the part that went into frames before it.
    Py_ssize_t part
    Py_ssize_t index
    Py_ssize_t cut
    Py_ssize_t taken

cdef struct Note:
    # Up to which message a part is in a frame.
    Py_ssize_t frame
    Py_ssize_t part
    Py_ssize_t stop

cdef struct Ending:
    # One past the last message of a group that is wholly in frames, with this one.
    Py_ssize_t frame
    uint32_t group
    uint64_t stop

cdef struct State:
    # A frame under construction, to go back to.
    Py_ssize_t size
    Py_ssize_t count
    Py_ssize_t run
    uint32_t run_group
    uint32_t run_count
    uint64_t run_next


cdef enum Outcome:
    # What became of a part: all of it is in the frame, the frame is full, or its next message is none.
    FINISHED
    FULL
    REFUSED


cdef int read_part(Part* part, object each) except -1:
    cdef tuple fields
    cdef PyObject* item
    cdef uint64_t most = 0
    if type(each) is not tuple or len(each) != 5:
        raise refusals.not_a_part(each)
    fields = <tuple>each
    part.group = <uint32_t>whole(fields[0], "group", 0, C_GROUP_MAX)
    part.first = whole(fields[1], "first_sequence", 0, C_SEQUENCE_MAX)
    if type(fields[2]) is not list:
        raise refusals.not_a_list(fields[2])
    part.payloads = <PyObject*>fields[2]
    part.stop = len(<list>fields[2])
    part.start = <Py_ssize_t>whole(fields[3], "start", 0, part.stop)
    if part.stop and part.first > C_SEQUENCE_MAX - <uint64_t>(part.stop - 1):
        raise refusals.out_of_range("first_sequence", fields[1], 0, C_SEQUENCE_MAX - <uint64_t>(part.stop - 1))
    # What is cut has something left.
    if part.start < part.stop:
        item = raw_item(part.payloads, part.start)
        if raw_is_bytes(item) and raw_size(item):
            most = <uint64_t>raw_size(item) - 1
    part.cut = <Py_ssize_t>whole(fields[4], "cut", 0, most)
    return 0


cdef void begin_part(Place* at, const Part* parts, Py_ssize_t count, Py_ssize_t part) noexcept:
    at.part = part
    at.taken = 0
    at.index = parts[part].start if part < count else 0
    at.cut = parts[part].cut if part < count else 0


cdef void* grown(void* memory, size_t size) except NULL:
    cdef void* larger = realloc(memory, size)
    if larger == NULL:
        raise MemoryError()
    return larger


cdef uint64_t MESSAGE_MASK = sum(1 << kind for kind in layout.MESSAGE_KINDS)
cdef uint64_t CONTROL_MASK = sum(1 << kind for kind in layout.KNOWN_KINDS) & ~MESSAGE_MASK


@cython.final
cdef class Stops:
    """Which messages end in which of some frames; see the stub."""

    cdef readonly Py_ssize_t frames
    cdef Ending* _endings
    cdef Py_ssize_t _count

    def __init__(self):
        raise refusals.made_by_seal_parts()

    def __dealloc__(self):
        free(self._endings)

    def between(self, start, stop):
        cdef dict found = {}
        cdef Py_ssize_t at = 0, first = start, end = stop
        cdef Ending* ending = self._endings
        while at < self._count and ending.frame < end:
            # Only the last of a group's in a row counts.
            if ending.frame >= first and not (
                at + 1 < self._count and ending[1].group == ending.group and ending[1].frame < end
            ):
                found[ending.group] = ending.stop
            at += 1
            ending += 1
        return found


cdef Stops stops_of(Py_ssize_t frames, const Note* notes, Py_ssize_t count, const Part* parts):
    cdef Stops made = Stops.__new__(Stops)
    cdef Py_ssize_t number
    made.frames = frames
    made._endings = <Ending*>malloc(max(count, 1) * sizeof(Ending))
    if made._endings == NULL:
        raise MemoryError()
    made._count = count
    for number in range(count):
        made._endings[number].frame = notes[number].frame
        made._endings[number].group = parts[notes[number].part].group
        made._endings[number].stop = parts[notes[number].part].first + <uint64_t>notes[number].stop
    return made


@cython.final
cdef class FrameBuilder:
    """A frame under construction; see the stub."""

    # The train itself, a `bytes` object that nobody else has yet or room for a frame in a memory; where its bytes are,
    # and how many fit; and where those of the frame are.
    cdef PyObject* _train
    cdef FrameBytes _room
    cdef FrameMemory _memory
    cdef uint8_t* _start
    cdef Py_ssize_t _train_frames
    cdef uint8_t* _buffer
    cdef readonly Py_ssize_t capacity
    cdef readonly Py_ssize_t train_bytes
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
        self._train_frames = frames_in_train(capacity)
        self.train_bytes = self.capacity * self._train_frames
        # There is room for single frames there.
        self._memory = memory if self._train_frames == 1 else None
        self._reset()

    def __dealloc__(self):
        Py_XDECREF(self._train)

    cdef int _reset(self) except -1:
        """Begin a train where it will stay: in the memory, or in a `bytes` object that is cut to its size at the end."""
        cdef FrameBytes room = self._memory.room() if self._memory is not None else None
        if room is None:
            self._train = raw_bytes(NULL, self.train_bytes)
            self._start = <uint8_t*>raw_string(self._train)
        else:
            self._train = NULL
            self._start = room.start
        self._room = room
        self._buffer = self._start
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

    cdef inline void _save(self, State* state) noexcept:
        state.size = self.size
        state.count = self.count
        state.run = self._run
        state.run_group = self._run_group
        state.run_count = self._run_count
        state.run_next = self._run_next

    cdef void _restore(self, const State* state) noexcept:
        self.size = state.size
        self.count = state.count
        self._run = state.run
        self._run_group = state.run_group
        self._run_count = state.run_count
        self._run_next = state.run_next
        if state.run:
            store16(self._buffer + state.run + 12, state.run_count)

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
        cdef State before
        self._save(&before)
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
            self._restore(&before)
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
            self._put_piece(goes_on, number, sequence_number, bits, <const char*>view.buf, view.len, whole_size)
        finally:
            PyBuffer_Release(&view)

    cdef void _put_piece(
        self, bint goes_on, uint32_t group, uint64_t sequence, uint32_t flags, const char* piece, Py_ssize_t size,
        uint32_t total,
    ) noexcept:
        """Write one piece of a message; the caller has seen that it fits. Only the first has a total."""
        cdef uint8_t* p = self._buffer + self.size
        cdef uint8_t* run
        if goes_on:
            run = self._buffer + self._run
            self._run_count += 1
            store32(run, load32(run) | C_MORE)
            store16(run + 12, self._run_count)
        else:
            store32(p, group | flags)
            store64(p + 4, sequence)
            store16(p + 12, 1)
            self._run = self.size
            self._run_group = group
            self._run_count = 1
            p += C_RUN_HEADER
        store16(p, <uint32_t>((C_TOTAL if total else 0) + size))
        p += C_LENGTH
        if total:
            store32(p, total)
            p += C_TOTAL
        memcpy(p, piece, size)
        self.size = (p - self._buffer) + size
        self.count += 1
        self._run_next = sequence + 1
        if flags & C_MORE:
            self._run = 0

    def room(self, group, sequence):
        cdef uint32_t number = <uint32_t>whole(group, "group", 0, C_GROUP_MAX)
        cdef uint64_t sequence_number = whole(sequence, "sequence", 0, C_SEQUENCE_MAX)
        cdef Py_ssize_t left = self.capacity - self.size - C_LENGTH
        if not self._continues(number, sequence_number):
            left -= C_RUN_HEADER
        return left if left >= 0 else -1

    cdef void _end_frame(self, const Header* header, Py_ssize_t padded) noexcept:
        write_header(self._buffer, header, padded)
        memset(self._buffer + self.size, 0, padded - self.size)

    cdef object _hand_over(self, Py_ssize_t size):
        """Hand over the first bytes of the train, all of its frames, and begin the next one."""
        cdef PyObject* made
        cdef object train
        cdef FrameBytes room = self._room
        if room is not None and size >= self._memory.frame_bytes_min:
            self._reset()
            room.size = size
            return room
        if room is None and size >= self.train_bytes // 2:
            made = self._train
            # First: where there is no memory for the next train, this one is as it was.
            self._reset()
            if size < self.train_bytes:
                raw_resize(&made, size)
            train = <bytes>made
            Py_XDECREF(made)
            return train
        # The buffer would stay too large.
        train = PyBytes_FromStringAndSize(<const char*>self._start, size)
        self._buffer = self._start
        self._begin()
        return train

    def seal(self, kind, domain, sender, incarnation, region, view, sequence, sent_ns, key_epoch=0, pad_to=0):
        cdef Header header
        cdef Py_ssize_t padded
        read_header(
            &header, MESSAGE_MASK, True, kind, domain, sender, incarnation, region, view, sequence, sent_ns, key_epoch
        )
        padded = max(<Py_ssize_t>whole(pad_to, "pad_to", 0, self.capacity), self.size)
        self._end_frame(&header, padded)
        return self._hand_over(padded)

    def seal_parts(
        self, parts, begin_parts, cut_to_fill, frames_max, bytes_max,
        kind, domain, sender, incarnation, region, view, sequence, sent_ns,
    ):
        cdef Header header
        cdef uint64_t begin, left, most, made = 0
        cdef bint to_fill
        cdef Py_ssize_t count, number, written = 0, room, size, frames = 0
        cdef list trains = []
        cdef Stops stops
        cdef tuple held
        cdef Part* known
        cdef Note* notes = NULL
        cdef State frame_before
        cdef Place at, before
        cdef Py_ssize_t written_before, index_before, taken_before
        cdef Outcome outcome = FINISHED
        cdef object refused
        if type(parts) is not list:
            raise refusals.not_a_list(parts)
        # Nobody can take a list of messages away while this has it.
        held = tuple(parts)
        count = len(held)
        room = count + 16
        known = <Part*>malloc((count + 1) * sizeof(Part))
        try:
            notes = <Note*>malloc(room * sizeof(Note))
            if known == NULL or notes == NULL:
                raise MemoryError()
            for number in range(count):
                read_part(&known[number], held[number])
            begin = whole(begin_parts, "begin_parts", 0, U64)
            to_fill = whole(cut_to_fill, "cut_to_fill", 0, 1)
            left = whole(frames_max, "frames_max", 0, U64)
            most = whole(bytes_max, "bytes_max", 0, U64)
            read_header(
                &header, MESSAGE_MASK, True, kind, domain, sender, incarnation, region, view, sequence, sent_ns, 0
            )
            begin_part(&at, known, count, 0)
            while at.part < count and at.index >= known[at.part].stop:
                begin_part(&at, known, count, at.part + 1)
            # No Python code runs in here, not even of a collector: what is made are bytes, at which it does not look.
            # So lists stay as they are, and their objects with them.
            while left and made < most and header.sequence <= C_SEQUENCE_MAX:
                if not self.count and (at.part >= count or <uint64_t>at.part >= begin):
                    break
                self._save(&frame_before)
                before = at
                written_before = written
                outcome = FINISHED
                while at.part < count and outcome == FINISHED:
                    index_before = at.index
                    taken_before = at.taken
                    outcome = self._fill(&known[at.part], &at, to_fill)
                    if at.index > index_before or at.taken > taken_before:
                        if written == written_before or known[notes[written - 1].part].group != known[at.part].group:
                            if written == room:
                                room *= 2
                                notes = <Note*>grown(notes, room * sizeof(Note))
                            written += 1
                        notes[written - 1].frame = frames
                        notes[written - 1].part = at.part
                        notes[written - 1].stop = at.index
                    if outcome == FINISHED:
                        begin_part(&at, known, count, at.part + 1)
                if outcome == REFUSED:
                    self._restore(&frame_before)
                    if not frames:
                        refused = <object>raw_item(known[at.part].payloads, at.index)
                        if isinstance(refused, bytes):
                            raise refusals.out_of_range("total", len(refused), 1, U32)
                        raise refusals.not_bytes("payload", refused)
                    at = before
                    written = written_before
                    break
                size = self.size
                if (
                    to_fill and outcome == FULL and left > 1 and made + <uint64_t>size < most
                    and <uint64_t>at.part < begin
                ):
                    # Another follows.
                    size = self.capacity
                made += <uint64_t>size
                self._end_frame(&header, size)
                self._buffer += size
                self._begin()
                header.sequence += 1
                left -= 1
                frames += 1
                if size < self.capacity or self._buffer - self._start == self.train_bytes:
                    trains.append(self._hand_over(self._buffer - self._start))
            if self._buffer > self._start:
                trains.append(self._hand_over(self._buffer - self._start))
            for number in range(len(trains)):
                size = len(trains[number])
                if size > self.capacity:
                    trains[number] = Train(trains[number], (size + self.capacity - 1) // self.capacity, self.capacity)
                else:
                    trains[number] = Train(trains[number])
            stops = stops_of(frames, notes, written, known)
        finally:
            free(known)
            free(notes)
            if self._buffer > self._start:
                # There was no memory: the frames that were sealed are gone, with what this call took.
                self._buffer = self._start
                self._begin()
        return trains, stops, (at.part, at.index, at.cut), at.taken

    cdef Outcome _fill(self, const Part* part, Place* at, bint to_fill) noexcept:
        """Put in what fits of a part, from a place on that moves behind it."""
        cdef Py_ssize_t index = at.index, stop = part.stop, run_stop, begun, size, room
        cdef PyObject* item = NULL
        cdef uint8_t* p
        cdef uint8_t* end = self._buffer + self.capacity
        cdef bint goes_on
        if at.cut:
            # The rest of a message opens a run. That it is bytes and has something left was seen before.
            item = raw_item(part.payloads, index)
            size = raw_size(item) - at.cut
            room = self.capacity - self.size - (C_RUN_HEADER + C_LENGTH)
            if room <= 0:
                return FULL
            if size > room:
                self._put_piece(
                    False, part.group, part.first + <uint64_t>index, C_CONTINUES | C_MORE, raw_string(item) + at.cut,
                    room, 0,
                )
                at.cut += room
                at.taken += room
                return FULL
            self._put_piece(
                False, part.group, part.first + <uint64_t>index, C_CONTINUES, raw_string(item) + at.cut, size, 0
            )
            at.cut = 0
            at.taken += size
            index += 1
            at.index = index
        while index < stop:
            item = raw_item(part.payloads, index)
            if not raw_is_bytes(item):
                at.index = index
                return REFUSED
            if not self._put(part.group, part.first + <uint64_t>index, raw_string(item), raw_size(item)):
                break
            at.taken += raw_size(item)
            index += 1
            # What goes on with the run: its header is written once.
            run_stop = min(stop, index + (C_COUNT_MAX - <Py_ssize_t>self._run_count))
            begun = index
            p = self._buffer + self.size
            while index < run_stop:
                item = raw_item(part.payloads, index)
                if not raw_is_bytes(item):
                    break
                size = raw_size(item)
                if size > (end - p) - C_LENGTH:
                    break
                store16(p, <uint32_t>size)
                memcpy(p + C_LENGTH, raw_string(item), size)
                p += C_LENGTH + size
                index += 1
            if index > begun:
                at.taken += (p - self._buffer) - self.size - C_LENGTH * (index - begun)
                self.size = p - self._buffer
                self.count += index - begun
                self._run_count += <uint32_t>(index - begun)
                self._run_next = part.first + <uint64_t>index
                store16(self._buffer + self._run + 12, self._run_count)
        at.index = index
        if index == stop:
            return FINISHED
        size = raw_size(item)
        if not to_fill and size <= self.capacity - (C_HEADER + C_RUN_HEADER + C_LENGTH):
            return FULL
        goes_on = self._continues(part.group, part.first + <uint64_t>index)
        room = self.capacity - self.size - (C_LENGTH + C_TOTAL) - (0 if goes_on else C_RUN_HEADER)
        if room <= 0 or (self.count and room < self.capacity // C_WORTHWHILE):
            return FULL
        if <uint64_t>size > U32:
            return REFUSED
        # It did not fit, so there is more of it than the room.
        self._put_piece(
            goes_on, part.group, part.first + <uint64_t>index, C_MORE, raw_string(item), room, <uint32_t>size
        )
        at.cut = room
        at.taken += room
        return FULL


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
