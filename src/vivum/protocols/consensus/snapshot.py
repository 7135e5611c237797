"""A snapshot: all that the entries up to an index have made, in place of them (paper, section 7)."""

from zlib import crc32

import msgspec

from vivum.core.errors import DecodeError
from vivum.protocols.consensus.configuration import ReplicaConfiguration, decode_configuration
from vivum.wire.consensus import EntryIndex, Term

_CHECKSUM_BYTES = 4


class SnapshotImage(msgspec.Struct, frozen=True, array_like=True):
    """What a snapshot holds: where it stands in the log, who the replicas are, the sessions, the application."""

    index: EntryIndex
    term: Term
    foundation: int
    time_ns: int
    replicas: bytes
    sessions: bytes
    application: bytes

    @property
    def configuration(self) -> ReplicaConfiguration:
        """The configuration that holds at the index."""
        return decode_configuration(self.replicas)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SnapshotImage).decode


def encode_snapshot(image: SnapshotImage) -> bytes:
    """Make the bytes of a snapshot: the same on the wire and on disk."""
    content = _encode(image)
    return crc32(content).to_bytes(_CHECKSUM_BYTES, "little") + content


def decode_snapshot(data: bytes) -> SnapshotImage:
    """Read a snapshot, or raise a `DecodeError`."""
    content = memoryview(data)[_CHECKSUM_BYTES:]
    if crc32(content) != int.from_bytes(data[:_CHECKSUM_BYTES], "little"):
        raise DecodeError("a snapshot does not have its checksum")
    try:
        image = _decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"snapshot: {error}") from None
    decode_configuration(image.replicas)
    return image
