"""Simulated clients of a key-value store: operations on few keys, a watch of all of them, and locks.

Records what it asks and what it gets. What it relies on a lock for is judged by what it knows: it holds the lock from
the answer that says so until it gives it back, or until its lease may be over by its own clock.
"""

from dataclasses import dataclass
from typing import Literal

from vivum.core.digests import digest_63
from vivum.core.time import MILLISECOND
from vivum.observe.trace import (
    KeyChangeSeen,
    KeyOperationAnswered,
    KeyOperationIssued,
    LeaseAsked,
    LeaseKept,
    LeaseOver,
    LockReleased,
    LockTaken,
    WatchBegan,
)
from vivum.protocols.consensus.client import FollowChanges, RunCommand, RunQuery
from vivum.protocols.kv.operations import (
    AnyCommand,
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
    GrantLease,
    KeepLease,
    LeaseGranted,
    Put,
    Queued,
    Refused,
    RevokeLease,
    Unequal,
    WatchKeys,
    Written,
    decode_answer,
    encode_operation,
)
from vivum.sim.replicas.client import SimulatedClient

KEYS = (b"a", b"b", b"c")
LOCK = b"lock"
WATCH_ALL = encode_operation(WatchKeys(b"", is_prefix=True))

OPEN_MAX = 6
"""Operations that a client has under way, at most: more would only wait for each other."""

LEASE_NS = 600 * MILLISECOND
RELIED_ON = 0.9
"""The share of a lease's time on which its holder relies: the rest is for clocks that differ."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A command or a read under way."""

    operation: Literal["get", "put", "delete", "swap", "grant", "keep", "revoke", "campaign"]
    key: bytes = b""
    issued_ns: int = 0


class KvClient(SimulatedClient):
    """One client of a store."""

    _asked: dict[int, _Asked]
    _known: dict[bytes, Entry | None]
    _watching = 0
    _watched = 0
    # The lock: its lease, the token with which it is held, and until when that may be relied on, by the own clock.
    _lease = 0
    _token = 0
    _relied_ns = 0
    _lasts_ns = 0
    _locking = ""

    def start(self) -> None:
        """Begin; the watch begins with the first turn."""
        self._asked, self._known = {}, {}
        super().start()

    @property
    def is_done(self) -> bool:
        """Whether all but the watch is answered."""
        return not self._wanted and not self._asked

    @property
    def watched(self) -> int:
        """Up to which revision the watch has come."""
        return self._watched

    def _on_turn(self, turn: object) -> None:
        if not self._watching and self.host.node is not None:
            self._record(WatchBegan, self.node, self._watched)
            self._follow()
        super()._on_turn(turn)

    def _issue(self) -> None:
        if self._rng.random() < 0.4:
            self._issue_lock()
        for _ in range(self._rng.randint(1, self._plan.burst_max)):
            if self._wanted and len(self._asked) < OPEN_MAX:
                self._wanted -= 1
                self._issue_operation()

    # Operations on keys.

    def _issue_operation(self) -> None:
        key = self._rng.choice(KEYS)
        if self._rng.random() < self._plan.reads:
            ticket = self._ask(lambda ticket: RunQuery(ticket, encode_operation(Get(key))))
            self._note(ticket, "get", key)
            return
        value = f"{self.node}/{self._next_ticket}".encode() + bytes(self._rng.randrange(self._plan.size + 1))
        known = self._known.get(key)
        expected = None if known is None else known.value
        match self._rng.choice(["put", "delete", "swap", "swap", "swap_revision"]):
            case "put":
                self._note(self._run(Put(key, value)), "put", key, value)
            case "delete":
                self._note(self._run(Delete(key)), "delete", key)
            case "swap":
                self._note(self._run(CompareAndSet(key, value, expected)), "swap", key, value, expected)
            case _:
                revision = 0 if known is None else known.modified
                command = CompareAndSet(key, value, revision=revision)
                self._note(self._run(command), "swap", key, value, expected)

    def _run(self, command: AnyCommand) -> int:
        return self._ask(lambda ticket: RunCommand(ticket, encode_operation(command)))

    def _note(
        self,
        ticket: int,
        operation: Literal["get", "put", "delete", "swap"],
        key: bytes,
        value: bytes | None = None,
        expected: bytes | None = None,
    ) -> None:
        if ticket:
            self._asked[ticket] = _Asked(operation, key)
            what = (digest_63(key), _digest(value), _digest(expected))
            self._record(KeyOperationIssued, self.node, ticket, operation, *what)

    def _record(self, kind: type, *fields: object) -> None:
        self._trace(kind(self._scheduler.now_ns, self.node, 1, self._group, *fields))

    def _on_command_lost(self, ticket: int) -> None:
        asked = self._asked.pop(ticket)
        if asked.operation in ("grant", "keep", "revoke", "campaign"):
            self._end_lock()

    def _on_command_done(self, ticket: int, answer: bytes) -> None:
        asked, decoded = self._asked.pop(ticket), decode_answer(answer)
        match decoded:
            case Written(revision):
                self._record(KeyOperationAnswered, self.node, ticket, "done", 0, revision)
            case Deleted(revision):
                self._record(KeyOperationAnswered, self.node, ticket, "done", 0, revision)
            case Unequal(revision, entry):
                self._known[asked.key] = entry
                seen = _digest(None if entry is None else entry.value)
                self._record(KeyOperationAnswered, self.node, ticket, "failed", seen, revision)
            case _:
                self._on_lock_answer(asked, decoded)

    def _on_query_done(self, ticket: int, position: int, answer: bytes) -> None:
        decoded = decode_answer(answer)
        if ticket == self._watching:
            self._on_watched(position, decoded)
            return
        asked = self._asked.pop(ticket)
        assert isinstance(decoded, Found)
        entry = self._known[asked.key] = decoded.entry
        seen = _digest(None if entry is None else entry.value)
        self._record(KeyOperationAnswered, self.node, ticket, "done", seen, decoded.revision)

    # The watch.

    def _follow(self) -> None:
        after = self._watched
        self._watching = self._ask(lambda ticket: FollowChanges(ticket, WATCH_ALL, after))

    def _on_watched(self, position: int, answer: object) -> None:
        match answer:
            case Changes(changes):
                for each in changes:
                    self._on_change(each)
                self._watched = position
            case Compacted(revision):
                self._watched = revision
                self._record(WatchBegan, self.node, revision)
        self._follow()

    def _on_change(self, change: Change) -> None:
        self._record(KeyChangeSeen, self.node, change.revision, digest_63(change.key), _digest(change.value))

    # The lock.

    def _issue_lock(self) -> None:
        if self._locking:
            return
        now_ns = self.host.local_now_ns
        if not self._lease:
            self._ask_lock("grant", GrantLease(LEASE_NS))
        elif self._token and self._rng.random() < 0.2:
            self._release()
            self._ask_lock("revoke", RevokeLease(self._lease))
        elif now_ns - (self._relied_ns - self._lasts_ns) > self._lasts_ns // 3:
            if self._ask_lock("keep", KeepLease(self._lease)):
                self._record(LeaseAsked, self._lease)
        elif not self._token:
            self._ask_lock("campaign", Campaign(LOCK, f"{self.node}".encode(), self._lease))

    def _ask_lock(self, operation: Literal["grant", "keep", "revoke", "campaign"], command: AnyCommand) -> int:
        ticket = self._run(command)
        if ticket:
            self._locking = operation
            self._asked[ticket] = _Asked(operation, issued_ns=self.host.local_now_ns)
        return ticket

    def _on_lock_answer(self, asked: _Asked, answer: object) -> None:
        self._locking = ""
        match answer:
            case LeaseGranted(lease, ttl_ns):
                if asked.operation == "keep":
                    self._record(LeaseKept, lease, ttl_ns)
                self._lease, self._lasts_ns = lease, int(ttl_ns * RELIED_ON)
                self._relied_ns = asked.issued_ns + self._lasts_ns
                self._wait_for_the_end()
            case Queued(token, holder):
                if token == holder and self.host.local_now_ns < self._relied_ns:
                    self._token = token
                    self._record(LockTaken, digest_63(LOCK), token)
            case Refused():
                if asked.operation != "revoke":
                    self._record(LeaseOver, self._lease)
                self._end_lock()
            case _:
                self._end_lock()

    def _wait_for_the_end(self) -> None:
        """Come back when the lease may be over."""
        at_ns = max(self.host.clock.true_ns(self._relied_ns), self._scheduler.now_ns)
        self._scheduler.at(at_ns, self._on_relied, (self._lease, self._relied_ns))

    def _on_relied(self, lease: tuple[int, int]) -> None:
        if lease == (self._lease, self._relied_ns):
            self._release()

    def _release(self) -> None:
        if self._token:
            self._record(LockReleased, digest_63(LOCK), self._token)
            self._token = 0

    def _end_lock(self) -> None:
        self._release()
        self._lease, self._locking = 0, ""


def _digest(value: bytes | None) -> int:
    return 0 if value is None else digest_63(value)
