"""Awaitable requests to the directory and to other nodes."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from vivum.core.errors import LimitError
from vivum.core.ids import Endpoint, Incarnation, Member, NodeId
from vivum.core.machine import Event
from vivum.live.failures import ClosedError
from vivum.protocols.directory.client import (
    BrowseTopics,
    CallRoll,
    EnterTopics,
    ForgetRequest,
    NodesListed,
    TopicsEntered,
    TopicsListed,
)
from vivum.protocols.survey.machine import AskLoad, AskSending, LoadTold, SendingTold
from vivum.runtime.member_host import MemberHost
from vivum.wire.directory import LoadReport, SendingReport, TopicEntry, TopicRecord
from vivum.wire.schema import title_of


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as the directory lists it."""

    name: str
    type: str
    guarantee: str
    members: int
    schema: str


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node as the configuration service lists it."""

    member: Member
    name: str
    endpoint: Endpoint
    topics: int


@dataclass(slots=True)
class _Question:
    future: "asyncio.Future[list[Any]]"
    wanted: int
    found: list[Any] = field(default_factory=list)


class Browser:
    """Sends one node's requests and matches the answers."""

    def __init__(self, host: MemberHost, loop: asyncio.AbstractEventLoop) -> None:
        self._host = host
        self._loop = loop
        self._next = 1
        self._questions: dict[int, _Question] = {}
        self._watches: dict[int, Callable[[Sequence[TopicRecord]], None]] = {}

    async def enter(self, entries: Sequence[TopicEntry]) -> list[TopicRecord]:
        """Return the records of topics; create those that do not exist."""
        return await self._ask(lambda number: EnterTopics(number, entries), len(entries))

    async def topics(self, pattern: str) -> list[TopicInfo]:
        """List topics by name."""
        records: list[TopicRecord] = await self._ask(lambda number: BrowseTopics(number, pattern), 0)
        found = {
            each.name: TopicInfo(each.name, title_of(each.schema), each.guarantee, each.members, each.schema)
            for each in records
        }
        return [found[name] for name in sorted(found)]

    async def nodes(self) -> list[NodeInfo]:
        """List the nodes by their ids."""
        records = await self._ask(CallRoll, 0)
        return [
            NodeInfo(
                Member(NodeId(each.node), Incarnation(each.incarnation)),
                each.name,
                Endpoint(each.host, each.port),
                each.groups,
            )
            for each in records
        ]

    async def loads(self, nodes: Sequence[NodeInfo], timeout_s: float) -> list[LoadReport]:
        """Ask these nodes for their loads; return the answers that come within this time."""
        number = self._number()
        question = self._questions[number] = _Question(self._loop.create_future(), len(nodes))
        own = self._host.endpoint
        for each in nodes:
            if each.endpoint == own:
                report = self._host.parts.surveyor.report(number)
                self._add(question, () if report is None else (report,), len(nodes) == 1)
            else:
                self._host.submit(AskLoad(number, each.endpoint))
        try:
            async with asyncio.timeout(timeout_s):
                await question.future
        except TimeoutError:
            pass
        finally:
            self._questions.pop(number, None)
        return sorted(question.found, key=lambda report: report.node)

    async def sending(self, endpoint: Endpoint, topic: str, timeout_s: float) -> SendingReport | None:
        """Ask a node how many messages it has sent to a topic; return None if no answer comes within this time."""
        number = self._number()
        question = self._questions[number] = _Question(self._loop.create_future(), 1)
        self._host.submit(AskSending(number, endpoint, topic))
        try:
            async with asyncio.timeout(timeout_s):
                (report,) = await question.future
        except TimeoutError:
            return None
        finally:
            self._questions.pop(number, None)
        return report if isinstance(report, SendingReport) else None

    def watch(self, pattern: str, tell: Callable[[Sequence[TopicRecord]], None]) -> int:
        """Call `tell` with all topics that match, and again when new ones appear; return a number for `unwatch`."""
        number = self._number()
        self._watches[number] = tell
        self._host.submit(BrowseTopics(number, pattern, watch=True))
        return number

    def unwatch(self, number: int) -> None:
        """End a watch."""
        if self._watches.pop(number, None) is not None:
            self._host.submit(ForgetRequest(number))

    def _number(self) -> int:
        self._next += 1
        return self._next

    async def _ask(self, make: Callable[[int], Any], wanted: int) -> list[Any]:
        number = self._number()
        question = self._questions[number] = _Question(self._loop.create_future(), wanted)
        self._host.submit(make(number))
        try:
            return await question.future
        finally:
            if self._questions.pop(number, None) is not None:
                self._host.submit(ForgetRequest(number))

    def on_event(self, event: Event) -> None:
        """Handle an answer."""
        match event:
            case TopicsEntered(request, topics, refused):
                question = self._questions.get(request)
                if question is not None:
                    if refused and not question.future.done():
                        question.future.set_exception(LimitError(f"the directory refused the topic: {refused}"))
                    self._add(question, topics, len(question.found) + len(topics) >= question.wanted)
            case TopicsListed(request, topics, is_last):
                if request in self._watches:
                    self._watches[request](topics)
                elif request in self._questions:
                    self._add(self._questions[request], topics, is_last)
            case LoadTold(report) | SendingTold(report):
                question = self._questions.get(report.request)
                if question is not None:
                    self._add(question, (report,), len(question.found) + 1 >= question.wanted)
            case NodesListed(request, nodes, is_last):
                if request in self._questions:
                    self._add(self._questions[request], nodes, is_last)

    @staticmethod
    def _add(question: _Question, found: Sequence[Any], is_last: bool) -> None:
        question.found += found
        if is_last and not question.future.done():
            question.future.set_result(question.found)

    def close(self) -> None:
        """Fail all open requests with `ClosedError`."""
        self._watches.clear()
        questions, self._questions = self._questions, {}
        for question in questions.values():
            if not question.future.done():
                question.future.set_exception(ClosedError("the node was closed while it asked; connect again"))
