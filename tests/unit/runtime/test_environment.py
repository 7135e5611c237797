"""A node's surroundings: this computer unless its context says otherwise."""

import asyncio
from contextvars import copy_context

from vivum.runtime.environment import ThisComputer, current_environment, set_environment


def test_programs_run_on_this_computer_unless_they_are_told_otherwise() -> None:
    environment = current_environment()
    assert isinstance(environment, ThisComputer)
    assert environment.address("10.1.2.3") == "10.1.2.3"
    assert environment.trace_sink("d") is None
    assert environment.default_name() != environment.default_name()
    assert environment.random().random() != environment.random().random()


def test_tasks_inherit_their_surroundings_and_others_do_not_see_them() -> None:
    other = ThisComputer()

    async def look() -> object:
        await asyncio.sleep(0)
        return current_environment()

    async def compare() -> tuple[object, object]:
        context = copy_context()
        context.run(set_environment, other)
        inside = asyncio.create_task(look(), context=context)
        return await inside, await asyncio.create_task(look())

    inside, outside = asyncio.run(compare())
    assert inside is other
    assert outside is not other
