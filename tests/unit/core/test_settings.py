"""Settings and limits: each says its unit, why this default, and what it does."""

from dataclasses import FrozenInstanceError, dataclass, fields

import pytest

from vivum.core.limits import Limits
from vivum.core.settings import setting, settings_of


@dataclass(frozen=True, slots=True)
class _Example:
    delay_ns: int = setting(5, unit="nanoseconds", why="Because.", effect="More is slower.")
    plain: int = 3


def test_a_setting_has_its_default_and_what_the_manual_says() -> None:
    assert _Example().delay_ns == 5
    ((declared, info),) = settings_of(_Example)
    assert declared.name == "delay_ns"
    assert (info.unit, info.why, info.effect) == ("nanoseconds", "Because.", "More is slower.")


def test_every_limit_is_a_positive_setting_with_reason_and_effect() -> None:
    declared = settings_of(Limits)
    assert len(declared) == len(fields(Limits))
    for each, info in declared:
        assert each.default > 0
        assert info.unit
        assert info.why.endswith(".")
        assert info.effect.endswith(".")


def test_limits_are_replaced_not_changed() -> None:
    limits = Limits(message_bytes_max=10)
    assert limits.message_bytes_max == 10
    with pytest.raises(FrozenInstanceError):
        limits.message_bytes_max = 20  # type: ignore[misc]


def test_all_open_joins_can_hold_at_least_one_message_of_the_largest_size() -> None:
    assert Limits().join_bytes_max >= Limits().message_bytes_max
