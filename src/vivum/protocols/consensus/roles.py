"""The roles of a replica: follower, candidate, leader. What a role knows ends with it.

Pure bookkeeping: the replica decides when a role begins and ends, and does what its role says is due.
"""

from collections import deque
from typing import NamedTuple

from vivum.core.ids import NodeId
from vivum.protocols.consensus.configuration import ReplicaConfiguration
from vivum.protocols.consensus.log import ReplicatedLog
from vivum.protocols.consensus.progress import Progress
from vivum.protocols.consensus.records import NOBODY
from vivum.protocols.consensus.settings import ConsensusSettings


class Following:
    """Follows a leader, or waits for one."""

    __slots__ = ("agreed_index", "heard_ns", "leader")

    def __init__(self, leader: NodeId, now_ns: int) -> None:
        self.leader = leader
        self.heard_ns = now_ns
        self.agreed_index = 0
        """The log up to this entry is the same as the leader's: it was compared in this life and term."""


class Standing:
    """Asks for votes; as a pre-candidate, what they would be."""

    __slots__ = ("is_pre", "is_transfer", "votes")

    leader = NOBODY

    def __init__(self, own: NodeId, *, is_pre: bool, is_transfer: bool) -> None:
        self.is_pre = is_pre
        self.is_transfer = is_transfer
        self.votes: set[NodeId] = {own}


class Transfer(NamedTuple):
    """Leadership that is being handed over, and until when."""

    to: NodeId
    until_ns: int


class WaitingRead(NamedTuple):
    """A read that waits until this round of heartbeats was answered by a majority."""

    round: int
    read_index: int
    request: int


class Leading:
    """Leads a term."""

    __slots__ = (
        "_own",
        "_settings",
        "ahead_ns",
        "began_ns",
        "early_reads",
        "first_index",
        "heartbeat_at_ns",
        "is_round_due",
        "leader",
        "opening",
        "peers",
        "pending_bytes",
        "reads",
        "round",
        "transfer",
    )

    def __init__(self, own: NodeId, first_index: int, now_ns: int, settings: ConsensusSettings) -> None:
        self._own = own
        self._settings = settings
        self.leader = own
        self.began_ns = now_ns
        self.ahead_ns = 0
        """By how much log time was ahead of the own clock when the term began. It is added to the clock, so that log
        time goes on at once, at the clock's pace."""

        self.first_index = first_index
        """The index of the no-op with which this term begins."""

        self.peers: dict[NodeId, Progress] = {}
        self.pending_bytes = 0
        """Bytes of batches that are proposed and not committed."""

        self.round = 0
        self.is_round_due = True
        self.heartbeat_at_ns = now_ns
        self.reads: deque[WaitingRead] = deque()
        self.early_reads: list[int] = []
        """Reads that came before an entry of this term was committed."""

        self.opening: dict[int, int] = {}
        """Sessions that are being opened: the entry of each, and the request."""

        self.transfer: Transfer | None = None

    def set_replicas(self, configuration: ReplicaConfiguration, next_index: int, now_ns: int) -> None:
        """Take on replicas that were added, let go of those that were removed."""
        for node in sorted(configuration.replicas.keys() - self.peers.keys() - {self._own}):
            self.peers[node] = Progress(next_index, now_ns, self._settings)
        for node in self.peers.keys() - configuration.replicas.keys():
            del self.peers[node]
            if self.transfer is not None and self.transfer.to == node:
                self.transfer = None

    def _at_majority(self, configuration: ReplicaConfiguration, own: int, of_peers: dict[NodeId, int]) -> int:
        """Return the highest number that a majority of the voters has reached."""
        reached = sorted([own if node == self._own else of_peers[node] for node in configuration.voters], reverse=True)
        return reached[configuration.quorum - 1]

    def commit_index(self, log: ReplicatedLog, term: int) -> int:
        """Return up to where the log can be committed now.

        Paper, section 5.4.2: only entries of the leader's own term are committed by counting replicas.
        """
        matched = {node: peer.matched for node, peer in self.peers.items()}
        index = self._at_majority(log.configuration, log.saved_index, matched)
        return index if index > log.commit_index and log.term_at(index) == term else log.commit_index

    def confirmed_round(self, configuration: ReplicaConfiguration) -> int:
        """Return the newest round that a majority has answered: at its beginning this was the leader."""
        return self._at_majority(configuration, self.round, {node: peer.round for node, peer in self.peers.items()})

    def has_quorum(self, now_ns: int, configuration: ReplicaConfiguration) -> bool:
        """Return whether a majority was heard within an election timeout."""
        since_ns = now_ns - self._settings.election_ns
        heard = {node for node, peer in self.peers.items() if peer.heard_ns >= since_ns}
        return configuration.has_quorum(heard | {self._own})
