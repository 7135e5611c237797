"""Messages copied out of frames that were checked."""

from cpython.ref cimport PyObject
from libc.stdint cimport uint8_t

from vivum.wire._layout cimport *

cdef extern from "Python.h":
    # Raw pointers: a payload moves from its maker into its list without reference counting in between.
    PyObject* raw_bytes "PyBytes_FromStringAndSize" (const char*, Py_ssize_t) except NULL
    void raw_set_item "PyList_SET_ITEM" (PyObject*, Py_ssize_t, PyObject*) noexcept
    list PyList_New(Py_ssize_t)
    Py_ssize_t PyList_GET_SIZE(list) noexcept
    bytes PyBytes_FromStringAndSize(const char*, Py_ssize_t)


cdef inline const uint8_t* cut_run(const uint8_t* p, list payloads, Py_ssize_t place, Py_ssize_t count) except NULL:
    """Copy messages that lie one behind the other into a list; return where the last ends."""
    cdef Py_ssize_t size
    while count:
        size = load16(p)
        p += C_LENGTH
        raw_set_item(<PyObject*>payloads, place, raw_bytes(<const char*>p, size))
        p += size
        place += 1
        count -= 1
    return p
