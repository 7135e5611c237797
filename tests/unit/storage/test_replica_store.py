"""The state of a replica on real files: what a crash, a full disk or a flipped bit leaves, and what is made of it."""

import errno
import json
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vivum.core.errors import UsageError
from vivum.core.ids import NodeId
from vivum.protocols.consensus.batch import BatchKind, EntryBatch, pack_commands, seal_batch
from vivum.protocols.consensus.configuration import Replica, ReplicaConfiguration
from vivum.protocols.consensus.records import (
    Impairment,
    Promises,
    entries_record,
    founding_record,
    snapshot_record,
)
from vivum.protocols.consensus.snapshot import SnapshotImage, encode_snapshot
from vivum.storage.errors import CorruptLogError, StorageError
from vivum.storage.write_ahead.record_format import RECORD_HEADER_BYTES
from vivum.storage.write_ahead.replica_store import ReplicaStore

FOUNDERS = ReplicaConfiguration([Replica(1, "127.0.0.1", 7001), Replica(2, "127.0.0.1", 7002)])


def open_store(path: Path, **more: object) -> ReplicaStore:
    return ReplicaStore(path, **{"domain": 7, "group": 1, "replica": 1, **more})  # type: ignore[arg-type]


def batch(first: int, term: int = 1, *commands: bytes) -> EntryBatch:
    body = pack_commands(commands or (b"x",))
    return seal_batch(BatchKind.COMMANDS, first, term, 0, body, len(commands or (b"x",)))


def promises(term: int, vote: int = 0) -> Promises:
    return Promises(term, NodeId(vote))


def snapshot_to(index: int, term: int = 1) -> bytes:
    return encode_snapshot(SnapshotImage(index, term, 99, 0, FOUNDERS.encode(), b"\x90", b"state"))


def written(path: Path, count: int = 5) -> None:
    """Write the founders' record and some more: entry n + 1 in term n."""
    store = open_store(path)
    store.append(founding_record(FOUNDERS))
    for number in range(1, count + 1):
        store.append(entries_record(promises(number, 2), number, [batch(number + 1, number)]))
    store.close()


def segment_of(path: Path) -> Path:
    (found,) = path.glob("*.records")
    return found


def record_starts(content: bytes) -> list[int]:
    return [at for at in range(len(content)) if content.startswith(b"VREC", at)]


def test_what_was_appended_is_there_at_the_next_start(tmp_path: Path) -> None:
    written(tmp_path)
    store = open_store(tmp_path)
    assert store.stored.promises == promises(5, 2)
    assert [each.last for each in store.stored.batches] == [1, 2, 3, 4, 5, 6]
    assert store.damage == []
    # And again, over the segments of several starts.
    store.append(entries_record(promises(9), 6, [batch(7, 9)]))
    store.close()
    assert open_store(tmp_path).stored.last_index == 7


def test_a_log_that_was_cut_stays_cut(tmp_path: Path) -> None:
    written(tmp_path)
    store = open_store(tmp_path)
    store.append(entries_record(promises(8), 3, [batch(4, 8)]))
    store.close()
    assert [(each.last, each.term) for each in open_store(tmp_path).stored.batches][-2:] == [(3, 2), (4, 8)]


def test_a_tail_torn_at_any_byte_is_cut_and_all_before_it_stays(tmp_path: Path) -> None:
    written(tmp_path / "whole")
    content = segment_of(tmp_path / "whole").read_bytes()
    last = record_starts(content)[-1]
    for stop in range(last, len(content)):
        torn = tmp_path / str(stop)
        shutil.copytree(tmp_path / "whole", torn)
        segment_of(torn).write_bytes(content[:stop])
        store = open_store(torn)
        assert store.stored.last_index == 5
        assert store.stored.promises == promises(4, 2)
        assert (store.damage, store.bytes_cut) == ([], stop - last)
        store.append(entries_record(promises(6), 5, [batch(6, 6)]))
        store.close()
        assert open_store(torn).stored.last_index == 6
        shutil.rmtree(torn)


def test_a_bit_flipped_in_the_middle_is_found_and_nothing_behind_it_is_served(tmp_path: Path) -> None:
    written(tmp_path / "whole")
    content = segment_of(tmp_path / "whole").read_bytes()
    starts = record_starts(content)
    for at in range(starts[2], starts[3]):
        flipped = tmp_path / str(at)
        shutil.copytree(tmp_path / "whole", flipped)
        damaged = bytearray(content)
        damaged[at] ^= 0x10
        segment_of(flipped).write_bytes(damaged)
        store = open_store(flipped)
        assert store.stored.last_index == 2, at
        # Term and vote are those of the newest record; what was acknowledged is known to be lost.
        assert store.stored.promises == Promises(5, NodeId(2), Impairment(6, 5))
        assert len(store.damage) == 1
        assert "damaged" in store.damage[0]
        store.close()
        # The next start has nothing to complain of, and the replica is still impaired.
        store = open_store(flipped)
        assert store.damage == []
        assert store.stored.promises.impairment == Impairment(6, 5)
        assert store.stored.last_index == 2
        assert list(flipped.glob("*.damaged"))
        store.close()
        shutil.rmtree(flipped)


def test_a_segment_that_is_missing_is_damage(tmp_path: Path) -> None:
    for _ in range(2):
        store = open_store(tmp_path)
        first = store.stored.last_index or 1
        if first == 1:
            store.append(founding_record(FOUNDERS))
        for number in range(first, first + 3):
            store.append(entries_record(promises(1), number, [batch(number + 1)]))
        store.close()
    store = open_store(tmp_path)
    store.append(entries_record(promises(3), 7, [batch(8, 3)]))
    store.close()
    sorted(tmp_path.glob("*.records"))[1].unlink()
    store = open_store(tmp_path)
    assert "are missing" in store.damage[0]
    assert store.stored.last_index == 4
    assert store.stored.promises == Promises(3, NodeId(0), Impairment(8, 3))


def test_a_snapshot_takes_the_place_of_the_log_in_front_of_it(tmp_path: Path) -> None:
    written(tmp_path)
    store = open_store(tmp_path)
    store.append(snapshot_record(promises(6), 4, snapshot_to(4, 3), [batch(5, 4), batch(6, 5)]))
    store.append(entries_record(promises(6), 6, [batch(7, 6)]))
    store.close()
    assert len(list(tmp_path.glob("*.records"))) == 1
    store = open_store(tmp_path)
    assert store.stored.image is not None
    assert store.stored.image.application == b"state"
    assert [each.last for each in store.stored.batches] == [5, 6, 7]
    store.append(snapshot_record(promises(6), 7, snapshot_to(7, 6), []))
    store.close()
    assert [path.name for path in tmp_path.glob("*.snapshot")] == [f"{7:020}.snapshot"]
    assert open_store(tmp_path).stored.last_index == 7


def test_a_crash_behind_the_renaming_of_a_snapshot_loses_nothing(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / f"{4:020}.snapshot").write_bytes(snapshot_to(4, 3))
    store = open_store(tmp_path)
    assert [each.last for each in store.stored.batches] == [5, 6]
    assert store.damage == []


def test_a_snapshot_that_was_installed_may_be_far_ahead_of_the_log(tmp_path: Path) -> None:
    written(tmp_path)
    store = open_store(tmp_path)
    store.append(snapshot_record(promises(9), 100, snapshot_to(100, 9), []))
    store.append(entries_record(promises(9), 100, [batch(101, 9)]))
    store.close()
    store = open_store(tmp_path)
    assert (store.stored.last_index, store.damage) == (101, [])


def test_a_damaged_snapshot_leaves_an_impaired_replica_that_begins_with_nothing(tmp_path: Path) -> None:
    written(tmp_path)
    store = open_store(tmp_path)
    store.append(snapshot_record(promises(6, 1), 6, snapshot_to(6, 5), []))
    store.append(entries_record(promises(7, 2), 6, [batch(7, 7)]))
    store.close()
    (path,) = tmp_path.glob("*.snapshot")
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    store = open_store(tmp_path)
    assert store.stored.image is None
    assert store.stored.batches == []
    assert store.stored.promises == Promises(7, NodeId(2), Impairment(7, 7))
    assert "is damaged" in store.damage[0]
    store.close()
    assert open_store(tmp_path).stored.promises.impairment == Impairment(7, 7)


def test_large_segments_are_followed_by_others(tmp_path: Path) -> None:
    store = open_store(tmp_path, segment_bytes=200)
    store.append(founding_record(FOUNDERS))
    for number in range(1, 20):
        store.append(entries_record(promises(1), number, [batch(number + 1)]))
    store.close()
    assert len(list(tmp_path.glob("*.records"))) > 3
    assert open_store(tmp_path).stored.last_index == 20


# What cannot be written.


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_record_that_cannot_be_written_ends_the_store_and_the_rest_is_whole(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.append(founding_record(FOUNDERS))
    store.append(entries_record(promises(1), 1, [batch(2)]))
    with files_of_at_most(4096), pytest.raises(StorageError, match="nothing that was not written is acknowledged"):
        store.append(entries_record(promises(2), 2, [batch(3, 2, bytes(8192))]))
    with pytest.raises(StorageError, match="takes nothing any more"):
        store.append(entries_record(promises(2), 2, [batch(3, 2)]))
    store.close()
    assert open_store(tmp_path).stored.last_index == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small tmpfs")
def test_a_full_disk_is_one_clear_error(tmp_path: Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", tmp_path], check=False).returncode:
        pytest.skip("this root may not mount")
    try:
        store = open_store(tmp_path)
        store.append(founding_record(FOUNDERS))
        number, told = 1, ""
        while not told and number < 100:
            try:
                store.append(entries_record(promises(1), number, [batch(number + 1, 1, bytes(8000))]))
            except StorageError as error:
                told = str(error)
            else:
                number += 1
        assert "No space left on device; the replica stops" in told
        store.close()
        store = open_store(tmp_path)
        assert (store.stored.last_index, store.damage) == (number, [])
        store.close()
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_a_force_that_fails_ends_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path)
    store.append(founding_record(FOUNDERS))

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(StorageError, match="Input/output error"):
            store.append(entries_record(promises(1), 1, [batch(2)]))
    # A second force could succeed and mean nothing.
    with pytest.raises(StorageError, match="takes nothing any more"):
        store.append(entries_record(promises(1), 1, [batch(2)]))


def test_records_are_forced_one_by_one_and_without_a_policy_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", forced.append)
    for policy, expected in (("group", 3), ("none", 0)):
        forced.clear()
        store = open_store(tmp_path / policy, fsync=policy)
        store.append(founding_record(FOUNDERS))
        store.append(entries_record(promises(1), 1, [batch(2), batch(3)]))
        store.append(entries_record(promises(1), 3, [batch(4)]))
        assert len(forced) == expected


# Whose it is.


def test_a_directory_of_another_replica_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    for other in ({"domain": 8}, {"group": 2}, {"replica": 3}):
        with pytest.raises(UsageError, match="belongs to replica 1 of group 1 in domain 00000007, not to"):
            open_store(tmp_path, **other)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    path = tmp_path / "identity"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2}))
    with pytest.raises(StorageError, match="has format 2, this Vivum reads 1; update Vivum"):
        open_store(tmp_path)


def test_state_without_an_identity_or_with_a_torn_one_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "identity").write_text("{")
    with pytest.raises(CorruptLogError, match="cannot be read"):
        open_store(tmp_path)
    (tmp_path / "identity").unlink()
    with pytest.raises(CorruptLogError, match="nobody knows whose it is"):
        open_store(tmp_path)


def test_two_processes_do_not_share_a_directory(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(UsageError, match="another process has the state"):
        open_store(tmp_path)
    store.close()
    open_store(tmp_path).close()


def test_an_unknown_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="policies are group, none"):
        open_store(tmp_path, fsync="sometimes")


def test_the_overhead_of_a_record_is_known() -> None:
    assert RECORD_HEADER_BYTES == 20
