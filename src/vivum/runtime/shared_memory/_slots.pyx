# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: auto_pickle=False
"""Frames in memory that one process writes and others read at the same time. See `_slots.pyi`.

A slot begins with a stamp and the length of its frame. The stamp is there only while the frame is readable: it is
removed before the slot is written, and never used again. So a reader that sees the same stamp before and after its copy
knows that it has the frame, and nobody waits for anybody. Readers trust nothing: they check slot numbers and lengths.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from vivum.wire._frame_bytes cimport FrameBytes, FrameMemory

cdef extern from *:
    """
    static void stamp_store(uint64_t* where, uint64_t stamp) { __atomic_store_n(where, stamp, __ATOMIC_RELEASE); }
    static uint64_t stamp_load(const uint64_t* where) { return __atomic_load_n(where, __ATOMIC_ACQUIRE); }
    static void stamp_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
    """
    void stamp_store(uint64_t*, uint64_t) noexcept
    uint64_t stamp_load(const uint64_t*) noexcept
    void stamp_fence() noexcept

cdef extern from "Python.h":
    bytes PyBytes_FromStringAndSize(const char*, Py_ssize_t)

cdef enum:
    SLOT = 65536
    # A line of a processor's cache, so that frames begin with one.
    HEAD = 64
    STAMP = 8
    # A stamp has its slot in the lowest bits, and a number that begins with 1 above them.
    INDEX_BITS = 16
    INDEX_MAX = 65535
    FRAME_MIN = 32768

SLOT_BYTES = SLOT
FRAME_BYTES_MIN = FRAME_MIN
FRAME_BYTES_MAX = SLOT - HEAD
STAMP_BYTES = STAMP


@cython.final
cdef class Slots(FrameMemory):
    """The slots of this node; see the stub."""

    cdef Py_buffer _view
    cdef bint _is_held
    cdef uint8_t* _base
    cdef readonly Py_ssize_t slots
    # Slots that sealed frames leave free for copies.
    cdef Py_ssize_t _reserved
    # A stack of free slots, and a ring of those whose copies may still be read (they rest).
    cdef uint16_t* _free
    cdef Py_ssize_t _free_count
    cdef uint16_t* _resting
    cdef Py_ssize_t _rest_first
    cdef Py_ssize_t _rest_count
    cdef uint64_t _number

    def __cinit__(self, memory, Py_ssize_t reserved):
        cdef Py_ssize_t index
        PyObject_GetBuffer(memory, &self._view, PyBUF_WRITABLE)
        self._is_held = True
        self._base = <uint8_t*>self._view.buf
        self.frame_bytes_min = FRAME_MIN
        self.frame_bytes_max = SLOT - HEAD
        self.slots = min(self._view.len // SLOT, INDEX_MAX)
        if self.slots < 1:
            raise ValueError(f"a slot has {SLOT} bytes; here are {self._view.len}")
        self._reserved = min(max(0, reserved), self.slots)
        self._free = <uint16_t*>malloc(2 * self.slots * sizeof(uint16_t))
        if self._free == NULL:
            raise MemoryError()
        self._resting = self._free + self.slots
        # The first slot on top: pages that are never needed are never touched.
        for index in range(self.slots):
            self._free[index] = <uint16_t>(self.slots - 1 - index)
        self._free_count = self.slots

    def __dealloc__(self):
        free(self._free)
        if self._is_held:
            PyBuffer_Release(&self._view)

    @property
    def unused(self):
        return self._free_count + self._rest_count

    cdef FrameBytes room(self):
        if self._free_count + self._rest_count <= self._reserved:
            return None
        return self._take(False)

    cdef Slot _take(self, bint rests):
        """Return a slot to write in, which rests afterwards if it is for a copy; None if there is none.

        At most the reserved number of slots rest at a time, or copies would go through all of the memory.
        """
        cdef Slot slot
        cdef Py_ssize_t index
        if self._free_count and not (rests and self._rest_count and self._rest_count >= self._reserved):
            self._free_count -= 1
            index = self._free[self._free_count]
        elif self._rest_count:
            index = self._resting[self._rest_first]
            self._rest_first = (self._rest_first + 1) % self.slots
            self._rest_count -= 1
        else:
            return None
        slot = Slot.__new__(Slot)
        slot._slots = self
        slot._index = index
        slot._rests = rests
        slot.start = self._base + index * SLOT + HEAD
        stamp_store(<uint64_t*>(slot.start - HEAD), 0)
        stamp_fence()
        return slot

    cdef void _give_back(self, Py_ssize_t index, bint rests) noexcept:
        if rests:
            self._resting[(self._rest_first + self._rest_count) % self.slots] = <uint16_t>index
            self._rest_count += 1
        else:
            # On top, so that the next frame finds it in the processor's cache.
            self._free[self._free_count] = <uint16_t>index
            self._free_count += 1

    def write(self, list frames not None):
        cdef list stamps = []
        cdef Slot slot
        cdef Py_ssize_t size
        for frame in frames:
            slot = <Slot>frame if type(frame) is Slot else None
            if slot is None or slot._slots is not self:
                size = PyBytes_GET_SIZE(<bytes?>frame)
                slot = self._take(True) if size <= SLOT - HEAD else None
                if slot is None:
                    break
                memcpy(slot.start, PyBytes_AS_STRING(<bytes>frame), size)
                slot.size = size
            if slot._stamp == 0:
                self._number += 1
                slot._stamp = self._number << INDEX_BITS | <uint64_t>slot._index
                (<uint32_t*>(slot.start - HEAD + STAMP))[0] = <uint32_t>slot.size
                stamp_store(<uint64_t*>(slot.start - HEAD), slot._stamp)
            stamps.append(PyBytes_FromStringAndSize(<const char*>&slot._stamp, STAMP))
        return b"".join(stamps)


@cython.final
@cython.no_gc
cdef class Slot(FrameBytes):
    """A frame in a slot. The slot becomes free when nobody holds the frame any more."""

    cdef Slots _slots
    cdef Py_ssize_t _index
    # Names the frame to readers; 0 until it is readable.
    cdef uint64_t _stamp
    cdef bint _rests

    def __dealloc__(self):
        if self._slots is not None:
            self._slots._give_back(self._index, self._rests)


@cython.final
cdef class SlotReader:
    """The slots of another node; see the stub."""

    cdef Py_buffer _view
    cdef bint _is_held
    cdef const uint8_t* _base
    cdef uint64_t _slots

    def __cinit__(self, memory):
        PyObject_GetBuffer(memory, &self._view, PyBUF_SIMPLE)
        self._is_held = True
        self._base = <const uint8_t*>self._view.buf
        self._slots = <uint64_t>self._view.len // SLOT

    def __dealloc__(self):
        if self._is_held:
            PyBuffer_Release(&self._view)

    def read(self, bytes stamps not None):
        cdef list found = []
        cdef const uint8_t* slot
        cdef uint64_t stamp
        cdef uint32_t size
        cdef bytes copied
        cdef Py_ssize_t at
        for at in range(0, PyBytes_GET_SIZE(stamps) - STAMP + 1, STAMP):
            memcpy(&stamp, PyBytes_AS_STRING(stamps) + at, STAMP)
            # A slot without a stamp is being written, so stamp 0 is never valid.
            if stamp >> INDEX_BITS == 0 or stamp & INDEX_MAX >= self._slots:
                continue
            slot = self._base + (stamp & INDEX_MAX) * SLOT
            if stamp_load(<const uint64_t*>slot) != stamp:
                continue
            size = (<const uint32_t*>(slot + STAMP))[0]
            if size > SLOT - HEAD:
                continue
            copied = PyBytes_FromStringAndSize(<const char*>slot + HEAD, size)
            stamp_fence()
            if stamp_load(<const uint64_t*>slot) == stamp:
                found.append(copied)
        return found
