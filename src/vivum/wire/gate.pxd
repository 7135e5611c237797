# Compiled from `gate.py`: this file declares the attributes and the methods that are called from C.
# docs/design/compiled.md says how.

cdef class Gate:
    cdef public object _limits, _member, counters, domain, trace, waited_ns

    cpdef object open(self, object now_ns, object source, object data)
