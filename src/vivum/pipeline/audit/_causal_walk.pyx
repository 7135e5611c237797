# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: auto_pickle=False
# distutils: language = c++
"""The walk of the checker `causal`, compiled. `_causal_walk_twin.py` has the same function in Python, over the checker itself.

The steps are those of `vivum.checkers.causal` and, for several writers, of `vivum.checkers.clocks`; both are told there.
Lives, groups, streams and pairs of a receiver and a sender are numbered as they come, so that a record costs a few lookups.
A stream keeps the numbers of its sends in a row while they count on by one, and the others aside.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libcpp.deque cimport deque
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

cdef enum:
    SENT = 0
    DELIVERED = 1
    JOINED = 2
    NOT_SENT = -1
    NO_SNAPSHOT = -1

cdef enum:
    ROW_KIND = 0
    ROW_WRITER = 1
    ROW_POSITION = 2
    ROW_TIME = 3
    ROW_GROUP = 4
    ROW_LIFE = 5
    ROW_SENDER = 6
    ROW_SEQUENCE = 7

KEPT_MAX = 20

cdef struct Row:
    int64_t kind
    int64_t writer
    int64_t position
    int64_t time
    int64_t sequence
    int32_t life
    int32_t group
    int32_t stream

cdef struct Pair:
    # What a receiver knows of a sender: as `_Life.barred`, `merged`, `fresh` and `barred_by` of the checker.
    int32_t sender
    int64_t barred
    int64_t merged
    int64_t fresh
    Row by

cdef struct Need:
    int32_t life
    int64_t count

cdef struct Late:
    Row late
    Row dependent

cdef cppclass Stream:
    int64_t base
    int32_t group
    int32_t sender
    vector[int64_t] numbers
    unordered_map[int64_t, int64_t] aside
    unordered_map[int64_t, vector[int32_t]] waiting

cdef cppclass Life:
    int64_t sends
    vector[int64_t] need_starts
    vector[Need] needs
    vector[int32_t] fresh
    vector[int32_t] pairs
    int32_t snapshot
    bint is_barred
    deque[Row] held


cdef inline uint64_t both(int32_t high, int32_t low) noexcept nogil:
    return (<uint64_t> <unsigned int> high) << 32 | <uint64_t> <unsigned int> low


cdef class _Walk:
    cdef bint hold
    cdef int64_t count
    cdef unordered_map[int64_t, int32_t] life_numbers
    cdef unordered_map[int64_t, int32_t] group_numbers
    cdef unordered_map[uint64_t, int32_t] stream_numbers
    cdef unordered_map[uint64_t, int32_t] pair_numbers
    cdef unordered_map[uint64_t, int32_t] excused
    cdef vector[int64_t] life_names
    cdef vector[int64_t] group_names
    cdef vector[Life] lives
    cdef vector[Stream] streams
    cdef vector[Pair] pairs
    cdef vector[unordered_map[int32_t, int64_t]] snapshots
    cdef vector[Late] found
    cdef vector[int32_t] raised
    cdef vector[Need] open_needs
    cdef deque[int32_t] free

    def __cinit__(self, bint hold):
        self.hold = hold
        self.count = 0

    cdef int32_t life_of(self, int64_t name) except -1:
        cdef Life fresh
        found = self.life_numbers.find(name)
        if found != self.life_numbers.end():
            return self.life_numbers[name]
        fresh.sends = 0
        fresh.snapshot = NO_SNAPSHOT
        fresh.is_barred = False
        fresh.need_starts.push_back(0)
        self.lives.push_back(fresh)
        self.life_names.push_back(name)
        self.life_numbers[name] = <int32_t> self.lives.size() - 1
        return <int32_t> self.lives.size() - 1

    cdef int32_t group_of(self, int64_t name) except -1:
        if self.group_numbers.find(name) == self.group_numbers.end():
            self.group_names.push_back(name)
            self.group_numbers[name] = <int32_t> self.group_names.size() - 1
        return self.group_numbers[name]

    cdef int32_t stream_of(self, int32_t group, int32_t sender) except -1:
        cdef uint64_t key = both(group, sender)
        cdef Stream fresh
        if self.stream_numbers.find(key) == self.stream_numbers.end():
            fresh.base = 0
            fresh.group = group
            fresh.sender = sender
            self.streams.push_back(fresh)
            self.stream_numbers[key] = <int32_t> self.streams.size() - 1
        return self.stream_numbers[key]

    cdef int32_t pair_of(self, int32_t receiver, int32_t sender) except -1:
        cdef uint64_t key = both(receiver, sender)
        cdef Pair fresh
        cdef int32_t number
        found = self.pair_numbers.find(key)
        if found != self.pair_numbers.end():
            return self.pair_numbers[key]
        fresh.sender = sender
        fresh.barred = fresh.merged = fresh.fresh = 0
        number = <int32_t> self.pairs.size()
        self.pairs.push_back(fresh)
        self.pair_numbers[key] = number
        self.lives[receiver].pairs.push_back(number)
        return number

    cdef int64_t number_of(self, int32_t stream, int64_t sequence) noexcept:
        cdef Stream* its = &self.streams[stream]
        cdef int64_t place = sequence - its.base
        if its.numbers.size() and place >= 0 and place < <int64_t> its.numbers.size():
            return its.numbers[place]
        if its.aside.size() and its.aside.find(sequence) != its.aside.end():
            return its.aside[sequence]
        return NOT_SENT

    cdef int take_sent(self, const Row& row) except -1:
        cdef Life* life = &self.lives[row.life]
        cdef Stream* its = &self.streams[row.stream]
        cdef int32_t number
        cdef Need need
        if self.number_of(row.stream, row.sequence) != NOT_SENT:
            return 0
        if its.numbers.size() == 0:
            its.base = row.sequence
        if row.sequence == its.base + <int64_t> its.numbers.size():
            its.numbers.push_back(life.sends)
        else:
            its.aside[row.sequence] = life.sends
        life.sends += 1
        for number in life.fresh:
            need.life = self.pairs[number].sender
            need.count = self.pairs[number].fresh
            life.needs.push_back(need)
            self.pairs[number].fresh = 0
        life.fresh.clear()
        life.need_starts.push_back(<int64_t> life.needs.size())
        return 0

    cdef int take_joined(self, const Row& row) except -1:
        cdef Life* life = &self.lives[row.life]
        cdef unordered_map[int32_t, int64_t] barred
        cdef int32_t number
        if life.is_barred:
            if life.snapshot == NO_SNAPSHOT:
                for number in life.pairs:
                    if self.pairs[number].barred:
                        barred[self.pairs[number].sender] = self.pairs[number].barred
                self.snapshots.push_back(barred)
                life.snapshot = <int32_t> self.snapshots.size() - 1
            self.excused[both(row.life, row.group)] = life.snapshot
        return 0

    cdef int take_delivered(self, const Row& row) except -1:
        cdef int32_t receiver = row.life
        cdef int32_t sender = self.streams[row.stream].sender
        cdef int64_t number = self.number_of(row.stream, row.sequence)
        cdef int32_t pair
        if number == NOT_SENT:
            return 0
        pair = self.pair_of(receiver, sender)
        if number < self.pairs[pair].barred and not self.is_excused(row, sender, number):
            self.report(row, self.pairs[pair].by)
        if number >= self.pairs[pair].merged:
            self.merge(pair, receiver, number, row)
        if sender != receiver and number >= self.pairs[pair].fresh:
            if self.pairs[pair].fresh == 0:
                self.lives[receiver].fresh.push_back(pair)
            self.pairs[pair].fresh = number + 1
        return 0

    cdef bint is_excused(self, const Row& row, int32_t sender, int64_t number) noexcept:
        cdef uint64_t key = both(row.life, row.group)
        cdef unordered_map[int32_t, int64_t]* barred
        if self.excused.find(key) == self.excused.end():
            return False
        barred = &self.snapshots[self.excused[key]]
        return barred.find(sender) != barred.end() and number < barred[0][sender]

    cdef int merge(self, int32_t pair, int32_t receiver, int64_t number, const Row& row) except -1:
        """Bar the past of the sender's send of this number at the receiver."""
        cdef Need need, other
        cdef int32_t its, theirs
        cdef int64_t place, stop, first
        self.raised.clear()
        if number > self.pairs[pair].barred:
            self.pairs[pair].barred = number
            self.raised.push_back(pair)
        need.life = self.pairs[pair].sender
        need.count = number + 1
        self.open_needs.push_back(need)
        while self.open_needs.size():
            need = self.open_needs.back()
            self.open_needs.pop_back()
            its = self.pair_of(receiver, need.life)
            first = self.pairs[its].merged
            if first >= need.count:
                continue
            self.pairs[its].merged = need.count
            place = self.lives[need.life].need_starts[first]
            stop = self.lives[need.life].need_starts[need.count]
            while place < stop:
                other = self.lives[need.life].needs[place]
                place += 1
                theirs = self.pair_of(receiver, other.life)
                if self.pairs[theirs].barred < other.count:
                    self.pairs[theirs].barred = other.count
                    self.raised.push_back(theirs)
                    self.open_needs.push_back(other)
        if self.raised.size():
            for its in self.raised:
                self.pairs[its].by = row
            self.lives[receiver].is_barred = True
            self.lives[receiver].snapshot = NO_SNAPSHOT
        return 0

    cdef int report(self, const Row& late, const Row& dependent) except -1:
        cdef Late each
        self.count += 1
        if self.found.size() < <size_t> KEPT_MAX:
            each.late = late
            each.dependent = dependent
            self.found.push_back(each)
        return 0

    cdef int take(self, const Row& row) except -1:
        if row.kind == DELIVERED:
            return self.take_delivered(row)
        if row.kind == SENT:
            return self.take_sent(row)
        return self.take_joined(row)

    cdef bint may_pass(self, const Row& row) except -1:
        """Return whether a record can go on now; where it cannot, its life waits."""
        if row.kind == DELIVERED and self.number_of(row.stream, row.sequence) == NOT_SENT:
            self.streams[row.stream].waiting[row.sequence].push_back(row.life)
            return False
        return True

    cdef int let_through(self, Row row) except -1:
        """Take a record, and all that waited for it."""
        cdef int32_t life
        self.take(row)
        self.wake(row)
        while self.free.size():
            life = self.free.front()
            row = self.lives[life].held.front()
            self.lives[life].held.pop_front()
            self.take(row)
            self.wake(row)
            if self.lives[life].held.size() == 0 or not self.may_pass(self.lives[life].held.front()):
                self.free.pop_front()
        return 0

    cdef int wake(self, const Row& row) except -1:
        cdef Stream* its = &self.streams[row.stream]
        cdef int32_t life
        if row.kind == SENT and its.waiting.size() and its.waiting.find(row.sequence) != its.waiting.end():
            for life in its.waiting[row.sequence]:
                self.free.push_back(life)
            its.waiting.erase(row.sequence)
        return 0

    cdef int take_block(self, const int64_t[:, ::1] block) except -1:
        cdef Py_ssize_t place
        cdef Row row
        cdef int32_t sender
        for place in range(block.shape[1]):
            row.kind = block[ROW_KIND, place]
            if row.kind > JOINED:
                continue
            row.writer = block[ROW_WRITER, place]
            row.position = block[ROW_POSITION, place]
            row.time = block[ROW_TIME, place]
            row.sequence = block[ROW_SEQUENCE, place]
            row.life = self.life_of(block[ROW_LIFE, place])
            row.group = self.group_of(block[ROW_GROUP, place])
            sender = self.life_of(block[ROW_SENDER, place]) if row.kind == DELIVERED else row.life
            row.stream = self.stream_of(row.group, sender)
            if not self.hold:
                self.take(row)
            elif self.lives[row.life].held.size():
                self.lives[row.life].held.push_back(row)
            elif self.may_pass(row):
                self.let_through(row)
            else:
                self.lives[row.life].held.push_back(row)
        return 0

    cdef int let_go(self) except -1:
        """Release what waits for what was never sent, earliest first."""
        cdef int32_t life, earliest
        cdef Row row
        cdef vector[int32_t]* waiting
        cdef size_t place
        while True:
            earliest = -1
            for life in range(<int32_t> self.lives.size()):
                if self.lives[life].held.size() and (
                    earliest < 0 or self.lives[life].held.front().time < self.lives[earliest].held.front().time
                ):
                    earliest = life
            if earliest < 0:
                return 0
            row = self.lives[earliest].held.front()
            self.lives[earliest].held.pop_front()
            waiting = &self.streams[row.stream].waiting[row.sequence]
            for place in range(waiting.size()):
                if waiting[0][place] == earliest:
                    waiting.erase(waiting.begin() + place)
                    break
            self.let_through(row)
            while self.lives[earliest].held.size() and self.may_pass(self.lives[earliest].held.front()):
                row = self.lives[earliest].held.front()
                self.lives[earliest].held.pop_front()
                self.let_through(row)

    cdef tuple shown(self, const Row& row):
        cdef Stream* its = &self.streams[row.stream]
        return (
            row.writer, row.position, self.life_names[row.life], self.group_names[row.group],
            self.life_names[its.sender], row.sequence,
        )  # fmt: skip


def walk(blocks, hold):
    """Walk through blocks of records; see `_causal_walk_twin.walk`."""
    cdef _Walk made = _Walk(hold)
    cdef size_t place
    for block in blocks:
        made.take_block(block)
    if hold:
        made.let_go()
    found = []
    for place in range(made.found.size()):
        found.append((made.shown(made.found[place].dependent), made.shown(made.found[place].late)))
    return made.count, found
