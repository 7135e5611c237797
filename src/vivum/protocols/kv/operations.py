"""What travels between a client and a store: commands, queries and their answers, in msgpack.

A struct is an array of its tag and its fields. Commands go through the log; queries read the state of one replica.
"""

from enum import IntEnum
from typing import TypeVar

import msgspec

from vivum.core.errors import DecodeError
from vivum.wire.consensus import EntryIndex as Number


class Operation(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base of commands and queries."""


class Answer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base of answers."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A key with its value.

    `created` and `modified` are the revisions that made the key and its value. `lease` is the lease that it goes with,
    0 for none.
    """

    key: bytes
    value: bytes
    created: int
    modified: int
    lease: int = 0


class Change(msgspec.Struct, frozen=True, array_like=True):
    """What one revision did to one key. `value` is None if it deleted the key; `created` as in `Entry`."""

    revision: int
    key: bytes
    value: bytes | None
    created: int
    lease: int = 0


# Commands.


class Put(Operation, frozen=True, tag=1):
    """Set a key. It goes with `lease` from now on, or with none."""

    key: bytes
    value: bytes
    lease: Number = 0


class Delete(Operation, frozen=True, tag=2):
    """Delete a key."""

    key: bytes


class CompareAndSet(Operation, frozen=True, tag=3):
    """Set a key, or delete it (`value=None`), if it is what the caller expects.

    With a `revision`, the key must have been modified by that one (0: it must not exist); without, it must have the
    value `expected` (None: it must not exist).
    """

    key: bytes
    value: bytes | None
    expected: bytes | None = None
    revision: Number | None = None
    lease: Number = 0


class GrantLease(Operation, frozen=True, tag=4):
    """Grant a lease. Keys that go with it are deleted when it was not kept for so long."""

    ttl_ns: Number


class KeepLease(Operation, frozen=True, tag=5):
    """Begin the time of a lease anew."""

    lease: Number


class RevokeLease(Operation, frozen=True, tag=6):
    """End a lease, and delete its keys."""

    lease: Number


class Campaign(Operation, frozen=True, tag=7):
    """Stand in the queue of a name, with a lease. Who asks again keeps the place; the value is not changed.

    The place is the key `name/<lease in hex>`. Whose key was created first holds the name.
    """

    name: bytes
    value: bytes
    lease: Number


# Queries.


class Get(Operation, frozen=True, tag=20):
    """Ask for a key."""

    key: bytes


class GetRange(Operation, frozen=True, tag=21):
    """Ask for keys with a prefix, in order, behind a key of the page before."""

    prefix: bytes
    after: bytes = b""
    count_max: Number = 1000


class GetStatus(Operation, frozen=True, tag=22):
    """Ask how much a store holds."""


class WatchKeys(Operation, frozen=True, tag=23):
    """Ask for the changes of a key, or of all keys with a prefix."""

    key: bytes
    is_prefix: bool = False


# Answers.


class RefusalCause(IntEnum):
    """Why a command did nothing."""

    LIMIT = 1
    """A limit of the store is reached; the text names it."""

    NO_LEASE = 2
    """There is no such lease, or not any more."""

    MALFORMED = 3
    """Nobody here understands it; a newer Vivum may have made it."""


class Refused(Answer, frozen=True, tag=40):
    """The command did nothing."""

    cause: int
    text: str


class Written(Answer, frozen=True, tag=41):
    """The key has the value since this revision."""

    revision: int


class Deleted(Answer, frozen=True, tag=42):
    """The key is not there; `existed` says whether it was. `revision` is the store's."""

    revision: int
    existed: bool


class Unequal(Answer, frozen=True, tag=43):
    """A compare-and-set found something else, and did nothing."""

    revision: int
    entry: Entry | None


class LeaseGranted(Answer, frozen=True, tag=44):
    """The lease holds for so long from now on."""

    lease: int
    ttl_ns: int


class Queued(Answer, frozen=True, tag=45):
    """Stands in a queue: with which token, and whose token is the first. `revision` is the store's."""

    token: int
    holder: int
    revision: int


class Found(Answer, frozen=True, tag=46):
    """A key, or None if it is not there. `revision` is the store's."""

    revision: int
    entry: Entry | None


class Range(Answer, frozen=True, tag=47):
    """A page of keys; `more` says whether there are further ones behind it."""

    revision: int
    entries: list[Entry]
    more: bool


class StoreStatus(Answer, frozen=True, tag=48):
    """How much a store holds. Changes up to `compacted` are forgotten."""

    revision: int
    keys: int
    bytes: int
    leases: int
    compacted: int


class Changes(Answer, frozen=True, tag=49):
    """Changes in order."""

    changes: list[Change]


class Compacted(Answer, frozen=True, tag=50):
    """The changes behind the asked revision are forgotten; from `revision` on they are known."""

    revision: int


class LeaseRevoked(Answer, frozen=True, tag=51):
    """The lease is over, and so many keys with it."""

    revision: int
    keys: int


AnyCommand = Put | Delete | CompareAndSet | GrantLease | KeepLease | RevokeLease | Campaign
AnyQuery = Get | GetRange | GetStatus | WatchKeys
AnyAnswer = (
    Refused
    | Written
    | Deleted
    | Unequal
    | LeaseGranted
    | Queued
    | Found
    | Range
    | StoreStatus
    | Changes
    | Compacted
    | LeaseRevoked
)

encode_operation = msgspec.msgpack.Encoder().encode
_commands: "msgspec.msgpack.Decoder[AnyCommand]" = msgspec.msgpack.Decoder(AnyCommand)
_queries: "msgspec.msgpack.Decoder[AnyQuery]" = msgspec.msgpack.Decoder(AnyQuery)
_answers: "msgspec.msgpack.Decoder[AnyAnswer]" = msgspec.msgpack.Decoder(AnyAnswer)

_T = TypeVar("_T")


def _decode(decoder: "msgspec.msgpack.Decoder[_T]", data: bytes, what: str) -> _T:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"{what}: {error}") from None


def decode_command(data: bytes) -> AnyCommand:
    """Read a command, or raise a `DecodeError`."""
    return _decode(_commands, data, "command of a key-value store")


def decode_query(data: bytes) -> AnyQuery:
    """Read a query, or raise a `DecodeError`."""
    return _decode(_queries, data, "query of a key-value store")


def decode_answer(data: bytes) -> AnyAnswer:
    """Read an answer, or raise a `DecodeError`."""
    return _decode(_answers, data, "answer of a key-value store")
