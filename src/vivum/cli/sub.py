"""`vivum sub`: print the messages of topics."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Annotated

import msgspec
import typer

from vivum.cli import joining
from vivum.cli.conventions import JsonOption, command_group, say
from vivum.cli.output_pipe import OutputPipe
from vivum.cli.running import run_until_stopped
from vivum.cli.values import find_topic, kind_of
from vivum.core.errors import UsageError
from vivum.core.text import check_text
from vivum.core.topic_names import check_pattern, is_pattern
from vivum.live.connecting import Connecting
from vivum.live.described import JsonType
from vivum.live.event import Batch
from vivum.live.failures import MissedMessages
from vivum.live.handle import NodeHandle
from vivum.live.replay.catching_up import ReplayStart
from vivum.live.subscription import Subscription
from vivum.live.topic import Topic
from vivum.wire.schema import BYTES_SCHEMA

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
    """Print the messages of topics, one on each line, until Ctrl-C.

    Values of a type are printed as JSON, messages of topics of bytes as they are. Type and guarantee are those that the
    topic has; one that does not exist yet is awaited. With --json each line is an object with topic, sender, sequence,
    view, time_ns and value (base64 for bytes that are no text).
    """
    start = None if replay is None else _start_of(replay)
    if start is not None and is_pattern(topic):
        raise UsageError(f"--replay is for one topic, and {topic} is a pattern; name the topic")
    printer = _Printer(count, names, as_json)
    connecting = joining.prepare(domain, interface, seeds, unicast, trace=trace, loss=loss)
    try:
        run_until_stopped(_print_all(connecting, check_pattern(check_text(topic, "topic")), start, printer))
    finally:
        if printer.missed or printer.unreadable:
            say(f"{printer.received:,} messages received, {printer.missed:,} missed, {printer.unreadable:,} unreadable")


class _Line(msgspec.Struct, omit_defaults=True):
    """A message as `--json` writes it."""

    topic: str
    sender: str
    sequence: int
    view: int
    time_ns: int
    value: msgspec.Raw | str | msgspec.UnsetType = msgspec.UNSET
    base64: bytes | msgspec.UnsetType = msgspec.UNSET


class _Printer:
    """Makes lines of messages and hands them to standard output."""

    def __init__(self, count: int, names: bool, as_json: bool) -> None:
        self.received = 0
        self.missed = 0
        self.unreadable = 0
        self._count = count
        self._names = names
        self._as_json = as_json
        self._pipe: OutputPipe | None = None
        self._types: dict[str, JsonType] = {}
        self._encode = msgspec.json.Encoder().encode

    async def print(self, batch: "Batch[bytes]", schema: str) -> bool:
        """Print a run of messages of a topic with this type; return whether that was enough."""
        if self._pipe is None:
            self._pipe = OutputPipe(sys.stdout.buffer)
        payloads = batch.payloads
        if self._count:
            payloads = payloads[: self._count - self.received]
        lines: list[bytes] = []
        text_of = self._text_of(schema)
        for number, payload in enumerate(payloads, batch.first_sequence):
            try:
                text = payload if text_of is None else text_of(payload)
            except msgspec.MsgspecError:
                self.unreadable += 1
                continue
            if self._as_json:
                lines.append(self._object(batch, number, text, text_of is not None))
            else:
                lines.append(f"{batch.topic} {batch.sender} {number} ".encode() + text if self._names else text)
        await self._pipe.write(b"\n".join([*lines, b""]))
        self.received += len(payloads)
        return bool(self._count) and self.received >= self._count

    def _text_of(self, schema: str) -> Callable[[bytes], bytes] | None:
        if schema == BYTES_SCHEMA:
            return None
        found = self._types.get(schema)
        if found is None:
            found = self._types[schema] = JsonType(schema)
        return found.decode

    def _object(self, batch: "Batch[bytes]", number: int, text: bytes, is_json: bool) -> bytes:
        line = _Line(batch.topic, str(batch.sender), number, batch.view, batch.time_ns)
        if is_json:
            line.value = msgspec.Raw(text)
        else:
            try:
                line.value = text.decode()
            except UnicodeDecodeError:
                line.base64 = text
        return self._encode(line)

    async def finish(self, timeout_s: float | None = None) -> None:
        """Wait until all is printed. Raises `TimeoutError` if that takes longer."""
        if self._pipe is not None:
            await self._pipe.drain(timeout_s)

    def note(self, missed: MissedMessages) -> None:
        self.missed += missed.count or 0
        say(f"missed: {missed}")


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


async def _print_all(connecting: Connecting, name: str, start: ReplayStart | None, printer: _Printer) -> None:
    async with connecting as node:
        if start is None:
            await joining.say_joined(node, f"waiting for messages of {name}")
            async with node.subscribe(name) as subscription:
                await _print_from(node, subscription, subscription.schema_of, printer)
        else:
            found = await find_topic(node, name)
            if found is None:
                raise UsageError(f"--replay: there is no topic {name} in domain {node.domain}; `vivum ls` lists them")
            await joining.say_joined(node, f"waiting for what a recorder has of {name}")
            kind = kind_of(found)
            entered = node.enter(name, bytes if kind is None else kind, guarantee=found.guarantee, replay=start)
            async with await entered as topic:
                await _print_from(node, topic, lambda _: found.schema, printer)


async def _print_from(
    node: NodeHandle, source: Subscription[bytes] | Topic[bytes], schema_of: Callable[[str], str], printer: _Printer
) -> None:
    try:
        while True:
            try:
                async for batch in source.batches():
                    if await printer.print(batch, schema_of(batch.topic)):
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
