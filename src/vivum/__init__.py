"""Vivum: live groups for Python.

    async with vivum.connect("demo") as node:
        topic = await node.enter("/swx/NESN", Quote)
        await topic.send(Quote("NESN", 101.2, 101.4))
        async for event in topic:
            ...

Typed channels over reliable multicast. See `docs/design/runtime.md` and `docs/ARCHITECTURE.md`.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if os.environ.get("VIVUM_PURE") in ("1", "source"):
    from vivum.uncompiled import hide_compiled

    hide_compiled(os.environ["VIVUM_PURE"])

if TYPE_CHECKING:
    from vivum.core.errors import HostError, LimitError, UsageError, VivumError
    from vivum.core.ids import Endpoint, Member
    from vivum.core.limits import Limits
    from vivum.guarantees import BEST_EFFORT, KEYED, RELIABLE, TIMELY, Guarantee
    from vivum.live.browsing import NodeInfo, TopicInfo
    from vivum.live.connecting import connect
    from vivum.live.event import Batch, TopicEvent, TopicView
    from vivum.live.failures import (
        ClosedError,
        MissedMessages,
        MissedPolicy,
        NoRecorderError,
        NoServiceError,
        SendFailedError,
        TypeMismatch,
    )
    from vivum.live.handle import NodeHandle
    from vivum.live.messages import Message
    from vivum.live.statistics import NodeStatistics
    from vivum.live.subscription import Subscription
    from vivum.live.topic import Topic, TopicStatistics
    from vivum.protocols.commands import SlowMembers

__version__ = "0.1.0"

__all__ = [
    "BEST_EFFORT",
    "KEYED",
    "RELIABLE",
    "TIMELY",
    "Batch",
    "ClosedError",
    "Endpoint",
    "Guarantee",
    "HostError",
    "LimitError",
    "Limits",
    "Member",
    "Message",
    "MissedMessages",
    "MissedPolicy",
    "NoRecorderError",
    "NoServiceError",
    "NodeHandle",
    "NodeInfo",
    "NodeStatistics",
    "SendFailedError",
    "SlowMembers",
    "Subscription",
    "Topic",
    "TopicEvent",
    "TopicInfo",
    "TopicStatistics",
    "TopicView",
    "TypeMismatch",
    "UsageError",
    "VivumError",
    "connect",
]

# Where the names live. Each is imported when it is first used: `vivum --help` and the simulator need no sockets.
_HOMES = {
    "vivum.core.errors": ("HostError", "LimitError", "UsageError", "VivumError"),
    "vivum.core.ids": ("Endpoint", "Member"),
    "vivum.core.limits": ("Limits",),
    "vivum.guarantees": ("BEST_EFFORT", "KEYED", "RELIABLE", "TIMELY", "Guarantee"),
    "vivum.live.browsing": ("NodeInfo", "TopicInfo"),
    "vivum.live.connecting": ("connect",),
    "vivum.live.event": ("Batch", "TopicEvent", "TopicView"),
    "vivum.live.failures": (
        "ClosedError",
        "MissedMessages",
        "MissedPolicy",
        "NoRecorderError",
        "NoServiceError",
        "SendFailedError",
        "TypeMismatch",
    ),
    "vivum.live.handle": ("NodeHandle",),
    "vivum.live.messages": ("Message",),
    "vivum.live.statistics": ("NodeStatistics",),
    "vivum.live.subscription": ("Subscription",),
    "vivum.live.topic": ("Topic", "TopicStatistics"),
    "vivum.protocols.commands": ("SlowMembers",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(home), name)
            return value
    raise AttributeError(f"module 'vivum' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
