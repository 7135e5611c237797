# cython: language_level=3
"""What other compiled parts see of `_slots.pyx`."""

from libc.stdint cimport uint8_t, uint16_t, uint64_t

cdef enum:
    # Bytes of a slot, and of what stands before its frame: a line of a processor's cache.
    C_SLOT = 65536
    C_SLOT_HEAD = 64
    # Smaller frames are not worth a slot.
    C_SLOT_FRAME_MIN = 32768


cdef class SlotPool:
    cdef Py_buffer _view
    cdef bint _is_held
    cdef uint8_t* _base
    cdef readonly Py_ssize_t slots
    # Slots that frames which are kept leave free.
    cdef Py_ssize_t _reserved
    # A stack of slots that may be written, and a ring of those that should rest.
    cdef uint16_t* _free
    cdef Py_ssize_t _free_count
    cdef uint16_t* _resting
    cdef Py_ssize_t _rest_first
    cdef Py_ssize_t _rest_count
    cdef uint64_t _number

    cdef Slot take(self, bint rests)
    cdef void give_back(self, Py_ssize_t index, bint rests) noexcept
    cdef uint64_t show(self, Slot slot) noexcept


cdef class Slot:
    cdef SlotPool pool
    cdef uint8_t* start
    cdef Py_ssize_t size
    cdef Py_ssize_t index
    # What readers know it by; 0 until it is shown.
    cdef uint64_t stamp
    cdef bint _rests


cdef class Lent:
    # Whose memory it is, so that it stays mapped; where the stamp is, and what it was when the frame was found.
    cdef object _memory
    cdef const uint8_t* start
    cdef Py_ssize_t size
    cdef uint64_t _stamp

    cdef bint is_there(self) noexcept


cdef Lent lend(object memory, const uint8_t* slot, uint64_t stamp)
