"""Errors that an application may get from topics, and what a reader does where messages are missing."""

import logging
from collections.abc import Callable
from typing import Literal

from vivum.core.errors import HostError, UsageError, VivumError
from vivum.core.ids import Member


class TypeMismatch(UsageError):  # noqa: N818 - the name that users know it by
    """The topic has another type or guarantee than it was entered with; the message says what differs."""


class NoServiceError(HostError):
    """No configuration service of the domain answered in time; the message says what was tried."""


class NoRecorderError(HostError):
    """No recorder in the domain has back copies of the topic; the message says what was tried."""


class ClosedError(UsageError):
    """The node was closed, or the topic was left."""


class NoReplicaError(HostError):
    """No replica of a store answered in time; the message says which were asked and what each said last."""


class OutcomeUnknownError(VivumError):
    """A command ran once or not at all, and nobody can tell which."""


class LeaseLostError(VivumError):
    """The lease is over; what stood on it is gone."""


class CompactedError(VivumError):
    """A store has forgotten the changes that a watch wants next; `revision` is where it can go on."""

    def __init__(self, text: str, revision: int) -> None:
        super().__init__(text)
        self.revision = revision


class SendFailedError(VivumError):
    """Messages that were accepted may not have reached all members; the message says which and why."""


class MissedMessages(VivumError):  # noqa: N818 - reads as what happened
    """The reader of a topic did not get messages that others got. Read again to go on after them.

    `count` is how many, or None if that is unknown. If all are of one sender and their numbers are known, `sender` and
    `first` name them: `first <= n < first + count`.
    """

    def __init__(self, text: str, count: int | None, sender: Member | None = None, first: int | None = None) -> None:
        super().__init__(text)
        self.count = count
        self.sender = sender
        self.first = first


MissedPolicy = Literal["raise", "log"] | Callable[[MissedMessages], None]
"""What `on_missed=` takes: raise where messages are missing (the default), log a warning, or call a function.

    topic = await node.enter("/swx/NESN", Quote, on_missed="log")
    topic = await node.enter("/swx/NESN", Quote, on_missed=lambda told: reload(told.count))
"""


def missed_handler(policy: MissedPolicy) -> Callable[[MissedMessages], None] | None:
    """Return what is called where messages are missing; None to raise."""
    if policy == "raise":
        return None
    if policy == "log":
        return _log
    if not callable(policy):
        raise UsageError(f"on_missed={policy!r} is unknown; give 'raise', 'log' or a function")
    return policy


def _log(told: MissedMessages) -> None:
    logging.getLogger("vivum").warning("%s", told)
