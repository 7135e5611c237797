"""Control messages: the bodies of control frames, as typed structs in msgpack (`docs/design/wire.md`).

A struct travels as an array of its tag and its fields. The kind of a frame decides which it may carry. In a
control frame the header's sender is who made it, and region and view name what it is about.

Fields are checked twice: types and widths by msgspec, and what no single field shows (order of bounds, one
number below another) by `fault`. What the receiver's own state makes of it is for its protocol to say.

The field sets of token, membership, order and XOR are first versions, made from DESIGN 6, 7 and 8 and seeds
001 and 004; the issues that build those protocols will refine them.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any

import msgspec

from vivum.core.errors import DecodeError, UsageError
from vivum.core.limits import Limits
from vivum.wire.codec import Frame, seal_control
from vivum.wire.kinds import Kind
from vivum.wire.layout import GROUP_MAX, HEADER_BYTES, SEQUENCE_MAX, U16_MAX, U32_MAX

U16 = Annotated[int, msgspec.Meta(ge=0, le=U16_MAX)]
U32 = Annotated[int, msgspec.Meta(ge=0, le=U32_MAX)]
U64 = Annotated[int, msgspec.Meta(ge=0)]  # msgpack has no wider integer
GroupNumber = Annotated[int, msgspec.Meta(ge=0, le=GROUP_MAX)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]

XOR_FRAMES_MAX = 64
"""The most frames that one XOR may name: of many, more than one is missing, and then it is of no use."""


def _fault_of_bounds(bounds: Sequence[int], limits: Limits) -> str | None:
    if len(bounds) % 2:
        return "bounds of ranges are odd in number"
    if len(bounds) > 2 * limits.ranges_max:
        return f"{len(bounds) // 2} ranges; at most ranges_max, {limits.ranges_max}, are taken"
    if any(a >= b for a, b in pairwise(bounds)):
        return "bounds of ranges do not increase"
    return None


class ControlMessage(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base of all control messages."""

    def fault(self, limits: Limits) -> str | None:  # noqa: ARG002
        """Tell what about the values is impossible in any state, or None."""
        return None


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
        return _fault_of_bounds(self.bounds, limits) if self.bounds else "asks for nothing"


class Ack(ControlMessage, frozen=True, tag=2):
    """Tells the sender of a stream, named as in `Nak`, that all below `prefix` was received or given up."""

    incarnation: U16
    prefix: U64


class Heartbeat(ControlMessage, frozen=True, tag=3):
    """Tells which frames of the header's own stream can be had: `first <= n < stop`.

    Frame `first` begins with message `message`, so a receiver that must skip knows what it lost.
    """

    first: U64
    stop: U64
    message: U64 = 0

    def fault(self, limits: Limits) -> str | None:  # noqa: ARG002
        """Refuse an end before the beginning."""
        return "stop is below first" if self.stop < self.first else None


class StreamStatus(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a token says of one active sender (DESIGN 7; seed 001, section 2: a record for each of them).

    Over the members that the token passed: `prefix` is the lowest of theirs, `stop` the highest seen,
    `missing` what somebody lacks, `cached` what this ring can give. Frames below `stable` may be forgotten.
    """

    sender: U32
    incarnation: U16
    stable: U64
    prefix: U64
    stop: U64
    missing: tuple[U64, ...]
    cached: tuple[U64, ...]


class Token(ControlMessage, frozen=True, tag=4):
    """Circulates in one ring of the header's region view and collects the state of its members.

    `ring` is the partition's number, or one past them for the ring of leaders. `round` tells a new token from
    a late one. `rate` is the lowest number of frames per second that a member can take; 0: nobody said.
    """

    ring: U32
    round: U64
    rate: U64
    streams: tuple[StreamStatus, ...]

    def fault(self, limits: Limits) -> str | None:
        """Refuse records whose numbers contradict each other."""
        for each in self.streams:
            if not each.stable <= each.prefix <= each.stop:
                return "stable, prefix and stop of a stream do not increase"
            wrong = _fault_of_bounds(each.missing, limits) or _fault_of_bounds(each.cached, limits)
            if wrong is not None:
                return wrong
        return None


class MemberAddress(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One life of one node, and where it takes unicast datagrams."""

    node: U32
    incarnation: U16
    host: Name
    port: U16


class Join(ControlMessage, frozen=True, tag=5):
    """A process asks the configuration service for a place; having no id yet, it is sender 0 in the header.

    `name` tells processes apart until they have ids, and one that comes back from a new one.
    """

    name: Name
    host: Name
    port: U16


class Welcome(ControlMessage, frozen=True, tag=6):
    """Answers a `Join`: the process is this life of this node from now on."""

    name: Name
    node: U32
    incarnation: U16


class Leave(ControlMessage, frozen=True, tag=7):
    """The header's sender leaves the domain on purpose."""


class Subscribe(ControlMessage, frozen=True, tag=8):
    """The header's sender joins topics, many at once so that a burst is one view change (DESIGN 6)."""

    request: U64
    topics: tuple[Name, ...]


class Unsubscribe(ControlMessage, frozen=True, tag=9):
    """The header's sender leaves groups."""

    request: U64
    groups: tuple[GroupNumber, ...]


class FailureReport(ControlMessage, frozen=True, tag=10):
    """The header's sender suspects a life of a node, from which it heard nothing for so long."""

    node: U32
    incarnation: U16
    silent_ns: U64


class Removal(ControlMessage, frozen=True, tag=11):
    """Tells a life of a node that it was dropped; it may come back with a new incarnation."""

    node: U32
    incarnation: U16


class GroupView(ControlMessage, frozen=True, tag=12):
    """A view of a group: the region views that it spans (seed 001, Figure 2), as pairs of region and view."""

    group: GroupNumber
    view: U32
    topic: Name
    regions: tuple[tuple[U32, U32], ...]


class RegionView(ControlMessage, frozen=True, tag=13):
    """A view of a region: members, oldest first, the groups that they all have, and the multicast channel."""

    region: U32
    view: U32
    channel: U32
    members: tuple[MemberAddress, ...]
    groups: tuple[GroupNumber, ...]

    def fault(self, limits: Limits) -> str | None:  # noqa: ARG002
        """Refuse a member that is listed twice."""
        if len({member.node for member in self.members}) != len(self.members):
            return "a node is in the view twice"
        return None


class OrderedRun(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Messages of one sender's life with consecutive sequence numbers."""

    sender: U32
    incarnation: U16
    first: U64
    count: Annotated[int, msgspec.Meta(ge=1, le=U32_MAX)]


class Order(ControlMessage, frozen=True, tag=14):
    """The sequencer's word: from `position` on, a group delivers these runs in turn (DESIGN 8)."""

    group: GroupNumber
    position: U64
    runs: tuple[OrderedRun, ...]

    def fault(self, limits: Limits) -> str | None:  # noqa: ARG002
        """Refuse numbers that go past the highest."""
        position = self.position
        for run in self.runs:
            position += run.count
            if run.first + run.count - 1 > SEQUENCE_MAX:
                return "sequence numbers of a run go past 2**64 - 2"
        return "positions go past 2**64 - 2" if position - 1 > SEQUENCE_MAX else None


class FrameName(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a data frame is known by: its stream and its number."""

    sender: U32
    incarnation: U16
    region: U32
    view: U32
    sequence: U64


class Xor(ControlMessage, frozen=True, tag=15):
    """The XOR of whole data frames, each filled with zeros to the longest (DESIGN 8).

    Frames go in with kind DATA, also those that came as RESENT. The rebuilt one tells its own length.
    """

    frames: Annotated[tuple[FrameName, ...], msgspec.Meta(min_length=1, max_length=XOR_FRAMES_MAX)]
    block: Annotated[bytes, msgspec.Meta(min_length=HEADER_BYTES)]

    def fault(self, limits: Limits) -> str | None:  # noqa: ARG002
        """Refuse a frame that is named twice: it would have cancelled itself."""
        return "a frame is named twice" if len(set(self.frames)) != len(self.frames) else None


CONTROL_TYPES: dict[Kind, tuple[type[ControlMessage], ...]] = {
    Kind.XOR: (Xor,),
    Kind.NAK: (Nak,),
    Kind.ACK: (Ack,),
    Kind.HEARTBEAT: (Heartbeat,),
    Kind.TOKEN: (Token,),
    Kind.MEMBERSHIP: (
        Join,
        Welcome,
        Leave,
        Subscribe,
        Unsubscribe,
        FailureReport,
        Removal,
        GroupView,
        RegionView,
    ),
    Kind.ORDER: (Order,),
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
