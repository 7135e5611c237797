"""Leases that keep themselves alive, and locks and elections that stand on them.

Who holds a lock may lose it without knowing: a process that sleeps longer than its lease goes on where it was. So
whatever is guarded must refuse a token lower than the highest that it has seen (`Lock.token` rises with each holder).
`is_held` is what the holder itself can know: its lease was kept lately enough, by its own clock.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from vivum.core.errors import UsageError, VivumError
from vivum.live.failures import CompactedError, LeaseLostError
from vivum.protocols.kv.operations import Campaign, GrantLease, KeepLease, LeaseGranted, Queued, RevokeLease

if TYPE_CHECKING:
    from vivum.live.kv.client import KeyValueClient

RELIED_ON = 0.9
"""The share of a lease's time on which its holder relies: the rest is for clocks that run differently."""

KEEPS_EACH = 3
"""How often a lease is kept within its time."""

REVOKE_S = 2.0
"""How long leaving waits for the answer of a revoke. Without it the lease ends by its time."""


class Lease:
    """A lease; `async with` grants it, keeps it alive, and ends it."""

    def __init__(self, kv: "KeyValueClient", ttl_s: float) -> None:
        if not ttl_s > 0:
            raise UsageError(f"a lease of {ttl_s!r} s; it must hold for some time")
        self.ttl_s = ttl_s
        """How long it holds when it is not kept; the store may grant another time."""

        self.number = 0
        """Its number in the store; 0 before it is granted."""

        self._kv = kv
        self._relied_until_s = 0.0
        self._keeping: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()

    @property
    def is_held(self) -> bool:
        """Whether it holds, as far as can be known without asking."""
        return not self._lost.is_set() and asyncio.get_running_loop().time() < self._relied_until_s

    async def lost(self) -> None:
        """Wait until the lease is over before its holder has ended it."""
        await self._lost.wait()

    async def __aenter__(self) -> "Lease":
        loop = asyncio.get_running_loop()
        asked_s = loop.time()
        answer = await self._kv.run(GrantLease(int(self.ttl_s * 1e9)))
        assert isinstance(answer, LeaseGranted)
        self.number, self.ttl_s = answer.lease, answer.ttl_ns / 1e9
        self._relied_until_s = asked_s + RELIED_ON * self.ttl_s
        self._lost.clear()
        self._keeping = asyncio.create_task(self._keep())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeping
        self._relied_until_s = 0.0
        with suppress(VivumError):
            # If nobody answers it ends by its time.
            await self._kv.run(RevokeLease(self.number), REVOKE_S)

    async def _keep(self) -> None:
        """Keep it alive, until a store says that it is over, or nobody has answered for its time."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.ttl_s / KEEPS_EACH)
            asked_s = loop.time()
            try:
                await self._kv.run(KeepLease(self.number), self.ttl_s)
            except LeaseLostError:
                break
            except VivumError:
                # No answer: it may hold all the same, so try again as long as it may.
                if loop.time() < self._relied_until_s + self.ttl_s:
                    continue
                break
            self._relied_until_s = asked_s + RELIED_ON * self.ttl_s
        self._lost.set()


class Lock:
    """A lock, or a won election; `async with` waits until it is held, and gives it back."""

    def __init__(self, kv: "KeyValueClient", name: bytes, value: bytes, ttl_s: float) -> None:
        self.token = 0
        """The fencing token: higher than those of all who held the lock before. 0 while it is not held."""

        self._kv = kv
        self._name = name
        self._value = value
        self._lease = Lease(kv, ttl_s)

    @property
    def is_held(self) -> bool:
        """Whether it is held, as far as can be known without asking."""
        return self.token != 0 and self._lease.is_held

    async def lost(self) -> None:
        """Wait until the lease under it is over before the lock was given back."""
        await self._lease.lost()

    async def __aenter__(self) -> "Lock":
        await self._lease.__aenter__()
        try:
            await self._acquire()
        except BaseException:
            await self._lease.__aexit__(None, None, None)
            raise
        return self

    async def _acquire(self) -> None:
        """Stand in the queue until nobody is in front; look again whenever somebody leaves it."""
        while True:
            answer = await self._kv.run(Campaign(self._name, self._value, self._lease.number))
            assert isinstance(answer, Queued)
            if answer.token == answer.holder:
                self.token = answer.token
                return
            changes = self._kv.watch(self._name.decode() + "/", prefix=True, after=answer.revision)
            with suppress(CompactedError):
                async for change in changes:
                    if change.value is None:
                        break

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.token = 0
        await self._lease.__aexit__(kind, error, trace)


class Leader(NamedTuple):
    """Who won an election: its value, and the fencing token of its term."""

    value: bytes
    token: int


class Election:
    """An election by name: candidates stand in a queue, and the first of them leads."""

    def __init__(self, kv: "KeyValueClient", name: str, ttl_s: float) -> None:
        self._kv = kv
        self._name = name
        self._ttl_s = ttl_s

    def campaign(self, value: bytes) -> Lock:
        """Stand: `async with election.campaign(b"me") as term:` waits until it is won, and resigns at the end."""
        return Lock(self._kv, self._name.encode(), value, self._ttl_s)

    async def leader(self) -> Leader | None:
        """Return who leads, or None."""
        return await self._leader()

    async def _leader(self) -> Leader | None:
        places = [each for each in await self._kv.range(self._name + "/") if each.lease]
        first = min(places, key=lambda each: each.created, default=None)
        return None if first is None else Leader(first.value, first.created)

    async def observe(self) -> AsyncIterator[Leader | None]:
        """Yield who leads now, and whenever that changes. Of changes in quick succession some may be left out."""
        while True:
            after = (await self._kv.status()).revision
            last = await self._leader()
            yield last
            with suppress(CompactedError):
                async for _ in self._kv.watch(self._name + "/", prefix=True, after=after):
                    found = await self._leader()
                    if found != last:
                        last = found
                        yield found
