"""The key-value store on real sockets and disks, as programs and the command line use it."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kv_trio.trio import StoreTrio, free_ports
from vivum import kv
from vivum.cli import main
from vivum.core.errors import LimitError, UsageError

Story = Callable[[StoreTrio, kv.KeyValueClient], Awaitable[None]]


def play(path: Path, domain: str, story: Story) -> None:
    async def run() -> None:
        async with StoreTrio(path, domain) as trio, trio.connect() as store:
            await story(trio, store)

    asyncio.run(run())


def test_keys_are_put_read_compared_and_deleted(tmp_path: Path, domain_name: str) -> None:
    async def story(trio: StoreTrio, store: kv.KeyValueClient) -> None:
        assert await store.get("/a") is None
        first = await store.put("/a", b"1")
        assert await store.get("/a") == kv.KeyValue("/a", b"1", first, first, 0)
        assert await store.compare_and_set("/a", b"2", expected=b"x") is None
        second = await store.compare_and_set("/a", b"2", expected=b"1")
        assert second == first + 1
        assert await store.compare_and_set("/b", b"1", revision=0) == second + 1
        assert [each.key for each in await store.range("/")] == ["/a", "/b"]
        assert await store.compare_and_set("/b", None, revision=second + 1) == second + 2
        assert await store.delete("/a")
        assert not await store.delete("/a")
        assert await store.range() == []
        large = bytes(range(256)) * 256
        await store.put("/large", large)
        found = await store.get("/large")
        assert found is not None
        assert found.value == large
        with pytest.raises(LimitError, match="value_bytes_max=65,536"):
            await store.put("/large", large + b"x")
        with pytest.raises(UsageError, match="encode it"):
            await store.put("/a", "text")  # type: ignore[arg-type]

    play(tmp_path, domain_name, story)


def test_many_keys_come_in_pages_and_all_calls_at_once(tmp_path: Path, domain_name: str) -> None:
    async def story(trio: StoreTrio, store: kv.KeyValueClient) -> None:
        keys = [f"/k/{number:04}" for number in range(2500)]
        async with asyncio.TaskGroup() as tasks:
            for key in keys:
                tasks.create_task(store.put(key, b"x" * 50))
        assert [each.key for each in await store.range("/k/")] == keys
        status = await store.status()
        assert (status.keys, status.revision) == (2500, 2500)
        await trio.until(lambda: len({host.machine.applied_index for host in trio.hosts.values()}) == 1)
        local = await store.get("/k/0000", linearizable=False)
        assert local is not None

    play(tmp_path, domain_name, story)


def test_a_watch_goes_on_when_the_leader_dies_and_misses_nothing(tmp_path: Path, domain_name: str) -> None:
    async def story(trio: StoreTrio, store: kv.KeyValueClient) -> None:
        await store.put("/w/0", b"before")
        seen: list[bytes | None] = []

        async def watch() -> None:
            async for change in store.watch("/w/", prefix=True, after=0):
                seen.append(change.value)
                if change.value == b"9":
                    return

        watching = asyncio.create_task(watch())
        for number in range(10):
            if number == 4:
                died = trio.leader
                trio.stop(died)
            await store.put("/w/1", b"%d" % number)
        trio.start(died)
        async with asyncio.timeout(20):
            await watching
        assert seen == [b"before", *[b"%d" % number for number in range(10)]]

    play(tmp_path, domain_name, story)


def test_a_lease_is_kept_alive_while_it_is_held_and_its_keys_go_with_it(tmp_path: Path, domain_name: str) -> None:
    async def story(trio: StoreTrio, store: kv.KeyValueClient) -> None:
        changes: list[kv.KeyChange] = []

        async def watch() -> None:
            async for change in store.watch("/here"):
                changes.append(change)

        async with trio.connect() as other:
            watching = asyncio.create_task(watch())
            await store.status()
            async with store.lease(0.8) as lease:
                await store.put("/here", b"1", lease=lease)
                await asyncio.sleep(1.2)
                assert lease.is_held
                assert await other.get("/here") is not None
            assert await other.get("/here") is None
            # One whose holder is gone ends by its time.
            lost = other.lease(0.8)
            await lost.__aenter__()
            await store.put("/here", b"2", lease=lost)
        assert lost._keeping is not None
        lost._keeping.cancel()
        await trio.until(lambda: len(changes) >= 4)
        watching.cancel()
        assert [each.value for each in changes] == [b"1", None, b"2", None]

    play(tmp_path, domain_name, story)


def test_a_lock_is_held_by_one_at_a_time_and_its_tokens_rise(tmp_path: Path, domain_name: str) -> None:
    async def story(trio: StoreTrio, store: kv.KeyValueClient) -> None:
        holders: list[int] = []
        tokens: list[int] = []

        async def work(number: int) -> None:
            async with trio.connect() as own, own.lock("/lock", ttl_s=2) as lock:
                assert lock.is_held
                assert holders == []
                holders.append(number)
                tokens.append(lock.token)
                await asyncio.sleep(0.02)
                holders.remove(number)
            assert not lock.is_held

        async with asyncio.TaskGroup() as tasks:
            for number in range(4):
                tasks.create_task(work(number))
        assert tokens == sorted(set(tokens))
        assert len(tokens) == 4

    play(tmp_path, domain_name, story)


def test_an_election_has_one_leader_and_observers_hear_of_it(tmp_path: Path, domain_name: str) -> None:
    async def story(trio: StoreTrio, store: kv.KeyValueClient) -> None:
        election = store.election("/leader", ttl_s=2)
        assert await election.leader() is None
        seen: list[bytes | None] = []

        async def observe() -> None:
            async for leader in election.observe():
                seen.append(None if leader is None else leader.value)

        observing = asyncio.create_task(observe())
        await trio.until(lambda: seen == [None])
        async with election.campaign(b"first") as first:
            await trio.until(lambda: seen == [None, b"first"])
            second = asyncio.create_task(election.campaign(b"second").__aenter__())
        term = await second
        assert term.token > first.token or first.token == 0
        await trio.until(lambda: seen[-1] == b"second")
        assert (await election.leader()) == kv.Leader(b"second", term.token)
        await term.__aexit__(None, None, None)
        await trio.until(lambda: seen[-1] is None)
        observing.cancel()

    play(tmp_path, domain_name, story)


def test_without_a_majority_a_call_ends_in_time_and_says_what_was_tried(tmp_path: Path, domain_name: str) -> None:
    async def story(trio: StoreTrio, store: kv.KeyValueClient) -> None:
        await store.put("/a", b"1")
        for number in (1, 2):
            trio.stop(number)
        store.timeout_s = 1.0
        with pytest.raises(kv.NoReplicaError, match=r"no answer within 1 s .*127\.0\.0\.1:.*a majority"):
            await store.get("/a")
        with pytest.raises(kv.NoReplicaError, match="whether the command ran is not known"):
            await store.put("/a", b"2")

    play(tmp_path, domain_name, story)


def test_bad_replicas_are_told_in_one_sentence(tmp_path: Path, domain_name: str) -> None:
    for replicas, said in [
        (["nonsense"], "not host:port"),
        ([], "at least one replica"),
        ("127.0.0.1:7100", "give a list"),
        (["10.1.2.3:7100"], "cannot be reached from interface 127.0.0.1"),
    ]:
        with pytest.raises(UsageError, match=said):
            kv.connect(replicas)
    for number, peers, said in [
        (1, {1: "127.0.0.1:7100", 2: "127.0.0.1:7101"}, "2 replicas are an even number"),
        (3, {1: "127.0.0.1:7100"}, "replica 3 is not among the peers 1"),
        (1, {1: "127.0.0.1:7100", 2: "127.0.0.1:7100", 3: "127.0.0.1:7102"}, "same address"),
        (1, {1: "127.0.0.1"}, "not host:port"),
    ]:
        with pytest.raises(UsageError, match=said):
            kv.serve(number, peers, tmp_path, domain=domain_name)
    assert list(tmp_path.iterdir()) == []


def bad_state(tmp_path: Path, domain: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Serve from a state directory that cannot be served; return the one line that says why."""
    (port,) = free_ports(domain, 1)
    state = str(tmp_path)
    code = main(["kv", "serve", "-n", "1", "--peer", f"1=127.0.0.1:{port}", "--state", state, "--domain", domain])
    err = capsys.readouterr().err
    assert code in (1, 2)
    assert len(err.splitlines()) == 1
    return err


def founded(path: Path, domain: str) -> None:
    async def run() -> None:
        (port,) = free_ports(domain, 1)
        kv.serve(1, {1: f"127.0.0.1:{port}"}, path, domain=domain).close()

    asyncio.run(run())


def test_a_state_directory_of_another_domain(tmp_path: Path, domain_name: str, capsys) -> None:
    founded(tmp_path, domain_name)
    assert "belongs to replica 1 of group 2 in domain" in bad_state(tmp_path, domain_name + "-other", capsys)


def test_a_state_directory_of_a_newer_format(tmp_path: Path, domain_name: str, capsys) -> None:
    founded(tmp_path, domain_name)
    path = tmp_path / "identity"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    assert "has format 99, this Vivum reads 1; update Vivum" in bad_state(tmp_path, domain_name, capsys)


def test_a_state_directory_with_a_damaged_identity(tmp_path: Path, domain_name: str, capsys) -> None:
    founded(tmp_path, domain_name)
    (tmp_path / "identity").write_bytes(b"\x00damaged")
    assert "cannot be read; restore it, or give the replica a new id" in bad_state(tmp_path, domain_name, capsys)


def test_a_state_directory_that_is_in_use(tmp_path: Path, domain_name: str) -> None:
    async def run() -> None:
        first, second = free_ports(domain_name, 2)
        host = kv.serve(1, {1: f"127.0.0.1:{first}"}, tmp_path, domain=domain_name)
        try:
            with pytest.raises(UsageError, match="another process has the state"):
                kv.serve(1, {1: f"127.0.0.1:{second}"}, tmp_path, domain=domain_name)
        finally:
            host.close()

    asyncio.run(run())


def test_a_replica_whose_records_are_damaged_gets_them_from_the_others(tmp_path: Path, domain_name: str) -> None:
    async def story(trio: StoreTrio, store: kv.KeyValueClient) -> None:
        for number in range(20):
            await store.put("/a", b"%d" % number)
        follower = next(number for number in (1, 2, 3) if number != trio.leader)
        await trio.until(
            lambda: trio.hosts[follower].machine.applied_index == trio.hosts[trio.leader].machine.applied_index
        )
        trio.stop(follower)
        (records,) = (tmp_path / str(follower)).glob("*.records")
        content = bytearray(records.read_bytes())
        content[len(content) // 2] ^= 1
        records.write_bytes(content)
        trio.start(follower)
        assert "is damaged at byte" in trio.hosts[follower].store.damage[0]
        assert trio.hosts[follower].machine.is_impaired
        await store.put("/a", b"after")
        await trio.until(lambda: not trio.hosts[follower].machine.is_impaired)

    play(tmp_path, domain_name, story)


@pytest.mark.slow
def test_the_command_line_serves_puts_gets_deletes_and_watches(tmp_path: Path, domain_name: str, capsys) -> None:
    (port,) = free_ports(domain_name, 1)
    where = f"127.0.0.1:{port}"
    reach = ["--replica", where, "--domain", domain_name]

    def call(*words: str, code: int = 0) -> str:
        assert main(["kv", *words, *reach]) == code
        return capsys.readouterr().out

    serve = ["serve", "-n", "1", "--peer", f"1={where}", "--state", str(tmp_path), "--domain", domain_name, "--json"]
    command = [sys.executable, "-m", "vivum.cli", "kv", *serve]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert json.loads(call("put", "/a", "1", "--json")) == {"key": "/a", "revision": 1}
            assert call("get", "/a") == "1\n"
            assert call("put", "/a", "2", "--if-revision", "9", code=1) == ""
            seen = json.loads(call("watch", "/a", "--after", "0", "--count", "1", "--json"))
            assert seen == {"key": "/a", "value": "1", "revision": 1, "lease": 0}
            found = json.loads(call("get", "/", "--prefix", "--json"))["keys"]
            assert [each["key"] for each in found] == ["/a"]
            assert json.loads(call("del", "/a", "--json")) == {"key": "/a", "existed": True}
            assert call("get", "/a", code=1) == ""
        finally:
            server.terminate()
        out, _ = server.communicate(timeout=20)
        assert server.returncode == 0
        assert json.loads(out.splitlines()[-1])["replica"] == 1
    assert main(["kv", "get", "/a", *reach, "--timeout", "0.3"]) == 1
    said = capsys.readouterr().err
    assert f"no answer within 0.3 s from the replicas that were asked ({where}: no answer)" in said
