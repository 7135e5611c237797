"""Runs the tests of the codec on both of its forms."""

from types import ModuleType

import pytest

from vivum.wire import _codec_twin, codec


@pytest.fixture(params=["twin", "compiled"])
def forms(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "twin":
        return _codec_twin
    if not codec.COMPILED:
        pytest.skip("the compiled codec was not built, or VIVUM_PURE=1 is set")
    from vivum.wire import _codec

    return _codec
