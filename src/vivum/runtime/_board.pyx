# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: auto_pickle=False
"""Frames in memory that one node writes and others of its machine read. `boards.py` tells how it is used.

Every slot begins with its stamp, one more than the number of the frame in it, and the frame's length. A writer takes
the stamp away before it writes and puts it there afterwards; a reader looks at it before and after it has copied. So
whoever was too slow notices, and nobody waits. What is read is not believed: the length is checked, and frames are
looked at only when they are copies of our own.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    static void stamp_store(uint64_t* where, uint64_t stamp) { __atomic_store_n(where, stamp, __ATOMIC_RELEASE); }
    static uint64_t stamp_load(const uint64_t* where) { return __atomic_load_n(where, __ATOMIC_ACQUIRE); }
    static void stamp_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
    """
    void stamp_store(uint64_t*, uint64_t) nogil
    uint64_t stamp_load(const uint64_t*) nogil
    void stamp_fence() nogil

cdef extern from "Python.h":
    bytes PyBytes_FromStringAndSize(const char*, Py_ssize_t)

cdef enum:
    # Bytes of a slot, and of what stands before its frame: a line of a processor's cache.
    SLOT = 65536
    HEAD = 64
    NOTE = 24
    FRAMES = 16

cdef packed struct Note:
    uint32_t mark
    uint32_t count
    uint64_t name
    uint64_t first

cdef uint32_t MARK = 0x4E42_56B6

SLOT_BYTES = SLOT
FRAME_BYTES_MAX = SLOT - HEAD
NOTE_BYTES = NOTE
NOTE_MARK = MARK.to_bytes(4, "little")
FRAMES_MAX = FRAMES


@cython.final
cdef class Board:
    """The slots of one node; see the stub."""

    cdef Py_buffer _view
    cdef uint8_t* _base
    cdef Py_ssize_t _slots
    cdef bint _is_held
    cdef bint _is_own
    cdef uint64_t _next
    cdef readonly uint64_t name

    def __cinit__(self, memory, name, is_own):
        PyObject_GetBuffer(memory, &self._view, PyBUF_WRITABLE if is_own else PyBUF_SIMPLE)
        self._is_held = True
        self._is_own = is_own
        self._base = <uint8_t*>self._view.buf
        self._slots = self._view.len // SLOT
        self.name = name
        if self._slots < 1:
            raise ValueError(f"a board has slots of {SLOT} bytes; here are {self._view.len}")

    def __dealloc__(self):
        if self._is_held:
            PyBuffer_Release(&self._view)

    def write(self, list frames):
        cdef Note note
        cdef uint8_t* slot
        cdef bytes frame
        cdef Py_ssize_t index, size, count = len(frames)
        if not self._is_own:
            raise ValueError("this board is of another node")
        if count > FRAMES or count > self._slots:
            raise ValueError(f"{count} frames cannot be written at once")
        note.mark = MARK
        note.count = <uint32_t>count
        note.name = self.name
        note.first = self._next
        for index in range(count):
            frame = <bytes?>frames[index]
            size = PyBytes_GET_SIZE(frame)
            if size > SLOT - HEAD:
                raise ValueError(f"a frame of {size} bytes is too large for a slot")
            slot = self._base + (self._next % <uint64_t>self._slots) * SLOT
            self._next += 1
            stamp_store(<uint64_t*>slot, 0)
            stamp_fence()
            (<uint32_t*>(slot + 8))[0] = <uint32_t>size
            memcpy(slot + HEAD, PyBytes_AS_STRING(frame), size)
            stamp_store(<uint64_t*>slot, self._next)
        return PyBytes_FromStringAndSize(<char*>&note, NOTE)

    def read(self, bytes data, place, list taken):
        cdef Note note
        cdef const uint8_t* slot
        cdef uint64_t stamp, number
        cdef uint32_t size, missed = 0
        cdef bytes frame
        if PyBytes_GET_SIZE(data) != NOTE:
            return 0
        memcpy(&note, PyBytes_AS_STRING(data), NOTE)
        if note.mark != MARK or note.name != self.name or note.count > FRAMES:
            return 0
        for number in range(note.first, note.first + note.count):
            slot = self._base + (number % <uint64_t>self._slots) * SLOT
            stamp = stamp_load(<const uint64_t*>slot)
            size = (<const uint32_t*>(slot + 8))[0]
            if stamp != number + 1 or size > SLOT - HEAD:
                missed += 1
                continue
            frame = PyBytes_FromStringAndSize(<const char*>(slot + HEAD), size)
            stamp_fence()
            if stamp_load(<const uint64_t*>slot) != stamp:
                missed += 1
                continue
            taken.append((place, frame))
        return missed
