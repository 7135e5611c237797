"""The key-value store, one rule at a time."""

from vivum.core.time import SECOND
from vivum.protocols.kv.operations import (
    Campaign,
    Change,
    Changes,
    Compacted,
    CompareAndSet,
    Entry,
    Found,
    Get,
    GetStatus,
    GrantLease,
    KeepLease,
    LeaseGranted,
    Put,
    Queued,
    RefusalCause,
    Refused,
    RevokeLease,
    StoreStatus,
    Unequal,
    WatchKeys,
    Written,
    decode_answer,
    encode_operation,
)
from vivum.protocols.kv.settings import KvSettings
from vivum.protocols.kv.store import KeyValueStore, queue_key


class Log:
    """A store with the log in front of it: index, term and time."""

    def __init__(self, settings: KvSettings | None = None) -> None:
        self.store = KeyValueStore(settings)
        self.index = 0
        self.term = 1
        self.time_ns = 0

    def run(self, command):
        self.index += 1
        self.store.on_time(self.index, self.term, self.time_ns)
        return decode_answer(self.store.apply(self.index, encode_operation(command)))

    def at(self, seconds: float) -> None:
        self.time_ns = int(seconds * SECOND)
        self.index += 1
        self.store.on_time(self.index, self.term, self.time_ns)

    def value(self, key: bytes) -> bytes | None:
        found = decode_answer(self.store.read(encode_operation(Get(key))))
        assert isinstance(found, Found)
        return None if found.entry is None else found.entry.value

    def lease(self, seconds: float = 2) -> int:
        granted = self.run(GrantLease(int(seconds * SECOND)))
        assert isinstance(granted, LeaseGranted)
        return granted.lease

    def changes(self, after: int = 0) -> list[Change]:
        _, answer = self.store.follow(encode_operation(WatchKeys(b"", True)), after)
        decoded = Changes([]) if answer is None else decode_answer(answer)
        assert isinstance(decoded, Changes)
        return decoded.changes


def test_a_key_knows_who_created_it_and_who_modified_it_last() -> None:
    log = Log()
    assert log.run(Put(b"a", b"1")) == Written(1)
    assert log.run(Put(b"b", b"1")) == Written(2)
    assert log.run(Put(b"a", b"2")) == Written(3)
    assert decode_answer(log.store.read(encode_operation(Get(b"a")))) == Found(3, Entry(b"a", b"2", 1, 3))


def test_a_compare_and_set_goes_by_value_or_by_revision() -> None:
    log = Log()
    assert log.run(CompareAndSet(b"a", b"1")) == Written(1)
    present = Entry(b"a", b"1", 1, 1)
    assert log.run(CompareAndSet(b"a", b"2")) == Unequal(1, present)
    assert log.run(CompareAndSet(b"a", b"2", revision=0)) == Unequal(1, present)
    assert log.run(CompareAndSet(b"a", b"2", expected=b"1")) == Written(2)
    assert log.run(CompareAndSet(b"a", b"3", expected=b"x", revision=2)) == Written(3)
    assert log.run(CompareAndSet(b"a", None, expected=b"3")) == Written(4)
    assert log.value(b"a") is None
    assert log.run(CompareAndSet(b"a", None, revision=0)) == Written(4)


def test_keys_of_a_lease_go_when_its_time_is_over_and_not_before() -> None:
    log = Log()
    lease = log.lease(2)
    log.run(Put(b"a", b"1", lease))
    log.at(1.999_999_999)
    assert log.value(b"a") == b"1"
    log.at(2)
    assert log.value(b"a") is None
    assert log.changes(1) == [Change(2, b"a", None, 1, lease)]
    assert log.run(KeepLease(lease)).cause == RefusalCause.NO_LEASE


def test_a_lease_that_is_kept_holds_from_then_on() -> None:
    log = Log()
    lease = log.lease(2)
    log.run(Put(b"a", b"1", lease))
    log.at(1.5)
    assert log.run(KeepLease(lease)) == LeaseGranted(lease, 2 * SECOND)
    assert log.store.due_ns(1) == int(3.5 * SECOND)
    log.at(3.4)
    assert log.value(b"a") == b"1"
    log.at(3.5)
    assert log.value(b"a") is None


def test_a_new_leader_whose_clock_is_far_ahead_ends_no_lease_early() -> None:
    log = Log()
    lease = log.lease(2)
    log.run(Put(b"a", b"1", lease))
    log.at(1)
    log.term = 2
    log.at(1_000_000)
    assert log.value(b"a") == b"1"
    assert log.store.due_ns(2) == 1_000_001 * SECOND
    log.at(1_000_001)
    assert log.value(b"a") is None


def test_a_key_goes_with_the_lease_of_its_last_put_alone() -> None:
    log = Log()
    first, second = log.lease(2), log.lease(4)
    log.run(Put(b"a", b"1", first))
    log.run(Put(b"a", b"2", second))
    log.run(Put(b"b", b"1", first))
    log.run(Put(b"b", b"2"))
    log.at(2)
    assert (log.value(b"a"), log.value(b"b")) == (b"2", b"2")
    log.at(4)
    assert (log.value(b"a"), log.value(b"b")) == (None, b"2")


def test_a_lease_that_is_not_there_keeps_a_put_from_happening() -> None:
    log = Log()
    answer = log.run(Put(b"a", b"1", 7))
    assert isinstance(answer, Refused)
    assert (answer.cause, log.store.revision) == (RefusalCause.NO_LEASE, 0)


def test_whose_key_was_created_first_holds_a_name_and_tokens_rise() -> None:
    log = Log()
    first, second = log.lease(10), log.lease(10)
    assert log.run(Campaign(b"lock", b"one", first)) == Queued(1, 1, 1)
    assert log.run(Campaign(b"lock", b"two", second)) == Queued(2, 1, 2)
    # Who asks again keeps the place, and the value.
    assert log.run(Campaign(b"lock", b"other", first)) == Queued(1, 1, 2)
    assert log.value(queue_key(b"lock", first)) == b"one"
    log.run(RevokeLease(first))
    assert log.run(Campaign(b"lock", b"two", second)) == Queued(2, 2, 3)
    third = log.lease(10)
    assert log.run(Campaign(b"lock", b"three", third)) == Queued(4, 2, 4)


def test_other_keys_below_a_name_are_not_in_its_queue() -> None:
    log = Log()
    lease = log.lease(10)
    log.run(Put(b"lock/settings", b"1"))
    log.run(Put(b"lock/with a lease of its own", b"1", lease))
    log.run(Put(b"lock/0000000000000000", b"no lease"))
    assert log.run(Campaign(b"lock", b"", lease)) == Queued(4, 4, 4)


def test_a_place_in_a_queue_that_somebody_put_there_before_gives_no_older_token() -> None:
    log = Log()
    log.run(Put(queue_key(b"lock", 3), b"made by hand"))
    log.run(Put(b"x", b"1"))
    lease = log.lease(10)
    assert lease == 3
    assert log.run(Campaign(b"lock", b"1", lease)) == Queued(4, 4, 4)


def test_what_is_forgotten_is_told_and_the_rest_is_there() -> None:
    log = Log(KvSettings(history_events_max=2))
    for number in range(4):
        log.run(Put(b"a", b"%d" % number))
    _, answer = log.store.follow(encode_operation(WatchKeys(b"a")), 1)
    assert answer is not None
    assert decode_answer(answer) == Compacted(2)
    assert [each.value for each in log.changes(2)] == [b"2", b"3"]
    assert log.changes(3) == [Change(4, b"a", b"3", 1)]


def test_history_is_bounded_in_bytes_too() -> None:
    log = Log(KvSettings(history_bytes_max=300))
    for _ in range(10):
        log.run(Put(b"a", bytes(100)))
    status = decode_answer(log.store.read(encode_operation(GetStatus())))
    assert status == StoreStatus(10, 1, 133, 0, 8)


def test_limits_are_told_by_their_names() -> None:
    log = Log(KvSettings(key_bytes_max=3, value_bytes_max=3, keys_max=2, leases_max=1))
    assert "key_bytes_max=3" in log.run(Put(b"long", b"")).text
    assert "key_bytes_max=3" in log.run(Put(b"", b"")).text
    assert "value_bytes_max=3" in log.run(Put(b"a", b"long")).text
    log.run(Put(b"a", b"123"))
    log.run(Put(b"b", b"123"))
    assert "keys_max=2" in log.run(Put(b"c", b"1")).text
    assert (log.value(b"a"), log.value(b"b"), log.value(b"c")) == (b"123", b"123", None)
    log.lease()
    assert "leases_max=1" in log.run(GrantLease(SECOND)).text


def test_keys_and_values_together_have_a_limit_that_a_smaller_value_never_meets() -> None:
    log = Log(KvSettings(state_bytes_max=70))
    log.run(Put(b"a", bytes(37)))
    assert "state_bytes_max=70" in log.run(Put(b"a", bytes(38))).text
    assert "state_bytes_max=70" in log.run(Put(b"b", b"")).text
    assert log.run(Put(b"a", bytes(36))) == Written(2)


def test_a_command_that_nobody_understands_does_nothing_and_says_so() -> None:
    store = KeyValueStore()
    for data in (b"", b"\xc1", b"\x93\x63\x01\x02", encode_operation(Get(b"a"))):
        answer = decode_answer(store.apply(1, data))
        assert isinstance(answer, Refused)
        assert answer.cause == RefusalCause.MALFORMED
    assert isinstance(decode_answer(store.read(b"\xc1")), Refused)
    assert store.revision == 0
