# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: auto_pickle=False
"""Frames that are sealed in memory which somebody provides. See `_frame_bytes.pyi`."""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport uint8_t

cdef extern from "Python.h":
    bytes PyBytes_FromStringAndSize(const char*, Py_ssize_t)


cdef class FrameBytes:
    """A sealed frame; see the stub."""

    def __init__(self):
        raise TypeError("a FrameBuilder makes these, in memory that it was given")

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


cdef class FrameMemory:
    """Where frames are sealed; see the stub."""

    cdef FrameBytes room(self):
        """Return room for a frame of up to `frame_bytes_max` bytes; None if there is none now."""
        return None
