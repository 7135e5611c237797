"""One root of all errors and its families: the caller's fault, the peer's fault, and the computer's.

They never mix. An application that misuses the library gets a `UsageError` where it called. Bytes
from the network that make no sense become a `PeerError`, which one place catches, counts, traces
and drops (`vivum.wire.gate`): a remote peer can never raise into an application.

A message says what happened, what was expected, and what to do.
"""

import errno


class VivumError(Exception):
    """Root of every error that Vivum raises on purpose."""


def open_files_advice(error: OSError) -> str:
    """Return what to do about an error of the system, if it is that too many files are open; else nothing."""
    return "; raise the limit of open files (ulimit -n)" if error.errno in (errno.EMFILE, errno.ENFILE) else ""


class UsageError(VivumError):
    """The caller asked for something impossible: a bad argument, calls in a wrong order, too much at once."""


class LimitError(UsageError):
    """The caller went past a named limit; the message names it, its value and how to change it."""


class NotNowError(LimitError):
    """Not possible at this moment: a queue is full, or a group is not entered yet. Nothing changed; try again later."""


class PeerError(VivumError):
    """A peer sent something that cannot be accepted. Never reaches an application."""


class HostError(VivumError):
    """The computer cannot do it: a full disk, a port in use, a missing library or Java."""


class DecodeError(PeerError):
    """Bytes that are no valid frame, message or record: truncated, overlong, overlapping or random."""


class VersionError(DecodeError):
    """A frame of a format version that this build does not know; refused, never guessed at."""
