"""Vivum: live groups for Python.

    async with vivum.connect("demo") as node:
        topic = await node.enter("/swx/NESN", Quote)
        await topic.send(Quote("NESN", 101.2, 101.4))
        async for event in topic:
            ...

Typed channels over reliable multicast. `docs/design/runtime.md` tells how; `docs/ARCHITECTURE.md` has the map.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vivum.core.errors import HostError, LimitError, UsageError, VivumError
    from vivum.core.ids import Endpoint, Member
    from vivum.core.limits import Limits
    from vivum.guarantees import BEST_EFFORT, KEYED, RELIABLE, Guarantee
    from vivum.live.browsing import NodeInfo, TopicInfo
    from vivum.live.connecting import connect
    from vivum.live.event import Batch, TopicEvent, TopicView
    from vivum.live.failures import (
        ClosedError,
        MissedMessages,
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

# Where each name lives. It is imported when it is first used: `vivum --help` and the simulator need no sockets.
_HOMES = {
    "BEST_EFFORT": "vivum.guarantees",
    "Batch": "vivum.live.event",
    "ClosedError": "vivum.live.failures",
    "Endpoint": "vivum.core.ids",
    "Guarantee": "vivum.guarantees",
    "HostError": "vivum.core.errors",
    "KEYED": "vivum.guarantees",
    "LimitError": "vivum.core.errors",
    "Limits": "vivum.core.limits",
    "Member": "vivum.core.ids",
    "Message": "vivum.live.messages",
    "MissedMessages": "vivum.live.failures",
    "NoRecorderError": "vivum.live.failures",
    "NoServiceError": "vivum.live.failures",
    "NodeHandle": "vivum.live.handle",
    "NodeInfo": "vivum.live.browsing",
    "NodeStatistics": "vivum.live.statistics",
    "RELIABLE": "vivum.guarantees",
    "SendFailedError": "vivum.live.failures",
    "SlowMembers": "vivum.protocols.commands",
    "Subscription": "vivum.live.subscription",
    "Topic": "vivum.live.topic",
    "TopicEvent": "vivum.live.event",
    "TopicInfo": "vivum.live.browsing",
    "TopicStatistics": "vivum.live.topic",
    "TopicView": "vivum.live.event",
    "TypeMismatch": "vivum.live.failures",
    "UsageError": "vivum.core.errors",
    "VivumError": "vivum.core.errors",
    "connect": "vivum.live.connecting",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'vivum' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
