"""The registry of guarantees: names, promises, errors."""

import pytest

import vivum
from vivum.checkers.registry import CHECKERS
from vivum.core.errors import UsageError
from vivum.guarantees import (
    BEST_EFFORT,
    GUARANTEES,
    KEYED,
    RELIABLE,
    TIMELY,
    bare_guarantee,
    final_promises_of,
    guarantee_of,
)
from vivum.protocols.qsm.machine import QsmMachine
from vivum.protocols.ricochet.machine import TimelyMachine
from vivum.protocols.unrepaired.machine import UnrepairedMachine


def test_a_guarantee_is_found_by_its_name_and_by_itself() -> None:
    assert guarantee_of("reliable") is guarantee_of(vivum.RELIABLE) is RELIABLE
    assert repr(RELIABLE) == "vivum.RELIABLE"


@pytest.mark.parametrize("name", ["x", "", "RELIABLE", None, 3])
def test_an_unknown_guarantee_is_the_callers_fault_and_the_error_lists_what_there_is(name: object) -> None:
    """R2: it was a traceback."""
    with pytest.raises(UsageError, match="is no guarantee; there are 'best_effort', 'reliable', 'keyed', 'timely'"):
        guarantee_of(name)  # type: ignore[arg-type]


def test_every_promise_has_a_checker_and_every_transport_a_protocol() -> None:
    for entry in GUARANTEES.values():
        assert set(entry.promises + entry.liveness) <= set(CHECKERS)
        assert entry.transport in {QsmMachine.transport, UnrepairedMachine.transport, TimelyMachine.transport}


def test_reliable_does_not_claim_virtual_synchrony() -> None:
    """B10: QSM does not give it."""
    assert not any("virtual_synchrony" in entry.promises for entry in GUARANTEES.values())


def test_a_bare_transport_promises_what_the_entry_without_layers_does() -> None:
    assert bare_guarantee(QsmMachine.transport) is RELIABLE
    assert bare_guarantee(UnrepairedMachine.transport) is BEST_EFFORT
    assert bare_guarantee(TimelyMachine.transport) is TIMELY


def test_what_an_entry_means_is_read_from_its_promises_and_layers() -> None:
    assert [each.is_gap_free for each in (BEST_EFFORT, RELIABLE, KEYED, TIMELY)] == [False, True, True, True]
    assert [each.is_headed for each in (BEST_EFFORT, RELIABLE, KEYED, TIMELY)] == [False, False, True, False]


def test_what_is_judged_at_the_end_of_a_run_comes_on_top() -> None:
    assert set(final_promises_of("keyed")) == {*RELIABLE.promises, "keys_once", "all_delivered"}
    assert final_promises_of("best_effort") == BEST_EFFORT.promises
