"""What is told of a fault can be read back."""

import pytest

from vivum.core.time import MILLISECOND, SECOND
from vivum.observe.faults import HEALED, Fault, read_fault


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fault("crash", (3,)), "crash at node 3"),
        (Fault("partition", (1, 12), (), 3 * SECOND), "partition at node 1, 12 for 3s"),
        (Fault("one_way", (2,), (), 335_418_000), "one_way at node 2 for 335.418ms"),
        (Fault("leave", (2,), (4, 10), 2 * MILLISECOND), "leave of group 4, 10 at node 2 for 2ms"),
        (Fault("loss"), "loss at every node"),
    ],
)
def test_a_fault_is_read_back_as_it_was_told(fault: Fault, text: str) -> None:
    assert str(fault) == text
    assert read_fault(text) == fault


@pytest.mark.parametrize("text", [HEALED, Fault("loss", (1,)).end, "", "something at no node", "loss at node x"])
def test_an_end_or_another_text_is_no_fault_that_begins(text: str) -> None:
    assert read_fault(text) is None
