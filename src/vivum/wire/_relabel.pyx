# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: auto_pickle=False
"""The compiled way to send the same bytes under another label: again, or as a frame of one of several streams.

The twin `_relabel_twin.py` has the same names and the same behaviour to the byte and to the error; change both or
neither. The rules against reading or writing past a buffer are those of `_codec.pyx`, which exports these.
"""

from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact
from libc.stdint cimport uint8_t, uint64_t

from vivum.wire._arguments cimport get_buffer, whole
from vivum.wire._layout cimport *

from vivum.wire import layout, refusals
from vivum.wire.kinds import Kind

cdef extern from "Python.h":
    bytes PyBytes_FromStringAndSize(const char*, Py_ssize_t)

cdef uint64_t MESSAGE_MASK = sum(1 << kind for kind in layout.MESSAGE_KINDS)
cdef uint8_t KIND_DATA = Kind.DATA
cdef uint8_t KIND_RESENT = Kind.RESENT
cdef uint8_t KIND_SPREAD = Kind.SPREAD


def resend(frame):
    cdef Py_buffer view
    cdef const uint8_t* p
    cdef bytes copy
    get_buffer(frame, &view, "frame")
    try:
        p = <const uint8_t*>view.buf
        if (
            view.len < C_HEADER or p[0] != C_VERSION or load16(p + 2) != view.len
            or p[1] >= 64 or not (MESSAGE_MASK >> p[1]) & 1
        ):
            raise refusals.not_a_data_frame()
        if p[1] == KIND_RESENT and PyBytes_CheckExact(frame):
            return frame
        copy = PyBytes_FromStringAndSize(<const char*>p, view.len)
        (<uint8_t*>PyBytes_AS_STRING(copy))[1] = KIND_RESENT
        return copy
    finally:
        PyBuffer_Release(&view)


cdef inline const uint8_t* read_varint(const uint8_t* p, const uint8_t* stop, uint64_t* value) noexcept nogil:
    """Read a number of 7 bits a byte, the lowest first; return the pointer behind it, NULL if it is torn."""
    cdef int shift = 0
    cdef uint8_t byte
    value[0] = 0
    while p < stop and shift < 64:
        byte = p[0]
        p += 1
        if shift == 63 and (byte & 0x7F) > 1:
            return NULL
        value[0] |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return p
        shift += 7
    return NULL


def relabel(frame, region, view):
    cdef Py_buffer source
    cdef const uint8_t* p
    cdef const uint8_t* stop
    cdef uint8_t* target
    cdef uint64_t step = 0, its_view = 0, sequence = 0, found = 0, wanted, wanted_view
    cdef Py_ssize_t size
    cdef bytes copy
    get_buffer(frame, &source, "frame")
    try:
        wanted = whole(region, "region", 0, U32)
        wanted_view = whole(view, "view", 0, U32)
        p = <const uint8_t*>source.buf
        if source.len < C_HEADER or p[0] != C_VERSION or load16(p + 2) != source.len or p[1] != KIND_SPREAD:
            raise refusals.not_a_spread_frame()
        stop = p + source.len
        p += C_HEADER
        if stop - p < C_RUN_HEADER + C_LENGTH:
            return None
        size = load16(p + C_RUN_HEADER)
        if load32(p) != C_GROUP_MAX or load16(p + 12) == 0 or size > stop - p - (C_RUN_HEADER + C_LENGTH):
            return None
        p += C_RUN_HEADER + C_LENGTH
        stop = p + size
        while p < stop:
            p = read_varint(p, stop, &step)
            if p != NULL:
                p = read_varint(p, stop, &its_view)
            if p != NULL:
                p = read_varint(p, stop, &sequence)
            if p == NULL or step > U32 - found:
                return None
            found += step
            if found == wanted and its_view == wanted_view and sequence <= C_SEQUENCE_MAX:
                copy = PyBytes_FromStringAndSize(<const char*>source.buf, source.len)
                target = <uint8_t*>PyBytes_AS_STRING(copy)
                target[1] = KIND_DATA
                store32(target + 16, <uint32_t>wanted)
                store32(target + 20, <uint32_t>wanted_view)
                store64(target + 24, sequence)
                return copy
        return None
    finally:
        PyBuffer_Release(&source)
