"""The client of the directory, one in every node: asks, asks again until answered, watches patterns.

Design note: `docs/design/runtime.md`, "Directory". Requests are told apart by numbers that the caller chooses.

Invariants: a request is asked until it is answered or forgotten; a watched pattern is asked for for ever.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from vivum.core.deadlines import Deadlines
from vivum.core.ids import Endpoint, Member
from vivum.core.machine import Command, Datagram, Effect, Event, Priority
from vivum.protocols.directory.settings import DirectorySettings
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

_ENTRY_BYTES = 24


@dataclass(frozen=True, slots=True)
class EnterTopics(Command):
    """Ask for the groups of topics. Answered by one or more `TopicsEntered`."""

    request: int
    topics: Sequence[TopicEntry]


@dataclass(frozen=True, slots=True)
class BrowseTopics(Command):
    """Ask for the topics that match a pattern; with `watch` also for those that come later, until `ForgetRequest`."""

    request: int
    pattern: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class CallRoll(Command):
    """Ask for the nodes of the domain. Answered by one or more `NodesListed`."""

    request: int


@dataclass(frozen=True, slots=True)
class ForgetRequest(Command):
    """Ask no more."""

    request: int


@dataclass(frozen=True, slots=True)
class AskAnew(Command):
    """Another directory took over: ask it all that is not answered, and watch there from the beginning."""


@dataclass(frozen=True, slots=True)
class TopicsEntered(Event):
    """Some of the topics of a request, or why they were refused."""

    request: int
    topics: tuple[TopicRecord, ...]
    refused: str


@dataclass(frozen=True, slots=True)
class TopicsListed(Event):
    """Topics that match; `is_last` tells that these are all for now."""

    request: int
    topics: tuple[TopicRecord, ...]
    is_last: bool


@dataclass(frozen=True, slots=True)
class NodesListed(Event):
    """Nodes of the domain; `is_last` tells that these are all."""

    request: int
    nodes: tuple[NodeRecord, ...]
    is_last: bool


@dataclass(slots=True)
class _Request:
    number: int
    attempts: int = 0


@dataclass(slots=True)
class _Entering(_Request):
    topics: dict[str, TopicEntry] = field(default_factory=dict)


@dataclass(slots=True)
class _Browsing(_Request):
    pattern: str = ""
    watch: bool = False
    after: int = 0


@dataclass(slots=True)
class _Calling(_Request):
    after: int = 0


class DirectoryClient:
    """Speaks with the directory for one node."""

    kinds = frozenset({Kind.TOPICS})
    commands: frozenset[type[Command]] = frozenset({EnterTopics, BrowseTopics, CallRoll, ForgetRequest, AskAnew})
    transport = ""
    has_data = False

    def __init__(
        self,
        directory: Callable[[], Endpoint | None],
        identity: Callable[[], Member | None],
        gate: Gate,
        settings: DirectorySettings | None = None,
    ) -> None:
        """Prepare. `directory` tells where to ask, `identity` as whom; while either is not known, requests wait."""
        self.settings = settings or DirectorySettings()
        self._directory = directory
        self._identity = identity
        self._gate = gate
        self._now_ns = 0
        self._requests: dict[int, _Request] = {}
        self._timers: Deadlines[int] = Deadlines()
        self._due: dict[int, None] = {}
        self.effects: list[Effect] = []

    def submit(self, now_ns: int, command: Command) -> None:
        """Ask for something."""
        self._now_ns = now_ns
        match command:
            case EnterTopics(request, topics):
                self._begin(_Entering(request, topics={each.name: each for each in topics}))
            case BrowseTopics(request, pattern, watch):
                self._begin(_Browsing(request, pattern=pattern, watch=watch))
            case CallRoll(request):
                self._begin(_Calling(request))
            case ForgetRequest(request):
                self._end(request)
            case AskAnew():
                for each in self._requests.values():
                    if isinstance(each, _Browsing | _Calling):
                        each.after = 0
                    self._ask(each)

    def _begin(self, request: _Request) -> None:
        assert request.number not in self._requests, "numbers of requests are not used twice"
        self._requests[request.number] = request
        self._ask(request)

    def _ask(self, request: _Request) -> None:
        request.attempts = 0
        self._due[request.number] = None

    def _end(self, number: int) -> None:
        self._requests.pop(number, None)
        self._due.pop(number, None)
        self._timers.cancel(number)

    # Frames.

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        """Take a frame of kind TOPICS, from the directory alone."""
        self._now_ns = now_ns
        if source != self._directory():
            self._gate.refuse_state(now_ns, source, frame, "not from the directory that this node knows")
            return
        body = self._gate.decode(now_ns, source, frame)
        if not isinstance(body, Entered | Listing | Roster):
            return
        request = self._requests.get(body.request)
        match (request, body):
            case (_Entering(), Entered()):
                self._on_entered(request, body)
            case (_Browsing(), Listing()):
                self._on_listing(request, body)
            case (_Calling(), Roster()):
                self.effects.append(NodesListed(request.number, body.nodes, not body.more))
                if body.more:
                    request.after = body.nodes[-1].node
                    self._ask(request)
                else:
                    self._end(request.number)
            case _:
                # Answered before, or forgotten meanwhile: a repetition was on its way.
                self._gate.refuse_state(now_ns, source, frame, "answers nothing that is asked")

    def _on_entered(self, request: _Entering, body: Entered) -> None:
        told: list[TopicRecord] = []
        for record in body.topics:
            entry = request.topics.pop(record.name, None)
            if entry is not None:
                if not record.schema:
                    record = TopicRecord(
                        record.name, record.group, record.number, entry.schema, record.guarantee, record.members
                    )
                told.append(record)
        if told or body.refused:
            self.effects.append(TopicsEntered(request.number, tuple(told), body.refused))
        if body.refused or not request.topics:
            self._end(request.number)
        else:
            self._ask(request)

    def _on_listing(self, request: _Browsing, body: Listing) -> None:
        if body.after > request.after:
            # What the directory told before this was lost on the way: it tells all of it again.
            self._ask(request)
            return
        # It may come twice, or overlap with the answer to a question that was asked again: each topic is told once.
        new = tuple(each for each in body.topics if each.number > request.after)
        request.after = max(request.after, body.last)
        if new or not request.watch:
            self.effects.append(TopicsListed(request.number, new, not body.more))
        if body.more:
            self._ask(request)
        elif request.watch:
            self._due.pop(request.number, None)
            request.attempts = 0
            self._timers.set(request.number, self._now_ns + self.settings.rewatch_ns)
        else:
            self._end(request.number)

    # Time.

    def next_deadline_ns(self) -> int | None:
        """Return when something must be asked again."""
        return self._timers.next_ns()

    def on_timer(self, now_ns: int) -> None:
        """Ask again."""
        self._now_ns = now_ns
        for number in self._timers.take_due(now_ns):
            self._due[number] = None

    # Output.

    def make_frames(self, room_bytes: int) -> list[Datagram]:  # noqa: ARG002
        """Make the requests that are due. All is control: it does not wait for room."""
        made: list[Datagram] = []
        if not self._due:
            return made
        me, directory = self._identity(), self._directory()
        settings = self.settings
        for number in self._due:
            request = self._requests[number]
            delay_ns = min(settings.retry_ns_min << min(request.attempts, 20), settings.retry_ns_max)
            request.attempts += 1
            self._timers.set(number, self._now_ns + delay_ns)
            if me is not None and directory is not None:
                message = self._message(request)
                data = encode_control(Kind.DIRECTORY, self._gate.domain, *me, 0, 0, self._now_ns, message)
                made.append(Datagram(directory, data, Priority.CONTROL))
        self._due.clear()
        return made

    def _message(self, request: _Request) -> ControlMessage:
        match request:
            case _Entering(number, _, topics):
                chosen: list[TopicEntry] = []
                size = 0
                for entry in topics.values():
                    size += _ENTRY_BYTES + len(entry.name.encode()) + len(entry.schema.encode()) + len(entry.guarantee)
                    if chosen and size > self.settings.frame_bytes_max:
                        break
                    chosen.append(entry)
                return Enter(number, tuple(chosen))
            case _Browsing(number, _, pattern, watch, after):
                return Browse(number, pattern, after, watch)
            case _Calling(number, _, after):
                return Roll(number, after)
        raise AssertionError("every request has a message")
