"""Keys once: in one life, a group hands over no two messages with the same key, from any sender.

Keys are compared by 63 bits of a digest: of a million keys two are alike by chance once in ten million runs.

Not seen here: whether what was left out as a repetition (`MessagesSkipped`) had come before. A receiver that joined
late knows a batch of a query by a later one.

Cost: one number for each key, life and group, and the record of the first delivery as long as witnesses are remembered.
"""

from collections import deque

from vivum.checkers.checker import WITNESSES_RECENT_MAX, Checker
from vivum.observe.trace import KeyDelivered


class KeysOnce(Checker):
    """Finds a key that was handed over again. Witnesses: the earlier record, the later one."""

    name = "keys_once"

    def __init__(self) -> None:
        super().__init__()
        self._had: dict[tuple[int, int, int], set[int]] = {}
        self._recent: deque[KeyDelivered] = deque(maxlen=WITNESSES_RECENT_MAX)

    def on_key_delivered(self, record: KeyDelivered) -> None:
        """Put the key into what this life has of the group."""
        place = (record.node, record.incarnation, record.group)
        had = self._had.setdefault(place, set())
        if record.key in had:
            earlier = next((each for each in self._recent if each.key == record.key and _place(each) == place), None)
            self.report(
                f"{record.node}.{record.incarnation} delivered message {record.sequence} of "
                f"{record.sender}.{record.sender_incarnation} in group {record.group} under a key that it had before",
                earlier,
                record,
            )
        had.add(record.key)
        self._recent.append(record)


def _place(record: KeyDelivered) -> tuple[int, int, int]:
    return record.node, record.incarnation, record.group
