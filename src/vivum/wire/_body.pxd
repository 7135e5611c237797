"""The one walk over untrusted runs of messages. All that reads a body later relies on it."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from vivum.wire._layout cimport *

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define vivum_prefetch(where) __builtin_prefetch(where)
    #else
    #define vivum_prefetch(where) ((void)(where))
    #endif
    """
    void prefetch "vivum_prefetch" (const void*) noexcept nogil


cdef inline int check_body(
    const uint8_t* base, Py_ssize_t at, Py_ssize_t stop, Py_ssize_t* fault_at, Py_ssize_t* runs
) noexcept nogil:
    """Walk all runs of a body once, and count them. Afterwards nothing that `messages` does can leave `at <= n < stop`."""
    cdef uint32_t count, left, flags
    cdef uint64_t first
    cdef Py_ssize_t size
    while stop - at >= C_RUN_HEADER:
        fault_at[0] = at
        count = load16(base + at + 12)
        if count == 0:
            break
        flags = load32(base + at) & (C_CONTINUES | C_MORE)
        first = load64(base + at + 4)
        if first > C_SEQUENCE_MAX - (count - 1):
            return FAULT_SEQUENCE
        runs[0] += 1
        at += C_RUN_HEADER
        left = count
        while left:
            if stop - at < C_LENGTH:
                return FAULT_TORN
            size = load16(base + at)
            # Most messages have the size of the one before: each length would else be waited for, line after line.
            prefetch(base + at + 6 * (C_LENGTH + size))
            at += C_LENGTH
            if stop - at < size:
                return FAULT_TORN
            at += size
            left -= 1
        # The walk has passed the length of the first message, and `size` is that of the last.
        if flags & C_CONTINUES and load16(base + fault_at[0] + C_RUN_HEADER) == 0:
            return FAULT_FRAGMENT
        if flags & C_MORE and size <= (0 if flags & C_CONTINUES and count == 1 else C_TOTAL):
            return FAULT_FRAGMENT
    fault_at[0] = at
    while stop - at >= 8:
        if load64(base + at):
            return FAULT_PADDING
        at += 8
    while at < stop:
        if base[at]:
            return FAULT_PADDING
        at += 1
    return FAULT_NONE
