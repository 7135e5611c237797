"""The directory: answers for the names of topics at the leader of the service, from the committed state.

The table is a part of the replicated state (`membership.service.topics`); new topics are proposed as commands, and the
node that asked is answered when they are applied. Watchers are soft: they ask again, wherever the leader is then.

Types and guarantees are compared by who enters, not here.
"""

from collections.abc import Callable
from dataclasses import dataclass

from vivum.core.errors import UsageError
from vivum.core.ids import Endpoint, GroupId, Incarnation, Member, NodeId
from vivum.core.machine import Command, Datagram, Effect, Priority
from vivum.core.topic_names import matches
from vivum.protocols.directory.settings import DirectorySettings
from vivum.protocols.membership.service.machine import ServiceMachine
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

_RECORD_BYTES = 40
"""What a record takes besides its texts, at most."""


@dataclass(slots=True)
class _Waiting:
    """A request for topics of which some are to be created."""

    member: Member
    endpoint: Endpoint
    request: int
    entries: tuple[TopicEntry, ...]
    ticket: int


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
        serving: Callable[[], ServiceMachine | None],
        gate: Gate,
        settings: DirectorySettings | None = None,
    ) -> None:
        """Prepare. `serving` returns the speaker of the service, while this node leads it."""
        self.settings = settings or DirectorySettings()
        self._find_serving = serving
        self._serving: ServiceMachine | None = None
        self._gate = gate
        self._now_ns = 0
        self._told = 0
        self._watchers: dict[tuple[Member, str], _Watcher] = {}
        self._waiting: dict[tuple[Member, int], _Waiting] = {}
        self._replies: list[tuple[Endpoint, ControlMessage]] = []
        self.effects: list[Effect] = []

    def _follow_service(self) -> ServiceMachine | None:
        """Begin anew with each term that begins here: nodes ask again."""
        serving = self._find_serving()
        if serving is not self._serving:
            self._serving = serving
            self._watchers.clear()
            self._waiting.clear()
            self._replies.clear()
            self._told = 0 if serving is None else serving.state.topics.created
        return serving

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
        serving = self._follow_service()
        if serving is None or frame.region != serving.history:
            self._gate.refuse_state(now_ns, source, frame, "the directory of that history is not here")
            return
        life = serving.service.life_of(member)
        if life is None or life.endpoint != source:
            self._gate.refuse_state(now_ns, source, frame, "not from a current life at its endpoint")
            return
        match body:
            case Enter(request, topics):
                self._on_enter(serving, _Waiting(member, source, request, topics, 0))
            case Browse(request, pattern, after, watch):
                listing = self._list(serving, request, pattern, after)
                self._replies.append((source, listing))
                if watch and not listing.more:
                    self._watch(
                        member, _Watcher(source, request, pattern, listing.last, now_ns + self.settings.watch_ns)
                    )
            case Roll(request, after):
                self._replies.append((source, self._call_roll(serving, request, after)))

    def _on_enter(self, serving: ServiceMachine, asked: _Waiting) -> None:
        """Answer for topics that exist; have the others created first."""
        table = serving.state.topics
        new = tuple(entry for entry in asked.entries if table.find(entry.name) is None)
        if not new:
            self._answer(serving, asked)
            return
        key = (asked.member, asked.request)
        before = self._waiting.get(key)
        if before is not None and before.entries == asked.entries:
            return
        asked.ticket = serving.create_topics(new)
        self._waiting.pop(key, None)
        self._waiting[key] = asked
        if len(self._waiting) > self.settings.waiting_max:
            del self._waiting[next(iter(self._waiting))]

    def _answer(self, serving: ServiceMachine, asked: _Waiting) -> None:
        """Answer with the committed topics of a request, as many as fit a frame."""
        table = serving.state.topics
        records: list[TopicRecord] = []
        refused = ""
        size = 0
        for entry in asked.entries:
            topic = table.find(entry.name)
            if topic is None:
                refused = "" if records else f"topics_max={table.topics_max} topics have members; leave some first"
                break
            # The type travels back only where it differs: a node that asks knows its own.
            schema = "" if topic.schema == entry.schema else topic.schema
            size += _RECORD_BYTES + len(topic.name.encode()) + len(schema.encode()) + len(topic.guarantee)
            if records and size > self.settings.frame_bytes_max:
                break
            records.append(TopicRecord(topic.name, GroupId(topic.group), topic.number, schema, topic.guarantee, 0))
        self._replies.append((asked.endpoint, Entered(asked.request, tuple(records), refused)))

    def _answer_waiting(self, serving: ServiceMachine) -> None:
        for key, asked in list(self._waiting.items()):
            if asked.ticket > serving.creations_applied:
                # In the order of the log: all behind it wait too.
                break
            del self._waiting[key]
            self._answer(serving, asked)

    # Lists.

    def _list(self, serving: ServiceMachine, request: int, pattern: str, after: int) -> Listing:
        records: list[TopicRecord] = []
        size = 0
        # In the order of creation, which is the order of the table.
        for topic in serving.state.topics.all():
            if topic.number <= after or not matches(pattern, topic.name):
                continue
            size += _RECORD_BYTES + len(topic.name.encode()) + len(topic.schema.encode()) + len(topic.guarantee)
            if records and size > self.settings.frame_bytes_max:
                return Listing(request, tuple(records), after, records[-1].number, True)
            members = sum(1 for life in serving.service.lives.values() if topic.group in life.groups)
            records.append(TopicRecord(topic.name, topic.group, topic.number, topic.schema, topic.guarantee, members))
        return Listing(request, tuple(records), after, serving.state.topics.created, False)

    def _call_roll(self, serving: ServiceMachine, request: int, after: int) -> Roster:
        records: list[NodeRecord] = []
        size = 0
        lives = serving.service.lives
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

    def _tell_watchers(self, serving: ServiceMachine) -> None:
        self._told = serving.state.topics.created
        for key, watcher in list(self._watchers.items()):
            if watcher.until_ns < self._now_ns:
                del self._watchers[key]
                continue
            listing = self._list(serving, watcher.request, watcher.pattern, watcher.last)
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
        made: list[Datagram] = []
        serving = self._follow_service()
        if serving is None:
            return made
        if self._waiting:
            self._answer_waiting(serving)
        if serving.state.topics.created > self._told:
            self._tell_watchers(serving)
        for endpoint, message in self._replies:
            data = encode_control(
                Kind.TOPICS, self._gate.domain, 0, 0, serving.history, serving.term, self._now_ns, message
            )
            made.append(Datagram(endpoint, data, Priority.CONTROL))
        self._replies.clear()
        return made
