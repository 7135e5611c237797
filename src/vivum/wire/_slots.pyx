# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: auto_pickle=False
"""Memory for large frames that others may read, in slots: frames are sealed where they are read. See `_slots.pyi`.

Every slot begins with its stamp, the frame's length, and whether it is a copy. The stamp is there only while the frame
is shown: it is taken away before anything else is written, and no stamp comes twice. So a reader that looks at it before
and after it has copied knows whether what it has is the frame, and nobody waits for readers.
"""

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

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

SLOT_BYTES = C_SLOT
SLOT_FRAME_BYTES_MIN = C_SLOT_FRAME_MIN
SLOT_FRAME_BYTES_MAX = C_SLOT - C_SLOT_HEAD
SLOTS_MAX = 65535


@cython.final
cdef class SlotPool:
    """Slots of one sender; see the stub."""

    def __cinit__(self, memory, reserved=None):
        cdef Py_ssize_t index
        PyObject_GetBuffer(memory, &self._view, PyBUF_WRITABLE)
        self._is_held = True
        self._base = <uint8_t*>self._view.buf
        self.slots = min(self._view.len // C_SLOT, SLOTS_MAX)
        if self.slots < 1:
            raise ValueError(f"slots have {C_SLOT} bytes; here are {self._view.len}")
        self._reserved = self.slots // 2 if reserved is None else min(max(0, reserved), self.slots)
        self._free = <uint16_t*>malloc(2 * self.slots * sizeof(uint16_t))
        if self._free == NULL:
            raise MemoryError()
        self._resting = self._free + self.slots
        # The first one on top: pages that nobody needs are never touched.
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

    cdef Slot take(self, bint rests):
        """Give a slot to write in, that will rest afterwards or not; None if there is none for that.

        Some are reserved for those that rest: where a member sleeps, frames are kept for long. And no more than those
        rest at a time, or they would go through all of the memory.
        """
        cdef Slot slot
        cdef Py_ssize_t index
        if not rests and self._free_count + self._rest_count <= self._reserved:
            return None
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
        slot.pool = self
        slot.index = index
        slot.start = self._base + index * C_SLOT + C_SLOT_HEAD
        slot._rests = rests
        stamp_store(<uint64_t*>(slot.start - C_SLOT_HEAD), 0)
        stamp_fence()
        return slot

    cdef void give_back(self, Py_ssize_t index, bint rests) noexcept:
        if rests:
            self._resting[(self._rest_first + self._rest_count) % self.slots] = <uint16_t>index
            self._rest_count += 1
        else:
            # On top: who sends next finds it in the processor's cache.
            self._free[self._free_count] = <uint16_t>index
            self._free_count += 1

    cdef uint64_t show(self, Slot slot) noexcept:
        """Let readers see the frame of a slot, which is not written any more; tell its stamp."""
        if slot.stamp == 0:
            self._number += 1
            slot.stamp = self._number << 16 | <uint64_t>slot.index
            (<uint32_t*>(slot.start - C_SLOT_HEAD + 8))[0] = <uint32_t>slot.size
            (<uint32_t*>(slot.start - C_SLOT_HEAD + 12))[0] = slot._rests
            stamp_store(<uint64_t*>(slot.start - C_SLOT_HEAD), slot.stamp)
        return slot.stamp


@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class Slot:
    """A frame in a slot; see the stub."""

    def __init__(self):
        raise TypeError("slots come from their pool")

    def __dealloc__(self):
        if self.pool is not None:
            self.pool.give_back(self.index, self._rests)

    def __len__(self):
        return self.size

    def __bytes__(self):
        return PyBytes_FromStringAndSize(<const char*>self.start, self.size)

    def __getitem__(self, key):
        if type(key) is int and 0 <= key < self.size:
            return self.start[<Py_ssize_t>key]
        return PyBytes_FromStringAndSize(<const char*>self.start, self.size)[key]

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.start, self.size, 1, flags)


cdef Lent lend(object memory, const uint8_t* slot, uint64_t stamp):
    """Find a frame in a slot of another node; None if it is gone. What is read is not believed."""
    cdef Lent lent
    cdef uint32_t size
    if stamp_load(<const uint64_t*>slot) != stamp:
        return None
    size = (<const uint32_t*>(slot + 8))[0]
    if size > C_SLOT - C_SLOT_HEAD:
        return None
    lent = Lent.__new__(Lent)
    lent._memory = memory
    lent.start = slot + C_SLOT_HEAD
    lent.size = size
    lent._stamp = stamp
    return lent


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Lent:
    """A frame in a slot of another node; see the stub."""

    def __init__(self):
        raise TypeError("frames are lent by a board")

    cdef bint is_there(self) noexcept:
        """Tell whether all that was read until now was the frame."""
        if self.start == NULL:
            # A blank one, from `Lent.__new__`.
            return False
        stamp_fence()
        return stamp_load(<const uint64_t*>(self.start - C_SLOT_HEAD)) == self._stamp

    def __len__(self):
        return self.size

    def __getitem__(self, key):
        if type(key) is not int or not 0 <= key < self.size:
            raise IndexError(f"bytes 0 to {self.size - 1} can be looked at, not {key!r}")
        return self.start[<Py_ssize_t>key]

    def copy(self):
        cdef bytes copied = PyBytes_FromStringAndSize(<const char*>self.start, self.size)
        return copied if self.is_there() else None
