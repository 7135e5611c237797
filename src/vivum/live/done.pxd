# Compiled from `done.py`: this file declares the class, so that awaiting what is done takes no interpreted call.
# docs/design/compiled.md says how.

cdef class Done:
    pass
