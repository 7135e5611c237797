"""`vivum bench`: measures Vivum, its peers and the machine's limit, side by side in one run."""

from contextlib import nullcontext
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from vivum.bench.cell import Cell
from vivum.bench.consensus import measure_consensus
from vivum.bench.hosts import on_hosts
from vivum.bench.latency import measure_latency
from vivum.bench.link import measure_link, rate_mbit
from vivum.bench.machine import about
from vivum.bench.many_groups import measure_groups
from vivum.bench.namespaces import require_hosts
from vivum.bench.peers import RECEIVERS, SIZES, Row, chosen_systems, compare, ratios
from vivum.bench.plain import compare_plain, plain_ratios
from vivum.bench.profiles import profile_table, profiled
from vivum.bench.sleeper import measure_sleeper
from vivum.bench.throughput import measure_throughput
from vivum.cli.conventions import JsonOption, command_group, console, write_json
from vivum.core.errors import UsageError
from vivum.node.build import PROTOCOLS

app = command_group("Measure throughput and latency, beside the peers and the limit of the machine.")

SIZE_MAX = 60_000
STARVED_MAX = 0.6
"""Past this part of its time without a processor a figure says more of other work than of what is measured."""

OTHER_WORK_MAX = 0.2
"""With more processors busy with something else, two processes that speak with each other cannot have one each."""

SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Another value for a setting of QSM; may be given again."),
]
HostsOption = Annotated[
    bool, typer.Option("--hosts", help="Each process on a host of its own, made of network namespaces (root only).")
]
BufferOption = Annotated[
    int | None, typer.Option(min=1, help="Vivum's socket buffers; 212992 is what ordinary users get on most systems.")
]
MulticastOption = Annotated[
    bool, typer.Option("--multicast/--no-multicast", help="Without it Vivum sends every receiver its own copy.")
]


def _settings(words: list[str] | None) -> dict[str, Any]:
    """Read NAME=VALUE words, and check them where they are typed."""
    values: dict[str, Any] = {}
    for word in words or []:
        name, equals, text = word.partition("=")
        if not equals:
            raise UsageError(f"--set {word}: write NAME=VALUE")
        values[name] = {"true": True, "false": False}.get(text) if text in ("true", "false") else _number(word, text)
    PROTOCOLS["qsm"].make_settings(values)
    return values


def _ours(set_: list[str] | None, buffer_bytes: int | None, multicast: bool) -> dict[str, Any]:
    """Make the options of Vivum's processes."""
    options: dict[str, Any] = {"settings": _settings(set_)}
    if buffer_bytes is not None:
        options["buffer_bytes"] = buffer_bytes
    if not multicast:
        options["multicast"] = False
    return options


def _number(word: str, text: str) -> int:
    try:
        return int(text.replace("_", ""))
    except ValueError:
        raise UsageError(f"--set {word}: {text!r} is no whole number and neither true nor false") from None


def _progress(out: Console) -> Any:
    """Return a function that shows what is being measured, on a terminal only."""

    def show(what: str) -> None:
        if out.is_terminal:
            out.print(f"[dim]… {what}[/]")

    return show


def table_of(result: dict[str, Any]) -> Table:
    """Show what was measured, a line for each figure, for each list of figures, and for each thing that was told."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for key, value in result.items():
        if isinstance(value, list):
            texts = [each for each in value if isinstance(each, str)]
            for text in texts or ([", ".join(f"{each:,}" for each in value)] if value else []):
                table.add_row(key, text)
        elif not isinstance(value, dict):
            table.add_row(key, "–" if value is None else f"{value:,}")
    return table


@app.command()
def throughput(
    size: Annotated[int, typer.Option(min=8, max=SIZE_MAX, help="Bytes of a message.")] = 1000,
    receivers: Annotated[int, typer.Option(min=1, max=64, help="Receiving processes.")] = 1,
    groups: Annotated[int, typer.Option(min=1, max=65_536, help="Groups that all are in; a sender goes round.")] = 1,
    senders: Annotated[int, typer.Option(min=1, max=16, help="Sending processes, each to groups of its own.")] = 1,
    seconds: Annotated[float, typer.Option(min=0.2, help="How long to measure, after a second to warm up.")] = 5.0,
    batch: Annotated[int, typer.Option(min=0, max=512, help="Messages handed over at once; 0: 64 KiB of them.")] = 0,
    stop_one: Annotated[float, typer.Option(min=0.0, help="Stop one receiver by SIGSTOP for this many seconds.")] = 0.0,
    shared_memory: Annotated[bool, typer.Option(help="Large frames by memory that processes share.")] = True,
    profile: Annotated[bool, typer.Option(help="Tell where the time goes; makes everything slower.")] = False,
    hosts: HostsOption = False,
    buffer_bytes: BufferOption = None,
    multicast: MulticastOption = True,
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send from a process, or several, to others as fast as it goes; nothing may be lost, repeated or reordered."""
    out = console(as_json)
    _progress(out)(f"{size} bytes, {receivers} receivers, {groups} groups, {seconds:g} s")
    options = {**_ours(set_, buffer_bytes, multicast), "batch": batch, "shared_memory": shared_memory}
    cell = Cell(size, receivers, seconds, groups, senders, options)
    if hosts:
        require_hosts("bench throughput --hosts")
    with profiled(profile) as folder, on_hosts(cell) if hosts else nullcontext(cell) as placed:
        result = measure_throughput(placed, stop_one)
        if folder is not None:
            out.print(profile_table(folder, "sender", result["delivered_per_s_mean"] * seconds))
            out.print(profile_table(folder, "receiver-0", result["delivered_per_s_mean"] * seconds))
    table = table_of(result)
    for key, value in result.get("stop_one", {}).items():
        table.add_row(f"stop_one: {key}", f"{value:,}" if type(value) is not bool else str(value).lower())
    out.print(table)
    if as_json:
        write_json({"benchmark": "throughput", **about(), **result})


@app.command()
def groups(
    size: Annotated[int, typer.Option(min=8, max=SIZE_MAX, help="Bytes of a message.")] = 100,
    receivers: Annotated[int, typer.Option(min=1, max=64, help="Receiving processes.")] = 2,
    groups: Annotated[int, typer.Option(min=2, max=65_536, help="Groups that are compared with one.")] = 8192,
    seconds: Annotated[float, typer.Option(min=0.2, help="How long to measure, each time.")] = 2.0,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of both; the medians are compared.")] = 5,
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send to many groups and to one, by turns, and compare the rates; also the memory of a group, and the joining."""
    out = console(as_json)
    cell = Cell(size, receivers, seconds, groups, options={"settings": _settings(set_)})
    result = measure_groups(cell, rounds, _progress(out))
    out.print(table_of(result))
    if as_json:
        write_json({"benchmark": "groups", **about(), **result})


@app.command()
def latency(
    size: Annotated[int, typer.Option(min=8, max=SIZE_MAX, help="Bytes of a message.")] = 64,
    rounds: Annotated[int, typer.Option(min=100, help="Round trips to measure.")] = 5000,
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send a message to another process and back, again and again; beside raw UDP and pyzmq."""
    out = console(as_json)
    result = measure_latency(size, rounds, _settings(set_), _progress(out))
    table = Table(box=None, pad_edge=False)
    for title in ("round trip, µs", "median", "99 %"):
        table.add_column(title, justify="left" if title.startswith("round") else "right")
    for name, prefix in (
        ("Vivum, callback", ""),
        ("Vivum, await receive", "awaited_"),
        ("Vivum, callback, polling", "polling_"),
        ("Vivum, await receive, polling", "polling_awaited_"),
        ("raw UDP", "raw_udp_"),
        ("raw UDP, polling", "raw_udp_polling_"),
        ("raw UDP on an event loop", "udp_on_loop_"),
        ("pyzmq PAIR", "pyzmq_"),
    ):
        if f"{prefix}skipped" in result:
            table.add_row(name, "skipped", result[f"{prefix}skipped"])
        else:
            table.add_row(name, f"{result[f'{prefix}rtt_us_p50']:,}", f"{result[f'{prefix}rtt_us_p99']:,}")
    out.print(table)
    out.print(f"Vivum takes {result['to_raw_udp']:g} times as long as raw UDP.")
    if result["other_work"] > OTHER_WORK_MAX:
        out.print(f"Other work had {result['other_work']:g} processors meanwhile: measure again when it is quiet.")
    if as_json:
        write_json({"benchmark": "latency", **about(), **result})


@app.command()
def link(
    size: Annotated[int, typer.Option(min=8, max=SIZE_MAX, help="Bytes of a message.")] = 1000,
    receivers: Annotated[int, typer.Option(min=1, max=32, help="Receiving hosts.")] = 4,
    senders: Annotated[int, typer.Option(min=1, max=16, help="Sending hosts, which share the link.")] = 1,
    rate: Annotated[str, typer.Option(help="Of each link: 100mbit, 250mbit, 1gbit.")] = "100mbit",
    loss: Annotated[int, typer.Option(min=0, max=50, help="Percent lost at each receiver in the second run.")] = 1,
    seconds: Annotated[float, typer.Option(min=0.2, help="How long to measure, after 2 or 3 s to warm up.")] = 5.0,
    buffer_bytes: BufferOption = None,
    multicast: MulticastOption = True,
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fill links of one rate between hosts made of network namespaces (root only), without and with loss."""
    out = console(as_json)
    cell = Cell(size, receivers, seconds, senders=senders, options=_ours(set_, buffer_bytes, multicast))
    result = measure_link(cell, rate_mbit(rate), loss, _progress(out))
    out.print(table_of(result))
    if as_json:
        write_json({"benchmark": "link", **about(), **result})


@app.command()
def sleeper(
    size: Annotated[int, typer.Option(min=8, max=SIZE_MAX, help="Bytes of a message.")] = 1000,
    receivers: Annotated[int, typer.Option(min=2, max=32, help="Receiving hosts; the last one sleeps.")] = 4,
    rate: Annotated[str, typer.Option(help="Of each link: 100mbit, 250mbit, 1gbit.")] = "100mbit",
    offered: Annotated[int, typer.Option(min=0, max=100, help="Percent of that rate that is sent; 0: all.")] = 80,
    sleep: Annotated[float, typer.Option(min=0.02, help="How long it is stopped by SIGSTOP, in seconds.")] = 0.5,
    every: Annotated[float, typer.Option(min=0.5, help="From one sleep to the next, in seconds.")] = 5.0,
    periods: Annotated[int, typer.Option(min=1, max=100, help="How often it sleeps.")] = 4,
    buffer_bytes: BufferOption = None,
    multicast: MulticastOption = True,
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let one of several hosts sleep again and again (root only): what it gets, and what the healthy get."""
    if every < 2 * sleep:
        raise UsageError(f"--every {every:g} leaves no time to recover from --sleep {sleep:g}; take {2 * sleep:g}")
    out = console(as_json)
    cell = Cell(size, receivers, 0.0, options=_ours(set_, buffer_bytes, multicast))
    result = measure_sleeper(cell, rate_mbit(rate), offered, sleep, every, periods, _progress(out))
    out.print(table_of(result))
    if as_json:
        write_json({"benchmark": "sleeper", **about(), **result})


@app.command()
def peers(
    size: Annotated[list[int] | None, typer.Option(min=8, max=SIZE_MAX, help="Bytes; may be given again.")] = None,
    receivers: Annotated[list[int] | None, typer.Option(min=1, max=64, help="Receivers; may be given again.")] = None,
    seconds: Annotated[float, typer.Option(min=0.2, help="How long to measure each system in each cell.")] = 3.0,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of all systems in each cell; the median counts.")] = 1,
    only: Annotated[list[str] | None, typer.Option(help="Only this system; may be given again.")] = None,
    hosts: HostsOption = False,
    buffer_bytes: BufferOption = None,
    multicast: MulticastOption = True,
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Do the same work through the peers, through a bare socket (the limit) and through Vivum, and compare.

    With --hosts the peers speak TCP between hosts, and the limit is trains of segments without any repair.
    """
    out = console(as_json)
    names = chosen_systems(only or [])
    ours = _ours(set_, buffer_bytes, multicast)
    cells = [(each, count) for count in receivers or RECEIVERS for each in size or SIZES]
    rows = list(compare(names, cells, seconds, ours, _progress(out), rounds, hosts))
    compared = ratios(rows)
    out.print(_peers_table(names, cells, rows, compared))
    if any(row.lost for row in rows):
        out.print("* lost some; what is lost does not count. The raw limit repairs nothing.", markup=False)
    starved = max((row.starved for row in rows), default=0.0)
    if starved > STARVED_MAX:
        out.print(
            f"Other work had the processors for {starved:.0%} of the time of a process: measure again when it is quiet."
        )
    for text in dict.fromkeys(f"{row.system} skipped: {row.skipped}" for row in rows if row.skipped):
        out.print(text, markup=False)
    if as_json:
        write_json(
            {
                "benchmark": "peers",
                **about(),
                "seconds": seconds,
                "rounds": rounds,
                "hosts": hosts,
                "buffer_bytes": buffer_bytes,
                "multicast": multicast,
                "ratios": compared,
                "results": [row.as_json() for row in rows],
            }
        )


@app.command()
def plain(
    size: Annotated[int, typer.Option(min=64, max=SIZE_MAX, help="Bytes of a message on the wire.")] = 100,
    seconds: Annotated[float, typer.Option(min=0.2, help="How long to measure each system, each time.")] = 3.0,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of all systems; the median of each counts.")] = 3,
    as_json: JsonOption = False,
) -> None:
    """Send and receive one message at a time, bytes and typed, beside pyzmq and Zenoh."""
    out = console(as_json)
    rows = compare_plain(size, seconds, rounds, _progress(out))
    compared = plain_ratios(rows)
    table = Table(box=None, pad_edge=False, title=f"{size:,} B × 1, messages/s", title_justify="left")
    for title in ("", "rate", "sender, ns", "receiver, ns"):
        table.add_column(title, justify="right" if title else "left")
    for row in rows:
        table.add_row(row.system, _shown(row), f"{row.cpu_ns_sender:,}", f"{row.cpu_ns_receiver:,}")
    out.print(table)
    for each in compared:
        if each["to_best_peer"] is not None:
            out.print(f"{each['messages']}: {each['to_best_peer']:.2f} × {each['best_peer']}", markup=False)
    for row in rows:
        if row.skipped:
            out.print(f"{row.system} skipped: {row.skipped}", markup=False)
    if as_json:
        results = [row.as_json() for row in rows]
        head = {"size": size, "receivers": 1, "seconds": seconds, "rounds": rounds, "ratios": compared}
        write_json({"benchmark": "plain", **about(), **head, "results": results})


@app.command()
def consensus(
    size: Annotated[int, typer.Option(min=1, max=SIZE_MAX, help="Bytes of a command.")] = 100,
    seconds: Annotated[float, typer.Option(min=0.2, help="How long to measure each, after a warm-up.")] = 3.0,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of all; the medians are compared.")] = 3,
    folder: Annotated[
        str | None, typer.Option(help="Where the replicas' disks are; default: as for temporary files.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Commit commands in a replicated log of three processes, in memory and with fsync, beside PySyncObj."""
    out = console(as_json)
    result = measure_consensus(size, seconds, rounds, _progress(out), folder)
    out.print(table_of(result))
    if as_json:
        write_json({"benchmark": "consensus", **about(), **result})


def _peers_table(
    names: list[str], cells: list[tuple[int, int]], rows: list[Row], compared: list[dict[str, Any]]
) -> Table:
    table = Table(box=None, pad_edge=False, title="messages/s at the slowest receiver", title_justify="left")
    table.add_column("")
    for size, count in cells:
        table.add_column(f"{size:,} B × {count}", justify="right")
    found = {(row.system, row.size, row.receivers): row for row in rows}
    for name in names:
        table.add_row(name, *(_shown(found[name, size, count]) for size, count in cells))
    for title, key in (("Vivum / best peer", "to_best_peer"), ("Vivum / raw limit", "to_raw")):
        table.add_row(title, *("–" if each[key] is None else f"{each[key]:.2f}" for each in compared))
    return table


def _shown(row: Row) -> str:
    if row.per_s_min is None:
        return "skipped"
    return f"{row.per_s_min:,}" if not row.lost else f"{row.per_s_min:,}*"
