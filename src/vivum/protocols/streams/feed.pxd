# Compiled from `feed.py`: this file declares the attributes and the methods that are called from C.
# docs/design/compiled.md says how.

cdef class _Segment:
    cdef public object stop, streams


cdef class Feed:
    cdef public object _failed, _segments, group, next_message, stable

    cpdef object number(self, object count, object streams)
    cpdef object send(
        self, object payloads, object streams, object view, object size=*, object slow=*, object spread=*
    )
    cpdef object advance(self)
    cpdef object confirm(self)
