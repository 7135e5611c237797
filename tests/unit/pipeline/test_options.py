"""Options of `format("vivum")` that no file system could take."""

import pytest
from pyspark.sql import types

from vivum.core.errors import UsageError
from vivum.pipeline.sink.options import read_sink_options
from vivum.pipeline.source.options import read_options

PAYLOAD = types.StructType([types.StructField("payload", types.BinaryType())])


def test_a_path_with_a_nul_is_wrong_use() -> None:
    """R2: it was a traceback."""
    with pytest.raises(UsageError, match=r"path='/tmp/a.x00b' is not a path"):
        read_options({"path": "/tmp/a\0b"})


@pytest.mark.parametrize("name", ["staging", "trace"])
def test_a_folder_of_the_sink_with_a_nul_is_wrong_use(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}='/tmp/a.x00b' is not a path"):
        read_sink_options({"topic": "/a", name: "/tmp/a\0b"}, PAYLOAD, stream=False)


def test_a_checkpoint_with_a_nul_is_wrong_use() -> None:
    with pytest.raises(UsageError, match=r"checkpointLocation='/tmp/a.x00b' is not a path"):
        read_sink_options({"topic": "/a", "checkpointLocation": "/tmp/a\0b"}, PAYLOAD, stream=True)
