"""Answers what the own node does and how much it sent, and asks others. Nothing is repeated: who asks, asks again."""

from collections.abc import Callable
from dataclasses import dataclass

from vivum.core.ids import Endpoint
from vivum.core.machine import Command, Datagram, Effect, Event, Priority
from vivum.wire.codec import Frame
from vivum.wire.control import encode_control
from vivum.wire.directory import LoadQuery, LoadReport, SendingQuery, SendingReport
from vivum.wire.fields import ControlMessage
from vivum.wire.gate import Gate
from vivum.wire.kinds import Kind

ANSWERS_MAX = 1024
"""Answers that wait for the next output; further questions are refused and counted."""


@dataclass(frozen=True, slots=True)
class AskLoad(Command):
    """Ask the node at an endpoint what it does."""

    request: int
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class AskSending(Command):
    """Ask the node at an endpoint how many messages it has sent to a topic."""

    request: int
    endpoint: Endpoint
    topic: str


@dataclass(frozen=True, slots=True)
class SendingTold(Event):
    """A node answered."""

    report: SendingReport


@dataclass(frozen=True, slots=True)
class LoadTold(Event):
    """A node answered."""

    report: LoadReport


class Surveyor:
    """Speaks of load for one node."""

    kinds = frozenset({Kind.SURVEY})
    commands: frozenset[type[Command]] = frozenset({AskLoad, AskSending})
    transport = ""
    has_data = False

    def __init__(self, gate: Gate) -> None:
        self.report: Callable[[int], LoadReport | None] = lambda _: None
        """Makes the answer to a request. Set by the part that knows the node's topics."""

        self.report_sending: Callable[[int, str], SendingReport | None] = lambda _, __: None
        """The same for the messages that were sent to a topic."""

        self._gate = gate
        self._now_ns = 0
        self._due: list[tuple[Endpoint, ControlMessage]] = []
        self.effects: list[Effect] = []

    def submit(self, now_ns: int, command: Command) -> None:
        """Ask."""
        self._now_ns = now_ns
        if isinstance(command, AskSending):
            self._due.append((command.endpoint, SendingQuery(command.request, command.topic)))
        else:
            assert isinstance(command, AskLoad)
            self._due.append((command.endpoint, LoadQuery(command.request)))

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        """Answer, or tell the answer."""
        self._now_ns = now_ns
        body = self._gate.decode(now_ns, source, frame)
        if isinstance(body, LoadReport):
            self.effects.append(LoadTold(body))
        elif isinstance(body, SendingReport):
            self.effects.append(SendingTold(body))
        elif isinstance(body, LoadQuery | SendingQuery):
            answer = self._answer(body) if len(self._due) < ANSWERS_MAX else None
            if answer is None:
                self._gate.refuse_state(now_ns, source, frame, "nothing to tell, or too many ask")
            else:
                self._due.append((source, answer))

    def _answer(self, query: LoadQuery | SendingQuery) -> ControlMessage | None:
        if isinstance(query, LoadQuery):
            return self.report(query.request)
        return self.report_sending(query.request, query.topic)

    def next_deadline_ns(self) -> int | None:
        """Nothing is ever due."""
        return None

    def on_timer(self, now_ns: int) -> None:
        """Do nothing."""
        self._now_ns = now_ns

    def make_frames(self, room_bytes: int) -> list[Datagram]:  # noqa: ARG002
        """Make the frames that are due. All is control: it does not wait for room."""
        made = []
        for endpoint, message in self._due:
            data = encode_control(Kind.SURVEY, self._gate.domain, 0, 0, 0, 0, self._now_ns, message)
            made.append(Datagram(endpoint, data, Priority.CONTROL))
        self._due.clear()
        return made
