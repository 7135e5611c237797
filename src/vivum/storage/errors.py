"""What goes wrong with files."""

from vivum.core.errors import HostError


class StorageError(HostError):
    """A file could not be written or read. The message names the path, the cause and what to do."""


class CorruptLogError(StorageError):
    """Bytes of a segment log are not what was written. The message names the file and the place."""
