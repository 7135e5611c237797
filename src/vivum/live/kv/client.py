"""A key-value store as a program uses it: get, put, compare-and-set, watch; leases, locks and elections on it.

    async with kv.connect(["10.0.0.1:7100", "10.0.0.2:7100", "10.0.0.3:7100"]) as store:
        await store.put("/config/rate", b"100")
        async for change in store.watch("/config/", prefix=True):
            ...

Every call ends within `timeout_s`, with an answer or with an error that says what is known. What each promises is in
`docs/GUARANTEES.md`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple

from vivum.core.errors import LimitError, NotNowError, UsageError
from vivum.core.ids import Endpoint
from vivum.core.machine import Command, Event
from vivum.live.failures import ClosedError, CompactedError, LeaseLostError, NoReplicaError, OutcomeUnknownError
from vivum.live.kv.leases import Election, Lease, Lock
from vivum.protocols.consensus.client import (
    CommandDone,
    CommandLost,
    FollowChanges,
    Forget,
    QueryDone,
    RequestFailed,
    RunCommand,
    RunQuery,
)
from vivum.protocols.kv.operations import (
    AnyAnswer,
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
    Operation,
    Put,
    Range,
    RefusalCause,
    Refused,
    StoreStatus,
    Unequal,
    WatchKeys,
    Written,
    decode_answer,
    encode_operation,
)
from vivum.runtime.log_client_host import LogClientHost

KV_GROUP = 2
"""The number of the log of a store in its domain."""

PAUSE_S = 0.005
"""How long a call waits before it asks again where the client takes nothing now."""

ANY: Any = object()
"""Stands for a condition that was not given: None is one."""


class KeyValue(NamedTuple):
    """A key and its value; the revisions that created the key and that set the value; its lease, 0 for none."""

    key: str
    value: bytes
    created: int
    modified: int
    lease: int


class KeyChange(NamedTuple):
    """What one revision did to a key; `value` is None if the key was deleted, or went with its lease."""

    key: str
    value: bytes | None
    revision: int
    lease: int


class KeyValueClient:
    """A store, as one program reaches it. Make it with `vivum.kv.connect`."""

    def __init__(self, domain: int, replicas: Sequence[Endpoint], interface: str, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._replicas = replicas
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._next_ticket = 0
        self._failure: Exception | None = None
        self._host = LogClientHost(
            domain, KV_GROUP, replicas, interface=interface, on_event=self._on_event, on_failed=self._on_failed
        )

    async def __aenter__(self) -> "KeyValueClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop. Calls that wait end with a `ClosedError`. May be called again."""
        self._fail_all(ClosedError("the key-value client was closed"))
        self._host.close()

    @property
    def replicas(self) -> dict[str, str]:
        """What each replica said last."""
        return {str(where): said for where, said in self._host.machine.said.items()}

    # Keys.

    async def get(self, key: str, *, linearizable: bool = True) -> KeyValue | None:
        """Return a key, or None if it is not there.

        A linearizable read sees every change that was answered before it began, and costs the leader a round of
        heartbeats. Any other sees the state of one replica: never one that did not exist, but maybe an old one.
        """
        answer = await self._query(Get(_encoded(key)), is_local=not linearizable)
        assert isinstance(answer, Found)
        return None if answer.entry is None else _key_value(answer.entry)

    async def put(self, key: str, value: bytes, *, lease: Lease | None = None) -> int:
        """Set a key; return the revision. With a lease, the key goes when that ends."""
        answer = await self.run(Put(_encoded(key), _checked(value), _number(lease)))
        assert isinstance(answer, Written)
        return answer.revision

    async def delete(self, key: str) -> bool:
        """Delete a key; return whether it was there."""
        answer = await self.run(Delete(_encoded(key)))
        assert isinstance(answer, Deleted)
        return answer.existed

    async def compare_and_set(
        self,
        key: str,
        value: bytes | None,
        *,
        expected: bytes | None = ANY,
        revision: int = ANY,
        lease: Lease | None = None,
    ) -> int | None:
        """Set a key, or delete it (`value=None`), if it is what was `expected`, or was set by a `revision`.

        `expected=None` and `revision=0` say that it must not exist. Return the new revision, or None if it was
        something else.
        """
        if (expected is ANY) == (revision is ANY):
            raise UsageError("a compare-and-set compares with expected=… or with revision=…, one of them")
        content = None if value is None else _checked(value)
        by_value = None if expected is ANY or expected is None else _checked(expected)
        by_revision = None if revision is ANY else revision
        answer = await self.run(CompareAndSet(_encoded(key), content, by_value, by_revision, _number(lease)))
        if isinstance(answer, Unequal):
            return None
        assert isinstance(answer, Written)
        return answer.revision

    async def range(self, prefix: str = "", *, linearizable: bool = True) -> list[KeyValue]:
        """Return all keys with a prefix, in order. More than one page of them may change between two pages."""
        found: list[KeyValue] = []
        after = b""
        while True:
            answer = await self._query(GetRange(prefix.encode(), after), is_local=not linearizable)
            assert isinstance(answer, Range)
            found += map(_key_value, answer.entries)
            if not answer.more:
                return found
            after = answer.entries[-1].key

    async def status(self) -> StoreStatus:
        """Return how much the store holds, and its revision."""
        answer = await self._query(GetStatus(), is_local=False)
        assert isinstance(answer, StoreStatus)
        return answer

    async def watch(self, key: str = "", *, prefix: bool = False, after: int | None = None) -> AsyncIterator[KeyChange]:
        """Yield every change of a key, or of all keys with a prefix, once and in order.

        Begins behind revision `after`, without one behind the present. Goes on over changes of the leader, and waits
        for as long as no replica can be reached. Raises `CompactedError` if the store has forgotten what comes next:
        read the keys anew, and watch from there.
        """
        position = (await self.status()).revision if after is None else after
        query = encode_operation(WatchKeys(key.encode(), prefix))
        while True:
            done = await self._ask(partial(FollowChanges, query=query, after=position), None)
            answer = decode_answer(done.answer)
            if isinstance(answer, Compacted):
                raise CompactedError(
                    f"changes behind revision {position} are forgotten, those from {answer.revision} on are there; "
                    f"read the keys anew and watch from the revision that you read",
                    answer.revision,
                )
            _raise_if_refused(answer)
            assert isinstance(answer, Changes)
            for each in answer.changes:
                yield _key_change(each)
            position = done.position

    # Leases, and what stands on them.

    def lease(self, ttl_s: float = 10.0) -> Lease:
        """Return a lease: `async with kv.lease(10) as lease:` keeps it alive, and ends it."""
        return Lease(self, ttl_s)

    def lock(self, name: str, *, ttl_s: float = 10.0) -> Lock:
        """Return a lock: `async with kv.lock("/jobs/1") as lock:`, then `lock.token` is its fencing token."""
        return Lock(self, _encoded(name), b"", ttl_s)

    def election(self, name: str, *, ttl_s: float = 10.0) -> Election:
        """Return an election."""
        return Election(self, name, ttl_s)

    # Asking.

    async def run(self, command: Operation, timeout_s: float | None = None) -> AnyAnswer:
        """Run a command once; raise if it was refused, or if nobody knows what became of it."""
        data = encode_operation(command)
        done = await self._ask(lambda ticket: RunCommand(ticket, data), timeout_s or self.timeout_s)
        answer = decode_answer(done.answer)
        _raise_if_refused(answer)
        return answer

    async def _query(self, query: Operation, *, is_local: bool) -> AnyAnswer:
        data = encode_operation(query)
        done = await self._ask(lambda ticket: RunQuery(ticket, data, is_local), self.timeout_s)
        answer = decode_answer(done.answer)
        _raise_if_refused(answer)
        return answer

    async def _ask(self, make: Callable[[int], Command], timeout_s: float | None) -> Any:
        """Ask, and wait for the answer; without a timeout for ever."""
        if self._failure is not None:
            raise self._failure
        self._next_ticket += 1
        ticket = self._next_ticket
        future = self._waiting[ticket] = asyncio.get_running_loop().create_future()
        command = make(ticket)
        try:
            async with asyncio.timeout(timeout_s):
                await self._submit(command)
                return await future
        except TimeoutError:
            raise self._no_answer(command, timeout_s) from None
        finally:
            if self._waiting.pop(ticket, None) is not None and self._failure is None:
                self._host.submit(Forget(ticket))

    async def _submit(self, command: Command) -> None:
        while True:
            try:
                self._host.submit(command)
            except NotNowError:
                await asyncio.sleep(PAUSE_S)
            else:
                return

    def _no_answer(self, command: Command, timeout_s: float | None) -> Exception:
        tried = "; ".join(f"{where}: {said}" for where, said in self.replicas.items())
        fate = "; whether the command ran is not known" if isinstance(command, RunCommand) else ""
        return NoReplicaError(
            f"no answer within {timeout_s:g} s from the replicas that were asked ({tried}){fate}; see that a majority "
            "of them runs, and that the addresses and the domain are theirs"
        )

    def _on_event(self, event: Event) -> None:
        match event:
            case CommandDone(ticket) | QueryDone(ticket):
                self._end(ticket, event)
            case CommandLost(ticket, cause):
                self._end(ticket, OutcomeUnknownError(f"whether the command ran is not known: {cause}"))
            case RequestFailed(ticket, cause):
                self._end(ticket, LimitError(f"a replica refused the request: {cause}"))

    def _end(self, ticket: int, result: Event | Exception) -> None:
        future = self._waiting.pop(ticket, None)
        if future is None or future.done():
            return
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)

    def _on_failed(self, error: Exception) -> None:
        self._fail_all(error)

    def _fail_all(self, error: Exception) -> None:
        self._failure = self._failure or error
        for ticket in list(self._waiting):
            self._end(ticket, self._failure)


def _encoded(key: str) -> bytes:
    if not isinstance(key, str) or not key:
        raise UsageError(f"a key is a text that is not empty, not {key!r}")
    return key.encode()


def _checked(value: bytes) -> bytes:
    if not isinstance(value, bytes):
        raise UsageError(f"a value is bytes, not {type(value).__name__}; encode it")
    return value


def _number(lease: Lease | None) -> int:
    return 0 if lease is None else lease.number


def _raise_if_refused(answer: AnyAnswer) -> None:
    if isinstance(answer, Refused):
        if answer.cause == RefusalCause.NO_LEASE:
            raise LeaseLostError(answer.text)
        raise LimitError(answer.text)


def _key_value(entry: Entry) -> KeyValue:
    return KeyValue(entry.key.decode(errors="replace"), entry.value, entry.created, entry.modified, entry.lease)


def _key_change(change: Change) -> KeyChange:
    return KeyChange(change.key.decode(errors="replace"), change.value, change.revision, change.lease)
