"""Protocols that spare themselves work, planted in the swarm of nodes and in that of whole programs."""

import pytest

from vivum.protocols.commands import SendFailed
from vivum.protocols.qsm.send.sender import Sender
from vivum.protocols.streams.feed import Feed

Patch = pytest.MonkeyPatch


def reports_everything_as_failed(patch: Patch) -> None:
    """What everybody has is reported as failed, at nobody in particular."""

    def confirm(self: Sender, feed: Feed) -> None:
        self._effects += [SendFailed(feed.group, first, stop, None, "to be safe") for first, stop in feed.confirm()]

    patch.setattr(Sender, "_confirm", confirm)
