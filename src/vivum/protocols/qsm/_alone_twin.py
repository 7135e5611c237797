"""The way of messages that come and go alone, in plain Python; `alone.py` tells what it is for.

Same names as `_alone.pyx` and same behaviour to the byte; change both or neither.
"""

from typing import Any

from vivum.core.ids import Channel, Endpoint, GroupId, Member, ViewNumber
from vivum.core.machine import Command, Datagram, Delivery
from vivum.protocols.commands import SendMessages
from vivum.wire.kinds import Kind
from vivum.wire.layout import (
    GROUP_MAX,
    HEADER,
    HEADER_BYTES,
    LENGTH,
    LENGTH_BYTES,
    RUN_HEADER,
    RUN_HEADER_BYTES,
    SEQUENCE_MAX,
    VERSION,
)

_BEFORE = HEADER_BYTES + RUN_HEADER_BYTES + LENGTH_BYTES
_NAME = slice(8, 24)


class _LaneIn:
    __slots__ = ("expected", "lane", "sender", "sequence", "view")

    def __init__(self, sequence: int, sender: Member, view: ViewNumber, expected: dict[int, int], lane: Any) -> None:
        self.sequence = sequence
        self.sender = sender
        self.view = view
        self.expected = expected
        self.lane = lane


class AloneIn:
    """Reads frames with one message that are next in their streams, and writes down that it did."""

    __slots__ = ("_lanes", "domain", "log")

    def __init__(self, domain: int, log: list[Any]) -> None:
        """Begin without streams. What is taken is noted in `log`: lane, time, source, frame."""
        self.domain = domain
        self.log = log
        self._lanes: dict[bytes, _LaneIn] = {}

    def __len__(self) -> int:
        return len(self._lanes)

    def arm(
        self, name: bytes, sequence: int, sender: Member, view: ViewNumber, expected: dict[int, int], lane: Any
    ) -> None:
        """Take frames of a stream from this number on. `expected` has the next message of each group; it is kept up."""
        self._lanes[name] = _LaneIn(sequence, sender, view, expected, lane)

    def disarm(self, name: bytes) -> None:
        """Take no more of a stream."""
        self._lanes.pop(name, None)

    def clear(self) -> None:
        """Take nothing."""
        self._lanes.clear()

    def hear(self, now_ns: int, source: Endpoint, data: bytes) -> Delivery | None:
        """Take a datagram if it is one frame with one message, next in all; None, and nothing changed, if not."""
        if self.log or type(data) is not bytes or len(data) < _BEFORE:
            return None
        version, kind, length, domain, _, _, _, _, _, sequence, sent_ns = HEADER.unpack_from(data)
        if version != VERSION or kind != Kind.DATA or length != len(data) or domain != self.domain:
            return None
        group, first, count = RUN_HEADER.unpack_from(data, HEADER_BYTES)
        (size,) = LENGTH.unpack_from(data, HEADER_BYTES + RUN_HEADER_BYTES)
        if group > GROUP_MAX or count != 1 or size != len(data) - _BEFORE:
            return None
        lane = self._lanes.get(data[_NAME])
        if lane is None or sequence != lane.sequence or first >= SEQUENCE_MAX or sequence >= SEQUENCE_MAX:
            return None
        if lane.expected.get(group) != first:
            return None
        lane.expected[group] = first + 1
        lane.sequence += 1
        self.log.append((lane.lane, now_ns, source, data))
        return Delivery(group, lane.sender, first, [data[_BEFORE:]], lane.view, sent_ns)


class _LaneOut:
    __slots__ = ("bytes_left", "frames_left", "head", "payload_max", "sequence", "where")

    head: tuple[int, ...]
    sequence: int
    frames_left: int
    bytes_left: int
    payload_max: int
    where: Endpoint | Channel


class _Numbering:
    __slots__ = ("lane", "message", "place")

    def __init__(self, lane: _LaneOut, message: int, place: Any) -> None:
        self.lane = lane
        self.message = message
        self.place = place


class AloneOut:
    """Seals single messages into frames of their own, and writes down that it did."""

    __slots__ = ("_groups", "_lanes", "log")

    def __init__(self, log: list[Any]) -> None:
        """Begin without groups. What is sealed is noted in `log`: place, time, number, payloads, frame."""
        self.log = log
        self._lanes: dict[bytes, _LaneOut] = {}
        self._groups: dict[GroupId, _Numbering] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def arm(
        self,
        group: GroupId,
        message: int,
        frame: bytes,
        frames_left: int,
        bytes_left: int,
        payload_max: int,
        where: Endpoint | Channel,
        place: Any,
    ) -> None:
        """Seal messages of a group, from this number on, into the frames that follow `frame` in its stream.

        So many may follow before somebody must look again: in frames, in bytes (the last may pass them), and for each
        message.
        """
        if len(frame) < HEADER_BYTES:
            raise ValueError("a frame has a header")
        lane = self._lanes.setdefault(frame[_NAME], _LaneOut())
        lane.head = HEADER.unpack_from(frame)
        lane.sequence = lane.head[9] + 1
        lane.frames_left = frames_left
        lane.bytes_left = bytes_left
        lane.payload_max = payload_max
        lane.where = where
        self._groups[group] = _Numbering(lane, message, place)

    def clear(self) -> None:
        """Seal nothing."""
        self._groups.clear()
        self._lanes.clear()

    def seal(self, now_ns: int, command: Command) -> list[Datagram] | None:
        """Seal a message that is alone in its command; None, and nothing changed, if that is not for here."""
        if type(command) is not SendMessages:
            return None
        payloads = command.payloads
        if type(payloads) not in (list, tuple) or len(payloads) != 1 or type(payloads[0]) is not bytes:
            return None
        numbering = self._groups.get(command.group)
        if numbering is None:
            return None
        lane, payload, number = numbering.lane, payloads[0], numbering.message
        if (
            len(payload) > lane.payload_max
            or lane.frames_left <= 0
            or lane.bytes_left <= 0
            or lane.sequence >= SEQUENCE_MAX
            or number >= SEQUENCE_MAX
        ):
            return None
        size = _BEFORE + len(payload)
        head = HEADER.pack(*lane.head[:2], size, *lane.head[3:9], lane.sequence, now_ns)
        frame = head + RUN_HEADER.pack(command.group, number, 1) + LENGTH.pack(len(payload)) + payload
        lane.sequence += 1
        lane.frames_left -= 1
        lane.bytes_left -= size
        self.log.append((numbering.place, now_ns, number, payloads, frame))
        numbering.message = number + 1
        return [Datagram(lane.where, frame)]
