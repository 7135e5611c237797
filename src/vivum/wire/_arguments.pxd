"""How the compiled modules read their arguments: numbers within bounds, and the bytes of bytes-like objects."""

from cpython.buffer cimport PyBUF_SIMPLE, PyObject_GetBuffer
from libc.stdint cimport uint64_t

cdef extern from "Python.h":
    unsigned long long PyLong_AsUnsignedLongLong(object) except? <unsigned long long>-1


cdef inline uint64_t whole(object value, str what, uint64_t least, uint64_t most) except? 0xFFFFFFFFFFFFFFFFU:
    """Read an int argument, or refuse it by name: nothing is ever cut to fewer bits in silence."""
    cdef uint64_t number
    if not isinstance(value, int):
        from vivum.wire import refusals
        raise refusals.not_an_int(what, value)
    try:
        number = PyLong_AsUnsignedLongLong(value)
        if least <= number <= most:
            return number
    except OverflowError:
        pass
    from vivum.wire import refusals
    raise refusals.out_of_range(what, value, least, most)


cdef inline int get_buffer(object value, Py_buffer* view, str what) except -1:
    """Hold the bytes of an argument. The caller must release the view."""
    try:
        return PyObject_GetBuffer(value, view, PyBUF_SIMPLE)
    except (TypeError, BufferError):
        from vivum.wire import refusals
        raise refusals.not_bytes_like(what, value) from None
