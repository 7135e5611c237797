"""The service's side of its standbys: who they are, how far their copies are, and what may be published.

Standbys are the nodes of the oldest lives. Each gets the whole state once, then entries of the log as they come, and
says how far it is. From the moment on in which it has all, it counts: nothing is published that one of those who count
does not have. One that is silent for too long counts no more, and another is chosen.

Invariants: `committed` is the lowest position of those who count, or the end of the log if there are none.
"""

from dataclasses import dataclass

from vivum.core.ids import Endpoint, Member
from vivum.protocols.membership.assembly import cut_copy
from vivum.protocols.membership.service.log import ServiceLog
from vivum.protocols.membership.service.snapshot import write_state
from vivum.protocols.membership.service.state import Life
from vivum.protocols.membership.settings import ServiceSettings
from vivum.wire.standby import StandbyAddress, StateChanges, StateCopy


@dataclass(slots=True, eq=False)
class _Link:
    """The talk with one standby."""

    life: Life
    heard_ns: int
    position: int = 0
    """Up to where its copy is known to be."""

    sent: int = 0
    """Up to where it was sent entries, which may be on their way."""

    has_copy: bool = False
    counts: bool = False
    """It has caught up once: from then on nothing is published without it."""

    resend_ns: int = 0
    due_ns: int = 0


class Replication:
    """All standbys of one service."""

    def __init__(self, log: ServiceLog, settings: ServiceSettings, part_bytes: int, host: Member) -> None:
        """Begin with no standbys. `host` is the life of the service's own node, if it has one: no standby."""
        self.is_list_new = False
        self.is_retired = settings.standbys == 0
        """No standbys are kept, or not any more."""

        self._log = log
        self._host = host
        self._settings = settings
        self._part_bytes = part_bytes
        self._links: dict[Member, _Link] = {}
        # Those that fell silent, and until when they are left alone.
        self._resting: dict[Member, int] = {}

    @property
    def committed(self) -> int:
        """The position up to which every standby that counts has the log."""
        return min((link.position for link in self._links.values() if link.counts), default=self._log.position)

    @property
    def addresses(self) -> tuple[StandbyAddress, ...]:
        """The standbys that count, oldest first."""
        return tuple(StandbyAddress(*link.life.endpoint) for link in self._links.values() if link.counts)

    def retire(self) -> None:
        """Keep no standbys any more: existing copies are old, and cannot go on alone."""
        self.is_retired = self.is_list_new = True
        self._links.clear()

    def choose(self, now_ns: int) -> None:
        """Choose the oldest lives that answer as standbys; drop those that left or were silent for too long."""
        service, settings = self._log.service, self._settings
        for member, link in list(self._links.items()):
            if now_ns - link.heard_ns >= settings.standby_timeout_ns:
                self._resting[member] = now_ns + settings.standby_rest_ns
            elif service.life_of(member) is not None:
                continue
            self._drop(member)
        self._resting = {
            member: until_ns
            for member, until_ns in self._resting.items()
            if until_ns > now_ns and service.life_of(member) is not None
        }
        if len(self._links) < settings.standbys and not self.is_retired:
            fit = [
                life
                for life in service.lives.values()
                if life.member not in self._resting and life.member.node != self._host.node
            ]
            for life in sorted(fit, key=lambda life: life.age):
                if len(self._links) >= settings.standbys:
                    break
                if life.member not in self._links:
                    self._links[life.member] = _Link(life, now_ns, due_ns=now_ns)

    def _drop(self, member: Member) -> None:
        self.is_list_new = self.is_list_new or self._links[member].counts
        del self._links[member]

    def on_ack(self, now_ns: int, member: Member, position: int) -> str | None:
        """Handle a standby's acknowledgement; return why it is impossible, or None."""
        link = self._links.get(member)
        if link is None:
            return "not a standby"
        if position > self._log.position:
            return "acknowledges a position that never was"
        link.heard_ns = now_ns
        link.resend_ns = 0
        if position == 0:
            # It has no copy, perhaps not any more.
            self._begin_anew(link)
            link.due_ns = min(link.due_ns, now_ns)
            return None
        if not link.has_copy:
            link.has_copy = True
            link.sent = position
        link.position = max(link.position, position)
        link.sent = max(link.sent, link.position)
        if link.position == self._log.position and not link.counts:
            link.counts = self.is_list_new = True
        return None

    def _begin_anew(self, link: _Link) -> None:
        self.is_list_new = self.is_list_new or link.counts
        link.has_copy = link.counts = False
        link.position = 0

    def next_deadline_ns(self, now_ns: int) -> int | None:
        """Return when the next standby must hear something."""
        times = [
            min(link.due_ns, now_ns if link.has_copy and link.sent < self._log.position else link.due_ns)
            for link in self._links.values()
        ]
        return min(times, default=None)

    def make_messages(self, now_ns: int) -> list[tuple[Endpoint, StateCopy | StateChanges]]:
        """Return what is due: copies for standbys without one, entries that are new or not acknowledged."""
        made: list[tuple[Endpoint, StateCopy | StateChanges]] = []
        copy: list[StateCopy] | None = None
        settings = self._settings
        for link in self._links.values():
            is_due = now_ns >= link.due_ns
            if link.has_copy:
                if is_due:
                    # Not acknowledged in time: from there on again.
                    link.sent = link.position
                elif link.sent >= self._log.position:
                    continue
                entries = self._log.entries_after(link.sent, self._part_bytes)
                if entries is not None:
                    made.append((link.life.endpoint, StateChanges(link.sent, entries)))
                    link.sent += len(entries)
                    self._wait(link, now_ns, is_due)
                    continue
                self._begin_anew(link)
            elif not is_due:
                continue
            if copy is None:
                copy = cut_copy(self._log.position, write_state(self._log.service), self._part_bytes)
            if len(copy) <= settings.parts_max:
                made += [(link.life.endpoint, part) for part in copy]
            self._wait(link, now_ns, is_due)
        return made

    def _wait(self, link: _Link, now_ns: int, is_due: bool) -> None:
        """Say when to speak again: soon while something is open, else as a sign of life."""
        settings = self._settings
        if link.has_copy and link.position >= self._log.position:
            link.due_ns = now_ns + settings.standby_beat_ns
            return
        if is_due or not link.resend_ns:
            link.resend_ns = min(max(2 * link.resend_ns, settings.batch_ns), settings.standby_beat_ns)
        link.due_ns = now_ns + link.resend_ns
