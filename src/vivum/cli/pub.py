"""`vivum pub`: send messages to a topic."""

import asyncio
import sys
from io import BufferedReader
from typing import Annotated

import typer

from vivum.cli import joining
from vivum.cli.conventions import JsonOption, command_group, console, write_json
from vivum.core.errors import UsageError
from vivum.guarantees import BEST_EFFORT, RELIABLE, Guarantee
from vivum.live.connecting import Connecting
from vivum.runtime.loop_thread import run_on_loop

LINES_MAX = 4096
"""Lines of standard input that are sent at once, at most."""

app = command_group("Send messages to a topic.")


@app.command()
def pub(
    topic: Annotated[str, typer.Argument(help="Name of the topic, as in /swx/NESN.")],
    messages: Annotated[
        list[str] | None, typer.Argument(help="Messages; without any, the lines of standard input.", show_default=False)
    ] = None,
    wait: Annotated[int, typer.Option(min=0, help="Wait for this many other members before sending.")] = 0,
    best_effort: Annotated[bool, typer.Option("--best-effort", help="Send each message once, never again.")] = False,
    domain: joining.DomainOption = joining.DEFAULT_DOMAIN,
    interface: joining.InterfaceOption = joining.DEFAULT_INTERFACE,
    seeds: joining.SeedsOption = None,
    unicast: joining.UnicastOption = False,
    trace: joining.TraceOption = None,
    loss: joining.LossOption = 0.0,
    as_json: JsonOption = False,
) -> None:
    """Send messages to a topic of bytes, and wait until every member has them."""
    guarantee = BEST_EFFORT if best_effort else RELIABLE
    payloads = _encoded(messages or [])
    run_on_loop(
        _publish(
            joining.prepare(domain, interface, seeds, unicast, trace=trace, loss=loss),
            topic,
            payloads,
            wait,
            guarantee,
            as_json,
        )
    )


async def _publish(
    connecting: Connecting, name: str, payloads: list[bytes], wait: int, guarantee: Guarantee, as_json: bool
) -> None:
    sent = 0
    async with connecting as node, await node.enter(name, bytes, guarantee=guarantee, receive=False) as topic:
        members = len(await topic.wait_for_members(wait + 1)) - 1
        if payloads:
            await topic.send_many(payloads)
            sent = len(payloads)
        else:
            while lines := await asyncio.to_thread(_read_lines):
                await topic.send_many(lines)
                sent += len(lines)
        await topic.flush()
    if as_json:
        write_json({"topic": name, "sent": sent, "receivers": members})
    else:
        console().print(f"{sent:,} messages sent to {members} other members of {name}")


def _encoded(messages: list[str]) -> list[bytes]:
    payloads = []
    for number, message in enumerate(messages, 1):
        try:
            payloads.append(message.encode())
        except UnicodeEncodeError as error:
            raise UsageError(f"message {number} is not UTF-8; give other bytes as lines of standard input") from error
    return payloads


def _read_lines() -> list[bytes]:
    """Wait for a line, and take what else is there; nothing at the end of the input."""
    stream = sys.stdin.buffer
    lines = [line] if (line := stream.readline()) else []
    if isinstance(stream, BufferedReader):
        while lines and len(lines) < LINES_MAX and b"\n" in stream.peek(1):
            lines.append(stream.readline())
    return [line.rstrip(b"\n") for line in lines]
