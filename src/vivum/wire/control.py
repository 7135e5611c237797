"""Control messages: the bodies of control frames, as typed structs in msgpack (`docs/design/wire.md`).

A struct travels as an array of its tag and its fields. The kind of a frame decides which it may carry. In a
control frame the header's sender is who made it, and region and view name what it is about.

Fields are checked twice: types and widths by msgspec, and what no single field shows (order of bounds, one
number below another) by `fault`. What the receiver's own state makes of it is for its protocol to say.
"""

from typing import Any

import msgspec

from vivum.core.errors import DecodeError, UsageError
from vivum.core.limits import Limits
from vivum.wire.codec import Frame, seal_control
from vivum.wire.consensus import (
    AppendEntries,
    AppendReply,
    HeartbeatReply,
    InstallSnapshot,
    LeaderHeartbeat,
    SnapshotReply,
    TimeoutNow,
    Vote,
    VoteRequest,
)
from vivum.wire.directory import (
    Beacon,
    Browse,
    Enter,
    Entered,
    Farewell,
    Listing,
    LoadQuery,
    LoadReport,
    Roll,
    Roster,
    Seek,
    SendingQuery,
    SendingReport,
)
from vivum.wire.fields import U16, U64, ControlMessage, fault_of_bounds
from vivum.wire.kinds import Kind
from vivum.wire.log_clients import (
    CommandAnswer,
    CommandRequest,
    FollowRequest,
    QueryAnswer,
    QueryRequest,
    Redirection,
    RequestRefused,
    SessionAnswer,
    SessionRequest,
)
from vivum.wire.membership import (
    Alive,
    Configuration,
    ConfigurationAck,
    FailureReport,
    Join,
    Leave,
    Probe,
    Removal,
    Subscribe,
    Welcome,
)
from vivum.wire.rings import TokenReceipt
from vivum.wire.standby import Candidacy, CopyAck, ServiceStatus, StateChanges, StateCopy, Succession, Support
from vivum.wire.timely import LateralRepair, TimelyNak, TimelyProgress, TimelyReport
from vivum.wire.tokens import RegionReport, StreamProgress, Token

# Tags are unique over all kinds and never change their meaning.


class Nak(ControlMessage, frozen=True, tag=1):
    """Asks the one that it is sent to for frames of its stream in the header's region and view.

    `incarnation` is the life of that sender; the header names who asks. `bounds` are the missing ranges, as
    `SequenceWindow.missing` gives them.
    """

    incarnation: U16
    bounds: tuple[U64, ...]

    def fault(self, limits: Limits) -> str | None:
        """Refuse what is not a set of ranges, or asks for nothing."""
        return fault_of_bounds(self.bounds, limits) if self.bounds else "asks for nothing"


class Ack(ControlMessage, frozen=True, tag=2):
    """Acknowledges to the sender of a stream, named as in `Nak`, that all below `prefix` was received or given up."""

    incarnation: U16
    prefix: U64


class Heartbeat(ControlMessage, frozen=True, tag=3):
    """Announces the available frames of the header's own stream: `first <= n < stop`.

    Frame `first` begins with message `message`, so a receiver that must skip knows what it lost.
    """

    first: U64
    stop: U64
    message: U64 = 0

    def fault(self, limits: Limits) -> str | None:  # noqa: ARG002
        """Refuse an end before the beginning."""
        return "stop is below first" if self.stop < self.first else None


CONTROL_TYPES: dict[Kind, tuple[type[ControlMessage], ...]] = {
    Kind.NAK: (Nak,),
    Kind.ACK: (Ack, RegionReport),
    Kind.HEARTBEAT: (Heartbeat, StreamProgress),
    Kind.TOKEN: (Token, TokenReceipt),
    Kind.MEMBERSHIP: (Join, Leave, Subscribe, ConfigurationAck, FailureReport, Alive, Support),
    Kind.CONFIGURATION: (Welcome, Configuration, Probe, Removal, ServiceStatus, Candidacy),
    Kind.REPLICA: (StateCopy, StateChanges, CopyAck, Succession),
    Kind.DISCOVERY: (Seek, Beacon, Farewell),
    Kind.DIRECTORY: (Enter, Browse, Roll),
    Kind.TOPICS: (Entered, Listing, Roster),
    Kind.SURVEY: (LoadQuery, LoadReport, SendingQuery, SendingReport),
    Kind.CONSENSUS: (VoteRequest, Vote, LeaderHeartbeat, HeartbeatReply, AppendReply, SnapshotReply, TimeoutNow),
    Kind.ENTRIES: (AppendEntries, InstallSnapshot),
    Kind.REQUEST: (SessionRequest, CommandRequest, QueryRequest, FollowRequest),
    Kind.ANSWER: (SessionAnswer, CommandAnswer, QueryAnswer, Redirection, RequestRefused),
    Kind.LATERAL: (LateralRepair,),
    Kind.GROUP_WORD: (TimelyNak, TimelyProgress, TimelyReport),
}
"""Which types a kind of frame may carry."""


def _decoder(types: tuple[type[ControlMessage], ...]) -> "msgspec.msgpack.Decoder[Any]":
    union: Any = types[0]
    for each in types[1:]:
        union |= each
    return msgspec.msgpack.Decoder(union)


_DECODERS = {kind: _decoder(types) for kind, types in CONTROL_TYPES.items()}
_encode = msgspec.msgpack.Encoder().encode
_DEFAULT_LIMITS = Limits()


def encode_control(
    kind: Kind,
    domain: int,
    sender: int,
    incarnation: int,
    region: int,
    view: int,
    sent_ns: int,
    message: ControlMessage,
    *,
    sequence: int = 0,
    key_epoch: int = 0,
    limits: Limits = _DEFAULT_LIMITS,
) -> bytes:
    """Make the control frame that carries a message, of a type that its kind allows."""
    allowed = CONTROL_TYPES.get(kind, ())
    if type(message) not in allowed:
        names = ", ".join(each.__name__ for each in allowed) or "no control message"
        raise UsageError(f"a frame of kind {kind!r} carries {names}, not {type(message).__name__}")
    wrong = message.fault(limits)
    if wrong is not None:
        raise UsageError(f"{type(message).__name__} cannot be sent: {wrong}")
    return seal_control(kind, domain, sender, incarnation, region, view, sequence, sent_ns, _encode(message), key_epoch)


def decode_control(frame: Frame, limits: Limits = _DEFAULT_LIMITS) -> ControlMessage:
    """Read the message of a control frame, or raise a `DecodeError`."""
    decoder = _DECODERS.get(frame.kind)
    if decoder is None:
        raise UsageError(f"a frame of kind {frame.kind.name} carries messages, not a control message")
    try:
        message: ControlMessage = decoder.decode(frame.body())
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        # msgspec lets UnicodeDecodeError through, and its own depth guard is a RecursionError.
        raise DecodeError(f"body of {frame.kind.name}: {error}") from None
    wrong = message.fault(limits)
    if wrong is not None:
        raise DecodeError(f"body of {frame.kind.name}: {type(message).__name__}: {wrong}")
    return message
