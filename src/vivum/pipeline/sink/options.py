"""The options of `format("vivum")` for writing: checked before a row is written.

| option | meaning |
|---|---|
| `topic` | Where to publish. Not given: each row's column `topic` says it |
| `type` | `module:Class`, a `vivum.Message`: the other columns are its fields, or one struct column `value` has them |
| no `type` | The column `payload` is published as it is |
| `domain`, `interface`, `seeds`, `unicast` | How to join the domain, as in `vivum.connect`; seeds separated by commas |
| `waitForMembers` | Publish when each topic has this many other members; default 0 |
| `timeout` | Seconds to wait for the domain, and again for members; default 30 |
| `linger` | Seconds that the sink's node stays in the domain after a batch of a stream; default 20 |
| `trace` | Folder where the sink's node writes what it sends, for `vivum audit` |
| `staging` | Directory that driver and executors share; default in `checkpointLocation`, or for temporary files |
| `checkpointLocation` | Of a stream: Spark's own option, needed here because the sink takes the query's id from it |
| `query` | Of a batch: a name for this write. Written again under the same name, it is not published twice |
"""

import importlib
import json
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import types

from vivum.core.errors import UsageError
from vivum.core.topic_names import check_name, is_pattern
from vivum.live.connecting import seed_endpoint
from vivum.live.messages import Message, codec_of
from vivum.pipeline.source.options import read_path
from vivum.pipeline.typed import check_columns
from vivum.runtime.defaults import LOOPBACK

TIMEOUT_S = 30.0
LINGER_S = 20.0
TOPIC_COLUMN = "topic"
PAYLOAD_COLUMN = "payload"
VALUE_COLUMN = "value"

_NAMES = {
    name.lower(): name
    for name in (
        "topic",
        "type",
        "domain",
        "interface",
        "seeds",
        "unicast",
        "waitForMembers",
        "timeout",
        "linger",
        "trace",
        "staging",
        "checkpointLocation",
        "query",
    )
}


@dataclass(frozen=True)
class Link:
    """How the sink joins its domain, and for whom it waits. Plain: it travels, and publishers are found by it."""

    domain: str
    interface: str
    seeds: tuple[str, ...]
    unicast: bool
    schema: str
    """The type of the topics, described."""

    wait_for_members: int
    timeout_s: float
    linger_s: float
    trace: str | None = None


@dataclass(frozen=True)
class SinkOptions:
    """What a query publishes, and where. Plain: it travels to the workers."""

    link: Link
    topic: str | None
    type_name: str | None
    fields: tuple[str, ...]
    """Columns that are fields of the type; or those inside `value`."""

    in_value: bool
    folder: str
    """What the sink keeps of this query."""

    query: uuid.UUID
    is_stream: bool
    is_named: bool
    """A batch that has a name: what the sink knows of it is kept."""


def read_sink_options(given: Mapping[str, str], schema: types.StructType, *, stream: bool) -> SinkOptions:
    """Check all options and the columns. Raises `UsageError` in one sentence."""
    options = {key.lower(): value for key, value in given.items()}
    for key in given:
        if key.lower() == "path":
            raise UsageError("the sink has no path; name the topic by the option 'topic', or in a column 'topic'")
        if key.lower() not in _NAMES:
            raise UsageError(f"option {key!r} is unknown; options are {', '.join(_NAMES.values())}")
    topic = options.get("topic")
    if topic is not None:
        if is_pattern(topic):
            raise UsageError(f"topic={topic!r} is a pattern; name one topic, or give each row a column 'topic'")
        check_name(topic)
    type_name = options.get("type")
    message_type = None if type_name is None else message_type_of(type_name)
    fields, in_value = _fields(schema, topic, message_type)
    folder, query = _place(options, stream)
    return SinkOptions(
        _link(options, message_type),
        topic,
        type_name,
        fields,
        in_value,
        str(folder),
        query,
        stream,
        "query" in options,
    )


def message_type_of(name: str) -> type[Message]:
    """Import a type of messages by `module:Class`."""
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise UsageError(f"type={name!r} is not module:Class, as in vivum.pipeline.market_messages:MarketTrade")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise UsageError(f"type={name!r} cannot be imported: {error}; the workers need it on their path") from error
    except AttributeError:
        raise UsageError(f"type={name!r}: module {module} has no {attribute}") from None
    if not (isinstance(found, type) and issubclass(found, Message)):
        raise UsageError(f"type={name!r} is no vivum.Message")
    return found


def _fields(
    schema: types.StructType, topic: str | None, message_type: type[Message] | None
) -> tuple[tuple[str, ...], bool]:
    columns = {each.name: each for each in schema}
    if topic is None:
        named = columns.pop(TOPIC_COLUMN, None)
        if named is None or not isinstance(named.dataType, types.StringType):
            raise UsageError("no topic is named; give the option 'topic', or a column 'topic' of strings")
    if message_type is None:
        payload = columns.pop(PAYLOAD_COLUMN, None)
        if payload is None or not isinstance(payload.dataType, types.BinaryType):
            raise UsageError("there is no column 'payload' of binary; make one, or give the option 'type'")
        if columns:
            raise UsageError(f"column {next(iter(columns))!r} would be lost; select what is to be published")
        return (PAYLOAD_COLUMN,), False
    (only,) = columns.values() if len(columns) == 1 else (None,)
    inner = None if only is None or only.name != VALUE_COLUMN else only.dataType
    if isinstance(inner, types.StructType) and VALUE_COLUMN not in message_type.__struct_fields__:
        check_columns(message_type, inner)
        return tuple(inner.names), True
    check_columns(message_type, types.StructType(list(columns.values())))
    return tuple(columns), False


def _link(options: Mapping[str, str], message_type: type[Message] | None) -> Link:
    seeds = tuple(each.strip() for each in options.get("seeds", "").split(",") if each.strip())
    for each in seeds:
        seed_endpoint(each)
    unicast = options.get("unicast", "false").lower()
    if unicast not in ("true", "false"):
        raise UsageError(f"unicast={unicast!r} must be true or false")
    members = options.get("waitformembers", "0")
    if not members.isdecimal():
        raise UsageError(f"waitForMembers={members!r} must be a number, 0 or more")
    timeout_s = _seconds(options, "timeout", TIMEOUT_S)
    if timeout_s == 0:
        raise UsageError("timeout must be above 0")
    trace = options.get("trace")
    if trace is not None:
        read_path("trace", trace)
    schema = codec_of(bytes).schema if message_type is None else codec_of(message_type).schema
    return Link(
        options.get("domain", "default"),
        options.get("interface", LOOPBACK),
        seeds,
        unicast == "true",
        schema,
        int(members),
        timeout_s,
        _seconds(options, "linger", LINGER_S),
        trace,
    )


def _seconds(options: Mapping[str, str], name: str, default: float) -> float:
    try:
        found = float(options.get(name, default))
    except ValueError:
        found = -1.0
    if not 0 <= found < 1e6:
        raise UsageError(f"{name}={options[name]!r} must be a number of seconds, 0 or more")
    return found


def _place(options: Mapping[str, str], stream: bool) -> tuple[Path, uuid.UUID]:
    staging = options.get("staging")
    if not stream:
        name = options.get("query")
        if name is not None and staging is None:
            raise UsageError("a write with a name needs the option 'staging': what is published is noted there")
        query = uuid.uuid4() if name is None else uuid.uuid5(uuid.NAMESPACE_URL, f"vivum:{name}")
        if staging is not None:
            return read_path("staging", staging) / str(query), query
        # No folder above it that users of one machine would share.
        return Path(tempfile.gettempdir()).absolute() / f"vivum-sink-{query}", query
    if "query" in options:
        raise UsageError("option 'query' is for batches; a stream is known by the id in its checkpoint")
    given = options.get("checkpointlocation")
    if given is None:
        raise UsageError("a stream needs .option('checkpointLocation', DIR) on the query itself: its id is there")
    read_path("checkpointLocation", given)
    checkpoint = local_path(given)
    if checkpoint is None:
        raise UsageError(f"checkpointLocation={given!r} must be a local or mounted directory")
    try:
        query = uuid.UUID(json.loads((checkpoint / "metadata").read_text().splitlines()[0])["id"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UsageError(f"cannot read the id of the query in {checkpoint / 'metadata'}: {error}") from error
    folder = checkpoint / "vivum-sink" if staging is None else read_path("staging", staging)
    return folder / str(query), query


def local_path(location: str) -> Path | None:
    """Turn a location of Spark into a path of this machine; None if it is elsewhere."""
    if location.startswith("file:"):
        location = "/" + location.removeprefix("file:").lstrip("/")
    return None if "://" in location else Path(location).absolute()
