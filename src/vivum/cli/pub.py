"""`vivum pub`: send messages to a topic."""

import asyncio
import sys
from io import BufferedReader
from typing import Annotated

import typer

from vivum.cli import joining
from vivum.cli.conventions import JsonOption, command_group, console, say, write_json
from vivum.cli.running import run_command
from vivum.cli.values import find_topic, kind_of
from vivum.core.errors import UsageError
from vivum.core.text import check_text
from vivum.core.topic_names import check_name
from vivum.guarantees import DEFAULT, guarantee_of
from vivum.live.connecting import Connecting
from vivum.live.described import JsonType
from vivum.live.topic import Topic

LINES_MAX = 4096
"""Lines of standard input that are sent at once, at most."""

app = command_group("Send messages to a topic.")


@app.command()
def pub(
    topic: Annotated[str, typer.Argument(help="Name of the topic, as in /swx/NESN.")],
    messages: Annotated[
        list[str] | None, typer.Argument(help="Messages; without any, the lines of standard input.", show_default=False)
    ] = None,
    wait: Annotated[
        int, typer.Option(min=0, help="Wait for this many other members before sending; 0 sends at once.")
    ] = 1,
    guarantee: Annotated[
        str | None,
        typer.Option(help="What a new topic promises: best_effort, reliable or keyed.", show_default="reliable"),
    ] = None,
    domain: joining.DomainOption = joining.DEFAULT_DOMAIN,
    interface: joining.InterfaceOption = joining.DEFAULT_INTERFACE,
    seeds: joining.SeedsOption = None,
    unicast: joining.UnicastOption = False,
    trace: joining.TraceOption = None,
    loss: joining.LossOption = 0.0,
    as_json: JsonOption = False,
) -> None:
    """Send messages to a topic, and wait until every member has them.

    For a topic with a type each message is a JSON object with its fields; `vivum ls` names the types. A topic that does
    not exist is created, as one of bytes.
    """
    payloads = _encoded(messages or [])
    if guarantee is not None:
        guarantee_of(guarantee)
    connecting = joining.prepare(domain, interface, seeds, unicast, trace=trace, loss=loss)
    sent, receivers = run_command(
        _publish(connecting, check_name(check_text(topic, "topic")), payloads, wait, guarantee)
    )
    if as_json:
        write_json({"topic": topic, "sent": sent, "receivers": receivers})
    else:
        what = "1 message" if sent == 1 else f"{sent:,} messages"
        console().print(f"{what} sent to {receivers} other member{'' if receivers == 1 else 's'} of {topic}")


async def _publish(
    connecting: Connecting, name: str, payloads: list[bytes], wait: int, guarantee: str | None
) -> tuple[int, int]:
    async with connecting as node:
        found = await find_topic(node, name)
        kind = None if found is None else kind_of(found)
        promised = guarantee or (DEFAULT.name if found is None else found.guarantee)
        async with await node.enter(name, bytes if kind is None else kind, guarantee=promised, receive=False) as topic:
            await _wait_for_receivers(topic, wait)
            receivers = len(topic.members) - 1
            sent = 0
            if payloads:
                await _send(topic, kind, payloads, 0)
                sent = len(payloads)
            else:
                say(f"sending the lines of standard input to {name}")
                while lines := await asyncio.to_thread(_read_lines):
                    await _send(topic, kind, lines, sent)
                    sent += len(lines)
            await topic.flush()
            return sent, receivers


async def _wait_for_receivers(topic: Topic[bytes], count: int) -> None:
    missing = count - (len(topic.members) - 1)
    if missing > 0:
        say(f"waiting for {missing} receiver{'' if missing == 1 else 's'} of {topic.name} (--wait 0 sends at once)")
        await topic.wait_for_members(count + 1)


async def _send(topic: Topic[bytes], kind: JsonType | None, texts: list[bytes], before: int) -> None:
    """Send messages, all or none. Raises `UsageError` that names the first that is not of the type."""
    try:
        await topic.send_many(texts)
    except UsageError:
        if kind is not None:
            for number, text in enumerate(texts, before + 1):
                try:
                    kind.encode(text)
                except UsageError as error:
                    raise UsageError(f"message {number}: {error}") from None
        raise


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
