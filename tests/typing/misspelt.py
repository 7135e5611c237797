"""What a type checker must find. Never run: `make lint` checks it, where an ignore that ignores nothing is an error."""

import vivum
import vivum.sync


class Quote(vivum.Message):
    """A message with two fields."""

    symbol: str
    bid: float


async def with_asyncio() -> None:
    """Misspell arguments, and send another type."""
    vivum.connect("a", seed=["x:1"])  # type: ignore[call-arg]
    async with vivum.connect("a") as node:
        await node.enter("/a", Quote, garantee=vivum.RELIABLE)  # type: ignore[call-overload]
        await node.enter_many(["/a"], Quote, recieve=False)  # type: ignore[call-arg]
        node.subscribe("/a/*", Quote, onmissed="log")  # type: ignore[call-overload]
        topic = await node.enter("/a", Quote, on_missed="log")
        await topic.send(b"bytes")  # type: ignore[arg-type]
        async for event in topic:
            event.value.ask  # type: ignore[attr-defined]  # noqa: B018


def with_threads() -> None:
    """Do the same without asyncio."""
    with vivum.sync.connect("a", seed=["x:1"]):  # type: ignore[call-arg]
        pass
    with vivum.sync.connect("a") as node:
        node.enter("/a", Quote, garantee=vivum.RELIABLE)  # type: ignore[call-overload]
        node.enter_many(["/a"], Quote, recieve=False)  # type: ignore[call-arg]
        node.subscribe("/a/*", Quote, onmissed="log")  # type: ignore[call-overload]
        node.enter("/a", Quote).send(b"bytes")  # type: ignore[arg-type]
        for event in node.enter("/a", Quote):
            event.value.ask  # type: ignore[attr-defined]  # noqa: B018
