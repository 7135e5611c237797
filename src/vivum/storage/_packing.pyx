# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Payloads one behind the other, compiled. `packing_twin.py` is the same in plain Python; change both or neither.

Nothing is read from a list while other threads may run but pointers to its items, and the list must be the caller's own:
who could take an item out of it meanwhile would leave a pointer to nowhere.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t
from libc.string cimport memcpy

cdef extern from "Python.h":
    bytes PyBytes_FromStringAndSize(const char*, Py_ssize_t)
    PyObject* raw_item "PyList_GET_ITEM" (PyObject*, Py_ssize_t) noexcept nogil
    const char* raw_string "PyBytes_AS_STRING" (PyObject*) noexcept nogil
    Py_ssize_t raw_size "PyBytes_GET_SIZE" (PyObject*) noexcept nogil

cdef Py_ssize_t STOP_MAX = 0x7FFFFFFF


def stops_of(list payloads not None):
    cdef Py_ssize_t index, count = len(payloads), total = 0
    cdef object payload
    cdef bytes made = PyBytes_FromStringAndSize(NULL, (count + 1) * sizeof(int32_t))
    cdef int32_t* stops = <int32_t*>PyBytes_AS_STRING(made)
    stops[0] = 0
    # No Python code runs in here, so the list stays as long as it is.
    for index in range(count):
        payload = payloads[index]
        if not PyBytes_Check(payload):
            raise TypeError(f"a payload is bytes, not {type(payload).__name__}")
        total += PyBytes_GET_SIZE(payload)
        if total > STOP_MAX:
            raise OverflowError(f"payloads of more than {STOP_MAX} bytes")
        stops[index + 1] = <int32_t>total
    return made


def pack_payloads(list payloads not None, memory, Py_ssize_t at):
    cdef Py_ssize_t index, count = len(payloads), total = 0
    cdef PyObject* items = <PyObject*>payloads
    cdef PyObject* item
    cdef char* to
    cdef Py_buffer room
    cdef object payload
    for payload in payloads:
        if not PyBytes_Check(payload):
            raise TypeError(f"a payload is bytes, not {type(payload).__name__}")
        total += PyBytes_GET_SIZE(payload)
    PyObject_GetBuffer(memory, &room, PyBUF_WRITABLE)
    try:
        if at < 0 or total > room.len - at:
            raise ValueError(f"{total} bytes at {at} do not fit into {room.len}")
        to = <char*>room.buf + at
        with nogil:
            for index in range(count):
                item = raw_item(items, index)
                memcpy(to, raw_string(item), raw_size(item))
                to += raw_size(item)
    finally:
        PyBuffer_Release(&room)
