# Compiled from `sender_fifo.py`: this file declares the attributes and the methods that are called from C.
# docs/design/compiled.md says how.

from vivum.protocols.streams.stream_receiver cimport StreamReceiver


cdef class SenderFifo:
    cdef public object _barred, _behind, _joiner, _known_epoch, _torn, _waiting, counters, expected, gone_since
    cdef public object is_broken, packed, sender, streams

    cpdef object deliver(self, object effects)
    cpdef object is_ready(self, StreamReceiver stream)
    cpdef object deliver_run(self, StreamReceiver stream, object frames, object runs, object effects)
    cpdef object cut(self, object frames)
    cpdef object _deliver(self, object frames, StreamReceiver stream, object effects)
    cpdef object _deliver_runs(self, object frames, object runs, StreamReceiver stream, object effects)
    cpdef object _deliver_messages(
        self, object group, object first, object flags, object payloads, object frame, object sent_ns,
        StreamReceiver stream, object effects
    )
