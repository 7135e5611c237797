# Compiled from `turns.py`: this file declares the attributes and the methods that are called from C.
# docs/design/compiled.md says how.

cpdef Py_ssize_t next_step(Py_ssize_t step, object took_s) except -1


cdef class SenderTurns:
    cdef public object _began_s, _driver, _looked_s, _time, _turns
    cdef public Py_ssize_t _step

    cpdef Py_ssize_t look(self) except -1
    cpdef object on_yielded(self)
