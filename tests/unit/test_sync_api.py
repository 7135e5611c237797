"""`vivum.sync` beside the asyncio API: the same names, arguments and defaults."""

import inspect
import typing

import pytest

import vivum
import vivum.sync
from vivum.sync import SyncNode, SyncSubscription, SyncTopic

INTERNAL = {
    # For other parts of Vivum: readers, seats, and the ends of nodes.
    vivum.Topic: {"reader", "listener", "begin_replay", "let_go", "disown"},
    vivum.Subscription: {"reader", "let_go", "disown", "name_of"},
    vivum.NodeHandle: {
        *("join", "take_seats", "give_back", "forget", "name_of", "replay_line", "seats", "seat_of", "browser"),
        *("check_open", "closed_error", "close_now", "call_safely", "disown"),
    },
}
PAIRS = [(vivum.Topic, SyncTopic), (vivum.Subscription, SyncSubscription), (vivum.NodeHandle, SyncNode)]
ONLY_SYNC = {"timeout_s"}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def arguments(function: object) -> dict[str, tuple[object, object]]:
    found = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    return {each.name: (each.kind, each.default) for each in found}


@pytest.mark.parametrize(("with_asyncio", "with_threads"), PAIRS, ids=lambda kind: kind.__name__)
def test_threads_have_every_public_name(with_asyncio, with_threads):
    assert public(with_asyncio) - INTERNAL[with_asyncio] - public(with_threads) == set()
    # What is excused exists.
    assert INTERNAL[with_asyncio] - public(with_asyncio) == set()


@pytest.mark.parametrize(("with_asyncio", "with_threads"), PAIRS, ids=lambda kind: kind.__name__)
def test_threads_have_the_same_arguments_and_defaults(with_asyncio, with_threads):
    for name in public(with_asyncio) - INTERNAL[with_asyncio]:
        ours, theirs = getattr(with_threads, name), getattr(with_asyncio, name)
        if callable(ours) and callable(theirs):
            wanted, found = arguments(theirs), arguments(ours)
            assert {key: value for key, value in found.items() if key in wanted} == wanted, name
            assert found.keys() - wanted.keys() <= ONLY_SYNC, name


@pytest.mark.parametrize("name", ["enter", "subscribe"])
def test_overloads_have_the_same_arguments(name):
    def listed(kind: type) -> list[list[str]]:
        return [list(arguments(each)) for each in typing.get_overloads(getattr(kind, name))]

    # One more for commands: topics whose values are JSON texts.
    assert all(each in listed(vivum.NodeHandle) for each in listed(SyncNode))
    assert listed(SyncNode)


def test_connect_has_the_same_arguments_and_defaults():
    assert arguments(vivum.sync.connect) == arguments(vivum.connect)
