# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: auto_pickle=False
"""The compiled way to seal many frames of one group whose messages are cut so that each frame is full.

The twin `_cuts_twin.py` has the same name and the same behaviour to the byte and to the error; change both or neither.
The rules against reading or writing past a buffer are those of `_codec.pyx`, which exports this.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.ref cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from vivum.wire._arguments cimport whole
from vivum.wire._header cimport Header, read_header, write_header
from vivum.wire._layout cimport *

from vivum.wire import layout, refusals

cdef extern from "Python.h":
    # Borrowed: a list keeps what is in it.
    PyObject* raw_item "PyList_GET_ITEM" (PyObject*, Py_ssize_t) noexcept
    bint raw_is_bytes "PyBytes_CheckExact" (PyObject*) noexcept
    Py_ssize_t raw_size "PyBytes_GET_SIZE" (PyObject*) noexcept
    char* raw_string "PyBytes_AS_STRING" (PyObject*) noexcept
    bytes PyBytes_FromStringAndSize(const char*, Py_ssize_t)

cdef uint64_t MESSAGE_MASK = sum(1 << kind for kind in layout.MESSAGE_KINDS)


cdef inline bint is_cuttable(PyObject* item) noexcept:
    return raw_is_bytes(item) and <uint64_t>raw_size(item) <= U32


def seal_cut(
    capacity, least, group, first_sequence, payloads, index, cut, frames_max, bytes_max,
    kind, domain, sender, incarnation, region, view, sequence, sent_ns,
):
    cdef Header header
    cdef Py_ssize_t most = <Py_ssize_t>whole(capacity, "capacity", C_CAPACITY_MIN, C_FRAME_MAX)
    cdef Py_ssize_t smallest = <Py_ssize_t>whole(least, "least", 0, C_FRAME_MAX)
    cdef uint32_t number = <uint32_t>whole(group, "group", 0, C_GROUP_MAX), flags, count
    cdef uint64_t first = whole(first_sequence, "first_sequence", 0, C_SEQUENCE_MAX)
    cdef uint64_t left, bytes_most, made = 0
    cdef Py_ssize_t stop, at, end, done, next_cut, rest, begun, used, room, each, size
    cdef list frames = [], flat = []
    cdef PyObject* items
    cdef PyObject* item
    cdef bytes frame
    cdef uint8_t* p
    if type(payloads) is not list:
        raise refusals.not_a_list(payloads)
    items = <PyObject*>payloads
    stop = len(<list>payloads)
    at = <Py_ssize_t>whole(index, "index", 0, stop)
    if stop and first > C_SEQUENCE_MAX - <uint64_t>(stop - 1):
        raise refusals.out_of_range("first_sequence", first_sequence, 0, C_SEQUENCE_MAX - <uint64_t>(stop - 1))
    # What is cut has something left.
    size = raw_size(raw_item(items, at)) if at < stop and is_cuttable(raw_item(items, at)) else 0
    done = <Py_ssize_t>whole(cut, "cut", 0, size - 1 if size else 0)
    left = whole(frames_max, "frames_max", 0, U64)
    bytes_most = whole(bytes_max, "bytes_max", 0, U64)
    read_header(&header, MESSAGE_MASK, True, kind, domain, sender, incarnation, region, view, sequence, sent_ns, 0)
    # No Python code runs in here, not even of a collector: it looks at none of what is made. So the list stays as it
    # is, and its objects with it.
    while left and made < bytes_most and header.sequence <= C_SEQUENCE_MAX and at < stop:
        used = C_HEADER + C_RUN_HEADER
        flags = count = 0
        rest = begun = next_cut = 0
        end = at
        if done:
            rest = raw_size(raw_item(items, at)) - done
            room = most - used - C_LENGTH
            flags = C_CONTINUES
            count = 1
            if rest > room:
                rest = room
                flags |= C_MORE
                next_cut = done + rest
            else:
                end += 1
            used += C_LENGTH + rest
        if not flags & C_MORE:
            while end < stop:
                item = raw_item(items, end)
                if not is_cuttable(item):
                    end = stop
                    break
                size = C_LENGTH + raw_size(item)
                if size > most - used:
                    break
                used += size
                count += 1
                end += 1
            if end == stop:
                # The frame is not full, or what is next is not for this.
                break
            room = most - used - C_LENGTH - C_TOTAL
            if room > 0 and (count == 0 or room >= smallest):
                begun = next_cut = room
                flags |= C_MORE
                count += 1
                used += C_LENGTH + C_TOTAL + begun
        # All that was added up above is written, and no more.
        frame = PyBytes_FromStringAndSize(NULL, used)
        p = <uint8_t*>PyBytes_AS_STRING(frame)
        write_header(p, &header, used)
        p += C_HEADER
        store32(p, number | flags)
        store64(p + 4, first + <uint64_t>at)
        store16(p + 12, count)
        p += C_RUN_HEADER
        each = at
        if done:
            store16(p, <uint32_t>rest)
            memcpy(p + C_LENGTH, raw_string(raw_item(items, each)) + done, rest)
            p += C_LENGTH + rest
            each += 1
        while each < end:
            item = raw_item(items, each)
            size = raw_size(item)
            store16(p, <uint32_t>size)
            memcpy(p + C_LENGTH, raw_string(item), size)
            p += C_LENGTH + size
            each += 1
        if begun:
            item = raw_item(items, end)
            store16(p, <uint32_t>(C_TOTAL + begun))
            store32(p + C_LENGTH, <uint32_t>raw_size(item))
            memcpy(p + C_LENGTH + C_TOTAL, raw_string(item), begun)
        frames.append(frame)
        flat.append(end)
        flat.append(next_cut)
        made += <uint64_t>used
        header.sequence += 1
        left -= 1
        at = end
        done = next_cut
    return frames, [(flat[each], flat[each + 1]) for each in range(0, len(flat), 2)]
