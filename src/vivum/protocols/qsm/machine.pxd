# Compiled from `machine.py`: this file declares the attributes and the methods that are called from C.
# docs/design/compiled.md says how.

from vivum.protocols.qsm.send.sender cimport Sender
from vivum.wire.gate cimport Gate


cdef class QsmMachine:
    cdef public object _channels, _control_frames, _early, _fifos, _health, _housekeeping_ns, _joined, _memory_watch
    cdef public object _now_ns, _progress, _receive_routes, _reported_ns, _routes, _started, client, counters, effects
    cdef public object homes, identity, limits, regions, settings, taps
    cdef public Gate _gate
    cdef public Sender sending

    cpdef object submit(self, object now_ns, object command)
    cpdef object _send(self, object command, object at_once=*)
    cpdef object _on_data(self, object source, object frame)
    cpdef object make_frames(self, object room_bytes)
    cpdef object _seal(self, object me, object datagrams, object room_bytes)
