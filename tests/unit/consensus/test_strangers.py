"""What a peer sends is checked before it is used: refused, counted, and nothing has changed."""

from collections.abc import Callable

import pytest

from lone_replica.lone import FOUNDATION, Lone, batch, messages
from vivum.core.errors import LimitError, NotNowError, UsageError
from vivum.core.ids import NodeId
from vivum.core.time import SECOND
from vivum.protocols.consensus.batch import BatchKind, EntryBatch, pack_commands, seal_batch, split_batches
from vivum.protocols.consensus.commands import (
    AddLearner,
    CommandsAnswered,
    PromoteLearner,
    Propose,
    ReadIndex,
    RemoveReplica,
    TransferLeadership,
)
from vivum.protocols.consensus.configuration import Replica
from vivum.protocols.consensus.sessions import CommandStatus
from vivum.wire.consensus import (
    AppendEntries,
    AppendReply,
    HeartbeatReply,
    InstallSnapshot,
    LeaderHeartbeat,
    TimeoutNow,
    Vote,
    VoteRequest,
)
from vivum.wire.fields import ControlMessage


def state_of(lone: Lone) -> tuple[object, ...]:
    replica = lone.replica
    log = replica.log
    return (replica.term, replica.leader, log.last_index, log.commit_index, replica.configuration, tuple(lone.disk))


def entries(*batches: EntryBatch, term: int = 3, previous: tuple[int, int] = (3, 3)) -> AppendEntries:
    return AppendEntries(term, 1, *previous, 0, 0, 0, b"".join([each.data for each in batches]))


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


GOOD = batch(4, 3, b"x")
FOLLOWER_REFUSES: dict[str, ControlMessage] = {
    "a batch with a wrong checksum": AppendEntries(3, 1, 3, 3, 0, 0, 0, flipped(GOOD.data)),
    "half a batch": AppendEntries(3, 1, 3, 3, 0, 0, 0, GOOD.data[:-1]),
    "half a header": AppendEntries(3, 1, 3, 3, 0, 0, 0, GOOD.data[:20]),
    "a batch that does not follow": entries(batch(5, 3, b"x")),
    "a batch of a later term than its leader's": entries(batch(4, 4, b"x")),
    "a batch of a term before the entry in front": entries(batch(4, 2, b"x")),
    "terms that fall": entries(batch(4, 3, b"x"), batch(5, 2, b"x")),
    "a configuration that is none": entries(seal_batch(BatchKind.CONFIGURATION, 4, 3, 0, b"nonsense")),
    "a configuration in which nobody votes": entries(seal_batch(BatchKind.CONFIGURATION, 4, 3, 0, b"\x90")),
    "a no-op with two entries": entries(seal_batch(BatchKind.NOOP, 4, 3, 0, count=2)),
    "commands that do not fill their batch": entries(
        seal_batch(BatchKind.COMMANDS, 4, 3, 0, pack_commands([b"a", b"b"]) + b"c", 2)
    ),
    "more commands than there are": entries(seal_batch(BatchKind.COMMANDS, 4, 3, 0, b"abc", 9)),
    "a batch too large for any command": AppendEntries(3, 1, 3, 3, 0, 0, 1 << 30, b"x"),
    "a snapshot too large": InstallSnapshot(3, 1, 50, 0, 1 << 30, b"x"),
    "a snapshot that is none": InstallSnapshot(3, 1, 50, 0, 8, b"nonsense"),
}


@pytest.mark.parametrize("what", FOLLOWER_REFUSES)
def test_a_follower_refuses(what: str) -> None:
    lone = Lone()
    lone.append(2, 3, (1, 0), batch(2, 3), batch(3, 3, b"a"))
    before = state_of(lone)
    lone.tell(2, FOLLOWER_REFUSES[what])
    assert messages(lone.take(), AppendReply) == []
    assert state_of(lone) == before
    assert lone.counters.frames_refused_state == 1
    # And the same place takes what is good.
    (reply,) = messages(lone.append(2, 3, (3, 3), GOOD), AppendReply)
    assert reply.matched == 4


def test_a_commit_beyond_what_was_compared_commits_nothing() -> None:
    lone = Lone()
    lone.append(2, 3, (1, 0), batch(2, 3))
    lone.start()
    lone.tell(2, LeaderHeartbeat(3, 1, 2))
    (reply,) = messages(lone.take(), HeartbeatReply)
    assert (reply.lost, reply.last_index) == (1, 2)
    assert lone.replica.log.commit_index == 0


def test_a_second_leader_of_a_term_is_refused() -> None:
    lone = Lone()
    lone.follow(2, 3)
    lone.tell(3, LeaderHeartbeat(3, 1, 0))
    assert lone.replica.leader == 2
    assert lone.counters.frames_refused_state == 1
    lone.tell(3, TimeoutNow(3))
    assert lone.counters.frames_refused_state == 2


LEADER_REFUSES: dict[str, Callable[[Lone], ControlMessage]] = {
    "an acknowledgement of what is not there": lambda lone: AppendReply(lone.replica.term, 1, 999, 0, 0, 0),
    "an acknowledgement within a batch": lambda lone: AppendReply(
        lone.replica.term, 1, lone.replica.log.last_index - 1, 0, 0, 0
    ),
    "an answer to a round that was not": lambda lone: HeartbeatReply(lone.replica.term, 999, 0, 0),
    "a refusal of what was not sent": lambda lone: AppendReply(lone.replica.term, 1, 0, 999, 5, 0),
}


@pytest.mark.parametrize("what", LEADER_REFUSES)
def test_a_leader_refuses(what: str) -> None:
    lone = Lone()
    lone.lead()
    client = lone.session()
    lone.submit(Propose(client, 0, [b"a", b"b", b"c"]))
    lone.take()
    before = state_of(lone)
    lone.tell(3, LEADER_REFUSES[what](lone))
    lone.take()
    assert lone.counters.frames_refused_state == 1
    assert state_of(lone) == before


def test_frames_of_another_log_or_group_are_refused() -> None:
    lone = Lone()
    lone.tell(2, VoteRequest(9, 9, 9, False, False), foundation=FOUNDATION ^ 1)
    lone.tell(2, VoteRequest(9, 9, 9, False, False), group=2)
    lone.tell(1, VoteRequest(9, 9, 9, False, False))
    lone.take()
    assert lone.counters.frames_refused_state == 3
    assert lone.replica.term == 0


def test_a_higher_term_of_a_stranger_ends_no_leadership() -> None:
    lone = Lone()
    term = lone.lead()
    lone.tell(9, HeartbeatReply(term + 1, 0, 0, 0))
    lone.tell(9, Vote(term + 1, False, False))
    assert lone.replica.leads


def test_a_replica_without_a_log_votes_and_belongs_to_the_first_that_takes_it_in() -> None:
    lone = Lone(founders=None)
    assert lone.node.next_deadline_ns() is None
    lone.tell(2, VoteRequest(4, 9, 3, False, False))
    assert messages(lone.take(), Vote) == [Vote(4, False, True)]
    founding = Lone().replica.log.batches[0]
    lone.append(2, 4, (0, 0), founding, batch(2, 4))
    assert lone.replica.configuration.voters == {1, 2, 3}
    lone.tell(3, LeaderHeartbeat(9, 1, 0), foundation=FOUNDATION ^ 1)
    assert lone.replica.term == 4


# What the own program asks is checked too.


def test_commands_that_cannot_be_are_refused_and_change_nothing() -> None:
    lone = Lone(command_bytes_max=100, replicas_max=3)
    lone.lead()
    client = lone.session()
    before = state_of(lone)
    for command, error, told in (
        (Propose(client, 0, []), UsageError, "no commands"),
        (Propose(client, 0, [bytes(101)]), LimitError, "command_bytes_max=100"),
        (AddLearner(Replica(3, "replica-3", 1)), UsageError, "is there already"),
        (AddLearner(Replica(4, "replica-4", 1)), LimitError, "replicas_max"),
        (PromoteLearner(NodeId(2)), UsageError, "is no learner"),
        (RemoveReplica(NodeId(9)), UsageError, "there is no replica 9"),
        (TransferLeadership(NodeId(9)), UsageError, "does not vote"),
    ):
        with pytest.raises(error, match=told):
            lone.submit(command)
    assert state_of(lone) == before


def test_proposals_wait_while_too_much_is_not_committed() -> None:
    lone = Lone(pending_bytes_max=1000)
    lone.lead()
    client = lone.session()
    for number in range(5):
        lone.submit(Propose(client, number, [bytes(100)]))
        lone.take()
    with pytest.raises(NotNowError, match="pending_bytes_max"):
        lone.submit(Propose(client, 5, [bytes(100)]))
    lone.acknowledge(2)
    lone.submit(Propose(client, lone.replica.applied_index, [bytes(100)]))


def test_reads_wait_while_too_many_do() -> None:
    lone = Lone(reads_max=5)
    lone.lead()
    for request in range(5):
        lone.submit(ReadIndex(request))
    with pytest.raises(NotNowError, match="reads_max"):
        lone.submit(ReadIndex(6))


def test_windows_bound_what_is_under_way() -> None:
    lone = Lone(window_messages_max=4, batch_bytes_max=200)
    lone.lead()
    lone.acknowledge(3)
    client = lone.session()
    lone.acknowledge(3)
    for number in range(50):
        lone.submit(Propose(client, number, [bytes(1300)]))
    assert len(messages(lone.take(), AppendEntries, 3)) == 4
    assert lone.node.has_data is False


def test_a_command_that_no_frame_can_hold_goes_in_parts() -> None:
    lone = Lone()
    term = lone.lead()
    lone.acknowledge(2, 3)
    client = lone.session()
    lone.acknowledge(3)
    command = bytes(range(256)) * 20
    lone.submit(Propose(client, 0, [command]))
    parts = messages(lone.take(), AppendEntries, 3)
    assert len(parts) > 3
    assert {each.total for each in parts} == {sum(len(each.content) for each in parts)}
    (whole,) = split_batches(b"".join([each.content for each in parts]))
    assert whole.commands() == [command]
    # At a follower, with one part that comes twice and one that is lost.
    other = Lone()
    other.append(2, term, (1, 0), *lone.replica.log.batches[1:-1])
    other.tell(2, *parts[:2], parts[1], *parts[3:])
    (reply,) = messages(other.take(), AppendReply)
    assert (reply.matched, reply.offset) == (parts[0].previous_index, parts[2].offset)
    other.tell(2, *parts[2:])
    assert messages(other.take(), AppendReply)[-1].matched == whole.last


# Sessions, in the order of the log.


def statuses(lone: Lone, client: int, sequence: int, *commands: bytes, heard: int = 0) -> list[CommandStatus]:
    lone.submit(Propose(client, sequence, list(commands), heard))
    (answered,) = [each for each in lone.take() + lone.acknowledge(2) if isinstance(each, CommandsAnswered)]
    return answered.statuses or [CommandStatus.DONE] * len(answered.answers)


def test_a_command_behind_a_gap_does_not_run() -> None:
    lone = Lone()
    lone.lead()
    client = lone.session()
    assert statuses(lone, client, 1, b"b") == [CommandStatus.SEQUENCE_GAP]
    assert statuses(lone, client, 0, b"a") == [CommandStatus.DONE]
    assert lone.journal.commands == [b"a"]


def test_answers_that_were_heard_or_are_too_many_are_forgotten() -> None:
    lone = Lone(session_answers_max=2)
    lone.lead()
    client = lone.session()
    for number in range(4):
        assert statuses(lone, client, number, b"x") == [CommandStatus.DONE]
    assert statuses(lone, client, 0, *[b"x"] * 4) == [
        CommandStatus.ANSWER_FORGOTTEN,
        CommandStatus.ANSWER_FORGOTTEN,
        CommandStatus.DONE,
        CommandStatus.DONE,
    ]
    assert statuses(lone, client, 3, b"x", heard=4) == [CommandStatus.ANSWER_FORGOTTEN]
    assert lone.journal.commands == [b"x"] * 4


def test_sessions_end_when_they_are_too_many_or_idle() -> None:
    lone = Lone(sessions_max=2, session_idle_ns=1000 * SECOND)
    lone.lead()
    first, second = lone.session(), lone.session()
    statuses(lone, first, 0, b"x")
    third = lone.session()
    assert statuses(lone, second, 0, b"x") == [CommandStatus.SESSION_EXPIRED]
    assert statuses(lone, first, 1, b"x") == [CommandStatus.DONE]
    lone.now_ns += 1001 * SECOND
    assert statuses(lone, third, 0, b"x") == [CommandStatus.SESSION_EXPIRED]
    assert lone.replica.session_count == 0
