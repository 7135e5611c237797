"""Traces in files: what comes back, what a crash loses, and what is said when the disk fails."""

import resource
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planted.history import History
from planted.planted import CORRECT, VIOLATIONS
from vivum.core.errors import UsageError
from vivum.observe.trace import (
    BatchAppended,
    BatchCommitted,
    CommandAnswered,
    CommandApplied,
    CommandIssued,
    FaultInjected,
    FrameDropped,
    FrameReceived,
    FrameSent,
    GroupJoined,
    GroupNamed,
    KeyChangeSeen,
    KeyOperationAnswered,
    KeyOperationIssued,
    LeaderElected,
    LeaseAsked,
    LeaseKept,
    LeaseOver,
    LockReleased,
    LockTaken,
    MessageDelivered,
    NodeMeasured,
    ReadAnswered,
    ReadIssued,
    StateRestored,
    StateSaved,
    TraceRecord,
    WatchBegan,
)
from vivum.storage.errors import StorageError
from vivum.storage.trace_schema import RECORD_TYPES, column_types
from vivum.storage.traces import TraceWriter, read_guarantees, read_trace


def one_of_each() -> list[TraceRecord]:
    """A history in which every kind of record occurs, some at the same time."""
    history = History()
    history.start("1.1")
    history.join("1.1")
    history.view("1.1", 1, "1.1", "2.1")
    history.view("1.1", 2)
    history.everywhere(["1.1"], "1.1", 1, 2)
    history.stable("1.1", 1, 2)
    history.failed("1.1", 2, 3)
    history.lost("1.1", "2.1", 4, 9)
    history.skipped("1.1", "2.1", 9, 12)
    history.key("1.1", "2.1", 12, 77)
    history.queue("1.1", 5, 10)
    history.leave("1.1")
    history.stop("1.1")
    now = history.records[-1].time_ns
    return [
        *history.records,
        FaultInjected(now, 0, 0, cause="partition"),
        FrameSent(now, 1, 1, destination="#7", frame="data", bytes=1_000),
        FrameReceived(now, 2, 1, source="10.0.0.1:5", frame="data", bytes=1_000),
        FrameDropped(now, 3, 1, source="10.0.0.1:5", frame="data", bytes=1_000, cause="loss"),
        GroupNamed(now, 1, 1, group=1, topic="/swx/NESN", guarantee="reliable"),
        NodeMeasured(now, 1, 1, 5, 6_000, 1, 1_000, 2, 7_000),
        LeaderElected(now, 1, 1, 1, 3),
        BatchAppended(now, 1, 1, 1, 3, 8, 10, 77),
        BatchCommitted(now, 1, 1, 1, 3, 8, 10, 77),
        StateSaved(now, 1, 1, 1, 3, 9, 78),
        StateRestored(now, 1, 1, 1, 3, 9, 78),
        CommandApplied(now, 1, 1, 1, 8, 4, 0, 79),
        CommandIssued(now, 1001, 1, 1, 4, 0),
        CommandAnswered(now, 1001, 1, 1, 4, 0, 79),
        ReadIssued(now, 1001, 1, 1, 4, 0),
        ReadAnswered(now, 1001, 1, 1, 4, 0, 8, 79),
        KeyOperationIssued(now, 1001, 1, 2, 1001, 5, "put", 80, 81, 0),
        KeyOperationAnswered(now, 1001, 1, 2, 1001, 5, "done", 0, 7),
        WatchBegan(now, 1001, 1, 2, 1001, 6),
        KeyChangeSeen(now, 1001, 1, 2, 1001, 7, 80, 81),
        LeaseAsked(now, 1001, 1, 2, 9),
        LeaseKept(now, 1001, 1, 2, 9, 10**9),
        LeaseOver(now, 1001, 1, 2, 9),
        LockTaken(now, 1001, 1, 2, 80, 7),
        LockReleased(now, 1001, 1, 2, 80, 7),
    ]


def write(directory: Path, records: list[TraceRecord], label: str = "sim", rows_per_file: int = 1_000) -> None:
    with TraceWriter(directory, label, rows_per_file=rows_per_file) as trace:
        for record in records:
            trace(record)


def test_every_kind_of_record_comes_back_as_it_was(tmp_path: Path) -> None:
    records = one_of_each()
    assert {type(record) for record in records} == set(RECORD_TYPES.values())
    write(tmp_path, records)
    assert list(read_trace(tmp_path)) == records


@pytest.mark.parametrize("make", VIOLATIONS + CORRECT, ids=lambda make: make.__name__)
def test_histories_come_back_in_their_order(make, tmp_path: Path) -> None:
    records = make().records
    write(tmp_path, records, rows_per_file=4)
    assert list(read_trace(tmp_path)) == records


def test_files_are_rolled_by_rows_and_positions_go_on(tmp_path: Path) -> None:
    records = one_of_each()[:10]
    write(tmp_path, records, rows_per_file=4)
    files = sorted(tmp_path.iterdir())
    assert [path.name for path in files] == [f"sim-00000{n}.parquet" for n in range(3)]
    assert [pq.read_table(path)["position"].to_pylist() for path in files] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
    ]
    assert list(read_trace(files[1])) == records[4:8]


def test_writers_are_merged_by_time_and_each_keeps_its_own_order(tmp_path: Path) -> None:
    at_1 = [GroupJoined(time, 1, 1, group=group) for group, time in enumerate([0, 5, 5, 20])]
    at_2 = [GroupJoined(time, 2, 1, group=group) for group, time in enumerate([1, 5, 10])]
    write(tmp_path, at_1, "node-1.1", rows_per_file=3)
    write(tmp_path, at_2, "node-2.1")
    merged = list(read_trace(tmp_path))
    assert [record.time_ns for record in merged] == [0, 1, 5, 5, 5, 10, 20]
    assert [record for record in merged if record.node == 1] == at_1
    assert [record for record in merged if record.node == 2] == at_2


def test_the_guarantees_of_groups_are_read_by_name_also_where_topics_took_turns(tmp_path: Path) -> None:
    history = History()
    history.named("1.1", 1, "reliable")
    history.named("1.1", 2, "keyed")
    history.send("1.1", 1)
    history.named("1.1", 1, "best_effort")
    write(tmp_path, history.records, rows_per_file=1)
    assert read_guarantees(tmp_path) == {1: {"reliable", "best_effort"}, 2: {"keyed"}}


def test_columns_are_plain_types_that_spark_reads(tmp_path: Path) -> None:
    write(tmp_path, one_of_each())
    schema = pq.read_schema(tmp_path / "sim-000000.parquet")
    assert {str(field.type) for field in schema} == {"int64", "string", "list<element: string>"}
    assert schema.names == list(column_types())
    assert [field.name for field in schema if not field.nullable] == [
        "position",
        "kind",
        "time_ns",
        "node",
        "incarnation",
    ]


def test_fields_that_a_record_does_not_have_are_null(tmp_path: Path) -> None:
    write(tmp_path, [GroupJoined(5, 1, 1, group=7)])
    (row,) = pq.read_table(tmp_path).to_pylist()
    assert {name: value for name, value in row.items() if value is not None} == {
        "position": 0,
        "kind": "group_joined",
        "time_ns": 5,
        "node": 1,
        "incarnation": 1,
        "group": 7,
    }


def test_a_writer_that_is_never_closed_loses_only_what_it_had_not_written(tmp_path: Path) -> None:
    records = one_of_each()[:10]
    trace = TraceWriter(tmp_path, "sim", rows_per_file=4)
    for record in records:
        trace(record)
    assert list(read_trace(tmp_path)) == records[:8]
    trace.flush()
    assert list(read_trace(tmp_path)) == records


def test_half_written_files_of_a_crash_are_not_read_and_do_not_disturb(tmp_path: Path) -> None:
    (tmp_path / ".sim-000000.parquet.tmp").write_bytes(b"PAR1 torn")
    records = one_of_each()
    write(tmp_path, records)
    assert list(read_trace(tmp_path)) == records
    assert [path.name for path in tmp_path.iterdir()] == ["sim-000000.parquet"]


def test_nothing_written_makes_no_file_and_reading_says_so(tmp_path: Path) -> None:
    write(tmp_path, [])
    with pytest.raises(StorageError, match="holds no trace; give a directory"):
        read_trace(tmp_path)


def test_a_second_run_into_the_same_directory_is_refused(tmp_path: Path) -> None:
    write(tmp_path, one_of_each())
    with pytest.raises(UsageError, match=r"already holds a trace 'sim' .* choose another directory"):
        TraceWriter(tmp_path, "sim")
    TraceWriter(tmp_path, "sim-2").close()


@pytest.mark.parametrize("label", ["", ".hidden", "_ignored", "a/b", "a b", "../x"])
def test_a_label_that_is_no_file_name_is_refused(label: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be the label of a trace"):
        TraceWriter(tmp_path, label)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(
        StorageError, match=r"cannot write the trace .*file/traces: Not a directory; make room or choose"
    ):
        TraceWriter(tmp_path / "file" / "traces", "sim")


def test_a_full_disk_is_said_nothing_half_written_stays_and_later_records_are_counted(tmp_path: Path) -> None:
    records = one_of_each()
    trace = TraceWriter(tmp_path, "sim", rows_per_file=len(records))
    for record in records[:-1]:
        trace(record)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(
            StorageError, match=r"cannot write the trace .*sim-000000.parquet: File too large; make room"
        ):
            trace(records[-1])
        assert list(tmp_path.iterdir()) == []
        trace(records[0])
        with pytest.raises(StorageError, match="File too large"):
            trace.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    # There is room again: what was held is written, and the hole is said at the end.
    trace.flush()
    assert list(read_trace(tmp_path)) == records
    with pytest.raises(StorageError, match="has a hole: 1 records came"):
        trace.close()


def test_a_number_that_fits_no_column_is_refused_and_not_written_wrong(tmp_path: Path) -> None:
    trace = TraceWriter(tmp_path, "sim", rows_per_file=1)
    with pytest.raises(StorageError, match="cannot write the trace"):
        trace(GroupJoined(0, 1, 1, group=1 << 63))
    assert list(tmp_path.iterdir()) == []


def test_a_closed_writer_may_be_closed_again_but_not_flushed(tmp_path: Path) -> None:
    trace = TraceWriter(tmp_path, "sim")
    trace.close()
    trace.close()
    with pytest.raises(UsageError, match="is closed"):
        trace.flush()


def test_a_missing_path_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot read the trace .*nowhere: No such file or directory"):
        read_trace(tmp_path / "nowhere")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, one_of_each())
    path = tmp_path / "sim-000000.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(StorageError, match=r"cannot read the trace .*sim-000000.parquet"):
        list(read_trace(tmp_path))


def test_a_parquet_file_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(StorageError, match="is not a trace that this version reads"):
        list(read_trace(tmp_path / "other.parquet"))


def test_a_kind_of_a_later_version_is_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path, [GroupJoined(5, 1, 1, group=7)])
    path = tmp_path / "sim-000000.parquet"
    table = pq.read_table(path)
    kinds = pa.array(["group_teleported"])
    pq.write_table(table.set_column(1, table.schema.field("kind"), kinds), path)
    with pytest.raises(StorageError, match="records of kind 'group_teleported', which this version does not know"):
        list(read_trace(path))


def test_without_pyarrow_one_sentence_says_how_to_get_it(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from vivum.core.errors import UsageError\n"
        "from vivum.storage.traces import TraceWriter\n"
        f"try: TraceWriter({str(tmp_path)!r}, 'sim')\n"
        "except UsageError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=_with_path())
    assert done.stdout == "traces and logs need pyarrow; install it with: pip install 'vivum[log]'\n"


def test_a_large_history_is_read_in_batches_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vivum.storage.traces.ROWS_PER_READ", 7)
    history = History()
    for sequence in range(50):
        history.send("1.1", sequence)
        history.deliver("2.1", "1.1", sequence)
    write(tmp_path, history.records, rows_per_file=30)
    read = list(read_trace(tmp_path))
    assert read == history.records
    assert sum(isinstance(record, MessageDelivered) for record in read) == 50


def _with_path() -> dict[str, str]:
    return {"PYTHONPATH": ":".join(sys.path)}
