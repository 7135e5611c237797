"""Topics whose types a command learns from the directory."""

from vivum.live.browsing import TopicInfo
from vivum.live.described import JsonType
from vivum.live.handle import NodeHandle
from vivum.wire.schema import BYTES_SCHEMA


async def find_topic(node: NodeHandle, name: str) -> TopicInfo | None:
    """Return what the directory has of a topic; None if it does not exist."""
    return next((each for each in await node.topics(name) if each.name == name), None)


def kind_of(topic: TopicInfo) -> JsonType | None:
    """Return the type of a topic's values as JSON texts; None for a topic of bytes."""
    return None if topic.schema == BYTES_SCHEMA else JsonType(topic.schema)
