"""How far one peer is, as its leader sees it, and what to send it next (the `Progress` of etcd raft).

- PROBE: where the peer's log agrees is not known. One message, then wait for its reply.
- REPLICATE: messages are sent ahead of replies, as far as the windows allow.
- SNAPSHOT: the peer lacks what the log has no more. Parts of a snapshot are sent ahead of replies likewise.

A *position* is an index and the bytes of the batch behind it that came in parts.

Invariants: `matched < next_index`; `matched` is the last entry of a batch, or the base of the log, or 0.
"""

from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from vivum.protocols.consensus.log import ReplicatedLog
from vivum.protocols.consensus.settings import ConsensusSettings


class ProgressState(Enum):
    """See the module's docstring."""

    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


class EntriesPiece(NamedTuple):
    """Content of one `AppendEntries`."""

    previous_index: int
    previous_term: int
    offset: int
    total: int
    content: bytes


class SnapshotPiece(NamedTuple):
    """Content of one `InstallSnapshot`."""

    last_index: int
    offset: int
    total: int
    content: bytes


class Progress:
    """One peer."""

    __slots__ = (
        "_flying",
        "_flying_bytes",
        "_part_offset",
        "_probed",
        "_settings",
        "_snapshot",
        "_snapshot_index",
        "_snapshot_received",
        "_snapshot_sent",
        "heard_ns",
        "matched",
        "moved_ns",
        "next_index",
        "received",
        "round",
        "state",
    )

    def __init__(self, next_index: int, now_ns: int, settings: ConsensusSettings) -> None:
        self._settings = settings
        self.state = ProgressState.PROBE
        self.matched = 0
        self.next_index = next_index
        self.round = 0
        """The newest round of heartbeats that the peer answered."""

        self.heard_ns = now_ns
        self.moved_ns = now_ns
        """When something was sent with nothing under way, or the peer last came forward."""

        self.received = 0
        # Bytes of the batch at `next_index` that were sent in parts.
        self._part_offset = 0
        # What stood in front of the message of a probe.
        self._probed = -1
        # Messages under way: the position that acknowledges each, and its bytes.
        self._flying: deque[tuple[tuple[int, int], int]] = deque()
        self._flying_bytes = 0
        self._snapshot = b""
        self._snapshot_index = 0
        self._snapshot_sent = 0
        self._snapshot_received = 0

    # States. Only these methods change the state.

    def become_probe(self, next_index: int) -> None:
        """Find out again where the logs agree, beginning in front of an entry."""
        assert next_index > self.matched
        self.state = ProgressState.PROBE
        self.next_index = next_index
        self._land()

    def become_replicate(self, matched: int, received: int) -> None:
        """Send ahead, from a position on that the peer has."""
        self.state = ProgressState.REPLICATE
        self.next_index = matched + 1
        self._land()
        self._part_offset = received

    def become_snapshot(self, index: int, snapshot: bytes) -> None:
        """Send a snapshot."""
        self.state = ProgressState.SNAPSHOT
        self._land()
        self._snapshot, self._snapshot_index = snapshot, index
        self._snapshot_sent = self._snapshot_received = 0

    def _land(self) -> None:
        self._flying.clear()
        self._flying_bytes = 0
        self._part_offset = 0
        self._probed = -1
        self._snapshot = b""

    # What the peer says. The caller has checked the numbers against the log.

    def on_matched(self, now_ns: int, matched: int, received: int) -> None:
        """Take an acknowledgement of all entries to one, and of bytes of the batch behind it."""
        position = (matched, received)
        if position < (self.matched, 0):
            return
        if self.state is ProgressState.SNAPSHOT:
            if matched < self._snapshot_index:
                self.matched = max(self.matched, matched)
                return
            self.matched = matched
            self.become_replicate(matched, 0)
        elif self.state is ProgressState.PROBE:
            self.matched = matched
            self.become_replicate(matched, received)
        else:
            self.matched = matched
            flying = self._flying
            if flying and flying[0][0] <= position:
                self.moved_ns = now_ns
            while flying and flying[0][0] <= position:
                self._flying_bytes -= flying.popleft()[1]
            if self.next_index <= matched:
                self.become_replicate(matched, received)
        self.received = received

    def on_refused(self, refused: int, hint: int) -> None:
        """Take the word that the peer lacks, or has otherwise, what was to stand in front."""
        if refused <= self.matched or self.state is ProgressState.SNAPSHOT:
            return
        if self.state is ProgressState.REPLICATE:
            self.become_probe(self.matched + 1)
        elif refused == self._probed:
            self.become_probe(max(self.matched + 1, min(refused, hint + 1)))

    def on_lost(self, agreed: int, next_index: int) -> None:
        """Take the word of a peer that started anew: it confirms entries to one, and may have those to another."""
        if agreed < self.matched:
            self.matched = agreed
            if self.state is not ProgressState.SNAPSHOT:
                self.become_probe(max(agreed + 1, next_index))

    def on_snapshot_received(self, now_ns: int, index: int, offset: int) -> None:
        """Take the word of how many bytes of a snapshot came."""
        if self.state is ProgressState.SNAPSHOT and index == self._snapshot_index and offset <= len(self._snapshot):
            if offset > self._snapshot_received:
                self.moved_ns = now_ns
            self._snapshot_received = offset
            self._snapshot_sent = max(self._snapshot_sent, offset)

    def go_back(self, now_ns: int) -> bool:
        """Send again what is under way if nothing came of it for too long; return whether it was so."""
        if now_ns - self.moved_ns < self._settings.resend_ns:
            return False
        if self.state is ProgressState.SNAPSHOT:
            if self._snapshot_sent == self._snapshot_received < len(self._snapshot):
                return False
            # All of it may have come while its acknowledgement was lost: the last part brings that again.
            again = max(0, len(self._snapshot) - 1)
            self._snapshot_sent = self._snapshot_received = min(self._snapshot_received, again)
        elif not self._flying:
            return False
        else:
            self.become_probe(self.matched + 1)
        self.moved_ns = now_ns
        return True

    # What to send.

    def pieces(self, now_ns: int, log: ReplicatedLog, content_max: int, room_bytes: int) -> Iterator[EntriesPiece]:
        """Give what may be sent now, as under way, up to about this many bytes."""
        settings = self._settings
        while room_bytes > 0 and self.next_index <= log.last_index:
            flying = self._flying
            if flying and (
                self.state is ProgressState.PROBE
                or self._flying_bytes >= settings.window_bytes_max
                or len(flying) >= settings.window_messages_max
            ):
                return
            piece = self._next_piece(log, content_max)
            if not flying:
                self.moved_ns = now_ns
                self._probed = piece.previous_index
            size = len(piece.content)
            room_bytes -= size
            flying.append(((self.next_index - 1, self._part_offset), size))
            self._flying_bytes += size
            yield piece

    def _next_piece(self, log: ReplicatedLog, content_max: int) -> EntriesPiece:
        """Cut the next piece out of the log, and go on behind it."""
        at = log.behind(self.next_index - 1)
        batches = log.batches
        first = batches[at]
        # A hint may lie within a batch.
        previous_index = self.next_index - 1 if first.first == self.next_index else first.first - 1
        previous_term = log.term_at(previous_index)
        assert previous_term is not None
        if len(first.data) > content_max:
            offset, total = self._part_offset, len(first.data)
            content = first.data[offset : offset + content_max]
            stop = offset + len(content)
            self._part_offset = 0 if stop == total else stop
            self.next_index = first.last + 1 if stop == total else previous_index + 1
            return EntriesPiece(previous_index, previous_term, offset, total, content)
        taken, size, stop_at = [first.data], len(first.data), at + 1
        while stop_at < len(batches) and size + len(batches[stop_at].data) <= content_max:
            taken.append(batches[stop_at].data)
            size += len(batches[stop_at].data)
            stop_at += 1
        self.next_index = batches[stop_at - 1].last + 1
        self._part_offset = 0
        return EntriesPiece(previous_index, previous_term, 0, 0, taken[0] if len(taken) == 1 else b"".join(taken))

    def snapshot_pieces(self, now_ns: int, content_max: int, room_bytes: int) -> Iterator[SnapshotPiece]:
        """Give the parts of a snapshot that may be sent now, as under way."""
        snapshot, total = self._snapshot, len(self._snapshot)
        while (
            room_bytes > 0
            and self._snapshot_sent < total
            and self._snapshot_sent - self._snapshot_received < self._settings.window_bytes_max
        ):
            offset = self._snapshot_sent
            if offset == self._snapshot_received:
                self.moved_ns = now_ns
            content = snapshot[offset : offset + content_max]
            self._snapshot_sent = offset + len(content)
            room_bytes -= len(content)
            yield SnapshotPiece(self._snapshot_index, offset, total, content)

    def has_more(self, log: ReplicatedLog) -> bool:
        """Whether something could be sent now if there were room."""
        if self.state is ProgressState.SNAPSHOT:
            under_way = self._snapshot_sent - self._snapshot_received
            return self._snapshot_sent < len(self._snapshot) and under_way < self._settings.window_bytes_max
        if self.next_index > log.last_index:
            return False
        return not self._flying or (
            self.state is ProgressState.REPLICATE
            and self._flying_bytes < self._settings.window_bytes_max
            and len(self._flying) < self._settings.window_messages_max
        )
