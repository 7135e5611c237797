# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: auto_pickle=False
"""The compiled way of messages that come and go alone; `alone.py` tells what it is for.

The twin `_alone_twin.py` has the same names and the same behaviour to the byte; change both or neither. The rules
against reading past a buffer are those of `wire/_codec.pyx`.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from cpython.list cimport PyList_CheckExact
from cpython.tuple cimport PyTuple_CheckExact
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from vivum.wire._layout cimport *

from vivum.core.machine import Datagram, Delivery
from vivum.protocols.commands import SendMessages
from vivum.wire.kinds import Kind

cdef extern from "Python.h":
    bytes PyBytes_FromStringAndSize(const char*, Py_ssize_t)

cdef uint8_t KIND_DATA = Kind.DATA
cdef object DELIVERY = Delivery
cdef object DATAGRAM = Datagram
cdef object SEND_MESSAGES = SendMessages

cdef enum:
    # Of a frame with one message: all that stands before it.
    BEFORE = C_HEADER + C_RUN_HEADER + C_LENGTH
    # The part of a header that names a stream: sender, life, keys, region, view.
    NAME_AT = 8
    NAME = 16


@cython.final
cdef class _LaneIn:
    cdef uint64_t sequence
    cdef dict expected
    cdef object sender
    cdef object view
    cdef object lane


@cython.final
cdef class AloneIn:
    """See the twin."""

    cdef readonly uint32_t domain
    cdef readonly list log
    cdef dict _lanes

    def __init__(self, domain, list log not None):
        self.domain = domain
        self.log = log
        self._lanes = {}

    def __len__(self):
        return len(self._lanes)

    def arm(self, bytes name not None, sequence, sender, view, dict expected not None, lane):
        cdef _LaneIn made = _LaneIn.__new__(_LaneIn)
        made.sequence = sequence
        made.sender = sender
        made.view = view
        made.expected = expected
        made.lane = lane
        self._lanes[name] = made

    def disarm(self, bytes name not None):
        self._lanes.pop(name, None)

    def clear(self):
        if self._lanes:
            self._lanes.clear()

    def hear(self, now_ns, source, data):
        cdef const uint8_t* p
        cdef Py_ssize_t size
        cdef uint32_t tag
        cdef uint64_t first
        cdef _LaneIn lane
        cdef object group, number, payload
        if self.log or not self._lanes or not PyBytes_CheckExact(data):
            return None
        size = PyBytes_GET_SIZE(data)
        if size < BEFORE:
            return None
        p = <const uint8_t*>PyBytes_AS_STRING(data)
        if p[0] != C_VERSION or p[1] != KIND_DATA or load16(p + 2) != size or load32(p + 4) != self.domain:
            return None
        tag = load32(p + C_HEADER)
        first = load64(p + C_HEADER + 4)
        if (
            tag > C_GROUP_MAX or load16(p + C_HEADER + 12) != 1
            or load16(p + C_HEADER + C_RUN_HEADER) != size - BEFORE
        ):
            return None
        found = self._lanes.get(PyBytes_FromStringAndSize(<const char*>p + NAME_AT, NAME))
        if found is None:
            return None
        lane = <_LaneIn>found
        if load64(p + 24) != lane.sequence or first >= C_SEQUENCE_MAX or lane.sequence >= C_SEQUENCE_MAX:
            return None
        group = tag
        number = first
        if lane.expected.get(group) != number:
            return None
        lane.expected[group] = first + 1
        lane.sequence += 1
        payload = PyBytes_FromStringAndSize(<const char*>p + BEFORE, size - BEFORE)
        self.log.append((lane.lane, now_ns, source, data))
        return DELIVERY(group, lane.sender, number, [payload], lane.view, load64(p + 32))


@cython.final
cdef class _LaneOut:
    cdef uint8_t head[C_HEADER]
    cdef uint64_t sequence
    cdef int64_t frames_left
    cdef int64_t bytes_left
    cdef Py_ssize_t payload_max
    cdef object where


@cython.final
cdef class _Numbering:
    cdef _LaneOut lane
    cdef uint64_t message
    cdef object place


@cython.final
cdef class AloneOut:
    """See the twin."""

    cdef readonly list log
    cdef dict _lanes
    cdef dict _groups

    def __init__(self, list log not None):
        self.log = log
        self._lanes = {}
        self._groups = {}

    def __len__(self):
        return len(self._groups)

    def arm(self, group, message, bytes frame not None, frames_left, bytes_left, payload_max, where, place):
        cdef _LaneOut lane
        cdef _Numbering made
        cdef bytes name
        if PyBytes_GET_SIZE(frame) < C_HEADER:
            raise ValueError("a frame has a header")
        name = PyBytes_FromStringAndSize(PyBytes_AS_STRING(frame) + NAME_AT, NAME)
        found = self._lanes.get(name)
        if found is None:
            lane = _LaneOut.__new__(_LaneOut)
            self._lanes[name] = lane
        else:
            lane = <_LaneOut>found
        memcpy(lane.head, PyBytes_AS_STRING(frame), C_HEADER)
        lane.sequence = load64(lane.head + 24) + 1
        lane.frames_left = frames_left
        lane.bytes_left = bytes_left
        lane.payload_max = payload_max
        lane.where = where
        made = _Numbering.__new__(_Numbering)
        made.lane = lane
        made.message = message
        made.place = place
        self._groups[group] = made

    def clear(self):
        if self._groups:
            self._groups.clear()
            self._lanes.clear()

    def seal(self, now_ns, command):
        cdef object payloads, payload, found, group
        cdef _Numbering numbering
        cdef _LaneOut lane
        cdef Py_ssize_t size
        cdef bytes frame
        cdef uint8_t* p
        if not self._groups or type(command) is not SEND_MESSAGES:
            return None
        payloads = command.payloads
        if not (PyList_CheckExact(payloads) or PyTuple_CheckExact(payloads)) or len(payloads) != 1:
            return None
        payload = payloads[0]
        if not PyBytes_CheckExact(payload):
            return None
        group = command.group
        found = self._groups.get(group)
        if found is None:
            return None
        numbering = <_Numbering>found
        lane = numbering.lane
        size = PyBytes_GET_SIZE(payload)
        if (
            size > lane.payload_max or lane.frames_left <= 0 or lane.bytes_left <= 0
            or lane.sequence >= C_SEQUENCE_MAX or numbering.message >= C_SEQUENCE_MAX
        ):
            return None
        frame = PyBytes_FromStringAndSize(NULL, BEFORE + size)
        p = <uint8_t*>PyBytes_AS_STRING(frame)
        memcpy(p, lane.head, C_HEADER)
        store16(p + 2, <uint32_t>(BEFORE + size))
        store64(p + 24, lane.sequence)
        store64(p + 32, <uint64_t>now_ns)
        p += C_HEADER
        store32(p, <uint32_t>group)
        store64(p + 4, numbering.message)
        store16(p + 12, 1)
        store16(p + C_RUN_HEADER, <uint32_t>size)
        memcpy(p + C_RUN_HEADER + C_LENGTH, PyBytes_AS_STRING(payload), size)
        lane.sequence += 1
        lane.frames_left -= 1
        lane.bytes_left -= BEFORE + size
        self.log.append((numbering.place, now_ns, numbering.message, payloads, frame))
        numbering.message += 1
        return [DATAGRAM(lane.where, frame)]
