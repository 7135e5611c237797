"""Control messages of membership, to the configuration service and from it (`docs/design/membership.md`).

Groups travel as bounds of ranges of their ids: 8,192 neighbours are two numbers.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

import msgspec

from vivum.core.errors import DecodeError, UsageError
from vivum.core.limits import Limits
from vivum.wire.fields import U16, U32, U64, ControlMessage, Host, Name
from vivum.wire.layout import GROUP_MAX

GroupBound = Annotated[int, msgspec.Meta(ge=0, le=GROUP_MAX + 1)]

SUBSCRIBE_RANGES_MAX = 4096
"""The most ranges of groups that one request adds and removes together: at five bytes a bound they fit a frame."""


def _fault_of_groups(bounds: Sequence[int]) -> str | None:
    if len(bounds) % 2:
        return "bounds of groups are odd in number"
    if any(a >= b for a, b in pairwise(bounds)):
        return "bounds of groups do not increase"
    return None


class MemberAddress(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One life of one node: its rank by age in the domain (lower is older), and where it takes unicast datagrams."""

    node: U32
    incarnation: U16
    age: U64
    host: Host
    port: U16


class Join(ControlMessage, frozen=True, tag=5):
    """A process asks the configuration service for a place; having no id yet, it is sender 0 in the header.

    `name` is that of one life of one process: the same in every repetition, never used again. `wanted` is the node
    id that it would like, 0 for any.
    """

    name: Name
    wanted: U32
    host: Host
    port: U16


class Welcome(ControlMessage, frozen=True, tag=6):
    """Answers a `Join`: the process is this life of this node from now on."""

    name: Name
    node: U32
    incarnation: U16


class Leave(ControlMessage, frozen=True, tag=7):
    """The header's sender leaves the domain on purpose. Answered by a `Removal`."""


class Subscribe(ControlMessage, frozen=True, tag=8):
    """The header's sender leaves and joins groups, many at once so that a burst is one view change (DESIGN 6).

    `add` and `remove` are bounds of ranges of group ids. Applied once for each request number of a life.
    """

    request: U64
    add: tuple[GroupBound, ...]
    remove: tuple[GroupBound, ...]

    def fault(self, limits: Limits) -> str | None:  # noqa: ARG002
        """Refuse what is not two sets of ranges."""
        ranges = (len(self.add) + len(self.remove)) // 2
        if ranges > SUBSCRIBE_RANGES_MAX:
            return f"{ranges} ranges of groups; at most {SUBSCRIBE_RANGES_MAX} fit one request"
        return _fault_of_groups(self.add) or _fault_of_groups(self.remove)


class ConfigurationAck(ControlMessage, frozen=True, tag=9):
    """The header's sender has applied this epoch. Also sent now and then by an idle node, as a sign of life."""

    epoch: U32


class FailureReport(ControlMessage, frozen=True, tag=10):
    """The header's sender suspects a life that was silent for `silent_ns`."""

    node: U32
    incarnation: U16
    silent_ns: U64


class Removal(ControlMessage, frozen=True, tag=11):
    """Tells a life of a node that it is not, or no longer, in the domain; it may come back with a new incarnation.

    `name` is that of the process, for one that never heard its `Welcome`; empty if the service forgot it.
    """

    name: Annotated[str, msgspec.Meta(max_length=255)]
    node: U32
    incarnation: U16


class Alive(ControlMessage, frozen=True, tag=12):
    """Answers a `Probe`."""


class Configuration(ControlMessage, frozen=True, tag=13):
    """Brings a life of a node from any epoch at or above `base` to `epoch`; `base` 0 replaces all that it knew.

    `request` is the number of its last request that was applied. `content` is part number `part` of `parts` of
    an encoded `ConfigurationChanges`; `checksum`, its CRC-32, tells the parts of one whole from those of another.
    """

    node: U32
    incarnation: U16
    request: U64
    base: U32
    epoch: U32
    part: U16
    parts: U16
    checksum: U32
    content: bytes

    def fault(self, limits: Limits) -> str | None:  # noqa: ARG002
        """Refuse a part that the whole does not have, and an end before the beginning."""
        if self.part >= self.parts:
            return f"part {self.part} of {self.parts}"
        return "epoch is below base" if self.epoch < self.base else None


class Probe(ControlMessage, frozen=True, tag=16):
    """Asks a suspected life for a sign of life."""

    node: U32
    incarnation: U16


class RegionRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A view of a region: members, oldest first, and the bounds of the groups that it covers.

    `lacks` is for approximate regions: index of a member, and bounds of covered groups that it did not ask for.
    """

    region: U32
    view: U32
    channel: U32
    members: tuple[MemberAddress, ...]
    groups: tuple[GroupBound, ...]
    lacks: tuple[tuple[U32, tuple[GroupBound, ...]], ...] = ()

    def fault(self) -> str | None:
        """Return why the values are impossible in any state, or None."""
        if not self.members or not self.groups:
            return "a region without members or groups"
        if len({member.node for member in self.members}) != len(self.members):
            return "a node is in the view twice"
        if any(a.age >= b.age for a, b in pairwise(self.members)):
            return "members are not in the order of their ages"
        if any(index >= len(self.members) for index, _ in self.lacks):
            return "a member that is not there lacks groups"
        if any(a >= b for (a, _), (b, _) in pairwise(self.lacks)):
            return "members that lack groups are not in order"
        for bounds in (self.groups, *(lack for _, lack in self.lacks)):
            wrong = _fault_of_groups(bounds)
            if wrong is not None:
                return wrong
        return None


class ConfigurationChanges(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a `Configuration` says: region views as they are now, regions that are gone, and traces that those left.

    `went` are pairs of an epoch and bounds of groups: a region with those groups went in that epoch, for the last
    time. It is what numbers of group views need of regions that a node may never have known. `passed` are region views
    that this node was a member of and that are over: it may not have heard of them, and others sent into them.
    """

    regions: tuple[RegionRecord, ...]
    gone: tuple[U32, ...]
    went: tuple[tuple[U32, tuple[GroupBound, ...]], ...]
    passed: tuple[RegionRecord, ...] = ()

    def fault(self) -> str | None:
        """Return why the values are impossible in any state, or None."""
        if any(a.view > b.view for a, b in pairwise(self.passed)):
            return "views that are over are not in order"
        ids = [record.region for record in self.regions]
        if len({*ids, *self.gone}) != len(ids) + len(self.gone):
            return "a region is named twice"
        for bounds in (each for _, each in self.went):
            wrong = _fault_of_groups(bounds)
            if wrong is not None:
                return wrong
        return next((wrong for record in (*self.regions, *self.passed) if (wrong := record.fault()) is not None), None)


_encode_changes = msgspec.msgpack.Encoder().encode
_decode_changes = msgspec.msgpack.Decoder(ConfigurationChanges).decode


def encode_changes(changes: ConfigurationChanges) -> bytes:
    """Make the content of a `Configuration`, to be cut into parts as large as a frame takes."""
    wrong = changes.fault()
    if wrong is not None:
        raise UsageError(f"ConfigurationChanges cannot be sent: {wrong}")
    return _encode_changes(changes)


def decode_changes(content: bytes) -> ConfigurationChanges:
    """Read the content of a `Configuration`, its parts joined, or raise a `DecodeError`."""
    try:
        changes = _decode_changes(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"content of Configuration: {error}") from None
    wrong = changes.fault()
    if wrong is not None:
        raise DecodeError(f"content of Configuration: {wrong}")
    return changes
