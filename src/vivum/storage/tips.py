"""How far a log goes: for each topic and sender the number behind its newest message.

Kept in the index of every closed segment, so that the recorder that continues a log knows what was sent meanwhile.
"""

from collections.abc import Iterable

import msgspec

from vivum.storage.runs import RecordedRun

TIPS_MAX = 1024
"""Senders that are remembered for each topic. Past it, the one that was silent for longest is forgotten."""

Lives = dict[tuple[int, int], int]
"""For each life of a sender (node, incarnation): the number behind its newest message."""


class Tips:
    """The newest number of every sender of every topic."""

    def __init__(self, topics: dict[str, Lives] | None = None) -> None:
        self.topics = topics or {}

    def note(self, topic: str, sender: tuple[int, int], stop: int) -> None:
        """Note that the log has a sender's messages up to this number."""
        lives = self.topics.setdefault(topic, {})
        # Noted anew it comes last, so those go first that were silent for longest.
        before = lives.pop(sender, stop)
        lives[sender] = max(before, stop)
        if len(lives) > TIPS_MAX:
            del lives[next(iter(lives))]

    def note_all(self, found: Iterable[tuple[str, int, int, int]]) -> None:
        """Note many: topic, node, incarnation and number."""
        for topic, node, incarnation, stop in found:
            self.note(topic, (node, incarnation), stop)

    def encode(self) -> bytes:
        """Write them down."""
        rows = [(topic, [(*life, stop) for life, stop in lives.items()]) for topic, lives in self.topics.items()]
        return msgspec.msgpack.encode(rows)

    @classmethod
    def decode(cls, data: bytes) -> "Tips":
        """Read what `encode` wrote; an index without any has an empty list."""
        if not data:
            return cls()
        rows = msgspec.msgpack.decode(data, type=list[tuple[str, list[tuple[int, int, int]]]])
        return cls({topic: {(node, life): stop for node, life, stop in lives} for topic, lives in rows})


def tips_of(runs: Iterable[RecordedRun]) -> list[tuple[str, int, int, int]]:
    """List how far runs go, each sender of each topic once."""
    found = {(run.topic, run.sender, run.incarnation): run.first_sequence + len(run.payloads) for run in runs}
    return [(*sender, stop) for sender, stop in found.items()]
