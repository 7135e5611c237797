"""`vivum kv`: a replicated key-value store: serve it, and get, put, delete and watch keys."""

import asyncio
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from vivum import kv
from vivum.cli import joining
from vivum.cli.conventions import Failed, JsonOption, command_group, console, write_json
from vivum.core.errors import UsageError
from vivum.runtime.loop_thread import run_on_loop

app = command_group("A replicated key-value store: serve it; get, put, delete and watch keys.")

ReplicasOption = Annotated[
    list[str],
    typer.Option("--replica", "-r", envvar="VIVUM_KV_REPLICAS", help="host:port of a replica; repeatable."),
]
TimeoutOption = Annotated[float, typer.Option("--timeout", min=0.01, help="Seconds to wait for an answer.")]
KeyArgument = Annotated[str, typer.Argument(help="The key, as in /config/rate.")]


@app.command()
def serve(
    replica: Annotated[int, typer.Option("--number", "-n", help="The number of this replica.")],
    peers: Annotated[
        list[str], typer.Option("--peer", "-p", help="NUMBER=host:port of a replica, of this one too; repeatable.")
    ],
    state: Annotated[Path, typer.Option(help="The directory of this replica's state.")],
    domain: joining.DomainOption = joining.DEFAULT_DOMAIN,
    fsync: Annotated[str, typer.Option(help="group: written before it is acknowledged; none: when it pleases.")] = (
        "group"
    ),
    as_json: JsonOption = False,
) -> None:
    """Run one replica until Ctrl-C. Run one, three or five, each with the same peers."""
    run_on_loop(_serve(replica, _peers_of(peers), state, domain, fsync, as_json))


def _peers_of(peers: list[str]) -> dict[int, str]:
    found: dict[int, str] = {}
    for each in peers:
        number, equals, address = each.partition("=")
        if not equals or not (number.isascii() and number.isdecimal()):
            raise UsageError(f"--peer {each!r} is not NUMBER=host:port, as in 1=10.0.0.1:7100")
        if int(number) in found:
            raise UsageError(f"--peer {each!r}: replica {int(number)} is named twice")
        found[int(number)] = address
    return found


async def _serve(replica: int, peers: dict[int, str], state: Path, domain: str, fsync: str, as_json: bool) -> None:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Exception | None] = loop.create_future()

    def end(error: Exception | None) -> None:
        if not ended.done():
            ended.set_result(error)

    loop.add_signal_handler(signal.SIGTERM, end, None)
    host = kv.serve(replica, peers, state, domain=domain, fsync=fsync, on_failed=end)
    try:
        out = console(as_json)
        assert host.store is not None
        for each in host.store.damage:
            out.print(f"damaged: {each}; this replica does not vote until the leader has sent it what is missing")
        out.print(
            f"replica {replica} of domain [bold]{domain}[/] on {peers[replica]}, state in {state}. Ctrl-C ends it."
        )
        error = await ended
        if error is not None:
            raise error
    finally:
        applied = host.machine.applied_index
        host.close()
        if as_json:
            write_json({"domain": domain, "replica": replica, "applied": applied})


def _with_store(replicas: list[str], domain: str, interface: str, timeout_s: float, work: "Any") -> Any:
    async def run() -> Any:
        async with kv.connect(replicas, domain=domain, interface=interface, timeout_s=timeout_s) as store:
            result: Coroutine[Any, Any, Any] = work(store)
            return await result

    return run_on_loop(run())


@app.command()
def get(
    key: KeyArgument,
    replicas: ReplicasOption,
    prefix: Annotated[bool, typer.Option("--prefix", help="All keys that begin with this one.")] = False,
    local: Annotated[bool, typer.Option("--local", help="What any replica has; maybe not the newest.")] = False,
    domain: joining.DomainOption = joining.DEFAULT_DOMAIN,
    interface: joining.InterfaceOption = joining.DEFAULT_INTERFACE,
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Print the value of a key, or keys and values with --prefix. Exit code 1 if there is none."""

    async def work(store: kv.KeyValueClient) -> list[kv.KeyValue]:
        if prefix:
            return await store.range(key, linearizable=not local)
        found = await store.get(key, linearizable=not local)
        return [] if found is None else [found]

    found = _with_store(replicas, domain, interface, timeout_s, work)
    if as_json:
        write_json({"keys": [_as_json(each) for each in found]})
    for each in found if not as_json else ():
        sys.stdout.write((f"{each.key}\t" if prefix else "") + _text(each.value) + "\n")
    if not found:
        console(True).print(f"no key {key!r}" + (" or one that begins with it" if prefix else ""), markup=False)
        raise Failed


@app.command()
def put(
    key: KeyArgument,
    value: Annotated[str, typer.Argument(help="The value.")],
    replicas: ReplicasOption,
    if_revision: Annotated[
        int | None, typer.Option(help="Only if this revision set the key; 0: only if there is none.", min=0)
    ] = None,
    domain: joining.DomainOption = joining.DEFAULT_DOMAIN,
    interface: joining.InterfaceOption = joining.DEFAULT_INTERFACE,
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Set a key. With --if-revision, exit code 1 if it was something else."""

    async def work(store: kv.KeyValueClient) -> int | None:
        if if_revision is None:
            return await store.put(key, value.encode())
        return await store.compare_and_set(key, value.encode(), revision=if_revision)

    revision = _with_store(replicas, domain, interface, timeout_s, work)
    if as_json:
        write_json({"key": key, "revision": revision})
    elif revision is not None:
        console().print(f"{key} set by revision {revision}", markup=False)
    if revision is None:
        console(True).print(f"{key} was not set by revision {if_revision}; nothing is changed", markup=False)
        raise Failed


@app.command(name="del")
def delete(
    key: KeyArgument,
    replicas: ReplicasOption,
    domain: joining.DomainOption = joining.DEFAULT_DOMAIN,
    interface: joining.InterfaceOption = joining.DEFAULT_INTERFACE,
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Delete a key. Exit code 1 if there was none."""
    existed = _with_store(replicas, domain, interface, timeout_s, lambda store: store.delete(key))
    if as_json:
        write_json({"key": key, "existed": existed})
    if not existed:
        console(True).print(f"no key {key!r}", markup=False)
        raise Failed


@app.command()
def watch(
    key: KeyArgument,
    replicas: ReplicasOption,
    prefix: Annotated[bool, typer.Option("--prefix", help="All keys that begin with this one.")] = False,
    after: Annotated[int | None, typer.Option(help="Begin behind this revision; default: behind the present.")] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="End after this many changes; 0: never.")] = 0,
    domain: joining.DomainOption = joining.DEFAULT_DOMAIN,
    interface: joining.InterfaceOption = joining.DEFAULT_INTERFACE,
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Print changes of a key as they happen."""
    out = console()
    seen = 0

    async def work(store: kv.KeyValueClient) -> None:
        nonlocal seen
        async for change in store.watch(key, prefix=prefix, after=after):
            if as_json:
                write_json(_as_json(change))
                sys.stdout.flush()
            else:
                what = "deleted" if change.value is None else _text(change.value)
                out.print(f"{change.revision}\t{change.key}\t{what}", markup=False)
            seen += 1
            if seen == count:
                return

    _with_store(replicas, domain, interface, timeout_s, work)


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")


def _as_json(each: kv.KeyValue | kv.KeyChange) -> dict[str, object]:
    return each._asdict() | {"value": None if each.value is None else _text(each.value)}
