# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The columns of a batch, compiled. `_packing_twin.py` is the same in plain Python; change both or neither.

Everything is looked at and checked first, but for the messages in pieces. Then all is written while other threads run:
nothing is read there but bytes, by pointers that were taken before. The lists must be the caller's own: who could take
an item out of them meanwhile would leave a pointer to nowhere.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

cdef Py_ssize_t STOP_MAX = 0x7FFFFFFF

cdef struct Span:
    # Bytes of one payload, or of so many that each stand behind their length; then `count` is not negative.
    const uint8_t* at
    Py_ssize_t size
    Py_ssize_t count

cdef struct Column:
    int64_t* to
    int64_t step
    int64_t* values


cdef Span span_of(part) except *:
    cdef Span span
    cdef object data
    cdef Py_ssize_t start
    if PyBytes_Check(part):
        span.at = <const uint8_t*>PyBytes_AS_STRING(part)
        span.size = PyBytes_GET_SIZE(part)
        span.count = -1
        return span
    if type(part) is not tuple or len(<tuple>part) != 3 or not PyBytes_Check((<tuple>part)[0]):
        raise TypeError(f"a payload is bytes, not {type(part).__name__}")
    data, start, span.count = <tuple>part
    if span.count < 0 or not 0 <= start <= PyBytes_GET_SIZE(data):
        raise ValueError(f"{span.count} payloads at {start} are not in {PyBytes_GET_SIZE(data)} bytes")
    span.at = <const uint8_t*>PyBytes_AS_STRING(data) + start
    span.size = PyBytes_GET_SIZE(data) - start
    return span


cdef Py_ssize_t lay_payloads(
    const Span* spans, Py_ssize_t count, uint8_t* to, Py_ssize_t room, int32_t* stops, Py_ssize_t rows
) noexcept nogil:
    """Copy all payloads and note where each ends. Return how many bytes; -1 if they are not as many as was said."""
    cdef Py_ssize_t index, left, size, end, total = 0, row = 0
    cdef const uint8_t* p
    stops[0] = 0
    for index in range(count):
        p = spans[index].at
        if spans[index].count < 0:
            size = spans[index].size
            if row == rows or size > room - total:
                return -1
            memcpy(to + total, p, size)
            total += size
            row += 1
            stops[row] = <int32_t>total
            continue
        left = spans[index].size
        if spans[index].count > rows - row:
            return -1
        end = row + spans[index].count
        while row < end:
            if left < 2:
                return -1
            size = p[0] | (<Py_ssize_t>p[1] << 8)
            if size > left - 2 or size > room - total:
                return -1
            memcpy(to + total, p + 2, size)
            p += 2 + size
            left -= 2 + size
            total += size
            row += 1
            stops[row] = <int32_t>total
    return total if row == rows else -1


cdef void lay_numbers(const Column* columns, Py_ssize_t count, const int64_t* counts, Py_ssize_t runs) noexcept nogil:
    cdef Py_ssize_t index, run
    cdef int64_t place, number, step
    cdef int64_t* to
    for index in range(count):
        to = columns[index].to
        step = columns[index].step
        for run in range(runs):
            number = columns[index].values[run]
            for place in range(counts[run]):
                to[place] = number + step * place
            to += counts[run]


cdef void lay_texts(
    const Span* texts, const int64_t* counts, Py_ssize_t runs, uint8_t* to, int32_t* stops
) noexcept nogil:
    cdef Py_ssize_t run, size
    cdef int64_t place
    cdef int32_t total = 0
    stops[0] = 0
    for run in range(runs):
        size = texts[run].size
        for place in range(counts[run]):
            memcpy(to + total, texts[run].at, size)
            total += <int32_t>size
            stops += 1
            stops[0] = total


cdef uint8_t* place_for(Py_buffer* room, Py_ssize_t at, Py_ssize_t size, Py_ssize_t alignment) except NULL:
    if at < 0 or size < 0 or at > room.len or size > room.len - at or at % alignment:
        raise ValueError(f"{size} bytes at {at} do not fit into {room.len}")
    return <uint8_t*>room.buf + at


def lay_columns(
    memory, list counts not None, list numbers not None, list texts not None, Py_ssize_t texts_at,
    Py_ssize_t text_stops_at, list parts not None, Py_ssize_t payloads_at, Py_ssize_t payload_stops_at,
    Py_ssize_t payload_bytes,
):
    cdef Py_ssize_t index, run, runs = len(counts), columns = len(numbers), rows = 0, text_bytes = 0, laid
    cdef Py_buffer room
    cdef Span* spans = NULL
    cdef int64_t* values = NULL
    cdef Column* places = NULL
    cdef uint8_t* payloads_to
    cdef uint8_t* texts_to
    cdef int32_t* payload_stops
    cdef int32_t* text_stops
    cdef list column
    if len(texts) != runs:
        raise ValueError(f"{len(texts)} texts are not for {runs} runs")
    PyObject_GetBuffer(memory, &room, PyBUF_WRITABLE)
    try:
        spans = <Span*>malloc((runs + len(parts) + 1) * sizeof(Span))
        values = <int64_t*>malloc((runs * (columns + 1) + 1) * sizeof(int64_t))
        places = <Column*>malloc((columns + 1) * sizeof(Column))
        if spans == NULL or values == NULL or places == NULL:
            raise MemoryError()
        for run in range(runs):
            values[run] = counts[run]
            if not 0 <= values[run] <= STOP_MAX:
                raise ValueError(f"a run cannot have {values[run]} messages")
            if not PyBytes_Check(texts[run]):
                raise TypeError(f"a text is bytes, not {type(texts[run]).__name__}")
            spans[run] = span_of(texts[run])
            rows += values[run]
            text_bytes += values[run] * spans[run].size
            if rows > STOP_MAX or text_bytes > STOP_MAX:
                raise OverflowError(f"texts of more than {STOP_MAX} bytes")
        if payload_bytes > STOP_MAX:
            raise OverflowError(f"payloads of more than {STOP_MAX} bytes")
        for index in range(columns):
            at, places[index].step, column = numbers[index]
            if len(column) != runs:
                raise ValueError(f"{len(column)} numbers are not for {runs} runs")
            places[index].to = <int64_t*>place_for(&room, at, rows * <Py_ssize_t>sizeof(int64_t), sizeof(int64_t))
            places[index].values = values + runs * (index + 1)
            for run in range(runs):
                places[index].values[run] = column[run]
        for index in range(len(parts)):
            spans[runs + index] = span_of(parts[index])
        texts_to = place_for(&room, texts_at, text_bytes, 1)
        text_stops = <int32_t*>place_for(&room, text_stops_at, (rows + 1) * <Py_ssize_t>sizeof(int32_t), sizeof(int32_t))
        payloads_to = place_for(&room, payloads_at, payload_bytes, 1)
        payload_stops = <int32_t*>place_for(
            &room, payload_stops_at, (rows + 1) * <Py_ssize_t>sizeof(int32_t), sizeof(int32_t)
        )
        index = len(parts)
        with nogil:
            lay_numbers(places, columns, values, runs)
            lay_texts(spans, values, runs, texts_to, text_stops)
            laid = lay_payloads(spans + runs, index, payloads_to, payload_bytes, payload_stops, rows)
        if laid != payload_bytes:
            raise ValueError(f"these are not {rows} payloads of {payload_bytes} bytes")
    finally:
        free(spans)
        free(values)
        free(places)
        PyBuffer_Release(&room)
