"""Declare settings, each as one field with its documentation.

Settings are fields of frozen dataclasses, one class for each part that has any. `setting()` attaches unit, reason and
effect to the field; the reference page is generated from these, and a test fails when it is stale.
"""

from dataclasses import Field, dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """What the reference page says about one setting."""

    unit: str
    why: str
    effect: str


def setting(default: Any, *, unit: str, why: str, effect: str) -> Any:
    """Declare a setting: its default, its unit, the reason for this default, and what a higher or lower value does.

    For a limit, `effect` states the policy: what happens at the limit.
    """
    return field(default=default, metadata={"setting": SettingInfo(unit, why, effect)})


def settings_of(group: type) -> list[tuple[Field[Any], SettingInfo]]:
    """List the settings that a dataclass declares, in order."""
    return [(each, each.metadata["setting"]) for each in fields(group) if "setting" in each.metadata]
