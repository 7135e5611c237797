"""Suspects under test: each is probed, and counts as dead only when nothing came back for long enough.

SWIM-style: a member accuses, the service confirms. A suspect that was merely paused answers when it wakes, so one
that is paused for less than `suspect_timeout_ns` is never dropped; a dead one is, that long after the first report.
The service doubts itself too: if it ran late, answers may lie unread in its own socket, so what it overslept is
added to the suspect's time, and another probe goes out.
"""

from dataclasses import dataclass
from enum import Enum

from vivum.core.ids import Member
from vivum.protocols.membership.settings import ServiceSettings


class Verdict(Enum):
    """What comes of a probe that is due."""

    PROBE = "ask once more"
    DEAD = "silent for too long"


@dataclass(slots=True)
class _Test:
    """One suspect: until when it may answer, how often it was asked, when it is asked again."""

    until_ns: int
    probes: int
    due_ns: int


class Suspicions:
    """All tests under way."""

    __slots__ = ("_settings", "_tests")

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._tests: dict[Member, _Test] = {}

    def begin(self, member: Member, now_ns: int) -> bool:
        """Put a member to the test; False if it is under test already."""
        if member in self._tests:
            return False
        self._tests[member] = _Test(now_ns + self._settings.suspect_timeout_ns, 0, now_ns)
        return True

    def clear(self, member: Member) -> bool:
        """End the test of a member that was heard, or is gone; True if there was one."""
        return self._tests.pop(member, None) is not None

    def on_probe_due(self, member: Member, now_ns: int) -> tuple[Verdict, int]:
        """Judge a suspect from which nothing came: ask again, and tell when to judge next; or find it dead."""
        test = self._tests[member]
        interval_ns = self._settings.probe_interval_ns
        late_ns = now_ns - test.due_ns
        if late_ns >= interval_ns:
            test.until_ns += late_ns
        if now_ns >= test.until_ns and test.probes >= self._settings.probes_needed:
            return Verdict.DEAD, now_ns
        test.probes += 1
        test.due_ns = now_ns + interval_ns
        if test.probes >= self._settings.probes_needed:
            test.due_ns = min(test.due_ns, max(test.until_ns, now_ns + 1))
        return Verdict.PROBE, test.due_ns

    def __contains__(self, member: Member) -> bool:
        return member in self._tests

    def __len__(self) -> int:
        return len(self._tests)
