"""`vivum send-file` and `vivum receive-file`: one file to many receivers, resumable and checksummed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from vivum.cli import joining
from vivum.cli.conventions import JsonOption, command_group, console, say, write_json
from vivum.cli.running import run_command
from vivum.live.connecting import Connecting
from vivum.live.transfer import FileReceived, FileSent, receive_file, send_file

TopicOption = Annotated[str, typer.Option(help="The topic by which sender and receivers meet.")]
DEFAULT_TOPIC = "/vivum/files"

send_app = command_group("Send a file to many receivers at once.")
receive_app = command_group("Receive a file that somebody sends.")


@contextmanager
def _bar(as_json: bool) -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """Show a progress bar; yields what makes the callback for a phase of the work."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console(as_json), transient=True) as progress:

        def phase(text: str) -> Callable[[int, int], None]:
            task = progress.add_task(text, total=None)
            return lambda done, size: progress.update(task, completed=done, total=size)

        yield phase


@send_app.command("send-file")
def send(
    path: Annotated[Path, typer.Argument(help="The file.")],
    receivers: Annotated[int, typer.Option("--receivers", "-n", min=1, help="How many receivers to wait for.")] = 1,
    topic: TopicOption = DEFAULT_TOPIC,
    domain: joining.DomainOption = joining.DEFAULT_DOMAIN,
    interface: joining.InterfaceOption = joining.DEFAULT_INTERFACE,
    seeds: joining.SeedsOption = None,
    unicast: joining.UnicastOption = False,
    as_json: JsonOption = False,
) -> None:
    """Send a file to many receivers at once, over multicast; ends when all of them have it, checksum compared."""
    with _bar(as_json) as phase:
        sent = run_command(_send(joining.prepare(domain, interface, seeds, unicast), topic, path, receivers, phase))
    if as_json:
        write_json(
            {
                "file": sent.name,
                "bytes": sent.size,
                "digest": sent.digest,
                "receivers": sent.receivers,
                "sent_bytes": sent.sent_bytes,
            }
        )
    else:
        console().print(f"{sent.name}: {sent.size:,} bytes to {sent.receivers} receivers, blake2b {sent.digest[:16]}…")


async def _send(
    connecting: Connecting, topic: str, path: Path, receivers: int, phase: Callable[[str], Callable[[int, int], None]]
) -> FileSent:
    def waiting(answered: int) -> None:
        some = f"{answered} of {receivers} have answered" if answered else "none has answered"
        say(f"waiting for {receivers} receiver{'' if receivers == 1 else 's'} of {topic}; {some}")

    async with connecting as node:
        return await send_file(node, topic, path, receivers, phase("sent"), phase("checksum"), waiting)


@receive_app.command("receive-file")
def receive(
    into: Annotated[Path, typer.Option(help="The folder to put it in.")] = Path("."),
    name: Annotated[str | None, typer.Option(help="Take only a file of this name.", show_default=False)] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file of that name.")] = False,
    topic: TopicOption = DEFAULT_TOPIC,
    domain: joining.DomainOption = joining.DEFAULT_DOMAIN,
    interface: joining.InterfaceOption = joining.DEFAULT_INTERFACE,
    seeds: joining.SeedsOption = None,
    unicast: joining.UnicastOption = False,
    as_json: JsonOption = False,
) -> None:
    """Receive the next file that is sent, and go on with what an interrupted run left (NAME.….part).

    A file of that name that exists is an error, unless it has the same content. Hidden files must be named (--name).
    """
    notes = console(as_json=True)

    async def work(progress: Callable[[int, int], None]) -> FileReceived:
        async with joining.prepare(domain, interface, seeds, unicast) as node:
            await joining.say_joined(node, f"waiting for a file in {topic}")
            return await receive_file(
                node, topic, into, progress, name=name, overwrite=overwrite, note=partial(notes.print, markup=False)
            )

    with _bar(as_json) as phase:
        received = run_command(work(phase("received")))
    if as_json:
        write_json(
            {
                "path": str(received.path),
                "bytes": received.size,
                "digest": received.digest,
                "resumed_at": received.resumed_at,
            }
        )
    else:
        resumed = f", resumed at {received.resumed_at:,}" if received.resumed_at else ""
        console().print(f"{received.path}: {received.size:,} bytes{resumed}, blake2b {received.digest[:16]}…")
