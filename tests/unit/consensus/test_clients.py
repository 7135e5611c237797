"""A replica and its clients: what a stranger sends is refused and counted, and retries run once."""

from random import Random
from typing import Any

import msgspec
import pytest

from lone_replica.lone import DOMAIN, GROUP
from vivum.core.errors import LimitError, NotNowError
from vivum.core.ids import Endpoint, Incarnation, Member, NodeId
from vivum.core.machine import Datagram, Event
from vivum.core.time import MILLISECOND, SECOND
from vivum.node.node import Node
from vivum.observe.counters import Counters
from vivum.protocols.consensus.batch import pack_commands
from vivum.protocols.consensus.client import (
    CommandDone,
    CommandLost,
    FollowChanges,
    Forget,
    LogClient,
    QueryDone,
    RequestFailed,
    RunCommand,
    RunQuery,
)
from vivum.protocols.consensus.client_settings import LogClientSettings, LogServerSettings
from vivum.protocols.consensus.configuration import Replica, ReplicaConfiguration
from vivum.protocols.consensus.machine import ReplicaMachine
from vivum.protocols.consensus.records import founding_record, recover
from vivum.protocols.consensus.server import LogServer
from vivum.sim.replicas.ledger import Ledger
from vivum.wire.codec import split
from vivum.wire.control import decode_control, encode_control
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

SERVER, OTHER, CLIENT = Endpoint("replica-1", 1), Endpoint("replica-2", 1), Endpoint("client", 1)


class Served:
    """One replica that leads by itself, and serves; messages go in and out by hand."""

    def __init__(self, *, voters: int = 1, **settings: Any) -> None:
        self.now_ns = SECOND
        founders = ReplicaConfiguration(Replica(number, f"replica-{number}", 1) for number in range(1, voters + 1))
        self.counters, member = Counters(), Member(NodeId(1), Incarnation(1))
        gate, self.ledger = Gate(DOMAIN, self.counters, member), Ledger()
        stored = recover([founding_record(founders)])
        self.replica = ReplicaMachine(NodeId(1), GROUP, stored, self.ledger, gate, Random(1), now_ns=self.now_ns)
        server = LogServer(self.replica, self.ledger, gate, LogServerSettings(**settings), now_ns=self.now_ns)
        self.node = Node(member, gate, [server], self.counters)
        if voters == 1:
            self.wait(SECOND)

    def wait(self, duration_ns: int) -> list[ControlMessage]:
        until_ns, seen = self.now_ns + duration_ns, self.take()
        while (at_ns := self.node.next_deadline_ns()) is not None and at_ns <= until_ns:
            self.now_ns = max(self.now_ns, at_ns)
            self.node.on_timer(self.now_ns)
            seen += self.take()
        self.now_ns = until_ns
        return seen

    def take(self) -> list[ControlMessage]:
        answers = []
        while effects := self.node.take_output():
            frames = [split(each.data)[0] for each in effects if isinstance(each, Datagram)]
            answers += [decode_control(each) for each in frames if each.kind is Kind.ANSWER]
        return answers

    def tell(self, message: ControlMessage, group: int = GROUP) -> list[ControlMessage]:
        data = encode_control(Kind.REQUEST, DOMAIN, 77, 0, group, 0, self.now_ns, message)
        self.node.on_datagrams(self.now_ns, [(CLIENT, data)])
        return self.take()

    def session(self) -> int:
        (answer,) = self.tell(SessionRequest(5))
        assert isinstance(answer, SessionAnswer)
        return answer.client


def commands(client: int, sequence: int, *content: bytes, heard: int = 0) -> CommandRequest:
    whole = pack_commands(content)
    return CommandRequest(9, client, sequence, heard, len(content), 0, len(whole), whole)


def test_a_command_that_comes_again_runs_once_and_gets_its_first_answer() -> None:
    served = Served()
    client = served.session()
    (first,) = served.tell(commands(client, 0, b"a"))
    (again,) = served.tell(commands(client, 0, b"a"))
    assert isinstance(first, CommandAnswer)
    assert isinstance(again, CommandAnswer)
    assert msgspec.msgpack.decode(first.content)[0] == msgspec.msgpack.decode(again.content)[0]
    digest = served.ledger.digest
    served.tell(commands(client, 0, b"a"))
    assert served.ledger.digest == digest


def test_a_request_in_parts_is_joined_and_one_that_lies_about_itself_is_refused() -> None:
    served = Served()
    client = served.session()
    whole = pack_commands([b"x" * 5000])
    half = len(whole) // 2
    assert served.tell(CommandRequest(9, client, 0, 0, 1, 0, len(whole), whole[:half])) == []
    (answer,) = served.tell(CommandRequest(9, client, 0, 0, 1, half, len(whole), whole[half:]))
    assert isinstance(answer, CommandAnswer)
    index = served.replica.log.last_index
    for wrong in (
        CommandRequest(9, client, 1, 0, 2, 0, len(whole), whole),
        CommandRequest(9, client, 1, 0, 1, 0, 3, b"abc"),
    ):
        assert served.tell(wrong) == []
    assert served.counters.frames_refused_state == 2
    assert served.replica.log.last_index == index


def test_a_request_that_is_too_large_is_refused_and_its_client_told() -> None:
    served = Served(request_bytes_max=1000)
    (answer,) = served.tell(CommandRequest(9, 1, 0, 0, 1, 0, 5000, b"x"))
    assert isinstance(answer, RequestRefused)
    assert "request_bytes_max" in answer.cause
    assert served.counters.frames_refused_state == 1


def test_a_request_for_another_log_is_refused() -> None:
    served = Served()
    assert served.tell(SessionRequest(1), group=GROUP + 1) == []
    assert served.counters.frames_refused_state == 1


def test_who_does_not_lead_says_who_does_and_answers_what_any_replica_can() -> None:
    served = Served(voters=3)
    for request in (SessionRequest(4), QueryRequest(4, False, b""), commands(3, 0, b"a")):
        (answer,) = served.tell(request)
        assert isinstance(answer, Redirection)
        assert answer.endpoint is None
    (answer,) = served.tell(QueryRequest(4, True, b""))
    assert isinstance(answer, QueryAnswer)
    # It hears no leader, so nothing new would ever come.
    (answer,) = served.tell(FollowRequest(4, 0, b""))
    assert isinstance(answer, Redirection)


def test_a_watch_is_answered_by_a_change_or_after_a_while() -> None:
    served = Served()
    client = served.session()
    after = served.ledger.last_index
    assert served.tell(FollowRequest(6, after, b"")) == []
    answers = served.tell(commands(client, 0, b"a"))
    (seen,) = [each for each in answers if isinstance(each, QueryAnswer)]
    assert (seen.request, seen.position) == (6, served.ledger.last_index)
    assert served.tell(FollowRequest(7, seen.position, b"")) == []
    (nothing,) = served.wait(2 * SECOND)
    assert nothing == QueryAnswer(7, seen.position, 0, 0, b"")


def test_watches_have_a_limit_that_is_told() -> None:
    served = Served(follows_max=1)
    assert served.tell(FollowRequest(6, 0, b"")) == []
    (answer,) = served.tell(FollowRequest(7, 0, b""))
    assert isinstance(answer, RequestRefused)
    assert "follows_max=1" in answer.cause


class Asking:
    """One client; the test speaks for its replicas."""

    def __init__(self, **settings: Any) -> None:
        self.now_ns = SECOND
        self.counters, member = Counters(), Member(NodeId(77), Incarnation(0))
        gate = Gate(DOMAIN, self.counters, member)
        self.client = LogClient(
            NodeId(77), GROUP, [SERVER, OTHER], gate, Random(1), LogClientSettings(**settings), now_ns=self.now_ns
        )
        self.node = Node(member, gate, [self.client], self.counters)

    def submit(self, command: Any) -> list[Any]:
        self.node.submit(self.now_ns, command)
        return self.take()

    def take(self) -> list[Any]:
        seen: list[Any] = []
        while effects := self.node.take_output():
            for each in effects:
                if isinstance(each, Datagram):
                    seen.append((each.destination, decode_control(split(each.data)[0])))
                elif isinstance(each, Event):
                    seen.append(each)
        return seen

    def wait(self, duration_ns: int) -> list[Any]:
        until_ns, seen = self.now_ns + duration_ns, self.take()
        while (at_ns := self.node.next_deadline_ns()) is not None and at_ns <= until_ns:
            self.now_ns = max(self.now_ns, at_ns)
            self.node.on_timer(self.now_ns)
            seen += self.take()
        self.now_ns = until_ns
        return seen

    def hear(self, message: ControlMessage, source: Endpoint | None = None) -> list[Any]:
        data = encode_control(Kind.ANSWER, DOMAIN, 1, 0, GROUP, 0, self.now_ns, message)
        self.node.on_datagrams(self.now_ns, [(source or self.client.target, data)])
        return self.take()

    def with_session(self) -> "Asking":
        asked = self.submit(RunCommand(1, b"first"))
        (request,) = [each[1] for each in asked if isinstance(each, tuple)]
        self.hear(SessionAnswer(request.request, 40))
        return self


def answer_of(sequence: int, *answers: bytes, statuses: list[int] | None = None, client: int = 40) -> CommandAnswer:
    content = msgspec.msgpack.encode([list(answers), statuses])
    return CommandAnswer(client, sequence, 0, len(content), content)


def test_a_client_asks_others_when_nobody_answers_and_does_so_less_and_less_often() -> None:
    asking = Asking()
    asking.submit(RunQuery(1, b"q"))
    asked = [each for each in asking.wait(3 * SECOND) if isinstance(each, tuple)]
    assert {where for where, _ in asked} == {SERVER, OTHER}
    assert len({message.request for _, message in asked}) == 1
    assert 3 <= len(asked) <= 6
    assert asking.counters.requests_repeated == len(asked)


def test_a_client_follows_a_redirection_and_does_not_run_in_circles() -> None:
    asking = Asking()
    asking.submit(RunQuery(1, b"q"))
    first = asking.client.target
    second = OTHER if first == SERVER else SERVER
    ((where, _),) = asking.hear(Redirection(1, 2, (*second,)))
    assert where == second
    assert asking.hear(Redirection(1, 1, (*first,))) == []
    assert asking.client.target == second
    assert asking.wait(30 * MILLISECOND)[0][0] == first


def test_an_answer_of_a_stranger_is_refused() -> None:
    asking = Asking()
    ((_, request),) = asking.submit(RunQuery(1, b"q"))
    assert asking.hear(QueryAnswer(request.request, 0, 0, 3, b"lie"), Endpoint("stranger", 9)) == []
    assert asking.counters.frames_refused_state == 1
    assert QueryDone(1, 0, b"yes") in asking.hear(QueryAnswer(request.request, 0, 0, 3, b"yes"))
    asking.hear(QueryAnswer(request.request, 0, 0, 3, b"yes"))
    assert asking.counters.answers_late == 1


@pytest.mark.parametrize(
    "wrong",
    [
        CommandAnswer(40, 0, 0, 3, b"abc"),
        CommandAnswer(40, 0, 0, 1 << 22, b"abc"),
        answer_of(0, b"one", b"two of one"),
        answer_of(0, b"one", statuses=[0, 0]),
    ],
    ids=["not msgpack", "too large", "of what was not asked", "more fates than answers"],
)
def test_an_answer_that_makes_no_sense_is_refused_and_changes_nothing(wrong: CommandAnswer) -> None:
    asking = Asking().with_session()
    assert asking.hear(wrong) == []
    assert asking.counters.frames_refused_state == 1
    assert CommandDone(1, b"one") in asking.hear(answer_of(0, b"one"))


def test_a_session_that_ended_gives_up_what_was_sent_and_keeps_the_rest() -> None:
    asking = Asking(requests_flying_max=1).with_session()
    asking.submit(RunCommand(2, b"second"))
    seen = asking.hear(answer_of(0, b"", statuses=[1]))
    assert [each.ticket for each in seen if isinstance(each, CommandLost)] == [1]
    (request,) = [each[1] for each in seen if isinstance(each, tuple)]
    (sent,) = [each[1] for each in asking.hear(SessionAnswer(request.request, 50)) if isinstance(each, tuple)]
    assert (sent.client, sent.sequence, sent.content[-6:]) == (50, 0, b"second")


def test_a_gap_makes_the_client_send_again_from_the_first_open_command() -> None:
    asking = Asking().with_session()
    asking.submit(RunCommand(2, b"second"))
    asking.now_ns += 100 * MILLISECOND
    ((_, sent),) = asking.hear(answer_of(1, b"", statuses=[2]))
    assert (sent.sequence, sent.count) == (0, 2)


def test_a_refused_request_fails_its_commands_and_a_forgotten_query_is_told_to_nobody() -> None:
    asking = Asking().with_session()
    ((_, sent),) = [each for each in asking.submit(RunCommand(2, b"second")) if isinstance(each, tuple)]
    seen = asking.hear(RequestRefused(sent.request, "no"))
    assert RequestFailed(2, "no") in seen
    assert [each.ticket for each in seen if isinstance(each, CommandLost)] == [1]
    ((_, asked),) = [each for each in asking.submit(FollowChanges(3, b"q", 0)) if isinstance(each, tuple)]
    asking.submit(Forget(3))
    assert asking.hear(QueryAnswer(asked.request, 1, 0, 3, b"yes")) == []


def test_limits_of_a_client_are_told_by_their_names() -> None:
    asking = Asking(commands_open_max=1, queries_open_max=1, command_bytes_max=10)
    with pytest.raises(LimitError, match="command_bytes_max=10"):
        asking.submit(RunCommand(1, b"x" * 11))
    asking.submit(RunCommand(1, b"x"))
    with pytest.raises(NotNowError, match="commands_open_max"):
        asking.submit(RunCommand(2, b"x"))
    with pytest.raises(LimitError, match="does not fit a frame"):
        asking.submit(RunQuery(3, b"x" * 2000))
    asking.submit(RunQuery(3, b"x"))
    with pytest.raises(NotNowError, match="queries_open_max"):
        asking.submit(RunQuery(4, b"x"))
