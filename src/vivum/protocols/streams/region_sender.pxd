# Compiled from `region_sender.py`: this file declares the attributes and the methods that are called from C.
# docs/design/compiled.md says how.

from vivum.protocols.streams.kept_frames cimport KeptFrames
from vivum.protocols.streams.pacer cimport Pacer
from vivum.wire.outboxes cimport Outboxes


cdef class RegionSender:
    cdef public object _ahead, _resent_ns, _settings, _stops, _told, _view_marks, _views, claims, window
    cdef public object closed, closing_since_ns, config, confirmed, destinations, first, floor, heartbeat_at_ns
    cdef public object heartbeat_ns, is_awaited, key, next_frame, put, reserved_ns, slow, waiting_bytes, window_bytes
    cdef public KeptFrames _frames
    cdef public Outboxes outboxes
    cdef public Pacer pacer

    cpdef object feed(self, object group, object first, object payloads, object view, object size=*, object slow=*)
    cpdef object expect(self, object group, object first, object count, object view, object size, object slow)
    cpdef object room(self, object by=*)
    cpdef object seal(
        self, object builder, object now_ns, object header, object frames_max, object bytes_max, object before=*
    )
    cpdef object is_clear(self, object group, object view)
    cpdef object seal_alone(
        self, object builder, object now_ns, object header, object group, object first, object payloads
    )
    cpdef object keep(self, object trains, object stops, object taken, object now_ns)
    cpdef object _beat_soon(self, object now_ns)
    cpdef object on_report(self, object now_ns, object report)
    cpdef object _confirm(self, object stop, object changed)
