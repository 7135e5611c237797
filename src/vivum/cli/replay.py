"""`vivum replay`: publish a recorded log again."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.status import Status

from vivum.cli import joining
from vivum.cli.conventions import JsonOption, command_group, console, write_json
from vivum.cli.running import run_command
from vivum.core.errors import UsageError
from vivum.core.topic_names import EVERY_TOPIC, TopicPatterns
from vivum.live.connecting import Connecting
from vivum.pipeline.recording.replaying import replay
from vivum.storage.errors import StorageError
from vivum.storage.segment_reader import LogReader

app = command_group("Publish a recorded log again.")


@app.command("replay")
def replay_log(
    log: Annotated[Path, typer.Argument(help="The folder that `vivum record` wrote.")],
    topics: Annotated[str, typer.Option(help="Which topics: patterns, separated by commas.")] = EVERY_TOPIC,
    speed: Annotated[str, typer.Option(help="1: as it was; 10: ten times faster; max: without pauses.")] = "1",
    wait: Annotated[int, typer.Option(min=0, help="Wait for this many other members of each topic first.")] = 0,
    domain: joining.DomainOption = joining.DEFAULT_DOMAIN,
    interface: joining.InterfaceOption = joining.DEFAULT_INTERFACE,
    seeds: joining.SeedsOption = None,
    unicast: joining.UnicastOption = False,
    as_json: JsonOption = False,
) -> None:
    """Send all messages of a log again, in its order, and wait until every member has them."""
    reader, chosen = LogReader(log), TopicPatterns(topics)
    if not reader.summaries():
        raise StorageError(f"the log {log} has no messages; give a directory that `vivum record` wrote")
    connecting = joining.prepare(domain, interface, seeds, unicast)
    factor = _factor(speed)
    with console(as_json=True).status("looking for the topics") as status:
        told = partial(_tell, status, reader.stop_offset() - reader.first_offset())
        sent = run_command(_replay(connecting, reader, chosen, factor, wait, told))
    if as_json:
        write_json({"log": str(log), "sent": sent})
    else:
        console().print(f"{sent:,} messages sent again")


def _tell(status: Status, rows: int, sent: int) -> None:
    status.update(f"{sent:,} messages sent again; the log has {rows:,}")


async def _replay(
    connecting: Connecting,
    log: LogReader,
    topics: TopicPatterns,
    speed: float | None,
    wait: int,
    progress: Callable[[int], None],
) -> int:
    async with connecting as node:
        return await replay(node, log, topics, speed=speed, wait_for=wait, progress=progress)


def _factor(text: str) -> float | None:
    if text == "max":
        return None
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not factor > 0:
        raise UsageError(f"--speed {text}: must be 'max' or a number above 0")
    return factor
