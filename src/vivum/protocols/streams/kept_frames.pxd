# Compiled from `kept_frames.py`: this file declares the attributes and the methods that are called from C.
# docs/design/compiled.md says how.

cdef class KeptFrames:
    cdef public object _bytes, _stop, _trains

    cpdef object extend(self, object trains)
    cpdef object get(self, object number)
    cpdef object size_between(self, object start, object stop)
    cpdef object forget_below(self, object number)
    cpdef object _find(self, object number)
    cpdef object _offset(self, object number)
