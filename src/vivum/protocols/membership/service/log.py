"""The log of the configuration service: every call that changes its state, as an entry that a copy can repeat.

The one who speaks for the service acts through the log, never on the state itself. The last entries are kept, for
standbys that are a little behind; one that is further behind gets a copy of the whole state.
"""

from collections import deque

from vivum.core.ids import Endpoint, Incarnation, Member, NodeId
from vivum.core.ranges import RangeSet
from vivum.protocols.membership.service.state import ConfigurationService, Life
from vivum.wire.membership import ConfigurationAck, Join, Leave, Subscribe
from vivum.wire.standby import BatchClosed, LogEntry, TakenOver, encode_entry


def repeat_entry(service: ConfigurationService, entry: LogEntry) -> None:
    """Do to a copy what was done to the service. What makes no sense there changes nothing, here as there."""
    act = entry.act
    if isinstance(act, Join):
        service.join(act.name, NodeId(act.wanted), Endpoint(act.host, act.port))
    elif isinstance(act, BatchClosed):
        service.close_batch()
    elif isinstance(act, TakenOver):
        service.take_over(act.round)
    else:
        life = service.life_of(Member(NodeId(entry.node), Incarnation(entry.incarnation)))
        if life is None:
            return
        match act:
            case Subscribe(request, add, remove):
                service.subscribe(life, request, RangeSet.from_bounds(add), RangeSet.from_bounds(remove))
            case ConfigurationAck(epoch):
                service.acknowledge(life, epoch)
            case Leave():
                service.leave(life)


class ServiceLog:
    """Acts on a service, and remembers how."""

    __slots__ = ("_entries", "_entries_max", "position", "service")

    def __init__(self, service: ConfigurationService, entries_max: int, position: int = 0) -> None:
        self.service = service
        self.position = position
        self._entries: deque[bytes] = deque()
        self._entries_max = entries_max

    def _note(
        self, member: Member | None, act: Join | Subscribe | ConfigurationAck | Leave | BatchClosed | TakenOver
    ) -> None:
        self._entries.append(encode_entry(LogEntry(*(member or (0, 0)), act)))
        self.position += 1
        if len(self._entries) > self._entries_max:
            self._entries.popleft()

    def entries_after(self, position: int, size_max: int) -> tuple[bytes, ...] | None:
        """List entries from a position on, as many as fit; None if they are not kept any more."""
        skip = position - (self.position - len(self._entries))
        if skip < 0 or position > self.position:
            return None
        found: list[bytes] = []
        size = 0
        for index in range(skip, len(self._entries)):
            entry = self._entries[index]
            size += len(entry) + 5
            if size > size_max and found:
                break
            found.append(entry)
        return tuple(found)

    # What is done.

    def join(self, body: Join) -> Life | None:
        """See `ConfigurationService.join`."""
        endpoint = Endpoint(body.host, body.port)
        if not self.service.knows_name(body.name) and self.service.former_life(body.name) is None:
            self._note(None, body)
        return self.service.join(body.name, NodeId(body.wanted), endpoint)

    def subscribe(self, life: Life, body: Subscribe) -> bool:
        """See `ConfigurationService.subscribe`."""
        if body.request == life.request + 1:
            self._note(life.member, body)
        return self.service.subscribe(
            life, body.request, RangeSet.from_bounds(body.add), RangeSet.from_bounds(body.remove)
        )

    def acknowledge(self, life: Life, epoch: int) -> bool:
        """See `ConfigurationService.acknowledge`; return whether it is news."""
        if epoch <= life.acknowledged:
            return False
        self._note(life.member, ConfigurationAck(epoch))
        self.service.acknowledge(life, epoch)
        return True

    def leave(self, life: Life) -> None:
        """See `ConfigurationService.leave`."""
        self._note(life.member, Leave())
        self.service.leave(life)

    def close_batch(self) -> list[Member]:
        """See `ConfigurationService.close_batch`."""
        self._note(None, BatchClosed())
        return self.service.close_batch()

    def take_over(self, round_: int) -> None:
        """See `ConfigurationService.take_over`."""
        self._note(None, TakenOver(round_))
        self.service.take_over(round_)
