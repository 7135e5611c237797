"""What goes wrong with files. A third family beside the caller's and the peer's fault: the machine's."""

from vivum.core.errors import VivumError


class StorageError(VivumError):
    """A file could not be written or read. The message names the path, the cause and what to do."""
