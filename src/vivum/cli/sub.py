"""`vivum sub`: print the messages of topics."""

import asyncio
import sys
from contextlib import suppress
from datetime import datetime
from typing import Annotated

import typer

from vivum.cli import joining
from vivum.cli.conventions import JsonOption, command_group, console, write_json
from vivum.cli.output_pipe import OutputPipe
from vivum.core.errors import UsageError
from vivum.core.topic_names import is_pattern
from vivum.guarantees import BEST_EFFORT, KEYED, RELIABLE, Guarantee
from vivum.live.connecting import Connecting
from vivum.live.event import Batch
from vivum.live.failures import MissedMessages
from vivum.live.handle import NodeHandle
from vivum.live.replay.catching_up import ReplayStart
from vivum.runtime.loop_thread import run_on_loop

END_S = 1.0
"""How long Ctrl-C waits for the reader of the output."""

app = command_group("Print the messages of topics.")


@app.command()
def sub(
    topic: Annotated[str, typer.Argument(help="Name of a topic, or a pattern: /swx/* or /swx/**.")],
    count: Annotated[int, typer.Option(min=0, help="End after this many messages; 0: at Ctrl-C.")] = 0,
    names: Annotated[
        bool, typer.Option("--names", help="Print topic, sender and sequence before each message.")
    ] = False,
    best_effort: Annotated[bool, typer.Option("--best-effort", help="The topics are of best effort.")] = False,
    keyed: Annotated[bool, typer.Option("--keyed", help="The topics are keyed: Spark publishes to them.")] = False,
    replay: Annotated[
        str | None,
        typer.Option(help="First what a recorder has: all, from an offset on, or from a time on (2026-11-15T09:30Z)."),
    ] = None,
    domain: joining.DomainOption = joining.DEFAULT_DOMAIN,
    interface: joining.InterfaceOption = joining.DEFAULT_INTERFACE,
    seeds: joining.SeedsOption = None,
    unicast: joining.UnicastOption = False,
    trace: joining.TraceOption = None,
    loss: joining.LossOption = 0.0,
    as_json: JsonOption = False,
) -> None:
    """Print the messages of a topic of bytes, one on each line. Ctrl-C ends it."""
    if best_effort and keyed:
        raise UsageError("--best-effort and --keyed are both given; a topic has one guarantee")
    guarantee = BEST_EFFORT if best_effort else KEYED if keyed else RELIABLE
    start = None if replay is None else _start_of(replay)
    if start is not None and is_pattern(topic):
        raise UsageError(f"--replay is for one topic, and {topic} is a pattern; name the topic")
    printer = _Printer(count, names, as_json)
    try:
        run_on_loop(
            _print_all(
                joining.prepare(domain, interface, seeds, unicast, trace=trace, loss=loss),
                topic,
                guarantee,
                start,
                printer,
            )
        )
    finally:
        if as_json:
            write_json({"topic": topic, "received": printer.received, "missed": printer.missed})


class _Printer:
    def __init__(self, count: int, names: bool, as_json: bool) -> None:
        self.received = 0
        self.missed = 0
        self._count = count
        self._names = names
        self._file = (sys.stderr if as_json else sys.stdout).buffer
        self._pipe: OutputPipe | None = None
        self._notes = console(as_json=True)

    async def print(self, batch: "Batch[bytes]") -> bool:
        """Print a run of messages; return whether that was enough."""
        if self._pipe is None:
            self._pipe = OutputPipe(self._file)
        payloads = batch.payloads
        if self._count:
            payloads = payloads[: self._count - self.received]
        if self._names:
            head = f"{batch.topic} {batch.sender} "
            lines = [
                f"{head}{number} ".encode() + payload for number, payload in enumerate(payloads, batch.first_sequence)
            ]
        else:
            lines = list(payloads)
        await self._pipe.write(b"\n".join([*lines, b""]))
        self.received += len(payloads)
        return bool(self._count) and self.received >= self._count

    async def finish(self, timeout_s: float | None = None) -> None:
        """Wait until all is printed. Raises `TimeoutError` if that takes longer."""
        if self._pipe is not None:
            await self._pipe.drain(timeout_s)

    def note(self, missed: MissedMessages) -> None:
        self.missed += missed.count or 0
        self._notes.print(f"[yellow]missed:[/] {missed}")


def _start_of(text: str) -> ReplayStart:
    """Read where a replay begins."""
    if text == "all":
        return text
    if text.isdecimal():
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--replay {text}: must be 'all', an offset, or a time as in 2026-11-15T09:30:00Z") from None


async def _print_all(
    connecting: Connecting, name: str, guarantee: Guarantee, start: ReplayStart | None, printer: _Printer
) -> None:
    async with connecting as node:
        if is_pattern(name):
            async with node.subscribe(name, bytes, guarantee=guarantee) as subscription:
                await _print_from(node, subscription, printer)
        else:
            async with await node.enter(name, bytes, guarantee=guarantee, replay=start) as topic:
                await _print_from(node, topic, printer)


async def _print_from(node: NodeHandle, source: object, printer: _Printer) -> None:
    try:
        while True:
            try:
                async for batch in source.batches():  # type: ignore[attr-defined]
                    if await printer.print(batch):
                        await printer.finish()
                        return
                node.check_open()
            except MissedMessages as missed:
                printer.note(missed)
    except asyncio.CancelledError:
        # Ctrl-C: what waits is printed, unless nobody reads it.
        with suppress(TimeoutError, OSError):
            await printer.finish(END_S)
        raise
