"""The names of topics, and what they stand for: a part of the replicated state of the configuration service.

Groups are given out as neighbours, in the order of creation, so that thousands of topics are few ranges. Types and
guarantees are kept as the creator wrote them, and compared by who enters. Every history begins in a block of group
numbers of its own, so that topics of two histories differ.

Invariants: a name has one group and a group one name; both stay for as long as the topic has members.
"""

from collections.abc import Callable, Iterable

import msgspec

from vivum.core.ids import GroupId
from vivum.wire.directory import TopicEntry
from vivum.wire.layout import GROUP_MAX

BLOCK = 1 << 17
BLOCKS = GROUP_MAX // BLOCK
"""Groups that one history gives out before it runs into another's block; how many blocks there are."""


class TopicState(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One topic. `number` counts topics in the order of their creation."""

    name: str
    group: int
    number: int
    schema: str
    guarantee: str


class TopicTable:
    """All topics of one history."""

    def __init__(self, topics_max: int, first_group: int = 1) -> None:
        self.topics_max = topics_max
        self.created = 0
        """How many topics were ever created: the number of the latest one."""

        self._topics: dict[str, TopicState] = {}
        self._next_group = first_group

    def __len__(self) -> int:
        return len(self._topics)

    def find(self, name: str) -> TopicState | None:
        """Return the topic of a name."""
        return self._topics.get(name)

    def all(self) -> Iterable[TopicState]:
        """Return all topics, in the order of their creation."""
        return self._topics.values()

    def create(self, entries: Iterable[TopicEntry], has_members: Callable[[GroupId], bool]) -> None:
        """Create those that do not exist. At the limit a topic without members makes room, the oldest first."""
        for entry in entries:
            if entry.name in self._topics or (
                len(self._topics) >= self.topics_max and not self._forget_one(has_members)
            ):
                continue
            self.created += 1
            topic = TopicState(entry.name, self._next_group, self.created, entry.schema, entry.guarantee)
            self._next_group = self._next_group % GROUP_MAX + 1
            self._topics[entry.name] = topic

    def _forget_one(self, has_members: Callable[[GroupId], bool]) -> bool:
        for topic in self._topics.values():
            if not has_members(GroupId(topic.group)):
                del self._topics[topic.name]
                return True
        return False

    def state(self) -> tuple[int, int, int, list[TopicState]]:
        """Return all that a copy needs."""
        return self.topics_max, self.created, self._next_group, list(self._topics.values())

    @staticmethod
    def of(state: tuple[int, int, int, list[TopicState]]) -> "TopicTable":
        """Make the table that `state` described."""
        topics_max, created, next_group, topics = state
        table = TopicTable(topics_max, next_group)
        table.created = created
        table._topics = {each.name: each for each in topics}
        return table
