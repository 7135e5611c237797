# Compiled from `polling.py`: this file declares the attributes and the methods that are called from C.
# docs/design/compiled.md says how.

cdef class Polling:
    cdef public object _has_spoken, _limit_ns, _rest_ns, _rest_until_ns, _short_ns, _short_waits, _since_ns, _streak
    cdef public object _turned_ns, _turns, _was_awaited, is_on

    cpdef object on_arrival(self, object now_ns, object size)
    cpdef object begin(self, object now_ns, object sent)
    cpdef object go_on(self, object now_ns)
    cpdef object _rest(self, object until_ns)
