# Compiled from `runs.py`: this file declares the functions that are called from C, and the types in them.
# docs/design/compiled.md says how.

cimport cython

from vivum.protocols.streams.sender_fifo cimport SenderFifo
from vivum.protocols.streams.stream_receiver cimport StreamReceiver


@cython.locals(stream=StreamReceiver, fifo=SenderFifo)
cpdef object take_run(object routes, object now_ns, object source, object frames, object start, object effects)
