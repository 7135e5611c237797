"""The commands that join a domain, as processes."""

import asyncio
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import vivum
from vivum.storage.runs import RecordedRun
from vivum.storage.segment_log import SegmentLog

TIMEOUT_S = 60


class Commands:
    """Starts commands in one domain, and ends them whatever happens."""

    def __init__(self, domain: str) -> None:
        self.domain = domain
        self.all: list[subprocess.Popen[str]] = []

    def start(self, *words: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", "vivum.cli", *words, "-d", self.domain],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A shell that starts tests in the background lets them ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509 - no threads here
        )
        self.all.append(process)
        return process

    def run(self, *words: str, given: str = "") -> tuple[int, str, str]:
        process = self.start(*words)
        out, err = process.communicate(given, TIMEOUT_S)
        return process.returncode, out, err

    def up(self, *words: str) -> "subprocess.Popen[str]":
        process = self.start("up", *words)
        assert process.stdout is not None
        assert "service of domain" in process.stdout.readline()
        return process

    def end(self) -> None:
        for each in self.all:
            if each.poll() is None:
                each.kill()
            each.wait()
            for pipe in (each.stdin, each.stdout, each.stderr):
                if pipe is not None:
                    pipe.close()


@pytest.fixture
def commands(domain_name: str) -> Iterator[Commands]:
    made = Commands(domain_name)
    yield made
    made.end()


def last_json(text: str) -> dict[str, object]:
    found = json.loads(text.splitlines()[-1])
    assert isinstance(found, dict)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [2, 4])
def test_a_service_that_died_and_starts_again_at_its_port_serves_all(commands: Commands, nodes: int) -> None:
    """With four nodes a standby went on for it meanwhile: then two services meet, of which the one from `up` stays."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    async def scene() -> None:
        options: dict[str, Any] = {"seeds": [f"127.0.0.1:{port}"], "multicast": False, "timeout_s": TIMEOUT_S}
        service = await asyncio.to_thread(commands.up, "--port", str(port))
        async with AsyncExitStack() as stack:

            async def enter() -> vivum.Topic[bytes]:
                node = await stack.enter_async_context(vivum.connect(commands.domain, **options))
                return await node.enter("/a", bytes)

            topics = [await enter() for _ in range(nodes)]
            for each in topics:
                await each.wait_for_members(nodes)
            service.kill()
            service.wait()
            if nodes > 2:
                while not any(each._node.carries_service for each in topics):
                    await asyncio.sleep(0.05)
            await asyncio.to_thread(commands.up, "--port", str(port))
            late = await enter()
            await late.wait_for_members(nodes + 1)
            for each in topics:
                await each.wait_for_members(nodes + 1)

    asyncio.run(asyncio.wait_for(scene(), 2 * TIMEOUT_S))


@pytest.mark.slow
def test_pub_sub_ls_and_top_in_a_domain_that_up_serves(commands: Commands) -> None:
    service = commands.up()
    subscriber = commands.start("sub", "/a/*", "--json", "--count", "5")
    listener, second = commands.start("sub", "/a/x"), commands.start("sub", "/a/x")
    code, out, _ = commands.run("pub", "/a/x", "one", "two", "--wait", "3", "--json")
    assert (code, last_json(out)) == (0, {"topic": "/a/x", "sent": 2, "receivers": 3})
    code, out, _ = commands.run("pub", "/a/x", "--wait", "3", "--json", given="three\nfour\nfive\n")
    assert last_json(out)["sent"] == 3
    out, err = subscriber.communicate(timeout=TIMEOUT_S)
    got = [json.loads(line) for line in out.splitlines()]
    assert [each["value"] for each in got] == ["one", "two", "three", "four", "five"]
    assert {each["topic"] for each in got} == {"/a/x"}
    assert f"joined {commands.domain} as " in err
    assert "waiting for messages of /a/*" in err
    code, out, _ = commands.run("ls", "--json")
    listed = last_json(out)
    assert listed["topics"] == [{"name": "/a/x", "type": "bytes", "guarantee": "reliable", "members": 2}]
    assert len(listed["nodes"]) == 2  # type: ignore[arg-type]
    code, out, _ = commands.run("health", "--json")
    assert (code, last_json(out)["well"]) == (0, True)
    code, out, _ = commands.run("top", "--json", "--interval", "0.2")
    assert [each["topic"] for each in last_json(out)["topics"]] == ["/a/x"]  # type: ignore[attr-defined]
    # Ctrl-C ends what has no end of its own, in order.
    for process, number, code in (
        (listener, signal.SIGINT, 130),
        (second, signal.SIGTERM, 0),
        (service, signal.SIGINT, 130),
    ):
        process.send_signal(number)
        out, err = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, "Traceback" in err) == (code, False), err


class Trade(vivum.Message):
    symbol: str
    price: float
    size: int = 1


def test_sub_and_pub_speak_json_with_topics_that_have_a_type(commands: Commands) -> None:
    """`sub` was there before the topics: it takes type and guarantee of each, and bytes as well."""
    subscriber = commands.start("sub", "/x/**", "--json", "--count", "4")
    assert subscriber.stderr is not None
    assert "its service runs here" in subscriber.stderr.readline()

    async def scene() -> None:
        async with vivum.connect(commands.domain) as node:
            trades = await node.enter("/x/trades", Trade, guarantee=vivum.KEYED)
            await trades.wait_for_members(2)
            await trades.send(Trade("NESN", 101.5))
            bare = await node.enter("/x/bytes", bytes, guarantee=vivum.BEST_EFFORT)
            await bare.wait_for_members(2)
            await bare.send(b"\xff\x00")
            words = ["pub", "/x/trades", '{"symbol": "ROG", "price": 1}', '{"symbol": "NOVN", "price": 2.5, "size": 7}']
            code, _, err = await asyncio.to_thread(commands.run, *words)
            assert code == 0, err
            got = [(await trades.receive()).value for _ in range(3)]
            assert got[1:] == [Trade("ROG", 1.0), Trade("NOVN", 2.5, 7)]
            code, _, err = await asyncio.to_thread(commands.run, "pub", "/x/trades", '{"symbol": "ROG", "price": "1"}')
            assert (code, err.splitlines()[-1]) == (
                2,
                "vivum: error: message 1: field price of Trade: Expected `float`, got `str`; Trade has the fields "
                "symbol: str, price: float, size?: int",
            )

    asyncio.run(asyncio.wait_for(scene(), TIMEOUT_S))
    out, _ = subscriber.communicate(timeout=TIMEOUT_S)
    got = [json.loads(line) for line in out.splitlines()]
    assert [(each["topic"], each.get("value"), each.get("base64")) for each in got] == [
        ("/x/trades", {"symbol": "NESN", "price": 101.5, "size": 1}, None),
        ("/x/bytes", None, "/wA="),
        ("/x/trades", {"symbol": "ROG", "price": 1.0, "size": None}, None),
        ("/x/trades", {"symbol": "NOVN", "price": 2.5, "size": 7}, None),
    ]


def test_pub_says_what_it_waits_for_and_sigterm_ends_it_in_order(commands: Commands) -> None:
    publisher = commands.start("pub", "/a", "x", "--wait", "2")
    assert publisher.stderr is not None
    assert publisher.stderr.readline() == "vivum: waiting for 2 receivers of /a (--wait 0 sends at once)\n"
    publisher.send_signal(signal.SIGTERM)
    out, err = publisher.communicate(timeout=TIMEOUT_S)
    assert (publisher.returncode, out, err) == (143, "", "")


def test_the_domain_of_the_environment_is_that_of_commands_and_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"environment-{os.getpid()}"
    monkeypatch.setenv("VIVUM_DOMAIN", name)

    async def scene() -> None:
        async with vivum.connect() as node:
            assert node.domain == name
            words = [sys.executable, "-m", "vivum.cli", "ls", "--json"]
            done = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, check=True)
            assert last_json(done.stdout)["domain"] == name

    asyncio.run(asyncio.wait_for(scene(), TIMEOUT_S))


@pytest.mark.slow
def test_commands_that_find_no_domain_say_so_in_one_line(commands: Commands) -> None:
    code, out, err = commands.run("ls", "--timeout", "0.3")
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert "no configuration service of domain" in err


@pytest.mark.slow
def test_a_second_service_of_a_domain_ends_and_says_why(commands: Commands) -> None:
    commands.up()
    code, _, err = commands.run("up")
    assert code == 1
    assert "another service of domain" in err


@pytest.mark.slow
def test_a_file_goes_to_many_and_an_interrupted_receiver_goes_on(commands: Commands, tmp_path: Path) -> None:
    commands.up()
    source = tmp_path / "data.bin"
    source.write_bytes(os.urandom(3_000_000))
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    receivers = [commands.start("receive-file", "--into", str(folder), "--json") for folder in folders]
    code, out, err = commands.run("send-file", str(source), "-n", "2", "--json")
    assert "vivum: waiting for 2 receivers of /vivum/files; none has answered\n" in err
    sent = last_json(out)
    assert (code, sent["bytes"], sent["receivers"]) == (0, 3_000_000, 2)
    for receiver, folder in zip(receivers, folders, strict=True):
        out, _ = receiver.communicate(timeout=TIMEOUT_S)
        assert last_json(out)["digest"] == sent["digest"]
        assert [path.name for path in folder.iterdir()] == ["data.bin"]
        assert (folder / "data.bin").read_bytes() == source.read_bytes()
    # What an interrupted run left is the beginning of the file.
    third = tmp_path / "three"
    third.mkdir()
    part = third / f"data.bin.{str(sent['digest'])[:16]}.part"
    part.write_bytes(source.read_bytes()[:2_000_000])
    receiver = commands.start("receive-file", "--into", str(third), "--json")
    code, out, _ = commands.run("send-file", str(source), "--json")
    assert last_json(out)["sent_bytes"] == 1_000_000
    out, _ = receiver.communicate(timeout=TIMEOUT_S)
    assert last_json(out)["resumed_at"] == 2_000_000
    assert (third / "data.bin").read_bytes() == source.read_bytes()


@pytest.mark.slow
def test_a_broken_part_is_taken_anew(commands: Commands, tmp_path: Path) -> None:
    source = tmp_path / "data.bin"
    source.write_bytes(os.urandom(500_000))
    code, out, _ = commands.run("send-file", str(tmp_path / "none"))
    assert code == 2
    commands.up()
    sender = commands.start("send-file", str(source), "--json")
    digest = hashlib.blake2b(source.read_bytes(), digest_size=32).hexdigest()
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / f"data.bin.{digest[:16]}.part").write_bytes(bytes(500_000))
    code, out, _ = commands.run("receive-file", "--into", str(folder), "--json")
    assert (code, last_json(out)["digest"]) == (0, digest)
    assert (folder / "data.bin").read_bytes() == source.read_bytes()
    assert sender.wait(TIMEOUT_S) == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["pub", "/\udcff", "x"], "'/\\udcff' is not text that can be sent"),
        (["pub", "/a", "\udcff"], "message 1 is not UTF-8"),
        (["sub", "/\udcff"], "is not text that can be sent"),
        (["ls", "-d", "\udcff"], "is not text that can be sent"),
        (["up", "-d", "\udcff"], "'\\udcff' is not UTF-8 text"),
        (["record", "/\udcff", "--to", "log"], "'/\\udcff' is not UTF-8 text"),
        (["pub", "/a", "x", "--seed", "127.0.0.1:²"], "seed '127.0.0.1:²' is not host:port"),
        (["pub", "/a", "x", "--interface", "\udcff"], "is not an IPv4 address"),
    ],
)
def test_words_that_make_no_sense_are_one_line_and_wrong_use(words: list[str], told: str, tmp_path: Path) -> None:
    """R2: text that is not UTF-8, and a seed with a port such as `²`, were tracebacks."""
    done = subprocess.run(
        [sys.executable, "-m", "vivum.cli", *words], capture_output=True, check=False, timeout=TIMEOUT_S, cwd=tmp_path
    )
    err = done.stderr.decode()
    assert (done.returncode, len(err.splitlines())) == (2, 1), err
    assert err.startswith("vivum: error: ")
    assert told in err


def test_replay_of_a_folder_without_segments_is_an_error(commands: Commands, tmp_path: Path) -> None:
    """R2: it said "0 messages", with exit code 0."""
    code, out, err = commands.run("replay", str(tmp_path), "--json")
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert f"{tmp_path} has no messages" in err


def test_record_says_that_a_closed_segment_is_damaged(commands: Commands, tmp_path: Path) -> None:
    """R2: it went on without a word."""
    with SegmentLog(tmp_path) as log:
        log.append([RecordedRun("/a", 1, 1, 0, 1, 0, 0, [b"x" * 1000])])
    (segment,) = tmp_path.glob("*.segment")
    whole = segment.read_bytes()
    segment.write_bytes(whole[: len(whole) // 2])
    code, out, err = commands.run("record", "/a", "--to", str(tmp_path), "--seconds", "0.1", "--json")
    assert code == 0
    assert "damage:" in err
    assert segment.name in "".join(err.split())
    (told,) = last_json(out)["damage"]  # type: ignore[misc]
    assert str(segment) in told
