"""Vivum: live groups for Python.

    async with vivum.connect("demo") as node:
        topic = await node.enter("/swx/NESN", Quote)
        await topic.send(Quote("NESN", 101.2, 101.4))
        async for event in topic:
            ...

Typed channels over reliable multicast. `docs/design/runtime.md` tells how; `docs/ARCHITECTURE.md` has the map.
"""

from vivum.core.errors import HostError, LimitError, UsageError, VivumError
from vivum.core.ids import Endpoint, Member
from vivum.core.limits import Limits
from vivum.live.browsing import NodeInfo, TopicInfo
from vivum.live.connecting import connect
from vivum.live.event import Batch, TopicEvent, TopicView
from vivum.live.failures import ClosedError, MissedMessages, NoServiceError, SendFailedError, TypeMismatch
from vivum.live.guarantees import BEST_EFFORT, RELIABLE, Guarantee
from vivum.live.handle import NodeHandle, NodeStatistics
from vivum.live.messages import Message
from vivum.live.subscription import Subscription
from vivum.live.topic import Topic, TopicStatistics

__version__ = "0.1.0"

__all__ = [
    "BEST_EFFORT",
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
    "NoServiceError",
    "NodeHandle",
    "NodeInfo",
    "NodeStatistics",
    "SendFailedError",
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
