"""Gap-free FIFO: in one stay, each stream is delivered in the order of its numbers and without a hole.

A stay's stream may begin anywhere: a late joiner does not get what was sent before. From its first
delivery on, each number must follow the last one, except numbers that `MessagesLost` told this life about,
before or after the delivery behind the hole, or that it left out as repetitions (`MessagesSkipped`). What was reported
as lost or left out must not be delivered later. After
`GroupLeft` nothing may be delivered.

Holes at the end of a stream are not seen here: a receiver that stops delivering passes. That is for
`all_delivered`.
"""

from typing import ClassVar

from vivum.checkers.checker import Checker, describe, message_of
from vivum.core.ranges import RangeSet
from vivum.observe.trace import GroupJoined, GroupLeft, MessageDelivered, MessagesLost, MessagesSkipped


class _Trouble:
    """What is out of step in a stream: reported losses, and holes that no report covers yet."""

    __slots__ = ("gaps", "lost", "reports")

    def __init__(self) -> None:
        self.lost = RangeSet()
        self.reports: list[MessagesLost | MessagesSkipped] = []
        self.gaps: list[tuple[RangeSet, MessageDelivered, MessageDelivered]] = []


class _Stream:
    """One stream as one stay has seen it so far."""

    __slots__ = ("last", "next_sequence", "trouble")

    def __init__(self) -> None:
        self.next_sequence = -1
        self.last: MessageDelivered | None = None
        self.trouble: _Trouble | None = None


class Fifo(Checker):
    """Finds late deliveries and holes. Witnesses: the last and the late one, or the two around the hole."""

    name = "fifo"
    gaps_allowed: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self._stays: dict[tuple[int, int, int], dict[tuple[int, int], _Stream]] = {}
        self._left: dict[tuple[int, int, int], GroupLeft] = {}

    def on_group_joined(self, record: GroupJoined) -> None:
        """Begin a new stay: every stream may begin anywhere again."""
        stay = (record.node, record.incarnation, record.group)
        self._end(stay)
        self._left.pop(stay, None)

    def on_group_left(self, record: GroupLeft) -> None:
        """End the stay: its holes are final."""
        stay = (record.node, record.incarnation, record.group)
        self._end(stay)
        self._left[stay] = record

    def on_message_delivered(self, record: MessageDelivered) -> None:
        """Check that a delivery follows the last one of its stream."""
        stay = self._stays.get((record.node, record.incarnation, record.group))
        if stay is None:
            stay = self._begin(record)
        key = (record.sender, record.sender_incarnation)
        stream = stay.get(key)
        if stream is None:
            stream = stay[key] = _Stream()
        elif record.sequence != stream.next_sequence or stream.trouble is not None:
            self._check(stream, record)
            if record.sequence < stream.next_sequence:
                return
        stream.next_sequence = record.sequence + 1
        stream.last = record

    def on_messages_lost(self, record: MessagesLost) -> None:
        """Excuse numbers, in holes already seen and in those to come."""
        self._excuse(record)

    def on_messages_skipped(self, record: MessagesSkipped) -> None:
        """Excuse repetitions in the same way."""
        self._excuse(record)

    def _excuse(self, record: MessagesLost | MessagesSkipped) -> None:
        key = (record.node, record.incarnation, record.group)
        if key in self._left:
            return  # Told after it had left: harmless, and no new stay.
        stay = self._stays.setdefault(key, {})
        stream = stay.setdefault((record.sender, record.sender_incarnation), _Stream())
        if stream.trouble is None:
            stream.trouble = _Trouble()
        stream.trouble.lost.add_range(record.sequence, record.stop)
        stream.trouble.reports.append(record)
        for missing, _, _ in stream.trouble.gaps:
            missing.discard_range(record.sequence, record.stop)

    def conclude(self) -> None:
        """Report the holes of all stays that lasted to the end."""
        for stay in list(self._stays):
            self._end(stay)

    def _begin(self, record: MessageDelivered) -> dict[tuple[int, int], _Stream]:
        stay = (record.node, record.incarnation, record.group)
        left = self._left.pop(stay, None)
        if left is not None:
            what = f"delivered {describe(message_of(record))} after it had left the group"
            self.report(f"{record.node}.{record.incarnation} {what}", left, record)
        return self._stays.setdefault(stay, {})

    def _check(self, stream: _Stream, record: MessageDelivered) -> None:
        """Judge a delivery that is not the next of its stream, or whose stream is in trouble already."""
        who, message = f"{record.node}.{record.incarnation}", describe(message_of(record))
        sequence, last = record.sequence, stream.last
        if stream.trouble is None:
            stream.trouble = _Trouble()
        trouble = stream.trouble
        if sequence in trouble.lost:
            told = next(each for each in trouble.reports if each.sequence <= sequence < each.stop)
            before = "reported it as lost" if isinstance(told, MessagesLost) else "left it out as a repetition"
            self.report(f"{who} delivered {message} although it had {before}", told, record)
        elif last is not None and sequence < stream.next_sequence:
            self.report(
                f"{who} delivered {message} after {last.sequence} of the same sender",
                last,
                record,
            )
        if last is None or sequence == stream.next_sequence:
            return
        if sequence < stream.next_sequence:
            for missing, _, _ in trouble.gaps:
                missing.discard(sequence)  # Late is one violation, not two.
        elif not self.gaps_allowed:
            missing = RangeSet([(stream.next_sequence, sequence)])
            missing.difference_update(trouble.lost)
            if missing:
                trouble.gaps.append((missing, last, record))

    def _end(self, stay: tuple[int, int, int]) -> None:
        for stream in self._stays.pop(stay, {}).values():
            for missing, before, after in () if stream.trouble is None else stream.trouble.gaps:
                if missing:
                    what = (
                        f"{after.node}.{after.incarnation} skipped {missing.count()} messages of "
                        f"{after.sender}.{after.sender_incarnation} in group {after.group}, the first "
                        f"of them {missing.first()}, and had not reported them as lost"
                    )
                    self.report(what, before, after)
