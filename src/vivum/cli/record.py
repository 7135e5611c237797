"""`vivum record`: write the messages of topics to a log."""

import asyncio
import gc
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from vivum.cli import joining
from vivum.cli.conventions import JsonOption, command_group, console, write_json
from vivum.cli.running import run_until_stopped
from vivum.core.time import parse_duration_ns
from vivum.core.topic_names import check_pattern
from vivum.live.connecting import Connecting
from vivum.pipeline.recording.recorder import Recorder
from vivum.storage.segment_log import SegmentLog

SWITCH_S = 0.0002
"""How long the thread of the log waits for the interpreter. The default, 5 ms, is longer than a batch takes to be made
and written: it waited most of its time (15 % more messages a second)."""

TELL_S = 5.0
"""Seconds between two notes that messages are missed, while there are more and more."""

app = command_group("Write the messages of topics to a log.")


@app.command()
def record(
    patterns: Annotated[list[str], typer.Argument(help="Topics: /swx/NESN, /swx/* or /swx/**.", metavar="TOPICS")],
    to: Annotated[Path, typer.Option("--to", help="The folder of the log; a log that is there is continued.")],
    fsync: Annotated[
        str, typer.Option(help="none, interval (every 200 ms) or always: what the death of the machine can lose.")
    ] = "interval",
    keep_mb: Annotated[
        int | None, typer.Option(min=1, help="Delete the oldest segments above this many megabytes.")
    ] = None,
    keep_age: Annotated[str | None, typer.Option(help="Delete segments older than this, as in '600s'.")] = None,
    count: Annotated[int, typer.Option(min=0, help="End after this many messages; 0: at Ctrl-C.")] = 0,
    seconds: Annotated[float, typer.Option(min=0.0, help="End after this many seconds; 0: at Ctrl-C.")] = 0.0,
    domain: joining.DomainOption = joining.DEFAULT_DOMAIN,
    interface: joining.InterfaceOption = joining.DEFAULT_INTERFACE,
    seeds: joining.SeedsOption = None,
    unicast: joining.UnicastOption = False,
    trace: joining.TraceOption = None,
    loss: joining.LossOption = 0.0,
    metrics: joining.MetricsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Record topics until Ctrl-C or SIGTERM. Nothing that was recorded is lost when this process dies."""
    names = [check_pattern(each) for each in patterns]
    keep_age_ns = None if keep_age is None else parse_duration_ns(keep_age)
    keep_bytes = None if keep_mb is None else keep_mb * 1_000_000
    notes = console(as_json=True)
    with SegmentLog(to, fsync=fsync, keep_bytes=keep_bytes, keep_age_ns=keep_age_ns) as log:
        for each in log.damage:
            notes.print(f"[yellow]damage:[/] {escape(each)}")
        if log.bytes_cut:
            notes.print(f"cut off {log.bytes_cut} bytes of a batch that a crash had torn")
        report: dict[str, int] = {"recorded": 0, "missed": 0, "topics": 0}
        try:
            run_until_stopped(
                _record(
                    joining.prepare(domain, interface, seeds, unicast, trace=trace, loss=loss, metrics=metrics),
                    names,
                    log,
                    count,
                    seconds,
                    report,
                    notes,
                )
            )
        finally:
            if as_json:
                write_json({"log": str(to), **report, "next_offset": log.next_offset, "damage": log.damage})
            else:
                told = f"{report['recorded']:,} messages of {report['topics']} topics recorded"
                notes.print(f"{told}, {report['missed']:,} missed")


async def _record(
    connecting: Connecting,
    names: list[str],
    log: SegmentLog,
    count: int,
    seconds: float,
    report: dict[str, int],
    notes: Console,
) -> None:
    async with connecting as node:
        recorder = Recorder(node, names, log)
        # What is loaded by now stays: without this the collector looks at all of it again and again.
        gc.collect()
        gc.freeze()
        sys.setswitchinterval(SWITCH_S)
        task = asyncio.create_task(recorder.run())
        clock = asyncio.get_running_loop().time
        began = clock()
        told, told_at = 0, began - TELL_S
        try:
            await joining.say_joined(node, f"recording {' '.join(names)} from offset {log.next_offset:,} on")
            while not task.done():
                await asyncio.wait([task], timeout=0.05)
                if recorder.missed > told and clock() - told_at >= TELL_S:
                    told, told_at = recorder.missed, clock()
                    notes.print(f"[yellow]missed:[/] {told:,} messages so far are not in the log")
                if (count and recorder.recorded >= count) or (seconds and clock() - began >= seconds):
                    break
        finally:
            task.cancel()
            await asyncio.wait([task])
            report.update(recorded=recorder.recorded, missed=recorder.missed, topics=len(recorder.topics))
        if not task.cancelled():
            task.result()
