# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: auto_pickle=False
"""Frames in memory that one process writes and others read at the same time. See `_slots.pyi`.

A slot begins with a stamp and the length of its frame. The writer takes the stamp away before it writes, and no stamp
comes twice. So a reader that sees the same stamp before and after it has copied knows that it has the frame, and nobody
waits for anybody. Readers believe nothing: slot numbers and lengths are checked.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

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

SLOT_BYTES = SLOT
FRAME_BYTES_MAX = SLOT - HEAD
STAMP_BYTES = STAMP


@cython.final
cdef class SlotWriter:
    """The slots of this node; see the stub."""

    cdef Py_buffer _view
    cdef bint _is_held
    cdef uint8_t* _base
    cdef readonly Py_ssize_t slots
    cdef Py_ssize_t _next
    cdef uint64_t _number

    def __cinit__(self, memory):
        PyObject_GetBuffer(memory, &self._view, PyBUF_WRITABLE)
        self._is_held = True
        self._base = <uint8_t*>self._view.buf
        self.slots = min(self._view.len // SLOT, INDEX_MAX)
        if self.slots < 1:
            raise ValueError(f"a slot has {SLOT} bytes; here are {self._view.len}")

    def __dealloc__(self):
        if self._is_held:
            PyBuffer_Release(&self._view)

    def write(self, list frames not None):
        cdef bytes frame, stamps
        cdef Py_ssize_t size, index, count = 0
        cdef uint64_t stamp
        cdef uint8_t* slot
        for frame in frames:
            if frame is None or PyBytes_GET_SIZE(frame) > SLOT - HEAD or count == self.slots:
                break
            count += 1
        stamps = PyBytes_FromStringAndSize(NULL, count * STAMP)
        for index in range(count):
            frame = <bytes>frames[index]
            size = PyBytes_GET_SIZE(frame)
            slot = self._base + self._next * SLOT
            stamp_store(<uint64_t*>slot, 0)
            stamp_fence()
            memcpy(slot + HEAD, PyBytes_AS_STRING(frame), size)
            (<uint32_t*>(slot + STAMP))[0] = <uint32_t>size
            self._number += 1
            stamp = self._number << INDEX_BITS | <uint64_t>self._next
            stamp_store(<uint64_t*>slot, stamp)
            memcpy(PyBytes_AS_STRING(stamps) + index * STAMP, &stamp, STAMP)
            self._next += 1
            if self._next == self.slots:
                self._next = 0
        return stamps


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
            # A slot without a stamp is being written, so nobody may ask for that.
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
