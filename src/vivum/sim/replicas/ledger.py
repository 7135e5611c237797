"""The application of simulated replicas: its whole state is a digest of all commands in their order.

So an answer tells the history in front of it, and two replicas that differ in anything differ in all answers behind.
"""

from hashlib import blake2b

_DIGEST_BYTES = 8


class Ledger:
    """A deterministic state machine."""

    def __init__(self, padding_bytes: int = 0) -> None:
        """Begin with nothing. Snapshots are padded, so that they come in parts."""
        self.last_index = 0
        self.digest = bytes(_DIGEST_BYTES)
        self._padding = bytes(padding_bytes)

    def apply(self, index: int, command: bytes) -> bytes:
        """Add a command; the answer is the state."""
        self.last_index = index
        self.digest = blake2b(self.digest + command, digest_size=_DIGEST_BYTES).digest()
        return self.digest

    def read(self, query: bytes) -> bytes:  # noqa: ARG002 - there is one thing to ask for
        """Return the state."""
        return self.last_index.to_bytes(8, "little") + self.digest

    def follow(self, query: bytes, after: int) -> tuple[int, bytes | None]:
        """Return the state behind an entry, if there is one."""
        return self.last_index, self.read(query) if self.last_index > after else None

    def snapshot(self) -> bytes:
        """Return the state."""
        return self.read(b"") + self._padding

    def restore(self, data: bytes) -> None:
        """Take the state of a snapshot."""
        self.last_index, self.digest = read_ledger(data)


def read_ledger(data: bytes) -> tuple[int, bytes]:
    """Read the index of the last command and the digest of all."""
    return int.from_bytes(data[:8], "little"), data[8 : 8 + _DIGEST_BYTES]
