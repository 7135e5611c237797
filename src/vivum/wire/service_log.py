"""What stands in the log of the configuration service, and the word by which its leader makes itself known.

In every frame to the service and from it the header's region is the *history*, the foundation of the log, and its view
is the consensus *term* of the leader that speaks, or that the node follows (`docs/design/membership.md`).
"""

from typing import Annotated

import msgspec

from vivum.core.errors import DecodeError
from vivum.wire.directory import TopicEntry
from vivum.wire.fields import U16, U32, ControlMessage, Host
from vivum.wire.membership import ConfigurationAck, Join, Leave, Subscribe

REPLICAS_TOLD_MAX = 15
"""The most replicas that a status names."""


class ReplicaAddress(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where a replica of the service takes datagrams."""

    host: Host
    port: U16


class ServiceStatus(ControlMessage, frozen=True, tag=23):
    """Says which node leads the service: from itself as a sign of life, or from any node that is asked.

    An empty `host` is that of the frame's source. A history that went on from the copy of another one, `parent`, knows
    all its epochs up to `parent_epoch`; lives of it that stand there go on.
    """

    host: Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z._:-]{0,255}\Z")]
    port: U16
    replicas: Annotated[tuple[ReplicaAddress, ...], msgspec.Meta(max_length=REPLICAS_TOLD_MAX)]
    parent: U32
    parent_epoch: U32


class BatchClosed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=29):
    """All changes before it become one epoch."""


class TopicsCreated(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=53):
    """Those of these topics that do not exist come to be."""

    topics: tuple[TopicEntry, ...]


LogAct = Join | Subscribe | ConfigurationAck | Leave | BatchClosed | TopicsCreated
"""What a command of the log can be."""


class LogEntry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One command: a request of a life, or an act of the leader's speaker."""

    node: U32
    incarnation: U16
    act: LogAct


_encode_entry = msgspec.msgpack.Encoder().encode
_decode_entry = msgspec.msgpack.Decoder(LogEntry).decode


def encode_entry(entry: LogEntry) -> bytes:
    """Write a command."""
    return _encode_entry(entry)


def decode_entry(data: bytes) -> LogEntry:
    """Read a command, or raise a `DecodeError`."""
    try:
        return _decode_entry(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"command of the service's log: {error}") from None
