# Compiled from `taking.py`: this file declares the attributes and the methods that are called from C.
# docs/design/compiled.md says how.

from vivum.runtime.turns cimport next_step


cdef class Taker:
    cdef public object _behind, _decode, _delivery, _event, _first, _names, _payloads, _sender, _sent_ns, _time, _topic
    cdef public object _looked_s, _turned_s, _view, inbox, undecodable
    cdef public bint _is_raw, must_yield
    cdef public Py_ssize_t _count, _index, _step, _unlooked

    cpdef bint peek(self) except -1
    cpdef object take(self)
    cpdef object begin(self, object delivery)
    cpdef bint is_due(self) except -1
    cpdef object on_suspended(self, object behind)
    cpdef object _now_s(self)
    cpdef object _make(self, Py_ssize_t index)


cdef class Ready:
    cdef public Taker _taker


cdef class Events:
    cdef public Taker _taker
    cdef public object _ready, _wait
