# Compiled from `stacks.py`: this file declares the attributes and the methods that are called from C.
# docs/design/compiled.md says how.

cdef class Stack:
    cdef public object layers, transport

    cpdef object submit(self, object now_ns, object command)


cdef class Stacks:
    cdef public object _by_group, _deadlines, _layered, _leaving, _may_send, _transports, _view_watchers, have_layers

    cpdef object get(self, object group)
