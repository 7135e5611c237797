# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: auto_pickle=False
"""The compiled XOR of frames.

The twin `_xor_twin.py` has the same name and the same behaviour to the byte and to the error; change both or neither.
No index is taken from the outside: each loop is bounded by the length of the string that it reads, and what is
written is as long as the longest of them.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy, memset

from vivum.wire import layout, refusals

cdef extern from "Python.h":
    bytes PyBytes_FromStringAndSize(const char*, Py_ssize_t)

cdef Py_ssize_t LONGEST = layout.FRAME_BYTES_MAX


def xor_all(parts):
    cdef Py_ssize_t longest = 0, size, at
    cdef uint8_t* to
    cdef const uint8_t* p
    cdef uint64_t left, right
    cdef bytes made
    if not isinstance(parts, (list, tuple)):
        raise refusals.not_a_list(parts)
    # A copy: nobody changes it while it is read.
    held = tuple(parts)
    for part in held:
        if not PyBytes_CheckExact(part):
            raise refusals.not_bytes("part", part)
        size = PyBytes_GET_SIZE(part)
        if size > LONGEST:
            raise refusals.out_of_range("len(part)", size, 0, LONGEST)
        longest = max(longest, size)
    made = PyBytes_FromStringAndSize(NULL, longest)
    to = <uint8_t*>PyBytes_AS_STRING(made)
    memset(to, 0, longest)
    for part in held:
        p = <const uint8_t*>PyBytes_AS_STRING(part)
        size = PyBytes_GET_SIZE(part)
        at = 0
        while at + 8 <= size:
            memcpy(&left, to + at, 8)
            memcpy(&right, p + at, 8)
            left ^= right
            memcpy(to + at, &left, 8)
            at += 8
        while at < size:
            to[at] ^= p[at]
            at += 1
    return made
