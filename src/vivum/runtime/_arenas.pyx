# cython: language_level=3
# cython: auto_pickle=False
"""Keeps some of the interpreter's arenas that it gives back. `heap.py` tells why.

An arena is a MiB from which small objects are made. The interpreter lets anybody stand between itself and the system:
what it gives back is kept here up to a limit, and given to it again. All calls come with the interpreter's lock held.
"""

cdef extern from "Python.h":
    ctypedef struct PyObjectArenaAllocator:
        void* ctx
        void* (*alloc)(void*, size_t) noexcept
        void (*free)(void*, void*, size_t) noexcept
    void PyObject_GetArenaAllocator(PyObjectArenaAllocator*)
    void PyObject_SetArenaAllocator(PyObjectArenaAllocator*)

cdef enum:
    KEPT_MAX = 64

cdef PyObjectArenaAllocator system
cdef void* kept[KEPT_MAX]
cdef size_t kept_size = 0
cdef int kept_count = 0
cdef int wanted = 0
cdef bint is_between = False


cdef void* take(void* context, size_t size) noexcept:
    global kept_count
    if kept_count and size == kept_size:
        kept_count -= 1
        return kept[kept_count]
    return system.alloc(system.ctx, size)


cdef void give_back(void* context, void* arena, size_t size) noexcept:
    global kept_count, kept_size
    if kept_count == 0:
        kept_size = size
    if size == kept_size and kept_count < wanted:
        kept[kept_count] = arena
        kept_count += 1
        return
    system.free(system.ctx, arena, size)


def keep(int count):
    global is_between, wanted
    cdef PyObjectArenaAllocator ours
    if not 0 <= count <= KEPT_MAX:
        raise ValueError(f"0 to {KEPT_MAX} arenas can be kept, not {count}")
    if not is_between:
        is_between = True
        PyObject_GetArenaAllocator(&system)
        ours.ctx = NULL
        ours.alloc = take
        ours.free = give_back
        PyObject_SetArenaAllocator(&ours)
    wanted = max(wanted, count)


def count():
    return kept_count
