# Compiled from `stream_receiver.py`: this file declares the attributes and the methods that are called from C.
# docs/design/compiled.md says how.

from vivum.protocols.streams.frame_cache cimport FrameCache


cdef class StreamReceiver:
    cdef public FrameCache cache
    cdef public object _counters, _delay_base_ns, _delay_count, _delay_low_ns, _delay_since_ns
    cdef public object _delay_sum_ns, _heard_ns, _highest, _holds_all, _holds_none, closed, delivered
    cdef public object given_up_at, groups, held, is_unwanted, lacks, largest, region, sender, sender_gone, slow
    cdef public object stable, standing_ns, view, views, window

    cpdef object on_data(self, object now_ns, object frame)
    cpdef object is_next(self, object first, object stop)
    cpdef object on_run(self, object now_ns, object frames)
    cpdef object on_later_run(self, object now_ns, object frames)
    cpdef object _note_delay(self, object delay_ns, object count)
    cpdef object _keep(self, object frame)
    cpdef object _held_of(self, object frame)
