"""Who the replicas of a log are, and which of them vote.

A configuration is an entry of the log, and counts from the moment when it is there (paper, section 6). It changes by
one replica at a time, so that any majority of the old voters and any of the new ones share one.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated

import msgspec

from vivum.core.errors import DecodeError
from vivum.core.ids import Endpoint, NodeId
from vivum.wire.fields import U16, U32, Host


class Replica(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One replica: its id, never used again for another disk; where it takes datagrams; whether it votes."""

    id: U32
    host: Host
    port: U16
    votes: bool = True

    @property
    def endpoint(self) -> Endpoint:
        """Where it takes datagrams."""
        return Endpoint(self.host, self.port)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Annotated[tuple[Replica, ...], msgspec.Meta(max_length=255)]).decode


class ReplicaConfiguration:
    """Replicas by id. Never changed: a change makes another one."""

    __slots__ = ("quorum", "replicas", "voters")

    def __init__(self, replicas: Iterable[Replica] = ()) -> None:
        self.replicas: Mapping[NodeId, Replica] = {NodeId(each.id): each for each in replicas}
        self.voters: frozenset[NodeId] = frozenset(node for node, each in self.replicas.items() if each.votes)
        self.quorum = len(self.voters) // 2 + 1
        """How many voters are a majority."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReplicaConfiguration) and self.replicas == other.replicas

    def __hash__(self) -> int:
        return hash(tuple(self.replicas.values()))

    def __repr__(self) -> str:
        learners = sorted(self.replicas.keys() - self.voters)
        return f"<voters {sorted(self.voters)}" + (f", learners {learners}>" if learners else ">")

    def has_quorum(self, nodes: Collection[NodeId]) -> bool:
        """Return whether a majority of the voters is among these nodes."""
        return sum([node in nodes for node in self.voters]) >= self.quorum

    def with_replica(self, replica: Replica) -> "ReplicaConfiguration":
        """Add a replica, or change what is known of it."""
        return ReplicaConfiguration({**self.replicas, NodeId(replica.id): replica}.values())

    def without(self, node: NodeId) -> "ReplicaConfiguration":
        """Remove a replica."""
        return ReplicaConfiguration(each for key, each in self.replicas.items() if key != node)

    def encode(self) -> bytes:
        """Make the body of its entry."""
        return _encode(tuple(self.replicas.values()))


def decode_configuration(body: bytes) -> ReplicaConfiguration:
    """Read the body of an entry, or raise a `DecodeError`."""
    try:
        replicas = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"configuration of replicas: {error}") from None
    found = ReplicaConfiguration(replicas)
    if len(found.replicas) != len(replicas) or not found.voters or 0 in found.replicas:
        raise DecodeError("configuration of replicas: an id that is 0 or comes twice, or nobody who votes")
    return found
