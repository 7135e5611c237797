"""Two families of errors that never mix."""

import inspect

from vivum.core import errors
from vivum.core.errors import DecodeError, LimitError, PeerError, UsageError, VersionError, VivumError

ALL = [each for _, each in inspect.getmembers(errors, inspect.isclass)]


def test_every_error_has_the_one_root() -> None:
    assert all(issubclass(each, VivumError) for each in ALL)


def test_no_error_is_of_both_families() -> None:
    assert not any(issubclass(each, UsageError) and issubclass(each, PeerError) for each in ALL)


def test_a_limit_is_the_callers_fault_and_bad_bytes_are_the_peers() -> None:
    assert issubclass(LimitError, UsageError)
    assert issubclass(DecodeError, PeerError)
    assert issubclass(VersionError, DecodeError)
