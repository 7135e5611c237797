# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: auto_pickle=False
"""The compiled way in: buffers cut into frames, frames into messages. `_codec` exports it.

The twin `_frames_twin.py` has the same names and the same behaviour to the byte and to the error; change both or
neither. The rules against reading past a buffer are those of `_codec.pyx`.

The twin knows no frames that are lent (`_slots.pyx`). What is in them may change at any time, so nothing that was checked
in one is relied on: what is cut is checked against the frame's end again, and is not used if the frame was gone then.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from vivum.wire._arguments cimport whole
from vivum.wire._body cimport check_body
from vivum.wire._copies cimport *
from vivum.wire._header cimport is_kind
from vivum.wire._layout cimport *
from vivum.wire._slots cimport Lent

from collections.abc import Sequence

from vivum.wire import layout, refusals
from vivum.wire.kinds import Kind
from vivum.wire.spread import LIST_SEQUENCE

# Kinds as two bit masks and a table, read once from the one list of them.
cdef uint64_t KNOWN_MASK = sum(1 << kind for kind in layout.KNOWN_KINDS)
cdef uint64_t MESSAGE_MASK = sum(1 << kind for kind in layout.MESSAGE_KINDS)
cdef uint64_t LIST = LIST_SEQUENCE
cdef tuple KIND_OF = tuple(Kind(number) if number in layout.KNOWN_KINDS else None for number in range(64))


cdef class Frame


@cython.final
@cython.internal
cdef class Taken:
    """Runs of messages that were taken out of frames, the last of which others may go on with."""

    cdef list frames
    cdef object packed
    cdef uint64_t messages_max
    cdef list runs
    # The messages of the last run, for all of which there is room, and how many are there. Frames before `end` begin
    # with the rest.
    cdef list payloads
    cdef Py_ssize_t filled
    cdef Py_ssize_t end

    cdef int begin(self, Py_ssize_t index, uint32_t tag, uint64_t first, Py_ssize_t count, Frame of) except -1:
        """Begin a run with some messages, and room for those that go on with it if it is the last of a frame."""
        cdef uint64_t total = count
        self.close()
        self.end = index + 1
        if of is not None and index + 1 < PyList_GET_SIZE(self.frames):
            self.end = joint_end(self, index, of, tag, first, &total)
        self.payloads = PyList_New(total)
        self.filled = 0
        self.runs.append((index, tag & C_GROUP_MAX, first, tag & ~C_GROUP_MAX, self.payloads))
        return 0

    cdef int close(self) except -1:
        """Leave the last run as it is."""
        # Somebody changed a count after it was added up, and behaves as if nothing was, or a frame is gone.
        if self.payloads is not None and self.filled < PyList_GET_SIZE(self.payloads):
            del self.payloads[self.filled :]
        return 0


cdef Taken take_nothing(list frames, object packed, uint64_t messages_max):
    cdef Taken taken = Taken.__new__(Taken)
    taken.frames = frames
    taken.packed = packed
    taken.messages_max = messages_max
    taken.runs = []
    return taken


@cython.final
@cython.freelist(64)
cdef class Frame:
    """One validated frame inside a received buffer; see the stub."""

    cdef readonly uint16_t length
    cdef readonly uint32_t domain
    cdef readonly uint32_t sender
    cdef readonly uint16_t incarnation
    cdef readonly uint16_t key_epoch
    cdef readonly uint32_t region
    cdef readonly uint32_t view
    cdef readonly uint64_t sequence
    cdef readonly uint64_t sent_ns
    cdef readonly Py_ssize_t start
    # What it is in, and where it begins there; of a frame that is lent, who lends it, until it is kept.
    cdef bytes _data
    cdef const uint8_t* _base
    cdef Lent _lent
    cdef uint8_t _kind
    # Where its messages begin, behind a list of regions if there is one, how many runs there are of them, and where the
    # last ends in `data`: padding may follow.
    cdef Py_ssize_t _begin
    cdef Py_ssize_t _runs
    cdef Py_ssize_t _stop
    # Some of its messages are pieces of others.
    cdef bint _has_pieces

    def __init__(self):
        raise refusals.made_by_split()

    @property
    def kind(self):
        return KIND_OF[self._kind & 63]

    @property
    def body_start(self):
        return self.start + C_HEADER

    @property
    def body_stop(self):
        return self.start + self.length

    @property
    def stream(self):
        return (self.sender, self.incarnation, self.region, self.view)

    @property
    def data(self):
        self._own()
        return self._data

    def keep(self):
        cdef bytes copied
        cdef const uint8_t* base
        cdef Py_ssize_t stop = 0, runs = 0
        cdef bint has_pieces = False
        if self._lent is None:
            return True
        copied = PyBytes_FromStringAndSize(<const char*>self._base, self.length)
        base = <const uint8_t*>PyBytes_AS_STRING(copied)
        # Who lends it might have changed it since it was checked, without a new stamp: not by mistake, but in malice.
        if not self._lent.is_there():
            return False
        if base[0] != C_VERSION or base[1] != self._kind or load16(base + 2) != self.length:
            return False
        if is_kind(self._kind, MESSAGE_MASK) and check_body(
            base, C_HEADER, self.length, &stop, &runs, &has_pieces
        ):
            return False
        self._data = copied
        self._base = base
        self._note_runs(runs)
        self._stop = stop
        self._has_pieces = has_pieces
        self.start = 0
        self._lent = None
        return True

    cdef int _own(self) except -1:
        if self._lent is not None and not self.keep():
            raise refusals.frame_gone()
        return 0

    def messages(self):
        cdef list runs = [], payloads
        cdef const uint8_t* p
        cdef const uint8_t* stop
        cdef uint32_t tag
        cdef uint64_t first
        cdef Py_ssize_t count
        self._own()
        # The second test holds for what `split` made; it is for a blank frame from `Frame.__new__`.
        if not is_kind(self._kind, MESSAGE_MASK) or self.length < C_HEADER:
            return runs
        p = self._base + C_HEADER
        stop = self._base + self.length
        while stop - p >= C_RUN_HEADER:
            count = load16(p + 12)
            if count == 0:
                break
            tag = load32(p)
            first = load64(p + 4)
            payloads = PyList_New(count)
            p = cut_run(p + C_RUN_HEADER, stop, payloads, 0, count)
            if p == NULL:
                # Impossible in what was checked and is ours; what was not filled must not be seen.
                raise refusals.frame_gone()
            runs.append((tag & C_GROUP_MAX, first, tag & ~C_GROUP_MAX, payloads))
        return runs

    cdef void _note_runs(self, Py_ssize_t runs) noexcept:
        cdef const uint8_t* p = self._base + C_HEADER
        cdef Py_ssize_t behind
        self._begin = C_HEADER
        self._runs = runs
        if runs and load32(p) == C_GROUP_MAX and load64(p + 4) == LIST and load16(p + 12) == 1:
            behind = C_HEADER + C_RUN_HEADER + C_LENGTH + load16_once(p + C_RUN_HEADER)
            # There is another run, or none at all, unless somebody changed it since it was checked.
            if behind + (C_RUN_HEADER if runs > 1 else 0) <= self.length:
                self._begin = behind
                self._runs = runs - 1

    cdef bint _cut(self, Taken taken, Py_ssize_t index, Py_ssize_t begin) except -1:
        """Take all runs from a place on out; tell whether they are there, or the frame was gone. What was taken then is to be undone."""
        cdef const uint8_t* p = self._base + begin
        cdef const uint8_t* stop = self._base + self.length
        cdef uint32_t tag
        cdef uint64_t first
        cdef Py_ssize_t count, left = self._runs
        cdef bint goes_on = index < taken.end
        # The second test holds for what `split` made; it is for a blank frame from `Frame.__new__`.
        if not is_kind(self._kind, MESSAGE_MASK) or self.length < C_HEADER:
            return True
        while stop - p >= C_RUN_HEADER:
            count = load16_once(p + 12)
            if count == 0:
                break
            tag = load32(p)
            first = load64(p + 4)
            if self._lent is not None and (tag > C_GROUP_MAX or first > C_SEQUENCE_MAX - <uint64_t>(count - 1)):
                # It changed since it was checked: for pieces of messages, which are never cut where they are lent, more
                # must hold.
                return False
            left -= 1
            if not goes_on:
                taken.begin(index, tag, first, count, self if left == 0 else None)
            elif count > PyList_GET_SIZE(taken.payloads) - taken.filled:
                return False
            goes_on = False
            p = cut_run(p + C_RUN_HEADER, stop, taken.payloads, taken.filled, count)
            if p == NULL:
                return False
            taken.filled += count
        return self._lent is None or self._lent.is_there()

    def body(self):
        if self.length < C_HEADER:
            return b""
        self._own()
        return PyBytes_FromStringAndSize(<const char*>self._base + C_HEADER, self.length - C_HEADER)

    def to_bytes(self):
        if self.length < C_HEADER:
            return b""
        self._own()
        if self.length == PyBytes_GET_SIZE(self._data):
            return self._data
        return PyBytes_FromStringAndSize(<const char*>self._base, self.length)

    def __repr__(self):
        kind = KIND_OF[self._kind & 63]
        return (
            f"Frame({kind.name if kind is not None else '?'} #{self.sequence} of {self.sender}.{self.incarnation}"
            f" in region {self.region} view {self.view}, {self.length} bytes)"
        )


def split(data):
    cdef bytes held = None
    cdef Lent lent = None
    cdef const uint8_t* base
    cdef const uint8_t* p
    cdef uint8_t header[C_HEADER]
    cdef Py_ssize_t total, left, length, at = 0, fault_at = 0
    cdef Py_ssize_t runs
    cdef bint has_pieces
    cdef int fault
    cdef list frames = []
    cdef Frame frame
    if PyBytes_CheckExact(data):
        held = <bytes>data
    elif type(data) is Lent:
        lent = <Lent>data
        if lent.size < C_HEADER or load16(lent.start + 2) != lent.size:
            # Not one frame: what nobody needs lends.
            held = lent.copy()
            lent = None
            if held is None:
                return frames
    elif isinstance(data, (bytes, bytearray, memoryview)):
        held = bytes(data)
    else:
        raise refusals.not_bytes_like("data", data)
    total = PyBytes_GET_SIZE(held) if lent is None else lent.size
    if total == 0:
        raise refusals.empty_buffer()
    base = <const uint8_t*>PyBytes_AS_STRING(held) if lent is None else lent.start
    while at < total:
        p = base + at
        left = total - at
        if lent is not None:
            # Its fields may change at any time: they are looked at once. There is one frame, of at least a header.
            copy_once(header, p, C_HEADER)
            p = header
        if p[0] != C_VERSION:
            raise refusals.wrong_version(p[0], at)
        if left < C_HEADER:
            raise refusals.torn_header(at, left)
        if not is_kind(p[1], KNOWN_MASK):
            raise refusals.unknown_kind(p[1], at)
        length = load16(p + 2)
        if length < C_HEADER or length > C_FRAME_MAX or length > left or (lent is not None and length != left):
            raise refusals.wrong_length(length, at, left)
        if load64(p + 24) > C_SEQUENCE_MAX:
            raise refusals.frame_sequence(at)
        runs = 0
        has_pieces = False
        if is_kind(p[1], MESSAGE_MASK):
            fault = check_body(base, at + C_HEADER, at + length, &fault_at, &runs, &has_pieces)
            if fault:
                raise refusals.bad_body(fault, fault_at)
        frame = Frame.__new__(Frame)
        frame._kind = p[1]
        frame._has_pieces = has_pieces
        frame._stop = fault_at
        frame.length = <uint16_t>length
        frame.domain = load32(p + 4)
        frame.sender = load32(p + 8)
        frame.incarnation = load16(p + 12)
        frame.key_epoch = load16(p + 14)
        frame.region = load32(p + 16)
        frame.view = load32(p + 20)
        frame.sequence = load64(p + 24)
        frame.sent_ns = load64(p + 32)
        frame._data = held
        frame._lent = lent
        frame._base = base + at
        frame.start = at
        frame._note_runs(runs)
        frames.append(frame)
        at += length
    return frames


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
            or frame.region != before.region or frame.view != before.view or frame.sequence != before.sequence + 1
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
        cdef list payloads = PyList_New(self._count)
        cdef const uint8_t* p
        cdef Py_ssize_t at, size, place = 0, stop
        cdef bytes data
        cdef tuple piece
        for piece in self._pieces:
            data = piece[0]
            at = piece[1]
            stop = place + <Py_ssize_t>piece[2]
            p = <const uint8_t*>PyBytes_AS_STRING(data) + at
            while place < stop:
                size = load16(p)
                raw_set_item(<PyObject*>payloads, place, raw_bytes(<const char*>p + C_LENGTH, size))
                p += C_LENGTH + size
                place += 1
        return payloads

    def extend(self, PackedRun other not None):
        self._pieces.extend(other._pieces)
        self.payload_bytes += other.payload_bytes
        self.held_bytes += other.held_bytes
        self._count += other._count

    def __repr__(self):
        return f"PackedRun({self._count} messages, {self.payload_bytes} bytes)"


Sequence.register(PackedRun)


cdef PackedRun packed_run(list frames, Py_ssize_t at, Py_ssize_t end):
    """Make a run of frames that have one run of messages each; None if most of what it would hold is not its own."""
    cdef PackedRun run = PackedRun.__new__(PackedRun)
    cdef Py_ssize_t start, count
    cdef bytes before = None
    cdef Frame frame
    run._pieces = []
    while at < end:
        frame = frames[at]
        start = frame.start + frame._begin + C_RUN_HEADER
        count = load16(frame._base + frame._begin + 12)
        run._pieces.append((frame._data, start, count))
        run.payload_bytes += frame._stop - start - C_LENGTH * count
        run._count += count
        if frame._data is not before:
            before = frame._data
            run.held_bytes += PyBytes_GET_SIZE(before)
        at += 1
    return run if run.payload_bytes >= run.held_bytes // 2 else None


def take_runs(frames, messages_max, packed=frozenset()):
    cdef list payloads
    cdef Taken taken = take_nothing(frames, packed, whole(messages_max, "messages_max", 0, U64))
    cdef Py_ssize_t at = 0, place, filled
    cdef Frame frame
    while at < len(taken.frames):
        frame = <Frame?>taken.frames[at]
        if packed and frame._runs == 1 and at >= taken.end and take_packed(taken, at, frame):
            at = taken.end
            continue
        place, payloads, filled = len(taken.runs), taken.payloads, taken.filled
        if (frame._has_pieces and not frame.keep()) or not frame._cut(taken, at, frame._begin):
            del taken.runs[place:]
            taken.payloads, taken.filled = payloads, filled
            break
        at += 1
    taken.close()
    return at, taken.runs


cdef bint take_packed(Taken taken, Py_ssize_t at, Frame frame) except -1:
    """Take a run without cutting it, of frames that have nothing else in them; False if that cannot be."""
    cdef const uint8_t* p
    cdef uint32_t tag = load32(frame._base + frame._begin)
    cdef uint64_t first, count, kept
    cdef Py_ssize_t end, place
    cdef PackedRun run
    if tag not in taken.packed or not frame.keep() or frame._runs != 1:
        return False
    p = frame._base + frame._begin
    if load32(p) != tag:
        return False
    first = load64(p + 4)
    count = kept = load16(p + 12)
    end = joint_end(taken, at, frame, tag, first, &count)
    for place in range(at + 1, end):
        if not (<Frame>taken.frames[place]).keep():
            return False
    # Those that were lent might have changed before they were kept.
    if joint_end(taken, at, frame, tag, first, &kept) != end or kept != count:
        return False
    run = packed_run(taken.frames, at, end)
    if run is None:
        return False
    taken.close()
    taken.payloads = None
    taken.end = end
    taken.runs.append((at, tag, first, 0, run))
    return True


cdef Py_ssize_t joint_end(
    Taken taken, Py_ssize_t at, Frame head, uint32_t tag, uint64_t first, uint64_t* count
) except -1:
    """Find how far frames behind one begin with what goes on with its last run, and add up how many messages it has."""
    cdef const uint8_t* p
    cdef Frame frame = head
    cdef uint64_t more
    cdef bint is_packed = bool(taken.packed) and tag in taken.packed
    at += 1
    # Numbers of marks are no sequence, and pieces of messages are joined by others.
    if tag >= C_GROUP_MAX:
        return at
    while at < len(taken.frames):
        frame = <Frame?>taken.frames[at]
        # Those that may stay uncut are not joined with others.
        if frame._runs == 0 or frame.sent_ns != head.sent_ns or (is_packed and (frame._runs == 1) != (head._runs == 1)):
            break
        p = frame._base + frame._begin
        more = load16_once(p + 12)
        if (
            load32(p) != tag or load64(p + 4) != first + count[0] or more == 0
            or first + count[0] > C_SEQUENCE_MAX - (more - 1) or count[0] + more > taken.messages_max
        ):
            break
        count[0] += more
        at += 1
        if frame._runs > 1:
            break
    return at
