# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: auto_pickle=False
"""The compiled way in: buffers cut into frames, frames into messages. `_codec` exports it.

The twin `_frames_twin.py` has the same names and the same behaviour to the byte and to the error; change both or
neither. The rules against reading past a buffer are those of `_codec.pyx`.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from vivum.wire._arguments cimport whole
from vivum.wire._body cimport check_body
from vivum.wire._copies cimport *
from vivum.wire._header cimport is_kind
from vivum.wire._layout cimport *

from collections.abc import Sequence

from vivum.wire import layout, refusals
from vivum.wire.kinds import Kind
from vivum.wire.spread import LIST_SEQUENCE

# Kinds as two bit masks and a table, read once from the one list of them.
cdef uint64_t KNOWN_MASK = sum(1 << kind for kind in layout.KNOWN_KINDS)
cdef uint64_t MESSAGE_MASK = sum(1 << kind for kind in layout.MESSAGE_KINDS)
cdef uint64_t LIST = LIST_SEQUENCE
cdef tuple KIND_OF = tuple(Kind(number) if number in layout.KNOWN_KINDS else None for number in range(64))


cdef struct Extent:
    # Of a frame, from its first byte on: where its messages begin, behind a list of regions if there is one, how many
    # runs there are of them, and where the last ends; padding may follow.
    uint16_t begin
    uint16_t runs
    uint16_t stop


cdef struct View:
    # A single frame whose messages are taken: where they begin, how many runs, where the last ends, when it was sealed,
    # and which of the objects it is in.
    const uint8_t* begin
    const uint8_t* stop
    Py_ssize_t runs
    uint64_t sent_ns
    Py_ssize_t held_in


cdef class Frame


@cython.final
@cython.internal
cdef class Taken:
    """Runs of messages that were taken out of frames, the last of which others may go on with."""

    # What the frames are in, and the frames one by one.
    cdef list frames
    cdef View* views
    cdef Py_ssize_t count
    cdef object packed
    cdef uint64_t messages_max
    cdef uint64_t joined_max
    cdef list runs
    # The run under way, None if there is none: of which frame it is the first or a later one, its group, the number of
    # its first message, and the flag of its first.
    cdef list payloads
    cdef Py_ssize_t index
    cdef uint32_t group
    cdef uint64_t first
    cdef uint32_t flags
    # It began in a frame that has nothing else.
    cdef bint is_alone

    def __dealloc__(self):
        free(self.views)

    cdef int begin(self, Py_ssize_t index, uint32_t tag, uint64_t first, bint is_alone) except -1:
        self.end(0)
        self.payloads = []
        self.index = index
        self.group = tag & C_GROUP_MAX
        self.first = first
        self.flags = tag & C_CONTINUES
        self.is_alone = is_alone
        return 0

    cdef int end(self, uint32_t flags) except -1:
        """End the run under way, whose last message may go on elsewhere."""
        if self.payloads is not None:
            self.runs.append((self.index, self.group, self.first, self.flags | flags, self.payloads))
            self.payloads = None
        return 0

    cdef bint has_room(self, uint64_t count) noexcept:
        return <uint64_t>PyList_GET_SIZE(self.payloads) + count <= self.messages_max

    cdef bint goes_on(self, Py_ssize_t at) except -1:
        """Return whether a frame begins with what goes on with the run under way, which ended the frame before."""
        cdef const uint8_t* p = self.views[at].begin
        cdef uint32_t tag
        # Numbers of marks are no sequence.
        if self.payloads is None or self.group == C_GROUP_MAX:
            return False
        tag = load32(p)
        if (
            tag & ~C_MORE != self.group
            or load64(p + 4) != self.first + <uint64_t>PyList_GET_SIZE(self.payloads)
            or self.views[at].sent_ns != self.views[at - 1].sent_ns
            or not self.has_room(load16(p + 12))
        ):
            return False
        if self.packed and self.group in self.packed:
            # Those that may stay uncut are not joined with others.
            return not (self.flags or tag & C_MORE) and self.is_alone == (self.views[at].runs == 1)
        return self.joined_max > 0 or not (self.flags or tag & C_MORE)


cdef Taken take_nothing(frames, object packed, uint64_t messages_max, uint64_t joined_max):
    cdef Taken taken = Taken.__new__(Taken)
    cdef Py_ssize_t row, number
    cdef Frame held
    cdef View* view
    # A list of our own: what was counted ahead of cutting must still be there when it is cut.
    taken.frames = list(frames)
    for frame in taken.frames:
        if type(frame) is not Frame:
            raise TypeError(f"a frame was expected, not {type(frame).__name__}")
        taken.count += (<Frame>frame).count
    taken.views = <View*>malloc(max(taken.count, 1) * sizeof(View))
    if taken.views == NULL:
        raise MemoryError()
    view = taken.views
    for row in range(PyList_GET_SIZE(taken.frames)):
        held = <Frame>PyList_GET_ITEM(taken.frames, row)
        for number in range(held.count):
            view.begin = held._base + number * held.length + held._extents[number].begin
            view.stop = held._base + number * held.length + held._extents[number].stop
            view.runs = held._extents[number].runs
            view.sent_ns = held.sent_ns
            view.held_in = row
            view += 1
    taken.packed = packed
    taken.messages_max = messages_max
    taken.joined_max = joined_max
    taken.runs = []
    return taken


@cython.final
@cython.freelist(64)
cdef class Frame:
    """One validated frame inside a received buffer, or several of a train; see the stub."""

    cdef readonly Py_ssize_t count
    cdef readonly uint16_t length
    cdef readonly Py_ssize_t size
    cdef readonly uint32_t domain
    cdef readonly uint32_t sender
    cdef readonly uint16_t incarnation
    cdef readonly uint16_t key_epoch
    cdef readonly uint32_t region
    cdef readonly uint32_t view
    cdef readonly uint64_t sequence
    cdef readonly uint64_t sent_ns
    cdef readonly Py_ssize_t start
    # What it is in, and where it begins there.
    cdef readonly bytes data
    cdef const uint8_t* _base
    cdef uint8_t _kind
    # One for each frame. A frame that is alone needs no memory for it.
    cdef Extent* _extents
    cdef Extent _own

    def __init__(self):
        raise refusals.made_by_split()

    def __dealloc__(self):
        if self._extents != &self._own:
            free(self._extents)

    @property
    def kind(self):
        return KIND_OF[self._kind & 63]

    @property
    def body_start(self):
        return self.start + C_HEADER

    @property
    def body_stop(self):
        return self.start + self.size

    @property
    def stop(self):
        # A blank frame from `Frame.__new__` has no frame.
        return self.sequence + <uint64_t>self.count

    @property
    def stream(self):
        return (self.sender, self.incarnation, self.region, self.view)

    cdef Py_ssize_t _length_of(self, Py_ssize_t number) noexcept:
        return self.length if number + 1 < self.count else self.size - number * self.length

    def part(self, start, stop):
        cdef Py_ssize_t first, end
        if not self.sequence <= start < stop <= self.stop:
            raise refusals.no_part(start, stop)
        first = <Py_ssize_t>(<uint64_t>start - self.sequence)
        end = <Py_ssize_t>(<uint64_t>stop - self.sequence)
        return self if end - first == self.count else self._part(first, end)

    cdef Frame _part(self, Py_ssize_t first, Py_ssize_t end):
        cdef Frame frame = Frame.__new__(Frame)
        cdef Py_ssize_t behind = first * self.length
        frame.count = end - first
        frame.length = <uint16_t>self._length_of(first)
        frame.size = (end - 1 - first) * self.length + self._length_of(end - 1)
        frame.domain = self.domain
        frame.sender = self.sender
        frame.incarnation = self.incarnation
        frame.key_epoch = self.key_epoch
        frame.region = self.region
        frame.view = self.view
        frame.sequence = self.sequence + <uint64_t>first
        frame.sent_ns = self.sent_ns
        frame.start = self.start + behind
        frame.data = self.data
        frame._base = self._base + behind
        frame._kind = self._kind
        frame._extents = &frame._own
        if frame.count > 1:
            frame._extents = <Extent*>malloc(frame.count * sizeof(Extent))
            if frame._extents == NULL:
                raise MemoryError()
        memcpy(frame._extents, self._extents + first, frame.count * sizeof(Extent))
        return frame

    def compact(self):
        cdef Frame frame
        if 2 * self.size >= len(self.data):
            return self
        frame = self._part(0, self.count)
        frame.data = self.to_bytes()
        frame.start = 0
        frame._base = <const uint8_t*>PyBytes_AS_STRING(frame.data)
        return frame

    def cut(self):
        cdef Py_ssize_t number
        return [self] if self.count == 1 else [self._part(number, number + 1) for number in range(self.count)]

    def messages(self):
        cdef list runs = [], payloads
        cdef const uint8_t* p
        cdef const uint8_t* stop
        cdef uint32_t tag
        cdef uint64_t first
        cdef Py_ssize_t count, number
        # The second test holds for what `split` made; it is for a blank frame from `Frame.__new__`.
        if not is_kind(self._kind, MESSAGE_MASK) or self.length < C_HEADER:
            return runs
        for number in range(self.count):
            p = self._base + number * self.length
            stop = p + self._length_of(number)
            p += C_HEADER
            while stop - p >= C_RUN_HEADER:
                count = load16(p + 12)
                if count == 0:
                    break
                tag = load32(p)
                first = load64(p + 4)
                payloads = []
                p = cut_run(p + C_RUN_HEADER, payloads, count)
                runs.append((tag & C_GROUP_MAX, first, tag & ~C_GROUP_MAX, payloads))
        return runs

    def body(self):
        if self.length < C_HEADER:
            return b""
        return PyBytes_FromStringAndSize(<const char*>self._base + C_HEADER, self.size - C_HEADER)

    def to_bytes(self):
        if self.length < C_HEADER:
            return b""
        if self.size == PyBytes_GET_SIZE(self.data):
            return self.data
        return PyBytes_FromStringAndSize(<const char*>self._base, self.size)

    def __repr__(self):
        kind = KIND_OF[self._kind & 63]
        which = f"#{self.sequence}" if self.count < 2 else f"#{self.sequence} to #{self.stop - 1}"
        return (
            f"Frame({kind.name if kind is not None else '?'} {which} of {self.sender}.{self.incarnation}"
            f" in region {self.region} view {self.view}, {self.size} bytes)"
        )


cdef inline void note_extent(Extent* extent, const uint8_t* base, Py_ssize_t stop, Py_ssize_t runs) noexcept:
    """Note where the messages of a frame are: behind a list of regions, if it begins with one."""
    cdef const uint8_t* p = base + C_HEADER
    extent.begin = C_HEADER
    extent.stop = <uint16_t>stop
    if runs and load32(p) == C_GROUP_MAX and load64(p + 4) == LIST and load16(p + 12) == 1:
        extent.begin = <uint16_t>(C_HEADER + C_RUN_HEADER + C_LENGTH + load16(p + C_RUN_HEADER))
        runs -= 1
    extent.runs = <uint16_t>runs


cdef inline bint follows(Frame train, const uint8_t* p, Py_ssize_t length) noexcept:
    """Return whether a frame is the next of a train: as its last, which was full, with the next number."""
    return (
        memcmp(p, train._base, 2) == 0 and memcmp(p + 4, train._base + 4, 20) == 0
        and load64(p + 24) == train.sequence + <uint64_t>train.count and load64(p + 32) == train.sent_ns
        and length <= train.length and train.size == train.count * train.length
    )


def split(data):
    return cut_buffer(data, False)


def split_trains(data):
    return cut_buffer(data, True)


cdef list cut_buffer(object data, bint are_joined):
    cdef bytes held
    cdef const uint8_t* base
    cdef const uint8_t* p
    cdef Py_ssize_t total, left, length, at = 0, fault_at = 0
    cdef Py_ssize_t runs
    cdef int fault
    cdef list frames = []
    cdef Frame frame = None
    cdef bint has_messages
    if PyBytes_CheckExact(data):
        held = <bytes>data
    elif isinstance(data, (bytes, bytearray, memoryview)):
        held = bytes(data)
    else:
        raise refusals.not_bytes_like("data", data)
    total = PyBytes_GET_SIZE(held)
    if total == 0:
        raise refusals.empty_buffer()
    base = <const uint8_t*>PyBytes_AS_STRING(held)
    while at < total:
        p = base + at
        left = total - at
        if p[0] != C_VERSION:
            raise refusals.wrong_version(p[0], at)
        if left < C_HEADER:
            raise refusals.torn_header(at, left)
        if not is_kind(p[1], KNOWN_MASK):
            raise refusals.unknown_kind(p[1], at)
        length = load16(p + 2)
        if length < C_HEADER or length > C_FRAME_MAX or length > left:
            raise refusals.wrong_length(length, at, left)
        if load64(p + 24) > C_SEQUENCE_MAX:
            raise refusals.frame_sequence(at)
        runs = 0
        fault_at = at + C_HEADER
        has_messages = is_kind(p[1], MESSAGE_MASK)
        if has_messages:
            fault = check_body(base, at + C_HEADER, at + length, &fault_at, &runs)
            if fault:
                raise refusals.bad_body(fault, fault_at)
        if are_joined and frame is not None and has_messages and follows(frame, p, length):
            if frame._extents == &frame._own:
                # All behind the first have its length, but the last of them.
                frame._extents = <Extent*>malloc((2 + left // frame.length) * sizeof(Extent))
                if frame._extents == NULL:
                    frame._extents = &frame._own
                    raise MemoryError()
                frame._extents[0] = frame._own
            note_extent(&frame._extents[frame.count], p, fault_at - at, runs)
            frame.count += 1
            frame.size += length
            at += length
            continue
        frame = Frame.__new__(Frame)
        frame._kind = p[1]
        frame.count = 1
        frame.length = <uint16_t>length
        frame.size = length
        frame.domain = load32(p + 4)
        frame.sender = load32(p + 8)
        frame.incarnation = load16(p + 12)
        frame.key_epoch = load16(p + 14)
        frame.region = load32(p + 16)
        frame.view = load32(p + 20)
        frame.sequence = load64(p + 24)
        frame.sent_ns = load64(p + 32)
        frame.data = held
        frame._base = p
        frame.start = at
        frame._extents = &frame._own
        note_extent(&frame._own, p, fault_at - at, runs)
        frames.append(frame)
        at += length
    return frames


def single_frames(frames):
    cdef list held = frames
    cdef Py_ssize_t index
    cdef list found
    for index in range(len(held)):
        if (<Frame?>held[index]).count > 1:
            break
    else:
        return held
    found = []
    for frame in held:
        found += (<Frame?>frame).cut()
    return found


def consecutive(frames, start=0):
    cdef list held = frames
    cdef Py_ssize_t stop = len(held), index = <Py_ssize_t>whole(start, "start", 0, stop)
    cdef Frame before, frame
    if index == stop:
        return 0
    before = <Frame?>held[index]
    index += 1
    while index < stop:
        frame = <Frame?>held[index]
        if (
            frame._kind != before._kind or frame.sender != before.sender or frame.incarnation != before.incarnation
            or frame.region != before.region or frame.view != before.view
            or frame.sequence != before.sequence + <uint64_t>before.count
        ):
            break
        before = frame
        index += 1
    return index - <Py_ssize_t>start


@cython.final
cdef class PackedRun:
    """Messages that were not cut; see the stub."""

    cdef list _pieces
    cdef readonly Py_ssize_t payload_bytes
    cdef readonly Py_ssize_t held_bytes
    cdef Py_ssize_t _count

    def __init__(self):
        raise refusals.made_by_take_runs()

    @property
    def pieces(self):
        # A copy: what `cut` relies on is nobody's to change.
        return list(self._pieces)

    def __len__(self):
        return self._count

    def __iter__(self):
        return iter(self.cut())

    def __getitem__(self, index):
        return self.cut()[index]

    def cut(self):
        cdef list payloads = []
        cdef bytes data
        cdef tuple piece
        for piece in self._pieces:
            data = piece[0]
            cut_run(<const uint8_t*>PyBytes_AS_STRING(data) + <Py_ssize_t>piece[1], payloads, piece[2])
        return payloads

    def extend(self, PackedRun other not None):
        self._pieces.extend(other._pieces)
        self.payload_bytes += other.payload_bytes
        self.held_bytes += other.held_bytes
        self._count += other._count

    def __repr__(self):
        return f"PackedRun({self._count} messages, {self.payload_bytes} bytes)"


Sequence.register(PackedRun)


cdef PackedRun packed_run(Taken taken, Py_ssize_t at, Py_ssize_t end):
    """Make a run of frames that have one run of messages each; None if most of what it would hold is not its own."""
    cdef PackedRun run = PackedRun.__new__(PackedRun)
    cdef Py_ssize_t count
    cdef const uint8_t* p
    cdef bytes before = None, data
    run._pieces = []
    while at < end:
        data = (<Frame>PyList_GET_ITEM(taken.frames, taken.views[at].held_in)).data
        p = taken.views[at].begin + C_RUN_HEADER
        count = load16(p - 2)
        run._pieces.append((data, p - <const uint8_t*>PyBytes_AS_STRING(data), count))
        run.payload_bytes += (taken.views[at].stop - p) - C_LENGTH * count
        run._count += count
        if data is not before:
            before = data
            run.held_bytes += PyBytes_GET_SIZE(before)
        at += 1
    return run if run.payload_bytes >= run.held_bytes // 2 else None


def take_runs(frames, messages_max, packed=frozenset(), joined_max=0):
    cdef Taken taken = take_nothing(
        frames, packed, whole(messages_max, "messages_max", 0, U64), whole(joined_max, "joined_max", 0, U64)
    )
    cdef Py_ssize_t at = 0
    cdef bint is_begun = False
    while at < taken.count:
        at = take_frame(taken, at, &is_begun)
    taken.end(0)
    return taken.runs


cdef Py_ssize_t take_frame(Taken taken, Py_ssize_t at, bint* is_begun) except -1:
    """Take a frame, of which the first piece may have been taken before.

    Return which comes next; `is_begun` says whether its first piece has been taken.
    """
    cdef const uint8_t* p = taken.views[at].begin
    cdef Py_ssize_t runs = taken.views[at].runs, left = runs, next_at
    cdef uint32_t tag
    cdef uint64_t first
    cdef Py_ssize_t count
    cdef bint goes_on = is_begun[0], is_piece
    if not left:
        taken.end(0)
        return at + 1
    if not goes_on:
        goes_on = taken.goes_on(at)
        if not goes_on and left == 1 and taken.packed and load32(p) in taken.packed:
            next_at = take_packed(taken, at)
            if next_at:
                return next_at
    while left:
        tag = load32(p)
        first = load64(p + 4)
        count = load16(p + 12)
        p += C_RUN_HEADER
        left -= 1
        is_piece = count == 1 and tag & C_CONTINUES and tag & C_MORE
        if not goes_on:
            taken.begin(at, tag, first, runs == 1)
        if is_begun[0]:
            p += C_LENGTH + load16(p)
            first += 1
            count -= 1
            is_begun[0] = False
        goes_on = False
        if tag & C_MORE:
            count -= 1
        p = cut_run(p, taken.payloads, count)
        if tag & C_MORE:
            next_at = take_cut(taken, at, tag & C_GROUP_MAX, first + <uint64_t>count, p, is_piece, left == 0, is_begun)
            if next_at != at:
                return next_at
            p += C_LENGTH + load16(p)
    return at + 1


cdef Py_ssize_t take_cut(
    Taken taken, Py_ssize_t at, uint32_t group, uint64_t sequence, const uint8_t* p, bint is_piece, bint is_last,
    bint* is_begun,
) except -1:
    """Take the last message of a run, which goes on elsewhere, with as much of it as there is.

    Return which frame comes next, and in `is_begun` whether its first piece has been taken; this one if there is no
    more of it.
    """
    cdef Py_ssize_t size = load16(p), prefix = 0 if is_piece else C_TOTAL, stop = at
    cdef uint64_t total = 0, more = 0
    cdef bint is_ended = False
    cdef const uint8_t* q
    p += C_LENGTH
    if is_last and taken.joined_max:
        stop = pieces_of(taken, at, group, sequence, &more, &is_ended)
    if stop > at:
        total = <uint64_t>size + more if is_piece else load32(p)
        if total <= taken.joined_max:
            q = taken.views[stop].begin
            if is_ended and size - prefix + more == total and taken.has_room(load16(q + 12)):
                add_joined(taken, at, stop, p + prefix, size - prefix, more)
                is_begun[0] = True
                return stop
            if not is_ended and (is_piece or size - prefix + more < total):
                add_joined(taken, at, stop, p, size, more)
                taken.end(C_MORE)
                return stop + 1
    taken.payloads.append(PyBytes_FromStringAndSize(<const char*>p, size))
    taken.end(C_MORE)
    return at


cdef Py_ssize_t pieces_of(
    Taken taken, Py_ssize_t at, uint32_t group, uint64_t sequence, uint64_t* size, bint* is_ended
) noexcept:
    """Find the pieces of a message with which the frames behind one begin, and add up their bytes.

    Return the last of these frames; `is_ended` says whether it has the last of the pieces.
    """
    cdef uint64_t sent_ns = taken.views[at].sent_ns
    cdef Py_ssize_t stop = at + 1
    cdef const uint8_t* p
    cdef uint32_t tag
    while stop < taken.count:
        if not taken.views[stop].runs or taken.views[stop].sent_ns != sent_ns:
            break
        p = taken.views[stop].begin
        tag = load32(p)
        if tag & ~C_MORE != group | C_CONTINUES or load64(p + 4) != sequence:
            break
        is_ended[0] = load16(p + 12) > 1 or not tag & C_MORE
        if not is_ended[0] and taken.views[stop].runs > 1:
            break
        size[0] += load16(p + C_RUN_HEADER)
        if is_ended[0]:
            return stop
        stop += 1
    return stop - 1


cdef int add_joined(
    Taken taken, Py_ssize_t at, Py_ssize_t stop, const uint8_t* first, Py_ssize_t size, uint64_t more
) except -1:
    """Add a message of its first piece and those with which the frames behind `at` begin, up to `stop`."""
    cdef bytes made = PyBytes_FromStringAndSize(NULL, size + <Py_ssize_t>more)
    cdef char* to = PyBytes_AS_STRING(made)
    cdef const uint8_t* p
    memcpy(to, first, size)
    to += size
    while at < stop:
        at += 1
        p = taken.views[at].begin + C_RUN_HEADER
        memcpy(to, p + C_LENGTH, load16(p))
        to += load16(p)
    taken.payloads.append(made)
    return 0


cdef Py_ssize_t take_packed(Taken taken, Py_ssize_t at) except -1:
    """Take a run without cutting it, of frames that have nothing else in them.

    Return which frame comes next; 0 if that cannot be.
    """
    cdef const uint8_t* p = taken.views[at].begin
    cdef uint32_t tag = load32(p)
    cdef uint64_t first = load64(p + 4), count = load16(p + 12)
    cdef Py_ssize_t end = joint_end(taken, at, tag, first, &count)
    cdef PackedRun run = packed_run(taken, at, end)
    if run is None:
        return 0
    taken.end(0)
    taken.runs.append((at, tag, first, 0, run))
    return end


cdef Py_ssize_t joint_end(
    Taken taken, Py_ssize_t at, uint32_t tag, uint64_t first, uint64_t* count
) except -1:
    """Find how far frames that have nothing else go on with a run, and add up how many messages it has."""
    cdef const uint8_t* p
    cdef uint64_t more, sent_ns = taken.views[at].sent_ns
    at += 1
    # Numbers of marks are no sequence.
    while tag < C_GROUP_MAX and at < taken.count:
        if taken.views[at].runs != 1 or taken.views[at].sent_ns != sent_ns:
            break
        p = taken.views[at].begin
        more = load16(p + 12)
        if load32(p) != tag or load64(p + 4) != first + count[0] or count[0] + more > taken.messages_max:
            break
        count[0] += more
        at += 1
    return at
