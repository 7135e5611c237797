"""What a user reads of a node."""

from types import SimpleNamespace

import vivum
from vivum.testing import World


def test_the_counters_have_what_the_driver_the_port_and_shared_memory_refused() -> None:
    world = World()

    async def program() -> dict[str, int]:
        async with vivum.connect("d") as node:
            host = node._host
            assert node.statistics().counters["datagrams_dropped"] == 0
            host._driver.dropped, host._port.unsendable = 2, 3
            shared = host._port.shared_memory
            host._port.shared_memory = SimpleNamespace(strangers_refused=4, frames_sent=0, frames_missed=0)  # type: ignore[assignment]
            try:
                return node.statistics().counters
            finally:
                host._port.shared_memory = shared

    async def rehearse() -> dict[str, int]:
        counters: dict[str, int] = await world.host("a").start(program)
        return counters

    counters = world.run(rehearse())
    names = ("datagrams_dropped", "datagrams_unsendable", "shared_notes_refused")
    assert [counters[name] for name in names] == [2, 3, 4]
