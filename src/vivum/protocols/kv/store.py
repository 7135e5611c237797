"""The key-value store: a deterministic application of a replicated log.

Every change of a key has a revision of its own, counted from 1; a key knows the revision that created it and the one
that modified it last. The last changes are kept, so that watchers can resume.

**Leases** end by log time, counted within terms: the time between the last entry of one leader and the first one of the
next counts as nothing. So clocks of replicas that differ never end a lease early; an election only makes it longer.
A lease ends at the first entry of the log at or behind its time, so at the same entry everywhere; the leader appends
one when it is time (`due_ns`).

**Queues** (`Campaign`) are keys with leases: whose key was created first holds the name. That revision is the fencing
token: it is higher than those of all who held the name before.

Invariants: revisions follow each other without a hole; `_order` has the keys of `_entries` in order; a lease knows
exactly the keys that name it; everything that decides is in a snapshot.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import NamedTuple

import msgspec

from vivum.core.errors import DecodeError
from vivum.protocols.kv.operations import (
    Answer,
    AnyCommand,
    AnyQuery,
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
    GetStatus,
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
    StoreStatus,
    Unequal,
    WatchKeys,
    Written,
    decode_command,
    decode_query,
    encode_operation,
)
from vivum.protocols.kv.settings import KvSettings

ENTRY_BYTES = 32
"""What an entry counts besides its key and its value."""

LEASE_DIGITS = 16
"""Hexadecimal digits of a lease at the end of a key in a queue."""


class _Image(msgspec.Struct, frozen=True, array_like=True):
    """A snapshot."""

    revision: int
    clock_ns: int
    term: int
    time_ns: int
    compacted: int
    entries: list[Entry]
    leases: list[tuple[int, int, int]]
    history: list[Change]


_encode_image = msgspec.msgpack.Encoder().encode
_decode_image = msgspec.msgpack.Decoder(_Image).decode


class _Lease:
    """A lease: how long it holds, until when, and which keys go with it."""

    __slots__ = ("expires_ns", "keys", "ttl_ns")

    def __init__(self, ttl_ns: int, expires_ns: int) -> None:
        self.ttl_ns = ttl_ns
        self.expires_ns = expires_ns
        self.keys: set[bytes] = set()


class Expiry(NamedTuple):
    """When a lease ends, unless it is kept; by the clock of leases."""

    at_ns: int
    lease: int


class KeyValueStore:
    """The state of a store. Takes commands as the log has them, and queries at any time."""

    def __init__(self, settings: KvSettings | None = None) -> None:
        self.settings = settings or KvSettings()
        self.revision = 0
        """The revision of the last change."""

        self.compacted = 0
        """Changes up to this revision are forgotten."""

        self.clock_ns = 0
        """The clock of leases: log time, counted within terms."""

        self._term = 0
        self._time_ns = 0
        self._entries: dict[bytes, Entry] = {}
        self._order: list[bytes] = []
        self._bytes = 0
        self._leases: dict[int, _Lease] = {}
        # May have older times of leases that were kept since, and leases that are over.
        self._expiries: list[Expiry] = []
        self._history: deque[Change] = deque()
        self._history_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    # Log time.

    def on_time(self, index: int, term: int, time_ns: int) -> None:  # noqa: ARG002 - what other applications may need
        """Advance the clock of leases, and end those whose time is over."""
        if term == self._term:
            self.clock_ns += max(0, time_ns - self._time_ns)
        self._term, self._time_ns = term, time_ns
        expiries, clock_ns = self._expiries, self.clock_ns
        while expiries and expiries[0].at_ns <= clock_ns:
            at_ns, number = heappop(expiries)
            lease = self._leases.get(number)
            if lease is not None and lease.expires_ns == at_ns:
                self._end_lease(number, lease)

    def due_ns(self, term: int) -> int | None:
        """Return at what log time of this term a lease ends, unless it is kept."""
        expiries, leases = self._expiries, self._leases
        while expiries:
            at_ns, number = expiries[0]
            lease = leases.get(number)
            if lease is not None and lease.expires_ns == at_ns:
                return self._time_ns + at_ns - self.clock_ns if term == self._term else None
            heappop(expiries)
        return None

    # Commands.

    def apply(self, index: int, command: bytes) -> bytes:
        """Run a command; return its answer."""
        try:
            decoded = decode_command(command)
        except DecodeError as error:
            return encode_operation(Refused(RefusalCause.MALFORMED, str(error)))
        return encode_operation(self._run(index, decoded))

    def _run(self, index: int, command: AnyCommand) -> Answer:
        match command:
            case Put(key, value, lease):
                return self._fault(key, value, lease) or self._put(key, value, lease)
            case Delete(key):
                existed = self._delete(key)
                return Deleted(self.revision, existed)
            case CompareAndSet():
                return self._compare_and_set(command)
            case GrantLease(ttl_ns):
                return self._grant(index, ttl_ns)
            case KeepLease(number):
                return self._keep(number)
            case RevokeLease(number):
                return self._revoke(number)
            case Campaign():
                return self._campaign(command)

    def _fault(self, key: bytes, value: bytes, lease: int) -> Refused | None:
        """Return why a key cannot be set, or None."""
        limits = self.settings
        if lease and lease not in self._leases:
            return _no_lease(lease)
        if not key or len(key) > limits.key_bytes_max:
            return _over(f"a key has 1 to key_bytes_max={limits.key_bytes_max:,} bytes; this one has {len(key):,}")
        if len(value) > limits.value_bytes_max:
            return _over(f"a value of {len(value):,} bytes is over value_bytes_max={limits.value_bytes_max:,}")
        present = self._entries.get(key)
        if present is None and len(self._entries) >= limits.keys_max:
            return _over(f"there are keys_max={limits.keys_max:,} keys; delete some first")
        grows = len(value) - len(present.value) if present is not None else _size(key, value)
        if grows > 0 and self._bytes + grows > limits.state_bytes_max:
            return _over(f"keys and values have state_bytes_max={limits.state_bytes_max:,} bytes; delete some first")
        return None

    def _put(self, key: bytes, value: bytes, lease: int) -> Written:
        self.revision += 1
        present = self._entries.get(key)
        if present is None:
            insort(self._order, key)
            created = self.revision
            self._bytes += _size(key, value)
        else:
            created = present.created
            self._bytes += len(value) - len(present.value)
            self._unbind(present)
        self._entries[key] = Entry(key, value, created, self.revision, lease)
        if lease:
            self._leases[lease].keys.add(key)
        self._remember(Change(self.revision, key, value, created, lease))
        return Written(self.revision)

    def _delete(self, key: bytes) -> bool:
        present = self._entries.pop(key, None)
        if present is None:
            return False
        self.revision += 1
        del self._order[bisect_left(self._order, key)]
        self._bytes -= _size(key, present.value)
        self._unbind(present)
        self._remember(Change(self.revision, key, None, present.created, present.lease))
        return True

    def _unbind(self, entry: Entry) -> None:
        lease = self._leases.get(entry.lease)
        if lease is not None:
            lease.keys.discard(entry.key)

    def _remember(self, change: Change) -> None:
        history, limits = self._history, self.settings
        history.append(change)
        self._history_bytes += _size(change.key, change.value)
        while len(history) > limits.history_events_max or self._history_bytes > limits.history_bytes_max:
            oldest = history.popleft()
            self._history_bytes -= _size(oldest.key, oldest.value)
            self.compacted = oldest.revision

    def _compare_and_set(self, command: CompareAndSet) -> Answer:
        key, value = command.key, command.value
        present = self._entries.get(key)
        if command.revision is None:
            is_equal = (None if present is None else present.value) == command.expected
        else:
            is_equal = (0 if present is None else present.modified) == command.revision
        if not is_equal:
            return Unequal(self.revision, present)
        if value is None:
            self._delete(key)
            return Written(self.revision)
        return self._fault(key, value, command.lease) or self._put(key, value, command.lease)

    # Leases.

    def _grant(self, index: int, ttl_ns: int) -> Answer:
        limits = self.settings
        if len(self._leases) >= limits.leases_max:
            return _over(f"there are leases_max={limits.leases_max:,} leases")
        ttl_ns = min(max(ttl_ns, limits.lease_ns_min), limits.lease_ns_max)
        lease = self._leases[index] = _Lease(ttl_ns, self.clock_ns + ttl_ns)
        heappush(self._expiries, Expiry(lease.expires_ns, index))
        return LeaseGranted(index, ttl_ns)

    def _keep(self, number: int) -> Answer:
        lease = self._leases.get(number)
        if lease is None:
            return _no_lease(number)
        if lease.expires_ns != self.clock_ns + lease.ttl_ns:
            lease.expires_ns = self.clock_ns + lease.ttl_ns
            heappush(self._expiries, Expiry(lease.expires_ns, number))
            if len(self._expiries) > 2 * len(self._leases) + 64:
                self._gather_expiries()
        return LeaseGranted(number, lease.ttl_ns)

    def _revoke(self, number: int) -> Answer:
        lease = self._leases.get(number)
        if lease is None:
            return _no_lease(number)
        keys = self._end_lease(number, lease)
        return LeaseRevoked(self.revision, keys)

    def _end_lease(self, number: int, lease: _Lease) -> int:
        keys = sorted(lease.keys)
        for key in keys:
            self._delete(key)
        del self._leases[number]
        return len(keys)

    def _gather_expiries(self) -> None:
        self._expiries = [Expiry(lease.expires_ns, number) for number, lease in self._leases.items()]
        heapify(self._expiries)

    def _campaign(self, command: Campaign) -> Answer:
        if command.lease not in self._leases:
            return _no_lease(command.lease)
        prefix = command.name + b"/"
        key = queue_key(command.name, command.lease)
        own = self._entries.get(key)
        if own is None or own.lease != command.lease:
            fault = self._fault(key, command.value, command.lease)
            if fault is not None:
                return fault
            # A key that somebody else put there has an older token than a place in the queue may have.
            self._delete(key)
            self._put(key, command.value, command.lease)
            own = self._entries[key]
        holder = min([each.created for each in self._in_queue(prefix)])
        return Queued(own.created, holder, self.revision)

    def _in_queue(self, prefix: bytes) -> list[Entry]:
        """Return those who stand in a queue: other keys below its name are none of it."""
        length = len(prefix) + LEASE_DIGITS
        return [each for each in self._range(prefix, b"") if each.lease and len(each.key) == length]

    # Queries.

    def read(self, query: bytes) -> bytes:
        """Answer a query from the state as it is."""
        try:
            decoded = decode_query(query)
        except DecodeError as error:
            return encode_operation(Refused(RefusalCause.MALFORMED, str(error)))
        return encode_operation(self._answer(decoded))

    def _answer(self, query: AnyQuery) -> Answer:
        match query:
            case Get(key):
                return Found(self.revision, self._entries.get(key))
            case GetRange(prefix, after, count_max):
                return self._page(prefix, after, count_max)
            case GetStatus():
                return StoreStatus(self.revision, len(self._entries), self._bytes, len(self._leases), self.compacted)
            case WatchKeys():
                return Refused(RefusalCause.MALFORMED, "a watch is followed, not read")

    def _page(self, prefix: bytes, after: bytes, count_max: int) -> Range:
        entries: list[Entry] = []
        room = self.settings.answer_bytes_max
        for entry in self._range(prefix, after):
            room -= _size(entry.key, entry.value)
            if entries and (room < 0 or len(entries) >= count_max):
                return Range(self.revision, entries, True)
            entries.append(entry)
        return Range(self.revision, entries, False)

    def _range(self, prefix: bytes, after: bytes) -> Iterator[Entry]:
        order, entries = self._order, self._entries
        at = bisect_left(order, max(prefix, after))
        if at < len(order) and order[at] == after:
            at += 1
        while at < len(order) and order[at].startswith(prefix):
            yield entries[order[at]]
            at += 1

    def follow(self, query: bytes, after: int) -> tuple[int, bytes | None]:
        """Return the changes of a watch behind a revision, and up to which they were looked at."""
        try:
            watch = decode_query(query)
        except DecodeError as error:
            return after, encode_operation(Refused(RefusalCause.MALFORMED, str(error)))
        if not isinstance(watch, WatchKeys):
            return after, encode_operation(Refused(RefusalCause.MALFORMED, "only a watch can be followed"))
        if after < self.compacted:
            return after, encode_operation(Compacted(self.compacted))
        found: list[Change] = []
        room, key, is_prefix = self.settings.answer_bytes_max, watch.key, watch.is_prefix
        upto = after
        for change in islice(self._history, after - self.compacted, None):
            if change.key == key or (is_prefix and change.key.startswith(key)):
                room -= _size(change.key, change.value)
                if found and room < 0:
                    break
                found.append(change)
            upto = change.revision
        return upto, encode_operation(Changes(found)) if found else None

    # Snapshots.

    def snapshot(self) -> bytes:
        """Return the whole state."""
        return _encode_image(
            _Image(
                self.revision,
                self.clock_ns,
                self._term,
                self._time_ns,
                self.compacted,
                [self._entries[key] for key in self._order],
                [(number, each.ttl_ns, each.expires_ns) for number, each in self._leases.items()],
                list(self._history),
            )
        )

    def restore(self, data: bytes) -> None:
        """Replace the whole state by that of a snapshot."""
        try:
            image = _decode_image(data)
        except msgspec.MsgspecError as error:
            raise DecodeError(f"not a snapshot of a key-value store: {error}; a newer Vivum may have made it") from None
        self.revision, self.compacted = image.revision, image.compacted
        self.clock_ns, self._term, self._time_ns = image.clock_ns, image.term, image.time_ns
        self._entries = {each.key: each for each in image.entries}
        self._order = [each.key for each in image.entries]
        self._bytes = sum([_size(each.key, each.value) for each in image.entries])
        self._leases = {number: _Lease(ttl_ns, expires_ns) for number, ttl_ns, expires_ns in image.leases}
        for each in image.entries:
            if each.lease:
                self._leases[each.lease].keys.add(each.key)
        self._gather_expiries()
        self._history = deque(image.history)
        self._history_bytes = sum([_size(each.key, each.value) for each in image.history])


def queue_key(name: bytes, lease: int) -> bytes:
    """Return the key under which a lease stands in the queue of a name."""
    return name + b"/" + f"{lease:0{LEASE_DIGITS}x}".encode()


def _size(key: bytes, value: bytes | None) -> int:
    return len(key) + (0 if value is None else len(value)) + ENTRY_BYTES


def _over(text: str) -> Refused:
    return Refused(RefusalCause.LIMIT, text)


def _no_lease(lease: int) -> Refused:
    return Refused(RefusalCause.NO_LEASE, f"there is no lease {lease}, or not any more")
