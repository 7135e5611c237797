"""The directory itself: names of topics and what they stand for.

Groups are given out as neighbours, in the order of creation, so that thousands of topics are few ranges. Types and
guarantees are kept as the creator wrote them and compared by who enters, not here.

A directory of a later term begins with an empty table and in a block of ids of its own: nodes tell it the groups that
they know when they meet it, so ids of before and ids of after do not meet.

Invariants: a name has one group and a group one name; both stay for as long as the topic has members.
"""

from collections.abc import Callable
from dataclasses import dataclass

from vivum.core.errors import UsageError
from vivum.core.ids import Endpoint, GroupId, Incarnation, Member, NodeId
from vivum.core.machine import Command, Datagram, Effect, Priority
from vivum.core.topic_names import matches
from vivum.protocols.directory.settings import DirectorySettings
from vivum.protocols.membership.service.state import ConfigurationService
from vivum.wire.codec import Frame
from vivum.wire.control import encode_control
from vivum.wire.directory import (
    Browse,
    Enter,
    Entered,
    Listing,
    NodeRecord,
    Roll,
    Roster,
    TopicEntry,
    TopicRecord,
)
from vivum.wire.fields import ControlMessage
from vivum.wire.gate import Gate
from vivum.wire.kinds import Kind
from vivum.wire.layout import GROUP_MAX

BLOCK = 1 << 17
BLOCKS = GROUP_MAX // BLOCK
"""Groups that one term of a directory may give out; how many terms have groups of their own, before they repeat."""


def block_of(term: int) -> int:
    """Choose the groups of a term: far from those of terms near it, and of services that know nothing of each other."""
    return (term * 2_654_435_761 % (1 << 32)) * BLOCKS >> 32


_RECORD_BYTES = 40
"""What a record takes besides its texts, at most."""


@dataclass(slots=True)
class _Topic:
    name: str
    group: GroupId
    number: int
    schema: str
    guarantee: str


@dataclass(slots=True)
class _Watcher:
    endpoint: Endpoint
    request: int
    pattern: str
    last: int
    until_ns: int


class DirectoryMachine:
    """The directory as a protocol that the node of the configuration service composes."""

    kinds = frozenset({Kind.DIRECTORY})
    commands: frozenset[type[Command]] = frozenset()
    transport = ""
    has_data = False

    def __init__(
        self,
        service: Callable[[], tuple[ConfigurationService, int] | None],
        gate: Gate,
        settings: DirectorySettings | None = None,
    ) -> None:
        """Prepare. `service` tells the configuration service that is carried here and its term, if there is one."""
        self.settings = settings or DirectorySettings()
        self._find_service = service
        self._service: ConfigurationService | None = None
        self._gate = gate
        self._now_ns = 0
        self._topics: dict[str, _Topic] = {}
        self._names: dict[int, str] = {}
        self._next_group = 1
        self._created = 0
        self._watchers: dict[tuple[Member, str], _Watcher] = {}
        self._has_news = False
        self._replies: list[tuple[Endpoint, ControlMessage]] = []
        self.effects: list[Effect] = []

    def _follow_service(self) -> ConfigurationService | None:
        """Begin anew with each service that comes to be here: nodes tell it what they know."""
        found = self._find_service()
        service, term = (None, 0) if found is None else found
        if service is not self._service:
            self._service = service
            self._topics.clear()
            self._names.clear()
            self._watchers.clear()
            self._created = 0
            self._next_group = block_of(term) * BLOCK + 1
        return service

    def submit(self, now_ns: int, command: Command) -> None:  # noqa: ARG002
        """Refuse: the directory takes its requests as frames."""
        raise UsageError(f"the directory takes no commands; {type(command).__name__} is for a node")

    # Frames.

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        """Take a frame of kind DIRECTORY, from a current life of a node alone."""
        self._now_ns = now_ns
        body = self._gate.decode(now_ns, source, frame)
        if body is None:
            return
        member = Member(NodeId(frame.sender), Incarnation(frame.incarnation))
        service = self._follow_service()
        if service is None:
            self._gate.refuse_state(now_ns, source, frame, "the directory is not here")
            return
        life = service.life_of(member)
        if life is None or life.endpoint != source:
            self._gate.refuse_state(now_ns, source, frame, "not from a current life at its endpoint")
            return
        match body:
            case Enter(request, topics):
                self._replies.append((source, self._on_enter(request, topics)))
            case Browse(request, pattern, after, watch):
                listing = self._list(request, pattern, after)
                self._replies.append((source, listing))
                if watch and not listing.more:
                    self._watch(
                        member, _Watcher(source, request, pattern, listing.last, now_ns + self.settings.watch_ns)
                    )
            case Roll(request, after):
                self._replies.append((source, self._call_roll(request, after)))

    def _on_enter(self, request: int, entries: tuple[TopicEntry, ...]) -> Entered:
        records: list[TopicRecord] = []
        size = 0
        for entry in entries:
            topic = self._topics.get(entry.name) or self._create(entry)
            if isinstance(topic, str):
                return Entered(request, tuple(records), "" if records else topic)
            # The type travels back only where it differs: a node that asks knows its own.
            schema = "" if topic.schema == entry.schema else topic.schema
            record = TopicRecord(topic.name, topic.group, topic.number, schema, topic.guarantee, 0)
            size += _RECORD_BYTES + len(topic.name.encode()) + len(schema.encode()) + len(topic.guarantee)
            if records and size > self.settings.frame_bytes_max:
                break
            records.append(record)
        return Entered(request, tuple(records))

    def _create(self, entry: TopicEntry) -> _Topic | str:
        if len(self._topics) >= self.settings.topics_max and not self._forget_one():
            return f"topics_max={self.settings.topics_max} topics have members; leave some first"
        group = entry.group
        if not group or group in self._names:
            while self._next_group in self._names:
                self._next_group += 1
            group = self._next_group
            self._next_group += 1
        self._created += 1
        topic = _Topic(entry.name, GroupId(group), self._created, entry.schema, entry.guarantee)
        self._topics[entry.name] = topic
        self._names[group] = entry.name
        self._has_news = True
        return topic

    def _forget_one(self) -> bool:
        for topic in self._topics.values():
            if not self._members_of(topic.group):
                del self._topics[topic.name]
                del self._names[topic.group]
                return True
        return False

    def _members_of(self, group: int) -> int:
        service = self._service
        return 0 if service is None else sum(1 for life in service.lives.values() if group in life.groups)

    # Lists.

    def _list(self, request: int, pattern: str, after: int) -> Listing:
        records: list[TopicRecord] = []
        size = 0
        # In the order of creation, which is the order of the table.
        for topic in self._topics.values():
            if topic.number <= after or not matches(pattern, topic.name):
                continue
            size += _RECORD_BYTES + len(topic.name.encode()) + len(topic.schema.encode()) + len(topic.guarantee)
            if records and size > self.settings.frame_bytes_max:
                return Listing(request, tuple(records), after, records[-1].number, True)
            members = self._members_of(topic.group)
            records.append(TopicRecord(topic.name, topic.group, topic.number, topic.schema, topic.guarantee, members))
        return Listing(request, tuple(records), after, self._created, False)

    def _call_roll(self, request: int, after: int) -> Roster:
        records: list[NodeRecord] = []
        size = 0
        lives = {} if self._service is None else self._service.lives
        for node in sorted(each for each in lives if each > after):
            life = lives[node]
            size += _RECORD_BYTES + len(life.name.encode()) + len(life.endpoint.host)
            if records and size > self.settings.frame_bytes_max:
                return Roster(request, tuple(records), True)
            records.append(NodeRecord(*life.member, life.name, *life.endpoint, life.groups.count()))
        return Roster(request, tuple(records), False)

    def _watch(self, member: Member, watcher: _Watcher) -> None:
        self._watchers.pop((member, watcher.pattern), None)
        self._watchers[member, watcher.pattern] = watcher
        if len(self._watchers) > self.settings.watchers_max:
            del self._watchers[next(iter(self._watchers))]

    def _tell_watchers(self) -> None:
        self._has_news = False
        for key, watcher in list(self._watchers.items()):
            if watcher.until_ns < self._now_ns:
                del self._watchers[key]
                continue
            listing = self._list(watcher.request, watcher.pattern, watcher.last)
            watcher.last = listing.last
            if listing.topics:
                self._replies.append((watcher.endpoint, listing))

    # Time and output.

    def next_deadline_ns(self) -> int | None:
        """Nothing is ever due: nodes ask again."""
        return None

    def on_timer(self, now_ns: int) -> None:
        """Do nothing."""
        self._now_ns = now_ns

    def make_frames(self, room_bytes: int) -> list[Datagram]:  # noqa: ARG002
        """Make the answers. All is control: it does not wait for room."""
        if self._has_news:
            self._tell_watchers()
        made = []
        for endpoint, message in self._replies:
            data = encode_control(Kind.TOPICS, self._gate.domain, 0, 0, 0, 0, self._now_ns, message)
            made.append(Datagram(endpoint, data, Priority.CONTROL))
        self._replies.clear()
        return made
