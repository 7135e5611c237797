"""A client of a replicated log that is no replica: a session, commands that run once, reads, and watches.

Speaks to one replica at a time, the one that it believes to lead. What is sent may be lost on the way, so it asks again
for what may have been done: under the same number, so that it is done once. Watches and local reads go to any replica.

The session is opened when the first command needs it. If it ends (nobody used it for an hour, or the log has too many),
a new one is opened; commands that were under way then are given up (`CommandLost`): nobody knows what became of them.

Knows nothing of what commands and queries mean. Design note: `docs/design/kv.md`.

Invariants: numbers of open commands follow each other without a hole; an answer is told once; whatever is open is asked
for again until it is answered or forgotten.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import msgspec

from vivum.core.errors import LimitError, NotNowError, UsageError
from vivum.core.ids import Endpoint, NodeId
from vivum.core.machine import Command, Datagram, Effect, Event, Priority
from vivum.protocols.consensus.batch import pack_commands
from vivum.protocols.consensus.client_settings import LogClientSettings
from vivum.protocols.consensus.parts import PartsBuffer
from vivum.protocols.consensus.server import REQUEST_BYTES
from vivum.protocols.consensus.sessions import CommandStatus
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

COMMANDS_EACH = 4096
"""Commands in one request, at most."""


class RunCommand(Command, msgspec.Struct, frozen=True):
    """Run a command once. `ticket` is a number of the caller's that comes back with the answer."""

    ticket: int
    command: bytes


class RunQuery(Command, msgspec.Struct, frozen=True):
    """Read: what all commands have made that were answered before now; or what any replica has, if it `is_local`."""

    ticket: int
    query: bytes
    is_local: bool = False


class FollowChanges(Command, msgspec.Struct, frozen=True):
    """Wait for the first changes behind a position."""

    ticket: int
    query: bytes
    after: int


class Forget(Command, msgspec.Struct, frozen=True):
    """Want no answer any more. A command that is under way may run all the same."""

    ticket: int


class CommandNumbered(Event, msgspec.Struct, frozen=True):
    """A command is that of a session with this number, by which a log knows it. Told before it is sent."""

    ticket: int
    client: int
    sequence: int


class CommandDone(Event, msgspec.Struct, frozen=True):
    """A command ran, and this is its first answer."""

    ticket: int
    answer: bytes


class CommandLost(Event, msgspec.Struct, frozen=True):
    """A command ran once or not at all, and nobody will know."""

    ticket: int
    cause: str


class QueryDone(Event, msgspec.Struct, frozen=True):
    """A read, or the changes of a watch: looked at up to this position."""

    ticket: int
    position: int
    answer: bytes


class RequestFailed(Event, msgspec.Struct, frozen=True):
    """A replica refused a command or a query for good; it did nothing."""

    ticket: int
    cause: str


_Answers = tuple[list[bytes], list[int] | None]
_decode_answers = msgspec.msgpack.Decoder(_Answers).decode


class _Open:
    """A command of the session."""

    __slots__ = ("command", "ticket")

    def __init__(self, ticket: int, command: bytes) -> None:
        self.ticket = ticket
        self.command = command


class _Query:
    """A read or a watch."""

    __slots__ = ("after", "again_ns", "is_due", "parts", "patience_ns", "query", "target", "ticket")

    def __init__(self, ticket: int, query: bytes, after: int | None, target: Endpoint | None, patience_ns: int) -> None:
        self.ticket = ticket
        self.query = query
        self.after = after
        """Where a watch is; None for a read."""

        self.target = target
        """Which replica it asks; None: the one that leads."""

        self.patience_ns = patience_ns
        self.again_ns = 0
        self.is_due = True
        self.parts = PartsBuffer()


class LogClient:
    """One client. A protocol of a node (`protocols/contract.py`)."""

    kinds = frozenset({Kind.ANSWER})
    commands: frozenset[type[Command]] = frozenset({RunCommand, RunQuery, FollowChanges, Forget})
    transport = ""

    def __init__(
        self,
        node: NodeId,
        group: int,
        replicas: Sequence[Endpoint],
        gate: Gate,
        rng: Random,
        settings: LogClientSettings | None = None,
        *,
        now_ns: int,
    ) -> None:
        """Begin. `node` is a number that no other client of the log has at the same time, as one drawn from many."""
        if not replicas:
            raise UsageError("a client needs at least one replica to ask")
        self.settings = settings or LogClientSettings()
        self.effects: list[Effect] = []
        self.said: dict[Endpoint, str] = dict.fromkeys(replicas, "no answer")
        """What each replica said last, for people."""

        self._node = node
        self._group = group
        self._gate = gate
        self._rng = rng
        self._now_ns = now_ns
        self._content_max = self.settings.frame_bytes_max - HEADER_BYTES - REQUEST_BYTES
        self._target = rng.choice(list(replicas))
        self._next_request = rng.randrange(1 << 32) + 1
        # The session, the request that opens it (0: none), and its commands that are not answered, by number.
        self._session = 0
        self._opening = 0
        self._is_opening_due = False
        self._open: dict[int, _Open] = {}
        self._next_sequence = 0
        self._send_from = 0
        self._sent_stop = 0
        self._flying: deque[tuple[int, int, int]] = deque()
        self._command_parts = PartsBuffer()
        # Commands that wait for a session.
        self._early: deque[_Open] = deque()
        self._queries: dict[int, _Query] = {}
        self._tickets: dict[int, int] = {}
        # When the leader answered, or was asked first, and how long to wait for more.
        self._moved_ns = now_ns
        self._patience_ns = self.settings.patience_ns
        self._redirected_ns = now_ns - self.settings.retry_ns

    # What others may know.

    @property
    def open_count(self) -> int:
        """How many commands and queries are not answered."""
        return len(self._open) + len(self._early) + len(self._queries)

    @property
    def target(self) -> Endpoint:
        """The replica that it believes to lead."""
        return self._target

    @property
    def session(self) -> int:
        """The id of the session; 0 for none."""
        return self._session

    # Commands.

    def submit(self, now_ns: int, command: Command) -> None:
        """Take a command."""
        self._now_ns = now_ns
        was_idle = not self._waits_for_leader()
        match command:
            case RunCommand(ticket, content):
                self._take_command(ticket, content)
            case RunQuery(ticket, query, is_local):
                self._take_query(ticket, query, None, is_local)
            case FollowChanges(ticket, query, after):
                self._take_query(ticket, query, after, True)
            case Forget(ticket):
                self._forget(ticket)
            case _:
                raise UsageError(f"a client of a log takes no {type(command).__name__}")
        if was_idle and self._waits_for_leader():
            self._moved_ns = now_ns

    def _take_command(self, ticket: int, content: bytes) -> None:
        limit = self.settings.commands_open_max
        if len(self._open) + len(self._early) >= limit:
            raise NotNowError(f"commands_open_max: {limit:,} commands wait for their answers")
        largest = self.settings.command_bytes_max
        if len(content) > largest:
            raise LimitError(f"a command of {len(content):,} bytes is over command_bytes_max={largest:,}")
        each = _Open(ticket, content)
        if self._session:
            self._number(each)
        else:
            self._early.append(each)
            self._ask_session()

    def _number(self, each: _Open) -> None:
        self._open[self._next_sequence] = each
        self.effects.append(CommandNumbered(each.ticket, self._session, self._next_sequence))
        self._next_sequence += 1

    def _take_query(self, ticket: int, query: bytes, after: int | None, is_local: bool) -> None:
        limit = self.settings.queries_open_max
        if len(self._queries) >= limit:
            raise NotNowError(f"queries_open_max: {limit:,} queries wait for their answers")
        if len(query) > self._content_max:
            raise LimitError(f"a query of {len(query):,} bytes does not fit a frame; at most {self._content_max:,} do")
        number = self._new_request()
        target = self._any_replica() if is_local else None
        patience_ns = self.settings.patience_ns if after is None else self.settings.follow_ns
        self._queries[number] = _Query(ticket, query, after, target, patience_ns)
        self._tickets[ticket] = number

    def _any_replica(self) -> Endpoint:
        """Return the replica for a local query: the one that answers at present, whatever it is."""
        return self._target

    def _new_request(self) -> int:
        self._next_request += 1
        return self._next_request

    def _forget(self, ticket: int) -> None:
        number = self._tickets.pop(ticket, None)
        if number is not None:
            del self._queries[number]
            return
        for each in self._early:
            if each.ticket == ticket:
                # It was never sent.
                self._early.remove(each)
                return
        # A command under way stays open: its number must not be missing. Its answer is told to nobody.

    def _waits_for_leader(self) -> bool:
        if self._open or self._early:
            return True
        return any(each.target is None for each in self._queries.values())

    # Asking.

    def _ask_session(self) -> None:
        if not self._opening:
            self._opening = self._new_request()
        self._is_opening_due = True

    def _ask_again(self) -> None:
        """Ask the target for all that is open and goes to the leader."""
        counters = self._gate.counters
        counters.requests_repeated += len(self._flying)
        self._flying.clear()
        self._send_from = min(self._open, default=self._next_sequence)
        if self._early and not self._session:
            self._ask_session()
        for each in self._queries.values():
            if each.target is None:
                each.is_due = True
                counters.requests_repeated += 1

    def _ask_another(self) -> None:
        """Believe another replica to lead."""
        others = [each for each in self.said if each != self._target]
        if others:
            self._target = self._rng.choice(others)
        self._moved_ns = self._now_ns
        self._ask_again()

    # Answers.

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        """Take an answer of a replica."""
        self._now_ns = now_ns
        if source not in self.said or frame.region != self._group:
            cause = "from nobody that was asked" if source not in self.said else f"of group {frame.region}"
            self._gate.refuse_state(now_ns, source, frame, cause)
            return
        match self._gate.decode(now_ns, source, frame):
            case CommandAnswer() as answer:
                self._on_command_answer(source, frame, answer)
            case QueryAnswer() as answer:
                self._on_query_answer(source, frame, answer)
            case SessionAnswer() as answer:
                self._on_session(source, answer)
            case Redirection() as answer:
                self._on_redirection(source, answer)
            case RequestRefused() as answer:
                self._on_refused(source, answer)

    def _note_leader(self, source: Endpoint) -> None:
        """Note that the leader answered."""
        self.said[source] = "leads"
        self._target = source
        self._moved_ns = self._now_ns
        self._patience_ns = self.settings.patience_ns

    def _on_session(self, source: Endpoint, answer: SessionAnswer) -> None:
        if answer.request != self._opening or self._session:
            self._gate.counters.answers_late += 1
            return
        self._note_leader(source)
        self._session, self._opening = answer.client, 0
        self._is_opening_due = False
        self._next_sequence = self._send_from = self._sent_stop = 0
        while self._early:
            self._number(self._early.popleft())

    def _on_command_answer(self, source: Endpoint, frame: Frame, answer: CommandAnswer) -> None:
        if answer.client != self._session:
            self._gate.counters.answers_late += 1
            return
        key = (source, answer.sequence)
        content = self._join(self._command_parts, source, frame, key, answer)
        if content is None:
            return
        try:
            answers, statuses = _decode_answers(content)
        except msgspec.MsgspecError as error:
            self._gate.refuse_state(self._now_ns, source, frame, f"answers: {error}")
            return
        if answer.sequence + len(answers) > self._next_sequence or (statuses and len(statuses) != len(answers)):
            self._gate.refuse_state(self._now_ns, source, frame, "answers of what was not asked")
            return
        self._note_leader(source)
        for at, data in enumerate(answers):
            status = CommandStatus.DONE if statuses is None else statuses[at]
            if status == CommandStatus.SESSION_EXPIRED:
                self._end_session("the session ended: it was not used for long, or the log has too many")
                return
            if status == CommandStatus.SEQUENCE_GAP:
                self._on_gap()
                return
            self._conclude(answer.sequence + at, status, data)
        lowest = min(self._open, default=self._next_sequence)
        self._send_from = max(self._send_from, lowest)
        while self._flying and self._flying[0][1] <= lowest:
            self._flying.popleft()

    def _conclude(self, sequence: int, status: int, answer: bytes) -> None:
        each = self._open.pop(sequence, None)
        if each is None:
            self._gate.counters.answers_late += 1
        elif status == CommandStatus.DONE:
            self.effects.append(CommandDone(each.ticket, answer))
        else:
            self.effects.append(CommandLost(each.ticket, "it ran, and its answer is forgotten"))

    def _on_gap(self) -> None:
        """Send again from the first command that is open: one before those that came did not."""
        if self._now_ns - self._redirected_ns >= self.settings.retry_ns:
            self._redirected_ns = self._now_ns
            self._gate.counters.requests_repeated += len(self._flying)
            self._flying.clear()
            self._send_from = min(self._open, default=self._next_sequence)

    def _end_session(self, cause: str) -> None:
        """Give up what was sent; the rest waits for the next session."""
        for number, each in self._open.items():
            if number < self._sent_stop:
                self.effects.append(CommandLost(each.ticket, cause))
            else:
                self._early.append(each)
        self._open.clear()
        self._flying.clear()
        self._session = self._opening = 0
        if self._early:
            self._ask_session()

    def _on_query_answer(self, source: Endpoint, frame: Frame, answer: QueryAnswer) -> None:
        query = self._queries.get(answer.request)
        if query is None:
            self._gate.counters.answers_late += 1
            return
        content = self._join(query.parts, source, frame, (source, answer.position), answer) if answer.total else b""
        if content is None:
            return
        if query.target is None:
            self._note_leader(source)
        elif self.said[source] == "no answer":
            self.said[source] = "answers"
        if query.after is not None and not content:
            # Nothing new: go on behind what was looked at.
            query.after = max(query.after, answer.position)
            self._renew(answer.request, query)
            return
        del self._queries[answer.request]
        del self._tickets[query.ticket]
        self.effects.append(QueryDone(query.ticket, answer.position, content))

    def _renew(self, request: int, query: _Query) -> None:
        """Follow under a new number, so that a late answer to the old one is not taken for the new one's."""
        del self._queries[request]
        number = self._tickets[query.ticket] = self._new_request()
        query.is_due, query.target, query.patience_ns = True, self._any_replica(), self.settings.follow_ns
        self._queries[number] = query

    def _join(self, parts: PartsBuffer, source: Endpoint, frame: Frame, key: Any, answer: Any) -> bytes | None:
        if answer.total > self.settings.answer_bytes_max:
            self._gate.refuse_state(self._now_ns, source, frame, f"an answer of {answer.total:,} bytes")
            return None
        content: bytes = answer.content
        return content if len(content) == answer.total else parts.take(key, answer.offset, answer.total, content)

    def _on_redirection(self, source: Endpoint, answer: Redirection) -> None:
        leader = None if answer.endpoint is None else Endpoint(*answer.endpoint)
        self.said[source] = "knows no leader" if leader is None else f"follows {answer.leader} at {leader}"
        query = self._queries.get(answer.request)
        if query is not None and query.target == source:
            # It hears no leader, so it has nothing new to tell of. Ask another one soon.
            query.again_ns = min(query.again_ns, self._now_ns + self.settings.retry_ns)
        if source != self._target or not self._waits_for_leader():
            return
        if leader is not None and self._may_follow(source, leader):
            self._redirected_ns = self._moved_ns = self._now_ns
            self._target = leader
            self.said.setdefault(leader, "no answer")
            self._ask_again()
        else:
            # No leader is known, or they point at each other: ask again soon.
            self._patience_ns = self.settings.patience_ns
            self._moved_ns = min(self._moved_ns, self._now_ns - self._patience_ns + self.settings.retry_ns)

    def _may_follow(self, source: Endpoint, leader: Endpoint) -> bool:
        if leader == source or self._now_ns - self._redirected_ns < self.settings.retry_ns:
            return False
        return leader in self.said or len(self.said) < self.settings.replicas_max

    def _on_refused(self, source: Endpoint, answer: RequestRefused) -> None:
        self.said[source] = answer.cause
        query = self._queries.pop(answer.request, None)
        if query is not None:
            del self._tickets[query.ticket]
            self.effects.append(RequestFailed(query.ticket, answer.cause))
            return
        for first, stop, request in self._flying:
            if request == answer.request:
                self._fail_commands(first, stop, answer.cause)
                return
        self._gate.counters.answers_late += 1

    def _fail_commands(self, first: int, stop: int, cause: str) -> None:
        """Give up the commands of a request. Their numbers stay missing, so the session ends with them."""
        for number in range(first, stop):
            each = self._open.pop(number, None)
            if each is not None:
                self.effects.append(RequestFailed(each.ticket, cause))
        self._end_session("a command in front of it was refused")

    # Timers.

    def next_deadline_ns(self) -> int | None:
        """Return when it asks again."""
        deadlines = [each.again_ns for each in self._queries.values() if each.target is not None and not each.is_due]
        if self._waits_for_leader():
            deadlines.append(self._moved_ns + self._patience_ns)
        return min(deadlines, default=None)

    def on_timer(self, now_ns: int) -> None:
        """Ask others for what nobody answered."""
        self._now_ns = now_ns
        if self._waits_for_leader() and now_ns - self._moved_ns >= self._patience_ns:
            self._patience_ns = min(2 * self._patience_ns, self.settings.patience_ns_max)
            self._ask_another()
        for each in self._queries.values():
            if each.target is not None and not each.is_due and now_ns >= each.again_ns:
                each.patience_ns = min(
                    2 * each.patience_ns, max(self.settings.patience_ns_max, self.settings.follow_ns)
                )
                each.target = self._rng.choice([other for other in self.said if other != each.target] or [each.target])
                each.is_due = True
                self._gate.counters.requests_repeated += 1

    # Output.

    @property
    def has_data(self) -> bool:
        """Whether there are requests to be sent."""
        return self._is_opening_due or self._can_send() or any(each.is_due for each in self._queries.values())

    def _can_send(self) -> bool:
        return self._send_from < self._next_sequence and len(self._flying) < self.settings.requests_flying_max

    def make_frames(self, room_bytes: int) -> list[Datagram]:
        """Make the requests that are due."""
        made: list[Datagram] = []
        if self._is_opening_due:
            self._is_opening_due = False
            made.append(self._frame(self._target, SessionRequest(self._opening)))
        while room_bytes > 0 and self._session and self._can_send():
            for each in self._command_requests():
                made.append(self._frame(self._target, each))
                room_bytes -= len(each.content)
        for number, query in self._queries.items():
            if query.is_due:
                query.is_due = False
                query.again_ns = self._now_ns + query.patience_ns
                made.append(self._query_request(number, query))
        return made

    def _command_requests(self) -> Iterable[CommandRequest]:
        """Return the next commands as one request, in parts if no frame can hold it."""
        first, commands, size = self._send_from, list[bytes](), 0
        for number in range(first, min(self._next_sequence, first + COMMANDS_EACH)):
            # One that was answered before others in front of it is known to the log: only its number counts.
            each = self._open.get(number)
            command = b"" if each is None else each.command
            size += len(command) + 4
            if commands and size > self.settings.request_bytes_max:
                break
            commands.append(command)
        self._send_from = first + len(commands)
        self._sent_stop = max(self._sent_stop, self._send_from)
        request = self._new_request()
        self._flying.append((first, self._send_from, request))
        heard = min(self._open)
        content = pack_commands(commands)
        for offset in range(0, len(content), self._content_max):
            part = content[offset : offset + self._content_max]
            yield CommandRequest(request, self._session, first, heard, len(commands), offset, len(content), part)

    def _query_request(self, number: int, query: _Query) -> Datagram:
        if query.after is not None:
            message: ControlMessage = FollowRequest(number, query.after, query.query)
        else:
            message = QueryRequest(number, query.target is not None, query.query)
        return self._frame(query.target or self._target, message)

    def _frame(self, to: Endpoint, message: ControlMessage) -> Datagram:
        data = encode_control(Kind.REQUEST, self._gate.domain, self._node, 0, self._group, 0, self._now_ns, message)
        return Datagram(to, data, Priority.DATA)
