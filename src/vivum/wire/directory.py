"""Control messages of discovery and of the directory of topics (`docs/design/runtime.md`).

Discovery finds the configuration service of a domain: a node that seeks it sends `Seek`, the service `Beacon`. The
directory keeps, for each name of a topic, its group, its type and its guarantee; it does not interpret the last two.
"""

from typing import Annotated

import msgspec

from vivum.wire.fields import U16, U32, U64, ControlMessage, GroupNumber, Host, Name

SCHEMA_CHARACTERS_MAX = 4096
"""The longest description of a topic's type: the directory answers with it, and answers must fit a frame."""

Schema = Annotated[str, msgspec.Meta(max_length=SCHEMA_CHARACTERS_MAX)]


class Seek(ControlMessage, frozen=True, tag=40):
    """A node seeks the configuration service of the header's domain.

    `willing` tells that it would carry a service itself if there is none; of several the one that started first does.
    `direct` tells that it was sent to one node alone, which then answers for a service that it knows.
    """

    host: Host
    port: U16
    started_ns: U64
    willing: bool
    direct: bool


class Beacon(ControlMessage, frozen=True, tag=41):
    """Announces the configuration service's endpoint, and its rank among others (`protocols/discovery/rank.py`)."""

    host: Host
    port: U16
    dedicated: bool
    lives: U32
    term: U32
    started_ns: U64


class Farewell(ControlMessage, frozen=True, tag=50):
    """The configuration service at this endpoint ends now: its nodes need not wait until they miss its beacon."""

    host: Host
    port: U16


class TopicEntry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a node says of a topic that it enters. `group` is 0, or the one that it had before the service changed."""

    name: Name
    schema: Schema
    guarantee: Name
    group: GroupNumber = 0


class TopicRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What the directory says of a topic. `number` counts topics in the order of their creation."""

    name: Name
    group: GroupNumber
    number: U32
    schema: Schema
    guarantee: Name
    members: U32


class NodeRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A node of the domain: its life, its name, its endpoint, and in how many groups it is."""

    node: U32
    incarnation: U16
    name: Name
    host: Host
    port: U16
    groups: U32


class Enter(ControlMessage, frozen=True, tag=42):
    """Asks for the groups of these topics, which are created where they do not exist."""

    request: U64
    topics: tuple[TopicEntry, ...]


class Browse(ControlMessage, frozen=True, tag=43):
    """Asks for the topics that match a pattern and were created after topic number `after`.

    With `watch` the directory also tells of later ones, for some seconds after each such request.
    """

    request: U64
    pattern: Name
    after: U32
    watch: bool


class Roll(ControlMessage, frozen=True, tag=44):
    """Asks for the nodes of the domain with ids above `after`."""

    request: U64
    after: U32


class Entered(ControlMessage, frozen=True, tag=45):
    """Answers `Enter`, for as many of its topics as fit a frame; `refused` tells why there are none, or is empty."""

    request: U64
    topics: tuple[TopicRecord, ...]
    refused: Annotated[str, msgspec.Meta(max_length=500)] = ""


class Listing(ControlMessage, frozen=True, tag=46):
    """Answers `Browse`, or tells a watcher of new topics: all that match and have numbers `after < n <= last`.

    `more` tells that there are others behind `last`.
    """

    request: U64
    topics: tuple[TopicRecord, ...]
    after: U32
    last: U32
    more: bool


class Roster(ControlMessage, frozen=True, tag=47):
    """Answers `Roll`; `more` tells that there are nodes with higher ids."""

    request: U64
    nodes: tuple[NodeRecord, ...]
    more: bool


class LoadQuery(ControlMessage, frozen=True, tag=48):
    """Asks a node what it does."""

    request: U64


class TopicLoad(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a node did in one topic so far: messages sent, and delivered to it."""

    name: Name
    sent: U64
    delivered: U64


class LoadReport(ControlMessage, frozen=True, tag=49):
    """Answers `LoadQuery`: what the node did since it began its life, and in its busiest topics."""

    request: U64
    node: U32
    incarnation: U16
    name: Name
    messages_sent: U64
    messages_delivered: U64
    bytes_sent: U64
    bytes_received: U64
    repairs_received: U64
    messages_failed: U64
    topics: Annotated[tuple[TopicLoad, ...], msgspec.Meta(max_length=64)]


class SendingQuery(ControlMessage, frozen=True, tag=51):
    """Asks a node how many messages it has sent to a topic."""

    request: U64
    topic: Name


class SendingReport(ControlMessage, frozen=True, tag=52):
    """Answers `SendingQuery`: messages numbered so far in this life, and the view of the topic that it was in by then.

    View 0: it is not in the topic now.
    """

    request: U64
    node: U32
    incarnation: U16
    view: U32
    numbered: U64
