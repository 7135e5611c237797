"""Sentence by sentence: D. Ongaro and J. Ousterhout, "In Search of an Understandable Consensus Algorithm" (2014).

Each test quotes the sentence that it checks. "Thesis": D. Ongaro, "Consensus: Bridging Theory and Practice" (2014).
"""

from itertools import pairwise

import pytest

from lone_replica.lone import ELECTION_NS, Lone, answers, batch, messages
from vivum.core.errors import NotNowError
from vivum.core.ids import NodeId
from vivum.core.time import SECOND
from vivum.protocols.consensus.batch import BatchKind, seal_batch, split_batches
from vivum.protocols.consensus.commands import (
    AddLearner,
    LeaderChanged,
    NotLeaderError,
    PromoteLearner,
    Propose,
    ReadIndex,
    ReadsAllowed,
    RemoveReplica,
    RequestsRefused,
    TransferLeadership,
)
from vivum.protocols.consensus.configuration import Replica
from vivum.protocols.consensus.records import StoredRecord
from vivum.protocols.consensus.roles import Following, Standing
from vivum.protocols.consensus.snapshot import SnapshotImage, encode_snapshot
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


def ask(term: int, last: tuple[int, int] = (1, 0), *, is_pre: bool = False, is_transfer: bool = False) -> VoteRequest:
    return VoteRequest(term, *last, is_pre, is_transfer)


# 5.1 Raft basics.


def test_5_1_a_stale_term_is_rejected() -> None:
    """ "If a server receives a request with a stale term number, it rejects the request." """
    lone = Lone()
    lone.follow(2, 5)
    seen = lone.append(3, 4, (1, 0), batch(2, 4))
    assert messages(seen, AppendReply) == []
    assert messages(seen, HeartbeatReply, 3) == [HeartbeatReply(5, 0, 0, 0)]
    assert lone.replica.log.last_index == 1


def test_5_1_a_leader_whose_term_is_out_of_date_steps_down() -> None:
    """ "If a candidate or leader discovers that its term is out of date, it immediately reverts to follower state." """
    lone = Lone()
    term = lone.lead()
    lone.tell(3, HeartbeatReply(term + 7, 0, 0, 0))
    assert type(lone.replica.role) is Following
    assert lone.replica.term == term + 7
    assert LeaderChanged(term + 7, NodeId(0)) in lone.take()


# 5.2 Leader election.


def test_5_2_a_server_votes_once_in_a_term() -> None:
    """ "Each server will vote for at most one candidate in a given term, on a first-come-first-served basis." """
    lone = Lone()
    lone.tell(2, ask(3))
    lone.tell(3, ask(3))
    seen = lone.take()
    assert messages(seen, Vote, 2) == [Vote(3, False, True)]
    assert messages(seen, Vote, 3) == [Vote(3, False, False)]
    # Neither after a restart.
    lone.start()
    lone.tell(3, ask(3))
    assert messages(lone.take(), Vote, 3) == [Vote(3, False, False)]
    lone.tell(2, ask(3))
    assert messages(lone.take(), Vote, 2) == [Vote(3, False, True)]


def test_5_2_a_candidate_gives_way_to_the_leader_of_its_term() -> None:
    """ "If the leader's term … is at least as large as the candidate's current term, then the candidate … returns to
    follower state." """
    lone = Lone()
    lone.wait(2 * ELECTION_NS)
    lone.tell(2, Vote(lone.replica.term + 1, True, True))
    assert isinstance(lone.replica.role, Standing)
    lone.take()
    lone.follow(3, lone.replica.term)
    assert type(lone.replica.role) is Following
    assert lone.replica.leader == 3


def test_5_2_election_timeouts_are_chosen_randomly() -> None:
    """ "Election timeouts are chosen randomly from a fixed interval." """
    lone, deadlines = Lone(), []
    for _ in range(20):
        lone.follow(2, 1)
        deadline_ns = lone.node.next_deadline_ns()
        assert deadline_ns is not None
        deadlines.append(deadline_ns - lone.now_ns)
    assert all(ELECTION_NS <= each < 2 * ELECTION_NS for each in deadlines)
    assert len(set(deadlines)) > 15


# 5.3 Log replication.


def test_5_3_a_follower_refuses_what_does_not_follow() -> None:
    """ "If the follower does not find an entry in its log with the same index and term, then it refuses the new
    entries." """
    lone = Lone()
    lone.append(2, 3, (1, 0), batch(2, 1, b"a"), batch(3, 1, b"b"))
    for previous, hint in (((3, 2), 1), ((7, 3), 3)):
        (refusal,) = messages(lone.append(2, 3, previous, batch(previous[0] + 1, 3)), AppendReply)
        assert (refusal.refused, refusal.hint) == (previous[0], hint)
    assert lone.replica.log.last_index == 3


def test_5_3_conflicting_entries_are_overwritten() -> None:
    """ "Conflicting entries in follower logs will be overwritten with entries from the leader's log." """
    lone = Lone()
    lone.append(2, 1, (1, 0), batch(2, 1, b"a"), batch(3, 1, b"b"), batch(4, 1, b"c"))
    (reply,) = messages(lone.append(3, 2, (2, 1), batch(3, 2, b"d")), AppendReply)
    assert reply.matched == 3
    assert [(each.last, each.term) for each in lone.replica.log.batches] == [(1, 0), (2, 1), (3, 2)]
    lone.start()
    assert [(each.last, each.term) for each in lone.replica.log.batches] == [(1, 0), (2, 1), (3, 2)]


def test_5_3_an_old_message_takes_nothing_away() -> None:
    """Figure 2: "If an existing entry conflicts with a new one … delete the existing entry and all that follow it"; so
    one that agrees takes nothing away, however late it comes."""
    lone = Lone()
    first, second = batch(2, 1, b"a"), batch(3, 1, b"b")
    lone.append(2, 1, (1, 0), first, second)
    lone.append(2, 1, (1, 0), first)
    assert lone.replica.log.last_index == 3


def test_5_3_a_refused_leader_goes_back_to_where_the_logs_agree() -> None:
    """ "After a rejection, the leader decrements nextIndex and retries the AppendEntries RPC." """
    lone = Lone()
    term = lone.lead()
    client = lone.session()
    for number in range(5):
        lone.submit(Propose(client, number, [b"x"]))
        lone.take()
        lone.acknowledge(2)
    last = lone.replica.log.last_index
    lone.tell(3, AppendReply(term, 0, 0, 1, 0, 0))
    lone.wait(SECOND // 10)
    lone.tell(3, AppendReply(term, 0, 1, 0, 0, 0))
    (sent,) = messages(lone.take(), AppendEntries, 3)
    assert (sent.previous_index, sent.previous_term) == (1, 0)
    assert [each.first for each in split_batches(sent.content)] == list(range(2, last + 1))


# 5.4 Safety.


def test_5_4_1_the_vote_goes_to_logs_that_are_up_to_date() -> None:
    """ "The voter denies its vote if its own log is more up-to-date than that of the candidate." """
    for last, is_granted in (((3, 2), True), ((9, 1), False), ((2, 2), False), ((1, 3), True), ((4, 2), True)):
        for is_pre in (False, True):
            lone = Lone()
            lone.append(2, 2, (1, 0), batch(2, 2, b"a"), batch(3, 2, b"b"))
            lone.wait(ELECTION_NS)
            lone.tell(3, ask(lone.replica.term + 1, last, is_pre=is_pre))
            (vote,) = messages(lone.take(), Vote, 3)
            assert vote.is_granted is is_granted, (last, is_pre)


def test_5_4_2_entries_of_former_terms_are_not_committed_by_counting() -> None:
    """ "Raft never commits log entries from previous terms by counting replicas." (Figure 8)"""
    lone = Lone()
    lone.append(2, 2, (1, 0), batch(2, 2, b"of term 2"))
    lone.wait(2 * ELECTION_NS)
    term = lone.replica.term
    lone.tell(3, Vote(term + 1, True, True))
    lone.take()
    lone.tell(3, Vote(term + 1, False, True))
    lone.take()
    assert lone.replica.leads
    # (c) of the figure: the entry of term 2 is on a majority now, and may still be overwritten.
    lone.tell(3, AppendReply(term + 1, 0, 2, 0, 0, 0))
    lone.take()
    assert lone.replica.log.commit_index == 0
    # (e): "once an entry from the current term has been committed in this way, then all prior entries are".
    lone.tell(3, AppendReply(term + 1, 0, 3, 0, 0, 0))
    lone.take()
    assert lone.replica.log.commit_index == 3
    assert lone.journal.commands == []  # It was of no session.


def test_a_leader_does_not_count_itself_before_its_entries_are_written() -> None:
    """Figure 2, State: "Updated on stable storage before responding to RPCs"."""
    lone = Lone()
    lone.lead()
    client = lone.session()
    lone.submit(Propose(client, 0, [b"x"]))
    last = lone.replica.log.last_index
    # The acknowledgement of a peer that was told in another way: one of three has it, and the leader not yet.
    lone.tell(2, AppendReply(lone.replica.term, 0, last, 0, 0, 0))
    assert lone.replica.log.commit_index == last - 1
    seen = lone.take()
    record = next(at for at, each in enumerate(seen) if isinstance(each, StoredRecord))
    answer = next(at for at, each in enumerate(seen) if answers([each]))
    assert record < answer


def test_votes_and_acknowledgements_stand_behind_their_record() -> None:
    """Figure 2, State: currentTerm, votedFor and log[] are "updated on stable storage before responding to RPCs"."""
    lone = Lone()
    lone.tell(2, ask(3))
    record, (to, vote) = [each for each in lone.take() if isinstance(each, tuple)]
    assert (record.promises.term, record.promises.vote) == (3, 2)
    assert (to, vote) == (2, Vote(3, False, True))
    seen = lone.append(2, 3, (1, 0), batch(2, 3, b"x"))
    record = next(at for at, each in enumerate(seen) if isinstance(each, StoredRecord))
    (reply,) = [at for at, each in enumerate(seen) if messages([each], AppendReply)]
    assert record < reply
    # A candidate writes its vote for itself before it asks for others.
    lone.wait(2 * ELECTION_NS)
    lone.tell(2, Vote(lone.replica.term + 1, True, True))
    seen = lone.take()
    record = next(at for at, each in enumerate(seen) if isinstance(each, StoredRecord))
    assert all(record < at for at, each in enumerate(seen) if messages([each], VoteRequest))


def test_all_that_came_in_shares_one_record() -> None:
    lone = Lone()
    lone.follow(2, 1)
    contents = [batch(number, 1, b"x") for number in range(2, 30)]
    previous = [(1, 0), *[(each.last, 1) for each in contents]]
    lone.tell(2, *[AppendEntries(1, 1, *at, 0, 0, 0, each.data) for at, each in zip(previous, contents, strict=False)])
    seen = lone.take()
    assert len([each for each in seen if isinstance(each, StoredRecord)]) == 1
    assert [each.matched for each in messages(seen, AppendReply)] == [29]


# 6 Membership; thesis, chapter 4.


def test_6_votes_are_not_asked_of_those_who_hear_a_leader() -> None:
    """ "Servers disregard RequestVote RPCs when they believe a current leader exists." """
    lone = Lone()
    lone.follow(2, 3)
    for is_pre in (False, True):
        lone.tell(3, ask(9, (100, 8), is_pre=is_pre))
        assert messages(lone.take(), Vote) == []
    assert lone.replica.term == 3
    lone.tell(3, ask(9, (100, 8), is_transfer=True))
    assert messages(lone.take(), Vote, 3) == [Vote(9, False, True)]


def test_6_a_configuration_counts_as_soon_as_it_is_in_the_log_and_not_when_it_is_cut() -> None:
    """ "A server always uses the latest configuration in its log, regardless of whether the entry is committed." """
    lone = Lone()
    changed = lone.replica.configuration.without(NodeId(3))
    lone.append(2, 1, (1, 0), seal_batch(BatchKind.CONFIGURATION, 2, 1, 0, changed.encode()))
    assert lone.replica.configuration.voters == {1, 2}
    lone.append(3, 2, (1, 0), batch(2, 2))
    assert lone.replica.configuration.voters == {1, 2, 3}


def test_one_change_at_a_time_and_only_when_the_term_has_a_commit() -> None:
    """Thesis, 4.1, and Ongaro's correction of 2015: a leader must have committed an entry of its term first."""
    lone = Lone()
    lone.wait(2 * ELECTION_NS)
    lone.tell(2, Vote(1, True, True))
    lone.take()
    lone.tell(2, Vote(1, False, True))
    lone.take()
    learner = AddLearner(Replica(4, "replica-4", 1))
    with pytest.raises(NotNowError, match="the replicas change one at a time"):
        lone.submit(learner)
    lone.acknowledge(2)
    lone.submit(learner)
    with pytest.raises(NotNowError, match="the replicas change one at a time"):
        lone.submit(RemoveReplica(NodeId(3)))
    lone.take()
    lone.acknowledge(2)
    with pytest.raises(NotNowError, match="promote_lag_max: replica 4 lacks"):
        lone.submit(PromoteLearner(NodeId(4)))
    lone.acknowledge(4)
    lone.submit(PromoteLearner(NodeId(4)))
    assert lone.replica.configuration.voters == {1, 2, 3, 4}
    assert lone.replica.configuration.quorum == 3


def test_6_a_leader_that_is_removed_steps_down_when_that_is_committed() -> None:
    """ "The leader steps down (returns to follower state) once it has committed the C-new log entry." """
    lone = Lone()
    lone.lead()
    lone.submit(RemoveReplica(NodeId(1)))
    lone.take()
    # It does not count itself in majorities: one of the two others is none.
    lone.acknowledge(2)
    assert lone.replica.leads
    lone.acknowledge(3)
    assert not lone.replica.leads
    assert lone.node.next_deadline_ns() is None


# 7 Log compaction.


def install(lone: Lone, image: SnapshotImage, part_bytes: int, term: int) -> list[object]:
    data, seen = encode_snapshot(image), []
    for at in range(0, len(data), part_bytes):
        part = data[at : at + part_bytes]
        lone.tell(2, InstallSnapshot(term, 1, image.index, at, len(data), part))
        seen += lone.take()
    return seen


def test_7_a_snapshot_takes_the_place_of_a_log_that_it_is_ahead_of() -> None:
    """ "The follower discards its entire log; it is all superseded by the snapshot." """
    lone = Lone()
    lone.append(2, 1, (1, 0), batch(2, 1, b"old"))
    founders = lone.replica.configuration
    image = SnapshotImage(50, 3, lone.replica._foundation, 0, founders.encode(), b"\x90", b"a\nb")
    seen = install(lone, image, 20, 4)
    assert lone.journal.commands == [b"a", b"b"]
    assert (lone.replica.log.base_index, lone.replica.log.last_index) == (50, 50)
    assert messages(seen, AppendReply)[-1].matched == 50
    lone.start()
    assert lone.journal.commands == [b"a", b"b"]
    assert lone.replica.applied_index == 50


def test_7_the_log_behind_a_snapshot_stays_where_it_agrees() -> None:
    """Figure 13: "If existing log entry has same index and term as snapshot's last included entry, retain log entries
    following it"."""
    lone = Lone()
    lone.append(2, 3, (1, 0), batch(2, 3, b"a"), batch(3, 3, b"b"), batch(4, 3, b"c"))
    founders = lone.replica.configuration
    image = SnapshotImage(3, 3, lone.replica._foundation, 0, founders.encode(), b"\x90", b"a\nb")
    install(lone, image, 1000, 3)
    assert lone.replica.log.last_index == 4
    lone.start()
    assert (lone.replica.log.base_index, lone.replica.log.last_index) == (3, 4)


# 8 Client interaction.


def test_8_a_command_that_was_executed_is_answered_and_not_executed_again() -> None:
    """ "If it receives a command whose serial number has already been executed, it responds immediately without
    re-executing the request." """
    lone = Lone()
    lone.lead()
    client = lone.session()
    lone.submit(Propose(client, 0, [b"a", b"b"]))
    lone.take()
    first = answers(lone.acknowledge(2))
    lone.submit(Propose(client, 0, [b"a", b"b", b"c"]))
    lone.take()
    again = answers(lone.acknowledge(2))
    assert again[:2] == first
    assert lone.journal.commands == [b"a", b"b", b"c"]


def test_8_a_read_waits_until_a_majority_has_answered_a_later_round() -> None:
    """ "A leader must check whether it has been deposed before processing a read-only request." """
    lone = Lone()
    lone.lead()
    lone.answer_round(2, 3)
    lone.submit(ReadIndex(77))
    seen = lone.take()
    assert len(messages(seen, LeaderHeartbeat)) == 2
    assert not any(isinstance(each, ReadsAllowed) for each in seen)
    # The answer to an earlier round says nothing of now.
    lone.tell(2, HeartbeatReply(lone.replica.term, messages(seen, LeaderHeartbeat)[0].round - 1, 0, 0))
    assert not any(isinstance(each, ReadsAllowed) for each in lone.take())
    assert any(isinstance(each, ReadsAllowed) and each.requests == [77] for each in lone.answer_round(3))


def test_8_a_new_leader_reads_only_when_an_entry_of_its_term_is_committed() -> None:
    """ "Each leader … commit a blank no-op entry into the log at the start of its term." """
    lone = Lone()
    lone.wait(2 * ELECTION_NS)
    lone.tell(2, Vote(1, True, True))
    lone.take()
    lone.tell(2, Vote(1, False, True))
    lone.take()
    lone.submit(ReadIndex(5))
    assert not any(isinstance(each, ReadsAllowed) for each in lone.answer_round(2, 3))
    lone.acknowledge(2)
    assert any(isinstance(each, ReadsAllowed) for each in lone.answer_round(2))


def test_reads_that_wait_at_a_deposed_leader_are_told_so() -> None:
    lone = Lone()
    term = lone.lead()
    lone.submit(ReadIndex(5))
    lone.take()
    lone.tell(3, HeartbeatReply(term + 1, 0, 0, 0))
    assert RequestsRefused([5], []) in lone.take()
    with pytest.raises(NotLeaderError):
        lone.submit(ReadIndex(6))


# The thesis: check-quorum, pre-vote, transfer.


def test_thesis_6_2_a_leader_without_a_majority_steps_down() -> None:
    """ "A leader … steps down if an election timeout elapses without a successful round of heartbeats to a majority of
    its cluster." """
    lone = Lone()
    lone.lead()
    lone.wait(2 * ELECTION_NS)
    assert not lone.replica.leads


def test_thesis_9_6_a_pre_candidate_changes_no_term() -> None:
    """ "A candidate only increments its term if it first learns from a majority of the cluster that they would be
    willing to grant the candidate their votes." """
    lone = Lone()
    seen = lone.wait(20 * ELECTION_NS)
    assert lone.replica.term == 0
    assert all(each.is_pre and each.term == 1 for each in messages(seen, VoteRequest))
    assert len(messages(seen, VoteRequest)) > 10


def test_thesis_3_10_leadership_goes_to_a_replica_that_has_everything() -> None:
    """ "The prior leader sends a TimeoutNow request to the target server", once that has the whole log."""
    lone = Lone()
    lone.lead()
    client = lone.session()
    lone.submit(TransferLeadership(NodeId(3)))
    assert messages(lone.take(), TimeoutNow) == []
    with pytest.raises(NotNowError, match="handing over to 3"):
        lone.submit(Propose(client, 0, [b"x"]))
    assert len(messages(lone.acknowledge(3), TimeoutNow, 3)) == 1


def test_thesis_3_10_a_transfer_that_does_not_work_ends_after_an_election_timeout() -> None:
    """ "If leadership transfer does not complete after about an election timeout, the prior leader aborts the transfer
    and resumes accepting client requests." """
    lone = Lone()
    lone.lead()
    client = lone.session()
    lone.submit(TransferLeadership(NodeId(3)))
    for _ in range(10):
        lone.wait(ELECTION_NS // 8)
        lone.answer_round(2)
    lone.submit(Propose(client, 0, [b"x"]))


def test_thesis_3_10_the_target_stands_at_once() -> None:
    """ "This has the same effect as the target server's election timer firing." """
    lone = Lone()
    lone.follow(2, 1)
    lone.tell(2, TimeoutNow(1))
    seen = lone.take()
    assert [(each.term, each.is_pre, each.is_transfer) for each in messages(seen, VoteRequest)] == [
        (2, False, True)
    ] * 2


def test_log_time_never_goes_back() -> None:
    lone = Lone()
    lone.append(2, 1, (1, 0), seal_batch(BatchKind.NOOP, 2, 1, lone.now_ns + 50 * SECOND))
    lone.lead()
    client = lone.session()
    lone.submit(Propose(client, 0, [b"x"]))
    times = [each.time_ns for each in lone.replica.log.batches]
    assert all(a <= b for a, b in pairwise(times))
