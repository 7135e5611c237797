# Compiled from `node.py`: this file declares the attributes and the methods that are called from C.
# docs/design/compiled.md says how.

from vivum.node.stacks cimport Stacks
from vivum.wire.gate cimport Gate


cdef class Node:
    cdef public object _by_command, _effects, _identity, _member, _now_ns, _protocols, _room_bytes, _send_now, _takers
    cdef public object counters, trace
    cdef public Gate _gate
    cdef public Stacks _stacks

    cpdef object submit(self, object now_ns, object command)
    cpdef object take_output(self, object room_bytes=*)
    cpdef object _submit_messages(self, object now_ns, object command)
    cpdef object _collect(self, object protocol)
    cpdef object _take_up(self, object effects)
    cpdef object _count_sent(self, object datagrams)
