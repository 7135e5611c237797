# Compiled from `frame_cache.py`: this file declares the attributes and the methods that are called from C.
# docs/design/compiled.md says how.

cdef class FrameCache:
    cdef public object _count, _late, _trains, floor

    cpdef object add(self, object frame)
    cpdef object get(self, object number)
    cpdef object forget_below(self, object floor)
