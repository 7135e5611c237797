import os
import subprocess
import sys

import pytest

from vivum.wire import _codec_twin, codec, layout
from vivum.wire.refusals import BodyFault

NAMES = [name for name in _codec_twin.__all__ if name.isupper()]


def test_both_forms_have_every_name(forms):
    assert [name for name in _codec_twin.__all__ if not hasattr(forms, name)] == []


def test_codec_offers_every_name():
    assert [name for name in _codec_twin.__all__ if not hasattr(codec, name)] == []


@pytest.mark.parametrize("name", NAMES)
def test_both_forms_have_the_numbers_of_the_layout(forms, name):
    assert getattr(forms, name) == getattr(layout, name)


def test_header_layouts_have_the_sizes_that_are_named():
    assert layout.HEADER.size == layout.HEADER_BYTES
    assert layout.RUN_HEADER.size == layout.RUN_HEADER_BYTES
    assert layout.LENGTH.size == layout.LENGTH_BYTES
    assert layout.TOTAL.size == layout.TOTAL_BYTES


def test_every_kind_fits_the_bit_masks_of_the_compiled_codec():
    assert max(layout.KNOWN_KINDS) < 64


def test_faults_of_bodies_are_numbered_as_in_the_compiled_codec():
    assert [fault.name for fault in BodyFault] == ["TORN", "FRAGMENT", "SEQUENCE", "PADDING"]
    assert list(BodyFault) == [1, 2, 3, 4]


def test_the_environment_can_force_the_twin():
    code = "from vivum.wire import codec; print(codec.COMPILED, codec.seal_control.__module__)"
    environment = {**os.environ, "VIVUM_PURE": "1"}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout == "False vivum.wire._codec_twin\n"


def test_without_a_built_module_the_twin_serves():
    code = (
        "import sys; sys.modules['vivum.wire._codec'] = None\n"
        "from vivum.wire import codec; print(codec.COMPILED, codec.seal_control.__module__)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "VIVUM_PURE"}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout == "False vivum.wire._codec_twin\n"
