"""Follows logs from one micro-batch to the next: which log it is, how far it was read, and what is missing of it.

What Spark keeps as an offset names each log by its UUID, and the segment that was read last. So a log that was moved is
followed, and one that was made anew, merged, thinned or put back to an older state is recognised. What is missing is
found here, before anything is read, and either refused in one sentence or handed on as `LostRows`.
"""

from typing import Any, NamedTuple

from vivum.core.errors import UsageError
from vivum.storage.errors import StorageError
from vivum.storage.segment_format import NOTHING_BEFORE
from vivum.storage.segment_reader import KnownSegment, LogReader, LostRows, holes_between

Offsets = dict[str, dict[str, Any]]
"""For each log, by its UUID (by its path while it has no segment): `path`, `offset` of the next row, and `segment` and
`mark` of the segment that has the row before it."""


class LogPlace(NamedTuple):
    """From where a log is to be read."""

    offset: int
    kept: dict[str, Any] | None
    """What the checkpoint has of it."""

    lost: tuple[LostRows, ...] = ()
    """What nobody can read any more."""


class FollowedLogs:
    """The logs of a query."""

    def __init__(self, directories: tuple[str, ...], *, fails_on_loss: bool) -> None:
        self.readers = {each: LogReader(each) for each in directories}
        self._fails_on_loss = fails_on_loss

    def keys(self) -> dict[str, str]:
        """Name the logs: their UUIDs, or paths while they have none, with their directories."""
        found: dict[str, str] = {}
        for directory, reader in self.readers.items():
            key = reader.log_id() or directory
            if key in found:
                raise UsageError(f"{found[key]} and {directory} are copies of one log; read one of them")
            found[key] = directory
        return found

    def offsets(self, reached: dict[str, int], kept: dict[str, dict[str, Any] | None]) -> Offsets:
        """Write down how far each directory is; `kept` is what was written last, and stays where nothing is new."""
        found: Offsets = {}
        for key, directory in self.keys().items():
            before, offset = kept.get(directory), reached[directory]
            if before is not None and before["offset"] == offset and before["segment"] is not None:
                found[key] = before
                continue
            segment = mark = None
            for each in self.readers[directory].segments():
                if each.head is not None and each.summary.first_offset < offset:
                    segment, mark = each.summary.first_offset, each.head.mark
            found[key] = {"path": directory, "offset": offset, "segment": segment, "mark": mark}
        return found

    def follow(self, start: Offsets) -> dict[str, LogPlace]:
        """Find for each directory where to go on. Raises what was lost, unless the query goes on without it."""
        keys = self.keys()
        by_path = {directory: key for key, directory in keys.items()}
        found: dict[str, LogPlace] = {}
        strangers: list[LostRows] = []
        for key, kept in start.items():
            if not isinstance(kept, dict):
                raise UsageError(
                    "the checkpoint was written by an older Vivum, which noted no identity of logs; begin anew"
                )
            if key in keys:
                found[keys[key]] = self._place(self.readers[keys[key]], kept)
            elif key in by_path:
                # It had no segment yet when this was noted.
                found[key] = LogPlace(kept["offset"], kept)
            else:
                strangers.append(self._stranger(key, kept, by_path))
        for directory, reader in self.readers.items():
            if directory not in found:
                found[directory] = LogPlace(reader.first_offset(), None)
        if strangers:
            first = next(iter(self.readers))
            found[first] = found[first]._replace(lost=(*found[first].lost, *strangers))
        return found

    def _stranger(self, key: str, kept: dict[str, Any], by_path: dict[str, str]) -> LostRows:
        """Say that a log of the checkpoint is not among those of the query. Nobody knows how much of it is lost."""
        if kept["path"] in by_path:
            told = f"the log {kept['path']} was made anew since it was read up to offset {kept['offset']}"
            advice = "put the former one back, begin with a new checkpoint, or set failOnDataLoss to false to go on"
        else:
            told = f"the checkpoint is of a log {key}, read at {kept['path']}, which no directory of the query has"
            advice = "name it again, or set failOnDataLoss to false to go on without it"
        if self._fails_on_loss:
            raise StorageError(f"{told}; {advice}")
        return LostRows(kept["offset"], kept["offset"], told, is_deleted=True)

    def _place(self, reader: LogReader, kept: dict[str, Any]) -> LogPlace:
        segments = reader.segments()
        offset: int = kept["offset"]
        lost: list[LostRows] = []
        wrong = self._wrong(reader, segments, kept)
        if wrong:
            if self._fails_on_loss:
                raise StorageError(f"{wrong}; start with a new checkpoint, or set failOnDataLoss to false to go on")
            lost.append(LostRows(offset, offset, wrong, is_deleted=True))
            # What has these offsets now is not what was read.
            older = [each for each in segments if each.summary.first_offset <= (kept["segment"] or 0)]
            offset = min(offset, older[-1].summary.stop_offset if older else offset)
        return LogPlace(offset, kept, tuple(lost))

    @staticmethod
    def _wrong(reader: LogReader, segments: list[KnownSegment], kept: dict[str, Any]) -> str:
        """Say what is not as it was when the log was read last; nothing if all is."""
        segment = kept["segment"]
        if segment is None:
            return ""
        before = [each for each in segments if each.summary.first_offset < segment]
        others = segments[len(before) :]
        if others and others[0].summary.first_offset == segment:
            head = others[0].head
            if head is not None and head.mark != kept["mark"]:
                return f"{others[0].file.path} is another segment than the one that was read"
            return ""
        # Retention deleted it, if what comes next was written behind it.
        head = others[0].head if others else None
        is_older = head is None or head.previous_stop <= segment
        if not others or is_older or (before and before[-1].summary.stop_offset > segment):
            return f"the log {reader.directory} does not have the segment of offset {segment}, which was read last"
        return ""

    def lost_between(self, directory: str, start: int, stop: int, *, since_oldest: bool) -> list[LostRows]:
        """List what is missing of a range of offsets, as far as the segments tell. Raises it, unless the query goes on.

        With `since_oldest`, what retention deleted before the oldest segment is not missing.
        """
        segments = self.readers[directory].segments()
        found: list[LostRows] = []
        if segments and not since_oldest:
            first, head = segments[0].summary.first_offset, segments[0].head
            # Offsets that jumped were never given to anybody.
            had = first if head is None or head.previous_stop == NOTHING_BEFORE else min(first, head.previous_stop)
            if start < min(had, stop):
                reason = f"rows of the log {directory} were deleted before they were read; keep more"
                found.append(LostRows(start, min(had, stop), reason, is_deleted=True))
        found += [
            each._replace(start=max(each.start, start), stop=min(each.stop, stop))
            for each in holes_between(segments)
            if each.start < stop and each.stop > start
        ]
        if found and self._fails_on_loss:
            raise StorageError(
                f"{found[0].reason}: offsets {found[0].start} to {found[0].stop - 1} are lost; set failOnDataLoss to "
                f"false to go on without them"
            )
        return found
