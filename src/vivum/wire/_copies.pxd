"""Messages copied out of memory that somebody may write to meanwhile."""

from cpython.ref cimport PyObject
from libc.stdint cimport uint8_t, uint16_t

from vivum.wire._layout cimport *

cdef extern from *:
    """
    /* The same value for the test and for the use, whoever writes there meanwhile. */
    static uint16_t load16_once(const uint8_t* p) {
        return (uint16_t)(((const volatile uint8_t*)p)[0] | ((const volatile uint8_t*)p)[1] << 8);
    }
    static void copy_once(uint8_t* to, const uint8_t* from, size_t size) {
        memcpy(to, from, size);
        __asm__ __volatile__("" ::: "memory");
    }
    """
    uint16_t load16_once(const uint8_t*) noexcept nogil
    void copy_once(uint8_t*, const uint8_t*, size_t) noexcept nogil

cdef extern from "Python.h":
    # Raw pointers: a payload moves from its maker into its list without reference counting in between.
    PyObject* raw_bytes "PyBytes_FromStringAndSize" (const char*, Py_ssize_t) except NULL
    void raw_set_item "PyList_SET_ITEM" (PyObject*, Py_ssize_t, PyObject*) noexcept
    list PyList_New(Py_ssize_t)
    Py_ssize_t PyList_GET_SIZE(list) noexcept
    bytes PyBytes_FromStringAndSize(const char*, Py_ssize_t)


cdef inline const uint8_t* cut_run(
    const uint8_t* p, const uint8_t* stop, list payloads, Py_ssize_t place, Py_ssize_t count
) except? NULL:
    """Copy messages that lie one behind the other into a list; tell where the last ends, NULL if that is past `stop`."""
    cdef Py_ssize_t size
    while count:
        if stop - p < C_LENGTH:
            return NULL
        size = load16_once(p)
        p += C_LENGTH
        if stop - p < size:
            return NULL
        raw_set_item(<PyObject*>payloads, place, raw_bytes(<const char*>p, size))
        p += size
        place += 1
        count -= 1
    return p
