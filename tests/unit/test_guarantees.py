"""The registry of guarantees: names, promises, errors."""

import pytest

import vivum
from vivum.checkers.registry import CHECKERS
from vivum.core.errors import UsageError
from vivum.guarantees import GUARANTEES, RELIABLE, guarantee_of, recorded_guarantee
from vivum.protocols.qsm.machine import QsmMachine
from vivum.protocols.unrepaired.machine import UnrepairedMachine


def test_a_guarantee_is_found_by_its_name_and_by_itself() -> None:
    assert guarantee_of("reliable") is guarantee_of(vivum.RELIABLE) is RELIABLE
    assert repr(RELIABLE) == "vivum.RELIABLE"


@pytest.mark.parametrize("name", ["x", "", "RELIABLE", None, 3])
def test_an_unknown_guarantee_is_the_callers_fault_and_the_error_lists_what_there_is(name: object) -> None:
    with pytest.raises(UsageError, match="is no guarantee; there are 'best_effort', 'reliable', 'keyed'"):
        guarantee_of(name)  # type: ignore[arg-type]


def test_every_promise_has_a_checker_and_every_transport_a_protocol() -> None:
    for entry in GUARANTEES.values():
        assert set(entry.promises) <= set(CHECKERS)
        assert entry.transport in {QsmMachine.transport, UnrepairedMachine.transport}


def test_reliable_does_not_claim_virtual_synchrony() -> None:
    """B10: QSM does not give it."""
    assert not any("virtual_synchrony" in entry.promises for entry in GUARANTEES.values())


def test_logs_of_earlier_versions_are_understood() -> None:
    assert recorded_guarantee("reliable, keyed") is vivum.KEYED
    assert recorded_guarantee("best effort") is vivum.BEST_EFFORT
    assert recorded_guarantee(None) is RELIABLE
