"""Messages between clients of a replicated log, which are no replicas, and its replicas (`docs/design/kv.md`).

The header's sender is the client's number, which it draws, or the replica's id; region is the log's group; the view is
0. `request` is a number of the client's own: the answer has it, whichever replica gives it.
"""

from typing import Annotated

import msgspec

from vivum.core.limits import Limits
from vivum.wire.consensus import EntryIndex
from vivum.wire.fields import U16, U32, ControlMessage, Host

REQUEST_BYTES_MAX = 8 * 1024 * 1024
"""The largest request or answer that is joined from parts; settings allow less."""

Whole = Annotated[int, msgspec.Meta(ge=1, le=REQUEST_BYTES_MAX)]
"""How many bytes there are in all parts."""


class SessionRequest(ControlMessage, frozen=True, tag=80):
    """Asks for a session."""

    request: EntryIndex


class SessionAnswer(ControlMessage, frozen=True, tag=81):
    """The session is open; `client` is its id."""

    request: EntryIndex
    client: EntryIndex


class CommandRequest(ControlMessage, frozen=True, tag=82):
    """Commands of a session, numbered from `sequence` on, or a part of them. Answers below `heard` have come.

    The whole is as in a batch of the log: lengths of 32 bits, then the commands.
    """

    request: EntryIndex
    client: EntryIndex
    sequence: EntryIndex
    heard: EntryIndex
    count: Annotated[int, msgspec.Meta(ge=1, le=65_535)]
    offset: U32
    total: Whole
    content: bytes

    def fault(self, limits: Limits) -> str | None:  # noqa: ARG002
        """Refuse what is no part, and answers that came before their commands."""
        if self.heard > self.sequence:
            return "answers have come of commands that are still asked for"
        return _fault_of_part(self.offset, self.total, self.content)


class CommandAnswer(ControlMessage, frozen=True, tag=83):
    """What commands of a session came to, from `sequence` on, or a part of it: in msgpack, a list of answers, and a
    list of what became of each, or nil if all are done."""

    client: EntryIndex
    sequence: EntryIndex
    offset: U32
    total: Whole
    content: bytes

    def fault(self, limits: Limits) -> str | None:  # noqa: ARG002
        """Refuse what is no part."""
        return _fault_of_part(self.offset, self.total, self.content)


class QueryRequest(ControlMessage, frozen=True, tag=84):
    """Asks the application for something. Unless it `is_local`, the leader answers from what is committed by now."""

    request: EntryIndex
    is_local: bool
    query: bytes


class FollowRequest(ControlMessage, frozen=True, tag=85):
    """Asks any replica for what changes behind a position. It answers when something does, or after a while."""

    request: EntryIndex
    after: EntryIndex
    query: bytes


class QueryAnswer(ControlMessage, frozen=True, tag=86):
    """An answer of the application, or a part of it; `position` is up to where a replica looked for changes.

    One of no bytes says that nothing changed.
    """

    request: EntryIndex
    position: EntryIndex
    offset: U32
    total: Annotated[int, msgspec.Meta(ge=0, le=REQUEST_BYTES_MAX)]
    content: bytes

    def fault(self, limits: Limits) -> str | None:  # noqa: ARG002
        """Refuse what is no part."""
        if not self.total:
            return "content of an answer that has none" if self.offset or self.content else None
        return _fault_of_part(self.offset, self.total, self.content)


class Redirection(ControlMessage, frozen=True, tag=87):
    """Says that this replica does not lead, and which one does, if it knows."""

    request: EntryIndex
    leader: U32
    endpoint: tuple[Host, U16] | None


class RequestRefused(ControlMessage, frozen=True, tag=88):
    """Says that a request will not be answered, and why. To ask again is of no use."""

    request: EntryIndex
    cause: Annotated[str, msgspec.Meta(max_length=500)]


def _fault_of_part(offset: int, total: int, content: bytes) -> str | None:
    if not content:
        return "no content"
    return "a part beyond its total" if offset + len(content) > total else None
