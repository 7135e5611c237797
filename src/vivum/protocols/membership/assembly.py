"""Configurations and copies of the state that do not fit one frame: cut by the service, joined by the receiver.

Parts are bytes of one encoded whole. Nothing of it is applied before all of it is there. Parts are not asked for
singly: the service repeats the whole, made fresh, and a whole of a later epoch replaces one that is half there. So
a client holds at most one.
"""

from collections.abc import Iterator
from zlib import crc32

from vivum.core.errors import DecodeError
from vivum.core.ids import Member
from vivum.wire.layout import HEADER_BYTES
from vivum.wire.membership import Configuration, ConfigurationChanges, decode_changes
from vivum.wire.standby import StateCopy

ENVELOPE_BYTES_MAX = 64
"""What a `Configuration` needs besides its content, at most: nine numbers and the length of the content."""


def part_bytes(frame_bytes_max: int) -> int:
    """Return how much content fits one frame."""
    return frame_bytes_max - HEADER_BYTES - ENVELOPE_BYTES_MAX


def cut(member: Member, request: int, base: int, epoch: int, content: bytes, size: int) -> Iterator[Configuration]:
    """Make the configuration for one member, in as many parts as it needs."""
    checksum = crc32(content)
    parts = max(1, -(-len(content) // size))
    for part in range(parts):
        piece = content[part * size : (part + 1) * size]
        yield Configuration(*member, request, base, epoch, part, parts, checksum, piece)


class Parts:
    """Joins the parts of one whole at a time: the latest that there is."""

    __slots__ = ("_key", "_parts", "_parts_max")

    def __init__(self, parts_max: int) -> None:
        self._parts_max = parts_max
        self._key = (0, 0, 0, 0)
        self._parts: dict[int, bytes] = {}

    def add(self, number: int, base: int, body: Configuration | StateCopy) -> bytes | None:
        """Take a part of the whole with a number; return it if it is complete now, or raise a `DecodeError`."""
        if body.parts > self._parts_max:
            raise DecodeError(f"a whole of {body.parts} parts; at most parts_max, {self._parts_max}, are taken")
        key = (number, base, body.parts, body.checksum)
        if key != self._key:
            if number < self._key[0]:
                return None
            self._key = key
            self._parts.clear()
        self._parts[body.part] = body.content
        if len(self._parts) < body.parts:
            return None
        content = b"".join(self._parts[part] for part in range(body.parts))
        self.clear()
        if crc32(content) != body.checksum:
            raise DecodeError("the parts of a whole do not have its checksum")
        return content

    def clear(self) -> None:
        """Forget what is half there."""
        self._key = (0, 0, 0, 0)
        self._parts.clear()


class Assembly(Parts):
    """Joins the parts of one configuration at a time."""

    __slots__ = ()

    def configuration(self, body: Configuration) -> ConfigurationChanges | None:
        """Take a part; return the whole if it is complete now. Raises `DecodeError` for what cannot be a whole."""
        content = self.add(body.epoch, body.base, body)
        return None if content is None else decode_changes(content)


def cut_copy(position: int, content: bytes, size: int) -> list[StateCopy]:
    """Make the copy of a service's state, in as many parts as it needs."""
    checksum = crc32(content)
    parts = max(1, -(-len(content) // size))
    return [
        StateCopy(position, part, parts, checksum, content[part * size : (part + 1) * size]) for part in range(parts)
    ]
