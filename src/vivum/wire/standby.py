"""Control messages by which a configuration service outlives its node (`docs/design/membership.md`, "Standbys").

A *term* is one service's time in office; its number travels in the header's view of every frame to and from the
service. A *position* counts the entries of the service's log.
"""

from typing import Annotated

import msgspec

from vivum.core.errors import DecodeError
from vivum.core.limits import Limits
from vivum.wire.fields import U16, U32, U64, ControlMessage, Host
from vivum.wire.membership import ConfigurationAck, Join, Leave, Subscribe

STANDBYS_MAX = 8
"""The most standbys that a service may name."""

ERAS_MAX = 64
"""The most take-overs that a service reports; members of an older one start a new life."""


class StandbyAddress(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where a standby takes datagrams."""

    host: Host
    port: U16


class ServiceStatus(ControlMessage, frozen=True, tag=23):
    """Says which node is the service: from itself as a sign of life, or from any node that is asked.

    An empty `host` is that of the frame's source. `ends` has, for every take-over before this term, the last epoch that
    was taken over: epochs after it, of the same era, were never heard of by those who came after.
    """

    term: U32
    host: Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z._:-]{0,255}\Z")]
    port: U16
    standbys: Annotated[tuple[StandbyAddress, ...], msgspec.Meta(max_length=STANDBYS_MAX)]
    ends: Annotated[tuple[U32, ...], msgspec.Meta(max_length=ERAS_MAX)]


class Candidacy(ControlMessage, frozen=True, tag=24):
    """A standby that hears nothing of the service asks members for their support; its copy stands at `epoch`."""

    round: U32
    epoch: U32


class Support(ControlMessage, frozen=True, tag=25):
    """The header's sender supports a candidate in a round, or (`granted` false) has supported another in it."""

    round: U32
    granted: bool


class StateCopy(ControlMessage, frozen=True, tag=26):
    """Part number `part` of `parts` of the whole state of the service at a position of its log."""

    position: U64
    part: U16
    parts: U16
    checksum: U32
    content: bytes

    def fault(self, limits: Limits) -> str | None:  # noqa: ARG002
        """Refuse a part that the whole does not have."""
        return f"part {self.part} of {self.parts}" if self.part >= self.parts else None


class StateChanges(ControlMessage, frozen=True, tag=27):
    """Encoded entries of the service's log from a position on; none as a sign of life."""

    position: U64
    entries: tuple[bytes, ...]


class CopyAck(ControlMessage, frozen=True, tag=28):
    """A standby's copy stands at a position; at 0 it has none. A former service says by it that it has stepped down."""

    position: U64


class Succession(ControlMessage, frozen=True, tag=31):
    """Tells a service that it was replaced, and by whom. Answered by a `CopyAck`."""

    status: ServiceStatus


class BatchClosed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=29):
    """An entry of the log alone: all changes before it became one epoch."""


class TakenOver(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=30):
    """An entry of the log alone: a standby took over, in a round."""

    round: U32


LogAct = Join | Subscribe | ConfigurationAck | Leave | BatchClosed | TakenOver
"""What can stand in the log."""


class LogEntry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One call of the service's state machine; a request of a life, or an act of its speaker."""

    node: U32
    incarnation: U16
    act: LogAct


_encode_entry = msgspec.msgpack.Encoder().encode
_decode_entry = msgspec.msgpack.Decoder(LogEntry).decode


def encode_entry(entry: LogEntry) -> bytes:
    """Write an entry of the log."""
    return _encode_entry(entry)


def decode_entry(data: bytes) -> LogEntry:
    """Read an entry of the log, or raise a `DecodeError`."""
    try:
        return _decode_entry(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"entry of the service's log: {error}") from None
