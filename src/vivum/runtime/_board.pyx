# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: auto_pickle=False
"""Notes of frames in shared memory, and how they are read. `boards.py` tells how it is used.

A note names the stamps of its frames; a stamp tells which slot it is in. What is read is not believed: slots and
lengths are checked. Frames that their sender keeps are lent; copies are soon written over, and are copied again.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from vivum.wire._slots cimport C_SLOT, C_SLOT_FRAME_MIN, C_SLOT_HEAD, Lent, Slot, SlotPool, lend

cdef extern from "Python.h":
    bytes PyBytes_FromStringAndSize(const char*, Py_ssize_t)

cdef enum:
    HEAD = 16
    FRAMES = 8

cdef packed struct Note:
    uint32_t mark
    uint32_t count
    uint64_t name
    uint64_t stamps[FRAMES]

cdef uint32_t MARK = 0x4E42_56B6

NOTE_MARK = MARK.to_bytes(4, "little")
FRAMES_MAX = FRAMES


def write(SlotPool pool not None, uint64_t name, list frames not None):
    cdef Note note
    cdef Slot slot
    cdef object frame
    cdef uint32_t count = 0
    cdef Py_ssize_t size
    for frame in frames:
        if count == FRAMES:
            break
        slot = <Slot>frame if type(frame) is Slot else None
        if slot is None or slot.pool is not pool:
            size = PyBytes_GET_SIZE(<bytes?>frame)
            if size > C_SLOT - C_SLOT_HEAD:
                break
            slot = pool.take(True)
            if slot is None:
                break
            memcpy(slot.start, PyBytes_AS_STRING(<bytes>frame), size)
            slot.size = size
        note.stamps[count] = pool.show(slot)
        count += 1
    note.mark = MARK
    note.count = count
    note.name = name
    return PyBytes_FromStringAndSize(<char*>&note, HEAD + count * sizeof(uint64_t)), count


@cython.final
cdef class Board:
    """The slots of another node; see the stub."""

    cdef Py_buffer _view
    cdef const uint8_t* _base
    cdef uint64_t _slots
    cdef bint _is_held
    cdef readonly uint64_t name

    def __cinit__(self, memory, name):
        PyObject_GetBuffer(memory, &self._view, PyBUF_SIMPLE)
        self._is_held = True
        self._base = <const uint8_t*>self._view.buf
        self._slots = <uint64_t>self._view.len // C_SLOT
        self.name = name

    def __dealloc__(self):
        if self._is_held:
            PyBuffer_Release(&self._view)

    def read(self, bytes data not None, place, list taken not None):
        cdef Note note
        cdef const uint8_t* slot
        cdef Py_ssize_t length = PyBytes_GET_SIZE(data)
        cdef uint64_t stamp
        cdef uint32_t index, missed = 0
        cdef Lent lent
        cdef object frame
        if length < HEAD or length > <Py_ssize_t>sizeof(Note):
            return 0
        memcpy(&note, PyBytes_AS_STRING(data), length)
        if note.mark != MARK or note.name != self.name or length != <Py_ssize_t>(HEAD + note.count * sizeof(uint64_t)):
            return 0
        for index in range(note.count):
            stamp = note.stamps[index]
            # Numbers begin with 1; a slot without a stamp is being written.
            if stamp >> 16 == 0 or stamp & 0xFFFF >= self._slots:
                missed += 1
                continue
            slot = self._base + (stamp & 0xFFFF) * C_SLOT
            lent = lend(self, slot, stamp)
            frame = lent
            if lent is not None and ((<const uint32_t*>(slot + 12))[0] or lent.size < C_SLOT_FRAME_MIN):
                frame = lent.copy()
            if frame is None:
                missed += 1
                continue
            taken.append((place, frame))
        return missed
