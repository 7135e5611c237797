"""Joins what comes in parts: a batch that no frame can hold, or a snapshot.

Parts are taken in order alone: one that comes too early is dropped, since its sender goes back to what is missing.
"""

from collections.abc import Hashable


class PartsBuffer:
    """At most one whole at a time: a new key begins anew."""

    __slots__ = ("_bytes", "_key", "_total")

    def __init__(self) -> None:
        self._key: Hashable = None
        self._total = 0
        self._bytes = bytearray()

    def take(self, key: Hashable, offset: int, total: int, content: bytes) -> bytes | None:
        """Add a part; return the whole when it is there. `offset` and content lie within `total`."""
        if (key, total) != (self._key, self._total):
            self.clear()
            self._key, self._total = key, total
        if offset <= len(self._bytes) < offset + len(content):
            self._bytes += content[len(self._bytes) - offset :]
        if len(self._bytes) < total:
            return None
        whole = bytes(self._bytes)
        self.clear()
        return whole

    def received(self, key: Hashable) -> int:
        """Return how many bytes of a whole are here."""
        return len(self._bytes) if key == self._key else 0

    @property
    def held_bytes(self) -> int:
        """Bytes that are here."""
        return len(self._bytes)

    def clear(self) -> None:
        """Forget what is here."""
        self._key, self._total = None, 0
        self._bytes = bytearray()
