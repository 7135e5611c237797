# Compiled from `sender.py`: this file declares the attributes and the methods that are called from C.
# docs/design/compiled.md says how.

from vivum.protocols.streams.feed cimport Feed
from vivum.protocols.streams.region_sender cimport RegionSender


cdef class Sender:
    cdef public object _alone_bytes_max, _builder, _counters, _effects, _ended, _feeds, _limits, _paced, _pending_high
    cdef public object _ready, _settings, _spreading, _train_frames, _waiting_bytes, repairs, slow, streams

    cpdef object accept(
        self, object group, object payloads, object size, object streams, object view, object channel=*
    )
    cpdef object send_alone(
        self, object now_ns, object header, object group, object payloads, object size, object route, object datagrams
    )
    cpdef object on_report(self, object now_ns, RegionSender stream, object report)
    cpdef object _confirm(self, Feed feed)
    cpdef object make_data(self, object now_ns, object domain, object me, object datagrams, object room_bytes)
    cpdef object _may_leave(self, object now_ns, RegionSender stream)
