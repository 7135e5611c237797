"""What `Topic.send` returns when nothing is left to wait for.

A coroutine costs more than the work for a small message, so one object stands for all that are done. It acts as a
coroutine that returns None at its first step: `await`, `asyncio.create_task`, `gather` and `wait_for` take it.

Since it is one object, a set has it once. `asyncio.as_completed([topic.send(a), topic.send(b)])` makes a set of what it
is given, and yields once for both. Where each must count, make tasks: `asyncio.create_task(topic.send(a))`.
"""

from collections.abc import Coroutine, Iterator
from typing import Any, NoReturn

_NOTHING: Iterator[Any] = iter(())


class Done:
    """An awaitable that is done: it returns None at once, as often as it is awaited."""

    def __await__(self) -> Iterator[Any]:
        return _NOTHING

    def send(self, _: Any) -> NoReturn:
        """Return, as a coroutine does at its end."""
        raise StopIteration

    def throw(self, kind: Any, value: Any = None, trace: Any = None) -> NoReturn:  # noqa: ARG002
        """Raise what is thrown in, as a coroutine does that was not begun: a task that is cancelled in time."""
        raise kind if value is None else value

    def close(self) -> None:
        """Do nothing: there is nothing under way."""


DONE: Coroutine[Any, Any, None] = Done()  # type: ignore[assignment]
