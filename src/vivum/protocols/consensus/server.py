"""A replica that also serves clients which are no replicas: their sessions, commands, queries and watches.

Wraps a `ReplicaMachine` as one protocol of a node: takes what it tells of commands and reads, and answers the clients
behind it. Any replica answers local queries, and those that follow changes; the leader does all else, and others say
who leads. Also appends entries that carry the time when the application wants one (`KeepsTime`).

A client that gets no answer asks again, so whatever is over a limit here may be dropped.

Design note: `docs/design/kv.md`.
"""

from collections import OrderedDict
from typing import Any, Literal, NamedTuple

import msgspec

from vivum.core.errors import LimitError, NotNowError
from vivum.core.ids import Endpoint
from vivum.core.machine import Command, Datagram, Effect, Priority
from vivum.protocols.consensus.batch import unpack_commands
from vivum.protocols.consensus.client_settings import LogServerSettings
from vivum.protocols.consensus.commands import (
    AdvanceTime,
    CommandsAnswered,
    NotLeaderError,
    OpenSession,
    Propose,
    ReadIndex,
    ReadsAllowed,
    RequestsRefused,
    SessionOpened,
)
from vivum.protocols.consensus.machine import ReplicaMachine
from vivum.protocols.consensus.parts import PartsBuffer
from vivum.protocols.consensus.state_machine import AnswersQueries, KeepsTime
from vivum.wire.codec import HEADER_BYTES, Frame
from vivum.wire.control import encode_control
from vivum.wire.fields import ControlMessage
from vivum.wire.gate import Gate
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

REQUEST_BYTES = 96
"""What a message has besides its content: a tag and at most seven numbers."""

OWN_REQUESTS = 1 << 62
"""Requests from here on are this server's; below they are of the application beside it."""

encode_answers = msgspec.msgpack.Encoder().encode


class Asked(NamedTuple):
    """Who asked for what."""

    endpoint: Endpoint
    request: int
    query: bytes = b""


class WaitingWatch:
    """A client that waits for changes."""

    __slots__ = ("after", "asked", "until_ns")

    def __init__(self, asked: Asked, after: int, until_ns: int) -> None:
        self.asked = asked
        self.after = after
        self.until_ns = until_ns


class LogServer:
    """One replica with its clients. A protocol of a node (`protocols/contract.py`) that persists."""

    kinds = ReplicaMachine.kinds | {Kind.REQUEST}
    commands: frozenset[type[Command]] = ReplicaMachine.commands
    transport = ""
    persists: Literal[True] = True

    def __init__(
        self,
        replica: ReplicaMachine,
        application: AnswersQueries,
        gate: Gate,
        settings: LogServerSettings | None = None,
        *,
        now_ns: int,
    ) -> None:
        self.replica = replica
        self.settings = settings or LogServerSettings()
        self.effects: list[Effect] = []
        self._application = application
        self._timed = application if isinstance(application, KeepsTime) else None
        self._gate = gate
        self._now_ns = now_ns
        self._content_max = self.settings.frame_bytes_max - HEADER_BYTES - REQUEST_BYTES
        self._next_request = OWN_REQUESTS
        # Sessions and reads that wait for the log.
        self._open: dict[int, Asked] = {}
        # Where the commands of each session came from last, least recently used first.
        self._clients: OrderedDict[int, Endpoint] = OrderedDict()
        self._uploads: OrderedDict[Endpoint, PartsBuffer] = OrderedDict()
        # Watches by when they are answered at the latest: all wait equally long.
        self._follows: dict[tuple[Endpoint, int], WaitingWatch] = {}
        self._looked_index = -1
        self._advanced_ns = 0
        self._due: list[tuple[Endpoint, ControlMessage]] = []

    # In.

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        """Take a frame of a replica or of a client."""
        self._now_ns = now_ns
        if frame.kind is not Kind.REQUEST:
            self.replica.on_frame(now_ns, source, frame)
            self._take_up()
            return
        if frame.region != self.replica.group:
            cause = f"of group {frame.region}; this replica is one of group {self.replica.group}"
            self._gate.refuse_state(now_ns, source, frame, cause)
            return
        match self._gate.decode(now_ns, source, frame):
            case CommandRequest() as request:
                self._on_commands(source, frame, request)
            case QueryRequest() as request:
                self._on_query(source, request)
            case FollowRequest() as request:
                self._on_follow(source, request)
            case SessionRequest() as request:
                self._ask_log(source, request.request, OpenSession(self._next_request), b"")
        self._take_up()

    def _on_commands(self, source: Endpoint, frame: Frame, request: CommandRequest) -> None:
        content = request.content
        if request.total > self.settings.request_bytes_max:
            self._gate.refuse_state(self._now_ns, source, frame, f"a request of {request.total:,} bytes")
            self._refuse(source, request.request, f"{request.total:,} bytes are over request_bytes_max")
            return
        if len(content) < request.total:
            whole = self._upload_of(source).take(
                (request.client, request.sequence, request.count), request.offset, request.total, content
            )
            if whole is None:
                return
            del self._uploads[source]
            content = whole
        commands = unpack_commands(content, request.count)
        if commands is None:
            self._gate.refuse_state(self._now_ns, source, frame, "commands do not fill their request")
            return
        self._clients[request.client] = source
        self._clients.move_to_end(request.client)
        if len(self._clients) > self.settings.clients_max:
            self._clients.popitem(last=False)
        self._submit(source, request.request, Propose(request.client, request.sequence, commands, request.heard))

    def _upload_of(self, source: Endpoint) -> PartsBuffer:
        uploads = self._uploads
        upload = uploads.get(source)
        if upload is None:
            upload = uploads[source] = PartsBuffer()
            if len(uploads) > self.settings.uploads_max:
                uploads.popitem(last=False)
        return upload

    def _on_query(self, source: Endpoint, request: QueryRequest) -> None:
        if request.is_local:
            self._answer(Asked(source, request.request, request.query))
        else:
            self._ask_log(source, request.request, ReadIndex(self._next_request), request.query)

    def _ask_log(self, source: Endpoint, request: int, command: OpenSession | ReadIndex, query: bytes) -> None:
        """Submit what the log answers later, with the next number of our own."""
        if len(self._open) >= self.settings.requests_open_max:
            self._gate.counters.requests_dropped += 1
            return
        if self._submit(source, request, command):
            self._open[command.request] = Asked(source, request, query)
            self._next_request += 1

    def _submit(self, source: Endpoint, request: int, command: Command) -> bool:
        try:
            self.replica.submit(self._now_ns, command)
        except NotLeaderError as error:
            leader = error.leader
            self._redirect(source, request, (0, None) if leader is None else (leader.id, leader.endpoint))
        except NotNowError:
            # Its client asks again.
            self._gate.counters.requests_dropped += 1
        except LimitError as error:
            self._refuse(source, request, str(error))
        else:
            return True
        return False

    def _redirect(self, source: Endpoint, request: int, leader: tuple[int, Endpoint | None]) -> None:
        number, endpoint = leader
        self._due.append((source, Redirection(request, number, None if endpoint is None else (*endpoint,))))

    def _refuse(self, source: Endpoint, request: int, cause: str) -> None:
        self._due.append((source, RequestRefused(request, cause[:500])))

    def _on_follow(self, source: Endpoint, request: FollowRequest) -> None:
        if not self.replica.leader:
            # It may have been removed, or be cut off: nothing new would ever come.
            self._redirect(source, request.request, (0, None))
            return
        key, limit = (source, request.request), self.settings.follows_max
        if key not in self._follows and len(self._follows) >= limit:
            self._refuse(source, request.request, f"this replica has follows_max={limit:,} watches; ask another one")
            return
        asked = Asked(source, request.request, request.query)
        following = WaitingWatch(asked, request.after, self._now_ns + self.settings.follow_ns_max)
        self._follows.pop(key, None)
        if not self._look_for(following):
            self._follows[key] = following

    def submit(self, now_ns: int, command: Command) -> None:
        """Take a command of the application beside it."""
        self._now_ns = now_ns
        self.replica.submit(now_ns, command)
        self._take_up()

    # Timers.

    def next_deadline_ns(self) -> int | None:
        """Return when the replica, a watch or the application's time has its turn."""
        deadlines = [self.replica.next_deadline_ns(), self._advance_at_ns()]
        if self._follows:
            deadlines.append(next(iter(self._follows.values())).until_ns)
        return min([each for each in deadlines if each is not None], default=None)

    def _advance_at_ns(self) -> int | None:
        if self._timed is None or not self.replica.leads:
            return None
        due_ns = self._timed.due_ns(self.replica.term)
        if due_ns is None:
            return None
        return max(self.replica.local_ns(due_ns), self._advanced_ns + self.settings.advance_ns)

    def on_timer(self, now_ns: int) -> None:
        """Do what is due."""
        self._now_ns = now_ns
        self.replica.on_timer(now_ns)
        at_ns = self._advance_at_ns()
        if at_ns is not None and now_ns >= at_ns:
            self._advanced_ns = now_ns
            try:
                self.replica.submit(now_ns, AdvanceTime())
            except NotNowError:
                # It hands over, or much is pending: then the time goes on with the entries that come.
                self._gate.counters.requests_dropped += 1
        self._take_up()
        while self._follows:
            key, following = next(iter(self._follows.items()))
            if following.until_ns > now_ns:
                break
            del self._follows[key]
            if self.replica.leader:
                self._due.append((key[0], QueryAnswer(key[1], following.after, 0, 0, b"")))
            else:
                self._redirect(*key, (0, None))

    # What the replica tells.

    def _take_up(self) -> None:
        """Take the replica's effects; answer clients for whom there is something among them."""
        effects = self.replica.effects
        if not effects:
            return
        for effect in effects:
            if type(effect) is CommandsAnswered:
                self._on_answered(effect)
            elif type(effect) is ReadsAllowed:
                self._on_allowed(effect)
            elif type(effect) is SessionOpened:
                self._on_opened(effect)
            elif type(effect) is RequestsRefused:
                self._on_refused(effect)
        self.effects += effects
        effects.clear()

    def _on_answered(self, event: CommandsAnswered) -> None:
        endpoint = self._clients.get(event.client)
        if endpoint is None:
            return
        content = encode_answers([event.answers, event.statuses])
        for offset in range(0, len(content), self._content_max):
            part = content[offset : offset + self._content_max]
            self._due.append((endpoint, CommandAnswer(event.client, event.sequence, offset, len(content), part)))

    def _on_allowed(self, event: ReadsAllowed) -> None:
        for request in event.requests:
            asked = self._open.pop(request, None)
            if asked is not None:
                self._answer(asked)

    def _on_opened(self, event: SessionOpened) -> None:
        asked = self._open.pop(event.request, None)
        if asked is not None:
            self._due.append((asked.endpoint, SessionAnswer(asked.request, event.client)))

    def _on_refused(self, event: RequestsRefused) -> None:
        leader = self.replica.configuration.replicas.get(self.replica.leader)
        for request in (*event.reads, *event.sessions):
            asked = self._open.pop(request, None)
            if asked is not None:
                where = (0, None) if leader is None else (leader.id, leader.endpoint)
                self._redirect(asked.endpoint, asked.request, where)

    def _answer(self, asked: Asked) -> None:
        """Answer a query from the state as it is."""
        self._send_answer(asked, 0, self._application.read(asked.query))

    def _send_answer(self, asked: Asked, position: int, content: bytes) -> None:
        if not content:
            self._due.append((asked.endpoint, QueryAnswer(asked.request, position, 0, 0, b"")))
        for offset in range(0, len(content), self._content_max):
            part = content[offset : offset + self._content_max]
            self._due.append((asked.endpoint, QueryAnswer(asked.request, position, offset, len(content), part)))

    def _look_for(self, following: WaitingWatch) -> bool:
        """Answer one who follows if there is something new."""
        following.after, found = self._application.follow(following.asked.query, following.after)
        if found is None:
            return False
        self._send_answer(following.asked, following.after, found)
        return True

    # Output.

    @property
    def has_data(self) -> bool:
        """Whether the replica has."""
        return self.replica.has_data

    @property
    def held_bytes(self) -> int:
        """Bytes of the log, and of requests that come in parts."""
        return self.replica.held_bytes + sum([each.held_bytes for each in self._uploads.values()])

    def make_frames(self, room_bytes: int) -> list[Datagram]:
        """Make the replica's frames, then answers: these may rest on records that come with the former."""
        made = self.replica.make_frames(room_bytes)
        self._take_up()
        if self._follows and self.replica.applied_index != self._looked_index:
            self._looked_index = self.replica.applied_index
            for key in [key for key, each in self._follows.items() if self._look_for(each)]:
                del self._follows[key]
        made += [self._frame(*each) for each in self._due]
        self._due.clear()
        return made

    def _frame(self, to: Endpoint, message: Any) -> Datagram:
        gate, replica = self._gate, self.replica
        data = encode_control(Kind.ANSWER, gate.domain, replica.node, 0, replica.group, 0, self._now_ns, message)
        return Datagram(to, data, Priority.DATA)
