"""What the sink keeps on disk: where, and who may read it."""

import stat
import tempfile
from pathlib import Path

import pyarrow
import pytest
from pyspark.sql import types

from vivum.pipeline.sink.options import read_sink_options
from vivum.pipeline.sink.sink import VivumWriter

PAYLOAD = types.StructType([types.StructField("payload", types.BinaryType())])


def test_results_of_a_write_without_a_name_are_private_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    taken = tmp_path / "vivum-sink"
    # Stands for a folder of another user.
    taken.write_bytes(b"")
    writer = VivumWriter(read_sink_options({"topic": "/a"}, PAYLOAD, stream=False))
    rows = pyarrow.RecordBatch.from_pydict({"payload": pyarrow.array([b"secret"], pyarrow.binary())})
    part = writer.write(iter([rows]))
    folder = Path(writer.options.folder)
    assert folder.parent == tmp_path
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    writer.abort([part])
    assert list(tmp_path.iterdir()) == [taken]
