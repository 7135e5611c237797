"""The store against an oracle that keeps every change for ever and computes everything by looking at all of them."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from vivum.protocols.kv.operations import (
    Campaign,
    Change,
    Changes,
    Compacted,
    CompareAndSet,
    Delete,
    Deleted,
    Entry,
    Found,
    Get,
    GetRange,
    GrantLease,
    KeepLease,
    LeaseGranted,
    LeaseRevoked,
    Put,
    Queued,
    Range,
    RefusalCause,
    Refused,
    RevokeLease,
    Unequal,
    WatchKeys,
    Written,
    decode_answer,
    encode_operation,
)
from vivum.protocols.kv.settings import KvSettings
from vivum.protocols.kv.store import KeyValueStore

SETTINGS = KvSettings(
    key_bytes_max=20,
    value_bytes_max=5,
    keys_max=4,
    state_bytes_max=170,
    history_events_max=6,
    leases_max=3,
    lease_ns_min=5,
    lease_ns_max=50,
    answer_bytes_max=80,
)


class Held(NamedTuple):
    lease: int
    ttl: int
    until: int


class Oracle:
    """Every change since the beginning; leases in a list; nothing is ever computed twice the same way."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.leases: list[Held] = []
        self.times: list[tuple[int, int]] = []

    # What there is, from all changes.

    @property
    def state(self) -> dict[bytes, Entry]:
        found: dict[bytes, Entry] = {}
        for each in self.changes:
            if each.value is None:
                del found[each.key]
            else:
                found[each.key] = Entry(each.key, each.value, each.created, each.revision, each.lease)
        return found

    @property
    def revision(self) -> int:
        return len(self.changes)

    @property
    def clock(self) -> int:
        return sum(b[1] - a[1] for a, b in zip(self.times, self.times[1:], strict=False) if a[0] == b[0])

    @property
    def compacted(self) -> int:
        return max(0, self.revision - SETTINGS.history_events_max)

    def has(self, lease: int) -> bool:
        return any(each.lease == lease for each in self.leases)

    # What happens.

    def on_time(self, term: int, time: int) -> None:
        self.times.append((term, time))
        for each in sorted(self.leases, key=lambda each: (each.until, each.lease)):
            if each.until <= self.clock:
                self.end(each.lease)

    def end(self, lease: int) -> int:
        keys = sorted(key for key, entry in self.state.items() if entry.lease == lease)
        for key in keys:
            self.delete(key)
        self.leases = [each for each in self.leases if each.lease != lease]
        return len(keys)

    def delete(self, key: bytes) -> bool:
        entry = self.state.get(key)
        if entry is None:
            return False
        self.changes.append(Change(self.revision + 1, key, None, entry.created, entry.lease))
        return True

    def put(self, key: bytes, value: bytes, lease: int):
        if lease and not self.has(lease):
            return RefusalCause.NO_LEASE
        state = self.state
        size = sum(len(each.key) + len(each.value) + 32 for each in state.values() if each.key != key)
        present = state.get(key)
        shrinks = present is not None and len(value) <= len(present.value)
        if not 1 <= len(key) <= 20 or len(value) > 5 or (present is None and len(state) >= 4):
            return RefusalCause.LIMIT
        if size + len(key) + len(value) + 32 > 170 and not shrinks:
            return RefusalCause.LIMIT
        created = self.revision + 1 if present is None else present.created
        self.changes.append(Change(self.revision + 1, key, value, created, lease))
        return Written(self.revision)

    def apply(self, index: int, command):
        state = self.state
        match command:
            case Put(key, value, lease):
                return self.put(key, value, lease)
            case Delete(key):
                existed = self.delete(key)
                return Deleted(self.revision, existed)
            case CompareAndSet(key, value, expected, revision, lease):
                entry = state.get(key)
                if revision is None:
                    fits = entry.value == expected if entry else expected is None
                else:
                    fits = entry.modified == revision if entry else revision == 0
                if not fits:
                    return Unequal(self.revision, entry)
                if value is None:
                    self.delete(key)
                    return Written(self.revision)
                return self.put(key, value, lease)
            case GrantLease(ttl):
                if len(self.leases) >= 3:
                    return RefusalCause.LIMIT
                ttl = sorted((5, ttl, 50))[1]
                self.leases.append(Held(index, ttl, self.clock + ttl))
                return LeaseGranted(index, ttl)
            case KeepLease(lease):
                for at, each in enumerate(self.leases):
                    if each.lease == lease:
                        self.leases[at] = each._replace(until=self.clock + each.ttl)
                        return LeaseGranted(lease, each.ttl)
                return RefusalCause.NO_LEASE
            case RevokeLease(lease):
                if not self.has(lease):
                    return RefusalCause.NO_LEASE
                keys = self.end(lease)
                return LeaseRevoked(self.revision, keys)
            case Campaign(name, value, lease):
                if not self.has(lease):
                    return RefusalCause.NO_LEASE
                key = name + b"/%016x" % lease
                if key not in state or state[key].lease != lease:
                    gone = dict(state)
                    gone.pop(key, None)
                    tried = self.put(key, value, lease)
                    if not isinstance(tried, Written):
                        return tried
                    if key in state:
                        # A key that somebody else put there is made anew.
                        self.changes.pop()
                        self.delete(key)
                        self.put(key, value, lease)
                queue = [
                    each.created
                    for each in self.state.values()
                    if each.lease and each.key[:-16] == name + b"/" and len(each.key) == len(name) + 17
                ]
                return Queued(self.state[key].created, min(queue), self.revision)

    def follow(self, watch: WatchKeys, after: int):
        if after < self.compacted:
            return Compacted(self.compacted)
        return [
            each
            for each in self.changes[after:]
            if each.key == watch.key or (watch.is_prefix and each.key.startswith(watch.key))
        ]


KEYS = st.sampled_from([b"", b"a", b"a/", b"a/b", b"b", b"b/c", b"a/%016x" % 1, b"x" * 21])
VALUES = st.sampled_from([b"", b"1", b"22", b"55555", b"666666"])
LEASES = st.sampled_from([1, 2, 3, 0, 4, 5, 6])
COMMANDS = st.one_of(
    st.builds(Put, KEYS, VALUES, st.just(0)),
    st.builds(Put, st.sampled_from([b"a", b"a/b", b"b"]), VALUES, st.sampled_from([0, 1, 2])),
    st.builds(Put, KEYS, VALUES, LEASES),
    st.builds(Delete, KEYS),
    st.builds(CompareAndSet, KEYS, st.none() | VALUES, st.none() | VALUES, st.none() | st.integers(0, 9), LEASES),
    st.builds(GrantLease, st.integers(0, 60)),
    st.builds(KeepLease, LEASES),
    st.builds(RevokeLease, LEASES),
    st.builds(Campaign, st.sampled_from([b"a", b"b"]), VALUES, LEASES),
)
STEPS = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from([0, 0, 0, 0, 0, 0, 1]), COMMANDS, st.booleans()),
    min_size=8,
    max_size=30,
)


def same(answer, expected) -> bool:
    if isinstance(expected, RefusalCause):
        return isinstance(answer, Refused) and answer.cause == expected
    return answer == expected


def all_pages(store: KeyValueStore, prefix: bytes, count_max: int) -> list[Entry]:
    found: list[Entry] = []
    while True:
        page = decode_answer(store.read(encode_operation(GetRange(prefix, found[-1].key if found else b"", count_max))))
        assert isinstance(page, Range)
        assert len(page.entries) <= max(1, count_max)
        found += page.entries
        if not page.more:
            return found
        assert page.entries, "a page with more behind it is not empty"


def check(store: KeyValueStore, oracle: Oracle) -> None:
    state = oracle.state
    for key in (b"a", b"a/b", b"b"):
        assert decode_answer(store.read(encode_operation(Get(key)))) == Found(oracle.revision, state.get(key))
    for prefix in (b"", b"a", b"a/"):
        expected = [state[key] for key in sorted(state) if key.startswith(prefix)]
        assert all_pages(store, prefix, 2) == all_pages(store, prefix, 1000) == expected
    for watch in (WatchKeys(b"a"), WatchKeys(b"", True), WatchKeys(b"a/", True)):
        for after in range(max(0, oracle.revision - 8), oracle.revision + 1):
            expected = oracle.follow(watch, after)
            at, got = after, []
            for _ in range(20):
                upto, answer = store.follow(encode_operation(watch), at)
                assert upto > at or answer is None or after < oracle.compacted
                at = upto
                if answer is None:
                    break
                decoded = decode_answer(answer)
                if isinstance(decoded, Compacted):
                    got = decoded
                    break
                assert isinstance(decoded, Changes)
                assert decoded.changes
                got += decoded.changes
            assert got == expected
            assert isinstance(expected, Compacted) or at == oracle.revision


@given(STEPS)
def test_the_store_answers_as_the_oracle_does_and_so_does_one_that_was_restored_at_any_point(steps) -> None:
    store, oracle = KeyValueStore(SETTINGS), Oracle()
    term, time = 1, 0
    begun = [(0, 0, GrantLease(20), False), (0, 0, GrantLease(40), False)]
    for index, (passed, terms, command, is_restored) in enumerate(begun + steps, 1):
        # A new leader's clock may be far away from that of the one before.
        time += passed + 1000 * terms
        term += terms
        store.on_time(index, term, time)
        oracle.on_time(term, time)
        answer = decode_answer(store.apply(index, encode_operation(command)))
        expected = oracle.apply(index, command)
        assert same(answer, expected), (command, answer, expected)
        assert len(store) == len(oracle.state)
        due = min((each.until for each in oracle.leases), default=None)
        assert store.due_ns(term) == (None if due is None else time + due - oracle.clock)
        assert store.due_ns(term + 1) is None
        if is_restored:
            other = KeyValueStore(SETTINGS)
            other.restore(store.snapshot())
            assert other.snapshot() == store.snapshot()
            store = other
    check(store, oracle)


@given(st.lists(st.tuples(st.integers(0, 3), COMMANDS), max_size=20), st.integers(0, 20))
def test_two_replicas_have_the_same_snapshot_whenever_one_of_them_began(steps, at) -> None:
    first, second = KeyValueStore(SETTINGS), KeyValueStore(SETTINGS)
    for index, (passed, command) in enumerate(steps, 1):
        if index == at:
            second = KeyValueStore(SETTINGS)
            second.restore(first.snapshot())
        for store in (first, second):
            store.on_time(index, 1, index * passed)
        assert first.apply(index, encode_operation(command)) == second.apply(index, encode_operation(command))
    assert first.snapshot() == second.snapshot()
