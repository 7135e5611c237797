# Compiled from `outboxes.py`: this file declares the attributes and the methods that are called from C.
# docs/design/compiled.md says how.

cdef class Outbox:
    cdef public object _chunk_bytes, _chunks, _cut, _index, _next, _size, _stop, group

    cpdef object add_rest(self, object parts)
    cpdef object add_whole(self, object parts, object bytes_max)
    cpdef object take_part(self)
    cpdef object take(self, object count, object cut, object size)


cdef class Outboxes:
    cdef public object _cut_to_fill, _outboxes, _ready, _spare, _turn_bytes

    cpdef object pending_bytes(self, object group)
    cpdef object seal(self, object builder, object frames_max, object bytes_max, object header, object tail=*)
    cpdef object _seal_run(self, object builder, object frames_max, object bytes_max, object header, object tail)
    cpdef object _line_up(self, object builder, object frames_max, object bytes_max, object tail)
    cpdef object _turn_of(self, object builder)
    cpdef object _drop_first(self)
    cpdef object _end_turn(self)
    cpdef object _count_turn(self, object taken, object turn_bytes_max)
