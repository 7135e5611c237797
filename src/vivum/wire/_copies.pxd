"""Messages copied out of frames that were checked."""

from cpython.ref cimport PyObject
from libc.stdint cimport uint8_t

from vivum.wire._layout cimport *

cdef extern from "Python.h":
    PyObject* PyList_GET_ITEM(list, Py_ssize_t) noexcept
    Py_ssize_t PyList_GET_SIZE(list) noexcept
    bytes PyBytes_FromStringAndSize(const char*, Py_ssize_t)


cdef inline const uint8_t* cut_run(const uint8_t* p, list payloads, Py_ssize_t count) except NULL:
    """Append messages that lie one behind the other to a list; return where the last ends."""
    cdef Py_ssize_t size
    while count > 0:
        size = load16(p)
        p += C_LENGTH
        payloads.append(PyBytes_FromStringAndSize(<const char*>p, size))
        p += size
        count -= 1
    return p
