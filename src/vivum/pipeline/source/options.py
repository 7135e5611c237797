"""The options of `format("vivum")`: read and checked at once, before Spark plans anything.

| option | meaning |
|---|---|
| `path` (or the argument of `load`) | Directories of logs, separated by commas |
| `topics` | Patterns, separated by commas; default `/**` |
| `startingOffset` | `earliest` (default), `latest`, or a number |
| `startingTime` | Instead: the first batch with rows delivered at this time or later; ISO 8601, or nanoseconds |
| `typed` | `true`: the struct `value` in place of the payload; `refused` has the reason where it is none |
| `columns` | Which columns, separated by commas; default all |
| `topicShards` | Number of tasks, each with all rows of its share of the topics, in order; each reads the whole log |
| `maxRowsPerTrigger`, `maxBytesPerTrigger` | Of a micro-batch, before topics are chosen; at least one row or batch |
| `minPartitions` | Number of tasks to aim for, as a cluster has cores; default the cores of the driver |
| `failOnDataLoss` | `true` (default): lost rows are an error. `false`: each range is a row of `/vivum/gaps` |
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from vivum.core.errors import UsageError
from vivum.core.topic_names import EVERY_TOPIC, TopicPatterns
from vivum.storage.gaps import GAPS_TOPIC
from vivum.storage.segment_format import COLUMNS
from vivum.storage.segment_reader import LogReader
from vivum.storage.topic_types import TopicTypes
from vivum.wire.schema import TypeDescription

EARLIEST = "earliest"
LATEST = "latest"

SHARDS_MAX = 1000
"""Tasks by topic of one query."""

_NAMES = {
    name.lower(): name
    for name in (
        "path",
        "topics",
        "startingOffset",
        "startingTime",
        "typed",
        "columns",
        "topicShards",
        "maxRowsPerTrigger",
        "maxBytesPerTrigger",
        "minPartitions",
        "failOnDataLoss",
    )
}


@dataclass(frozen=True)
class SourceOptions:
    """What a query wants. Only what is plain: it travels to the workers."""

    directories: tuple[str, ...]
    topics: TopicPatterns
    starting_offset: str | int
    starting_time_ns: int | None
    columns: tuple[str, ...]
    message_type: TypeDescription | None
    topic_shards: int | None
    rows_max: int | None
    bytes_max: int | None
    min_partitions: int | None
    fail_on_data_loss: bool


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """Check all options. Raises `UsageError` or `StorageError` in one sentence."""
    options = {key.lower(): value for key, value in given.items()}
    for key in given:
        if key.lower() not in _NAMES:
            raise UsageError(f"option {key!r} is unknown; options are {', '.join(_NAMES.values())}")
    directories = tuple(
        str(read_path("path", each.strip())) for each in options.get("path", "").split(",") if each.strip()
    )
    if not directories:
        raise UsageError("no log is named; give its directory to load(), or as the option 'path'")
    for each in directories:
        LogReader(each)
    topics = TopicPatterns(options.get("topics", EVERY_TOPIC))
    if "startingoffset" in options and "startingtime" in options:
        raise UsageError("startingOffset and startingTime are both given; choose one")
    typed = _flag(options, "typed", default=False)
    return SourceOptions(
        directories,
        topics,
        _starting_offset(options.get("startingoffset", EARLIEST)),
        _starting_time_ns(options["startingtime"]) if "startingtime" in options else None,
        _columns(options.get("columns"), typed),
        _checked_type(directories, topics, typed),
        _shards(options),
        _count(options, "maxRowsPerTrigger"),
        _count(options, "maxBytesPerTrigger"),
        _count(options, "minPartitions"),
        _flag(options, "failOnDataLoss", default=True),
    )


def read_path(option: str, text: str) -> Path:
    """Return the path that an option names, or raise a `UsageError` if no file system could have it."""
    if "\0" in text:
        raise UsageError(f"{option}={text!r} is not a path; it has a zero in it")
    return Path(text).absolute()


def _checked_type(directories: tuple[str, ...], topics: TopicPatterns, typed: bool) -> TypeDescription | None:
    """Check that the topics named exist, and find their type if it is wanted."""
    every = TopicTypes()
    for directory in directories:
        for topic, message_type in TopicTypes.read(Path(directory)).types.items():
            every.note([topic])
            if message_type is not None:
                every.declare(topic, message_type)
    known = every.types.keys()
    for topic in sorted((topics.exact or frozenset()) - known - {GAPS_TOPIC}):
        there = ", ".join(sorted(known)[:5]) + (" and more" if len(known) > 5 else "")
        raise UsageError(f"topic {topic} is not in the log; topics there are {there or 'none yet'}")
    chosen = topics.chosen(known)
    return every.common([each for each in chosen if each != GAPS_TOPIC] or chosen) if typed else None


def _columns(text: str | None, typed: bool) -> tuple[str, ...]:
    every = (*COLUMNS[:-1], "value", "refused") if typed else COLUMNS
    if text is None:
        return every
    chosen = tuple(each.strip() for each in text.split(",") if each.strip())
    for each in chosen:
        if each not in every:
            raise UsageError(f"column {each!r} is unknown; columns are {', '.join(every)}")
    if not chosen or len(set(chosen)) < len(chosen):
        raise UsageError(f"columns={text!r} must name columns, each once")
    return chosen


def _starting_offset(text: str) -> str | int:
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    if text.isdecimal():
        return int(text)
    raise UsageError(f"startingOffset={text!r} is neither {EARLIEST!r} nor {LATEST!r} nor a number")


def _starting_time_ns(text: str) -> int:
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"startingTime={text!r} is no time; write 2026-11-15T09:30:00Z or nanoseconds") from None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1_000


def _count(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"{name}={text!r} must be a number, at least 1")
    return int(text)


def _shards(options: Mapping[str, str]) -> int | None:
    shards = _count(options, "topicShards")
    if shards is not None and shards > SHARDS_MAX:
        raise UsageError(f"topicShards={shards} would make that many tasks read the whole log; at most {SHARDS_MAX}")
    return shards


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise UsageError(f"{name}={text!r} must be true or false")
    return text == "true"
