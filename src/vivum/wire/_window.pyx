# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: auto_pickle=False
"""The compiled part of reliability: sequence windows, sizes of batches. `_codec` exports them.

The twin `_window_twin.py` has the same names and the same behaviour to the error; change both or neither. The rules against
reading or writing past a buffer are those of `_codec.pyx`.
"""

cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free

from vivum.wire._arguments cimport whole
from vivum.wire._layout cimport C_BEYOND, C_DUPLICATE, C_NEW, C_SEQUENCE_MAX, C_WINDOW_MAX, U64

from vivum.wire import refusals

cdef extern from "Python.h":
    # Borrowed: a list or tuple keeps what is in it.
    PyObject** raw_items "PySequence_Fast_ITEMS" (PyObject*) noexcept
    bint raw_is_bytes "PyBytes_Check" (PyObject*) noexcept
    Py_ssize_t raw_size "PyBytes_GET_SIZE" (PyObject*) noexcept

cdef enum:
    # Objects that are fetched before the one that is looked at.
    AHEAD = 12

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define vivum_lowest_one(x) __builtin_ctzll(x)
    #define vivum_ones(x) __builtin_popcountll(x)
    #define vivum_fetch(where) __builtin_prefetch(where)
    #else
    #define vivum_fetch(where) ((void)(where))
    static int vivum_lowest_one(unsigned long long x) { int n = 0; while (!(x & 1)) { x >>= 1; n++; } return n; }
    static int vivum_ones(unsigned long long x) { int n = 0; while (x) { x &= x - 1; n++; } return n; }
    #endif
    """
    int vivum_lowest_one(uint64_t) noexcept nogil
    int vivum_ones(uint64_t) noexcept nogil
    void prefetch "vivum_fetch" (const void*) noexcept nogil

WINDOW_MAX = C_WINDOW_MAX
NEW = C_NEW
DUPLICATE = C_DUPLICATE
BEYOND = C_BEYOND


@cython.final
cdef class SequenceWindow:
    """Which frames of a stream were received; see `_window_twin.py`.

    A ring of bits, one for each number of `prefix <= n < prefix + capacity` at place `n & mask`. The ring is at least
    as large as the window, so places do not collide; bits of numbers outside the window are always 0.
    """

    cdef uint64_t* _words
    cdef uint64_t _mask
    cdef uint64_t _top
    cdef readonly uint64_t prefix
    cdef readonly uint64_t stop
    cdef readonly uint64_t held
    cdef readonly uint64_t capacity

    def __cinit__(self, first, capacity):
        cdef uint64_t bits = 64
        self.prefix = whole(first, "first", 0, U64)
        self.capacity = whole(capacity, "capacity", 1, C_WINDOW_MAX)
        while bits < self.capacity:
            bits <<= 1
        self._mask = bits - 1
        self._words = <uint64_t*>calloc(bits >> 6, sizeof(uint64_t))
        if self._words == NULL:
            raise MemoryError()
        self.stop = self._top = self.prefix
        self.held = 0

    def __dealloc__(self):
        free(self._words)

    cdef inline bint _has(self, uint64_t number) noexcept:
        cdef uint64_t place = number & self._mask
        return (self._words[place >> 6] >> (place & 63)) & 1

    cdef uint64_t _next(self, uint64_t number, uint64_t limit, uint64_t flip) noexcept:
        """Find the first number from here on, below a limit, whose bit is 1 (flip 0) or 0 (flip all ones), word by word."""
        cdef uint64_t place, word, step
        while number < limit:
            place = number & self._mask
            word = (self._words[place >> 6] ^ flip) >> (place & 63)
            if word:
                step = vivum_lowest_one(word)
                return number + step if step < limit - number else limit
            step = 64 - (place & 63)
            if step >= limit - number:
                break
            number += step
        return limit

    cdef uint64_t _clear(self, uint64_t number, uint64_t limit) noexcept:
        """Set the bits of `number <= n < limit` to 0, at most one turn of the ring; return how many were 1."""
        cdef uint64_t place, span, bits, found = 0
        while number < limit:
            place = number & self._mask
            span = 64 - (place & 63)
            if span > limit - number:
                span = limit - number
            bits = (U64 if span == 64 else ((<uint64_t>1 << span) - 1)) << (place & 63)
            found += vivum_ones(self._words[place >> 6] & bits)
            self._words[place >> 6] &= ~bits
            number += span
        return found

    cdef void _set(self, uint64_t number, uint64_t limit) noexcept:
        """Set the bits of `number <= n < limit` to 1, at most one turn of the ring."""
        cdef uint64_t place, span
        while number < limit:
            place = number & self._mask
            span = 64 - (place & 63)
            if span > limit - number:
                span = limit - number
            self._words[place >> 6] |= (U64 if span == 64 else ((<uint64_t>1 << span) - 1)) << (place & 63)
            number += span

    cdef void _advance(self) noexcept:
        """Move the prefix over what is already held behind it."""
        cdef uint64_t reached
        if self.held:
            # Below `_top` something is held, so the search for a 0 ends there at the latest.
            reached = self._next(self.prefix, self._top, U64)
            self.held -= self._clear(self.prefix, reached)
            self.prefix = reached

    def add(self, sequence):
        cdef uint64_t number = whole(sequence, "sequence", 0, U64)
        cdef uint64_t place
        if number < self.prefix:
            return C_DUPLICATE
        if number - self.prefix >= self.capacity or number > C_SEQUENCE_MAX:
            return C_BEYOND
        if number == self.prefix:
            self.prefix += 1
            if number >= self._top:
                self._top = self.prefix
            self._advance()
        else:
            if self._has(number):
                return C_DUPLICATE
            place = number & self._mask
            self._words[place >> 6] |= <uint64_t>1 << (place & 63)
            self.held += 1
            if number >= self._top:
                self._top = number + 1
        if self._top > self.stop:
            self.stop = self._top
        return C_NEW

    def add_run(self, first, stop):
        cdef uint64_t number = whole(first, "first", 0, U64)
        cdef uint64_t end = whole(stop, "stop", 0, U64)
        if (
            number < self._top or number < self.prefix or number >= end
            or end - self.prefix > self.capacity or end > C_SEQUENCE_MAX
        ):
            return False
        if number == self.prefix:
            # Nothing is held.
            self.prefix = end
        else:
            self.held += end - number
            self._set(number, end)
        self._top = end
        if end > self.stop:
            self.stop = end
        return True

    def announce(self, stop):
        cdef uint64_t number
        if isinstance(stop, int) and stop > U64:
            stop = U64
        number = whole(stop, "stop", 0, U64)
        if number > self.stop:
            self.stop = number

    def missing(self, ranges_max):
        cdef list bounds = []
        cdef uint64_t at = self.prefix, gap_stop
        cdef Py_ssize_t left
        if not isinstance(ranges_max, int):
            raise refusals.not_an_int("ranges_max", ranges_max)
        left = min(max(ranges_max, 0), C_WINDOW_MAX)
        while left > 0 and at < self.stop:
            # `at` is a missing number; the gap ends where the next received one is, or at the end of all.
            gap_stop = self._next(at, self._top, 0) if at < self._top else self.stop
            bounds.append(at)
            bounds.append(gap_stop)
            left -= 1
            if gap_stop >= self._top:
                break
            at = self._next(gap_stop, self._top, U64)
        return bounds

    def skip_to(self, sequence):
        cdef uint64_t number = whole(sequence, "sequence", 0, U64)
        cdef uint64_t span, received
        if number <= self.prefix:
            return 0
        span = number - self.prefix
        received = self._clear(self.prefix, number if span <= self.capacity else self.prefix + self.capacity)
        self.held -= received
        self.prefix = number
        if number > self._top:
            self._top = number
        self._advance()
        if self.prefix > self.stop:
            self.stop = self.prefix
        return span - received

    def __contains__(self, sequence):
        cdef uint64_t number
        if not isinstance(sequence, int):
            raise refusals.not_an_int("sequence", sequence)
        if sequence < 0 or sequence > U64:
            return False
        number = sequence
        if number < self.prefix:
            return True
        return number - self.prefix < self.capacity and self._has(number)

    def __repr__(self):
        return f"SequenceWindow(prefix={self.prefix}, stop={self.stop}, held={self.held}, capacity={self.capacity})"


def measure(payloads, start=0, stop=None):
    cdef PyObject** items
    cdef PyObject* payload
    cdef Py_ssize_t index, end, size, total = 0, largest = 0
    if isinstance(payloads, list):
        end = len(<list>payloads)
    elif isinstance(payloads, tuple):
        end = len(<tuple>payloads)
    else:
        raise refusals.not_a_list(payloads)
    if stop is not None:
        end = <Py_ssize_t>whole(stop, "stop", 0, end)
    index = <Py_ssize_t>whole(start, "start", 0, end)
    # No Python code runs in here, so the list stays as long as it is, and what is in it needs no holding.
    items = raw_items(<PyObject*>payloads)
    while index < end:
        if end - index > AHEAD:
            # Most are in no cache of this processor: it should not wait for each.
            prefetch(items[index + AHEAD])
        payload = items[index]
        if not raw_is_bytes(payload):
            raise refusals.not_bytes("payload", <object>payload)
        size = raw_size(payload)
        total += size
        if size > largest:
            largest = size
        index += 1
    return total, largest
