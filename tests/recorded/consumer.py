"""A program that reads what the sink publishes."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import vivum
from vivum.live.connecting import connect


class Consumer:
    """A program that reads topics, in a thread: Spark needs the main one."""

    def __init__(self, domain: str) -> None:
        self.domain = domain
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._node = self.do(connect(domain)._join())

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, 60), self._loop).result()

    def enter(self, name: str, kind: Any = bytes) -> Any:
        return self.do(self._node.enter(name, kind, guarantee=vivum.KEYED))

    def events(self, topic: Any, count: int) -> list[Any]:
        """Read so many messages, and see that no more wait."""

        async def read() -> list[Any]:
            return [await topic.receive() for _ in range(count)]

        found: list[Any] = self.do(read())
        assert topic.statistics().queued_bytes == 0
        return found

    def values(self, topic: Any, count: int) -> list[Any]:
        """As `events`, their values."""
        return [each.value for each in self.events(topic, count)]

    def close(self) -> None:
        self.do(self._node.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
