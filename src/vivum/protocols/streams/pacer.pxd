# Compiled from `pacer.py`: this file declares the attributes and the methods that are called from C.
# docs/design/compiled.md says how.

cdef class Pacer:
    cdef public object _go_ns, _late_slack_ns, _next_ns, _quantum_ns, _rate, _slack_ns, _waits

    cpdef object set_rate(self, object rate)
    cpdef object ready_ns(self, object now_ns)
    cpdef object rest(self)
    cpdef object ready_count(self, object now_ns)
    cpdef object on_sent(self, object frames=*)
