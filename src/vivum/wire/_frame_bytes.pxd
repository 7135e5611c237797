# cython: language_level=3
"""What other compiled parts see of `_frame_bytes.pyx`."""

from libc.stdint cimport uint8_t


cdef class FrameBytes:
    cdef uint8_t* start
    cdef Py_ssize_t size


cdef class FrameMemory:
    # Smaller frames are `bytes`, larger ones do not fit.
    cdef readonly Py_ssize_t frame_bytes_min
    cdef readonly Py_ssize_t frame_bytes_max

    cdef FrameBytes room(self)
