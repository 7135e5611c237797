"""`send-file` and `receive-file` with hostile offers, files that exist, and disks that are full."""

import asyncio
import hashlib
import json
import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import vivum
from vivum.core.errors import HostError, UsageError
from vivum.live.transfer import FileMessage, FileReceived, receive_file, send_file

TOPIC = "/vivum/files"
TIMEOUT_S = 60


def digest_of(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def silent(done: int, size: int) -> None:
    pass


async def offered(
    domain: str, folder: Path, offers: list[tuple[str, str, bytes]], **options: bool | str
) -> tuple[FileReceived | Exception, list[str]]:
    """Let somebody offer (name, digest, content) in turn, each as often as the receiver asks; what the receiver got."""
    notes: list[str] = []
    async with vivum.connect(domain) as node, vivum.connect(domain) as other:
        topic = await other.enter(TOPIC, FileMessage, own=False)
        receiving = asyncio.create_task(receive_file(node, TOPIC, folder, silent, note=notes.append, **options))
        await topic.wait_for_members(2)

        async def answer() -> None:
            async for event in topic:
                asked = event.value
                for name, digest, data in offers:
                    if asked.what == "want" and asked.digest == digest:
                        await topic.send(FileMessage("part", name, len(data), digest, 0, data))
                        await topic.send(FileMessage("end", name, len(data), digest))

        answering = asyncio.create_task(answer())
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while not receiving.done():
                    for name, digest, data in offers:
                        await topic.send(FileMessage("offer", name, len(data), digest))
                    await asyncio.wait([receiving], timeout=0.1)
            return await receiving, notes
        except (HostError, UsageError) as error:
            return error, notes
        finally:
            answering.cancel()


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_an_existing_file_is_not_overwritten(domain_name: str, tmp_path: Path) -> None:
    """F11: `receive-file` overwrote existing files."""
    (tmp_path / "notes").write_bytes(b"mine")
    result, _ = asyncio.run(offered(domain_name, tmp_path, [("notes", digest_of(b"theirs"), b"theirs")]))
    assert isinstance(result, UsageError)
    assert "--overwrite" in str(result)
    assert files_in(tmp_path) == {"notes": b"mine"}


def test_an_existing_file_is_overwritten_if_told_to(domain_name: str, tmp_path: Path) -> None:
    (tmp_path / "notes").write_bytes(b"mine")
    offers = [("notes", digest_of(b"theirs"), b"theirs")]
    result, _ = asyncio.run(offered(domain_name, tmp_path, offers, overwrite=True))
    assert isinstance(result, FileReceived)
    assert files_in(tmp_path) == {"notes": b"theirs"}


def test_a_file_that_is_there_already_is_done_at_once(domain_name: str, tmp_path: Path) -> None:
    (tmp_path / "notes").write_bytes(b"theirs")
    before = (tmp_path / "notes").stat()
    result, _ = asyncio.run(offered(domain_name, tmp_path, [("notes", digest_of(b"theirs"), b"theirs")]))
    assert isinstance(result, FileReceived)
    assert result.resumed_at == result.size == 6
    assert (tmp_path / "notes").stat().st_ino == before.st_ino


def test_names_that_lead_elsewhere_are_passed_over(domain_name: str, tmp_path: Path) -> None:
    """F11: the first offer was taken, whatever its name."""
    into = tmp_path / "into"
    (into / "sub").mkdir(parents=True)
    names = ["../out", "/etc/out", "..", ".", "", "a\0b", ".bashrc", "x" * 250, "sub/out"]
    offers = [*((name, digest_of(b"bad"), b"bad") for name in names), ("good", digest_of(b"good"), b"good")]
    result, notes = asyncio.run(offered(domain_name, into, offers))
    assert isinstance(result, FileReceived), result
    (into / "sub").rmdir()
    assert files_in(into) == {"good": b"good"}
    assert list(tmp_path.iterdir()) == [into]
    assert [note.partition(":")[0] for note in notes] == [f"passed over an offer of {name!r}" for name in names]


def test_a_hidden_file_is_taken_if_it_is_named(domain_name: str, tmp_path: Path) -> None:
    """F11: an offer named `.bashrc` replaced that file."""
    offers = [("other", digest_of(b"other"), b"other"), (".profile", digest_of(b"good"), b"good")]
    result, _ = asyncio.run(offered(domain_name, tmp_path, offers, name=".profile"))
    assert isinstance(result, FileReceived)
    assert files_in(tmp_path) == {".profile": b"good"}


def test_digests_that_are_none_are_passed_over(domain_name: str, tmp_path: Path) -> None:
    """F11: the digest became part of a path unchecked."""
    into = tmp_path / "into"
    into.mkdir()
    digests = ["/../../out", "", "ab", "G" * 64, "A" * 64, "a" * 65]
    offers = [*(("bad", digest, b"bad") for digest in digests), ("good", digest_of(b"good"), b"good")]
    result, notes = asyncio.run(offered(domain_name, into, offers))
    assert isinstance(result, FileReceived), result
    assert files_in(into) == {"good": b"good"}
    assert list(tmp_path.iterdir()) == [into]
    assert len(notes) == len(digests)


def test_what_does_not_have_its_checksum_is_not_kept(domain_name: str, tmp_path: Path) -> None:
    result, _ = asyncio.run(offered(domain_name, tmp_path, [("notes", digest_of(b"good"), b"evil")]))
    assert isinstance(result, HostError)
    assert "checksum" in str(result)
    assert b"evil" not in files_in(tmp_path).values()


@pytest.mark.slow
def test_symbolic_links_are_not_followed(domain_name: str, tmp_path: Path) -> None:
    into, victim = tmp_path / "into", tmp_path / "victim"
    into.mkdir()
    victim.write_bytes(b"mine")
    digest = digest_of(b"theirs")
    part = into / f"notes.{digest[:16]}.part"
    part.symlink_to(victim)
    result, _ = asyncio.run(offered(domain_name, into, [("notes", digest, b"theirs")]))
    assert isinstance(result, HostError)
    assert str(part) in str(result)
    assert victim.read_bytes() == b"mine"
    part.unlink()
    # The target: a link, also one that leads nowhere, is something that exists.
    (into / "notes").symlink_to(tmp_path / "nowhere")
    result, _ = asyncio.run(offered(domain_name, into, [("notes", digest, b"theirs")]))
    assert isinstance(result, UsageError)
    result, _ = asyncio.run(offered(domain_name, into, [("notes", digest, b"theirs")], overwrite=True))
    assert isinstance(result, FileReceived)
    assert not (into / "notes").is_symlink()
    assert not (tmp_path / "nowhere").exists()


def test_parts_are_private_and_the_file_has_the_usual_mode(domain_name: str, tmp_path: Path) -> None:
    modes: list[int] = []
    data = os.urandom(600_000)
    source = tmp_path / "data.bin"
    source.write_bytes(data)
    into = tmp_path / "into"
    into.mkdir()

    def look(done: int, size: int) -> None:
        modes.extend(stat.S_IMODE(path.stat().st_mode) for path in into.glob("*.part"))

    async def scene() -> FileReceived:
        async with vivum.connect(domain_name) as node, vivum.connect(domain_name) as other:
            sending = asyncio.create_task(send_file(other, TOPIC, source, 1, silent, silent))
            received = await receive_file(node, TOPIC, into, look)
            await sending
            return received

    old = os.umask(0o027)
    try:
        received = asyncio.run(asyncio.wait_for(scene(), TIMEOUT_S))
    finally:
        os.umask(old)
    assert set(modes) == {0o600}
    assert stat.S_IMODE(received.path.stat().st_mode) == 0o640


def test_two_receivers_of_one_folder_do_not_write_the_same_part(domain_name: str, tmp_path: Path) -> None:
    source, into = tmp_path / "data.bin", tmp_path / "into"
    source.write_bytes(os.urandom(5_000_000))
    into.mkdir()

    async def scene() -> list[FileReceived | BaseException]:
        async with (
            vivum.connect(domain_name) as one,
            vivum.connect(domain_name) as two,
            vivum.connect(domain_name) as other,
        ):
            receiving = [receive_file(node, TOPIC, into, silent) for node in (one, two)]
            sending = asyncio.create_task(send_file(other, TOPIC, source, 2, silent, silent))
            found = await asyncio.gather(*receiving, return_exceptions=True)
            with pytest.raises(HostError, match="1 of 2 receivers"):
                await sending
            return found

    found = asyncio.run(asyncio.wait_for(scene(), TIMEOUT_S))
    assert sorted(type(each).__name__ for each in found) == ["FileReceived", "HostError"]
    assert (into / "data.bin").read_bytes() == source.read_bytes()


def test_a_sender_that_missed_messages_still_hears_its_receivers(domain_name: str, tmp_path: Path) -> None:
    source, into = tmp_path / "data.bin", tmp_path / "into"
    source.write_bytes(b"data")
    into.mkdir()

    async def scene() -> None:
        async with vivum.connect(domain_name) as node, vivum.connect(domain_name) as other:
            sending = asyncio.create_task(send_file(other, TOPIC, source, 1, silent, silent))
            while (seat := other.seat_of(TOPIC)) is None or not seat.listeners:
                await asyncio.sleep(0.01)
            seat.interrupt(vivum.MissedMessages("joins again", None))
            await receive_file(node, TOPIC, into, silent)
            await sending

    asyncio.run(asyncio.wait_for(scene(), 20))


def test_what_a_receiver_says_of_its_failure_cannot_write_to_the_senders_terminal(
    domain_name: str, tmp_path: Path
) -> None:
    source = tmp_path / "data.bin"
    source.write_bytes(b"data")

    async def scene() -> None:
        async with vivum.connect(domain_name) as node, vivum.connect(domain_name) as other:
            topic = await node.enter(TOPIC, FileMessage, own=False)
            sending = asyncio.create_task(send_file(other, TOPIC, source, 1, silent, silent))
            offer = (await topic.receive()).value
            await topic.send(FileMessage("failed", offer.name, offer.size, offer.digest, 0, b"\x1b[2Jno\nroom\xff"))
            with pytest.raises(HostError, match=r"1 of 1 receivers did not get data.bin: node .*: \?\[2Jno\?room"):
                await sending

    asyncio.run(asyncio.wait_for(scene(), 20))


def command(domain: str, *words: str, file_bytes_max: int | None = None) -> "subprocess.Popen[str]":
    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if file_bytes_max is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, file_bytes_max))

    return subprocess.Popen(
        [sys.executable, "-m", "vivum.cli", *words, "-d", domain],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=prepare,  # noqa: PLW1509 - no threads here
    )


@pytest.mark.slow
def test_a_receiver_that_cannot_write_says_why_and_its_sender_does_not_wait_for_it(
    domain_name: str, tmp_path: Path
) -> None:
    """R1: a full disk was a traceback, and the sender hung."""
    source = tmp_path / "data.bin"
    source.write_bytes(os.urandom(3_000_000))
    folders = [tmp_path / "full", tmp_path / "roomy"]
    for folder in folders:
        folder.mkdir()
    # A service that stays: if the receiver that fails carried it, and the sender left right after it, the other one
    # could lose its life (tests/simulation/test_live_worlds.py says when).
    service = command(domain_name, "up")
    assert service.stdout is not None
    assert "service of domain" in service.stdout.readline()
    full = command(domain_name, "receive-file", "--into", str(folders[0]), file_bytes_max=1_000_000)
    roomy = command(domain_name, "receive-file", "--into", str(folders[1]), "--json")
    sender = command(domain_name, "send-file", str(source), "-n", "2")
    try:
        _, err = full.communicate(timeout=TIMEOUT_S)
        # Who it joined as, and what went wrong.
        assert (full.returncode, len(err.splitlines())) == (1, 2), err
        assert "File too large" in err
        assert str(folders[0]) in err
        out, err = roomy.communicate(timeout=TIMEOUT_S)
        assert roomy.returncode == 0, err
        assert json.loads(out.splitlines()[-1])["bytes"] == 3_000_000
        _, err = sender.communicate(timeout=TIMEOUT_S)
        *talk, last = err.splitlines()
        assert (sender.returncode, last[:13]) == (1, "vivum: error:"), err
        assert all("waiting for 2 receivers" in line for line in talk)
        assert "1 of 2 receivers" in err
        assert "File too large" in err
    finally:
        for process in (full, roomy, sender, service):
            if process.poll() is None:
                process.kill()
            process.communicate()
    # What came is kept: with more room a later run goes on with it.
    (part,) = folders[0].iterdir()
    assert part.read_bytes() == source.read_bytes()[: part.stat().st_size]
    assert part.stat().st_size == 1_000_000
