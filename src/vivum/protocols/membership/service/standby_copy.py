"""A standby's copy of the service's state: begun with the whole, kept up with the log."""

from vivum.core.errors import DecodeError
from vivum.protocols.membership.assembly import Parts
from vivum.protocols.membership.service.log import repeat_entry
from vivum.protocols.membership.service.snapshot import read_state
from vivum.protocols.membership.service.state import ConfigurationService
from vivum.wire.standby import StateChanges, StateCopy, decode_entry


class ServiceCopy:
    """What a standby has of the service; nothing at first."""

    __slots__ = ("_parts", "position", "service")

    def __init__(self, parts_max: int) -> None:
        self.service: ConfigurationService | None = None
        self.position = 0
        self._parts = Parts(parts_max)

    def on_copy(self, body: StateCopy) -> None:
        """Take a part of the whole; raises `DecodeError` for what cannot be one."""
        if body.position <= self.position and self.service is not None:
            return
        content = self._parts.add(body.position, 0, body)
        if content is not None:
            self.service = read_state(content)
            self.position = body.position

    def on_changes(self, body: StateChanges) -> None:
        """Repeat those entries that are new, unless there is a hole before them; raises `DecodeError`."""
        if self.service is None or body.position > self.position:
            return
        for data in body.entries[self.position - body.position :]:
            try:
                repeat_entry(self.service, decode_entry(data))
            except (AssertionError, DecodeError):
                # Not of the history that this is a copy of.
                self.forget()
                raise DecodeError("an entry of the service's log that does not fit the copy") from None
            self.position += 1

    def forget(self) -> None:
        """Forget everything and begin again."""
        self.service = None
        self.position = 0
        self._parts.clear()
