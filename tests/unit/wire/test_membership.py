"""The content of a configuration, which travels inside a control message and is checked when its parts are joined."""

import msgspec
import pytest

from vivum.core.errors import DecodeError, UsageError
from vivum.wire.layout import GROUP_MAX
from vivum.wire.membership import (
    ConfigurationChanges,
    MemberAddress,
    RegionRecord,
    decode_changes,
    encode_changes,
)

OLD, YOUNG = MemberAddress(2, 1, 5, "h", 2), MemberAddress(1, 3, 9, "h", 1)
RECORD = RegionRecord(1, 2, 3, (OLD, YOUNG), (0, 8192), ((1, (5, 9)),))
CHANGES = ConfigurationChanges((RECORD,), (4, 5), ((7, (0, 3, GROUP_MAX, GROUP_MAX + 1)),))


@pytest.mark.parametrize("changes", [CHANGES, ConfigurationChanges((), (), ())])
def test_content_comes_back_as_it_was(changes):
    assert decode_changes(encode_changes(changes)) == changes


def test_a_region_of_8192_groups_costs_a_record_of_its_members():
    assert len(encode_changes(ConfigurationChanges((RECORD,), (), ()))) < 50


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"members": ()}, "without members"),
        ({"groups": ()}, "without members or groups"),
        ({"groups": (1, 2, 3)}, "odd in number"),
        ({"groups": (3, 2)}, "do not increase"),
        ({"members": (OLD, MemberAddress(2, 2, 9, "h", 1))}, "twice"),
        ({"members": (YOUNG, OLD)}, "order of their ages"),
        ({"lacks": ((2, (5, 9)),)}, "not there lacks"),
        ({"lacks": ((1, (5, 9)), (1, (5, 9)))}, "not in order"),
        ({"lacks": ((1, (9, 5)),)}, "do not increase"),
    ],
)
def test_a_region_that_cannot_be_is_refused_on_both_sides(change, reason):
    changes = ConfigurationChanges((msgspec.structs.replace(RECORD, **change),), (), ())
    with pytest.raises(DecodeError, match=reason):
        decode_changes(msgspec.msgpack.encode(changes))
    with pytest.raises(UsageError, match=reason):
        encode_changes(changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (ConfigurationChanges((RECORD, RECORD), (), ()), "named twice"),
        (ConfigurationChanges((RECORD,), (1,), ()), "named twice"),
        (ConfigurationChanges((), (4, 4), ()), "named twice"),
        (ConfigurationChanges((), (), ((1, (1,)),)), "odd in number"),
    ],
)
def test_changes_that_contradict_themselves_are_refused(changes, reason):
    with pytest.raises(DecodeError, match=reason):
        decode_changes(msgspec.msgpack.encode(changes))


def test_content_cut_or_lengthened_at_any_byte_is_refused():
    content = encode_changes(CHANGES)
    for wrong in [content[:stop] for stop in range(len(content))] + [content + b"\0", b"\x91" * 60_000]:
        with pytest.raises(DecodeError, match="content of Configuration"):
            decode_changes(wrong)
