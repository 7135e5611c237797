"""The application `vivum`: its list of commands, each in a file that is imported only when it is called.

To add a command `x`, write `vivum/cli/x.py` with `app = command_group("…")` and commands in it, and add one
line to `COMMANDS`. An app with one command is called `vivum x`, with several `vivum x y`. Files may import
what they like at the top: `vivum --help` reads only the list here.
"""

import importlib
from collections.abc import Sequence
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from vivum import __version__
from vivum.cli.conventions import run
from vivum.core.extras import missing_library

COMMANDS: dict[str, str] = {
    "demo": "Watch a market go from publishers to subscribers, to Spark and back, with packets lost on the way.",
    "sim": "Run, watch and swarm deterministic simulations.",
    "up": "Run the service of a domain: membership, names of topics, beacon.",
    "kv": "A replicated key-value store: serve it; get, put, delete and watch keys.",
    "pub": "Send messages to a topic.",
    "sub": "Print the messages of topics.",
    "ls": "List the topics and nodes of a domain.",
    "top": "Watch the rates of nodes and topics.",
    "send-file": "Send a file to many receivers at once.",
    "receive-file": "Receive a file that somebody sends.",
    "bench": "Measure throughput and latency, beside the peers and the limit of the machine.",
    "record": "Write the messages of topics to a log.",
    "replay": "Publish a recorded log again.",
    "audit": "Check recorded traces for broken guarantees, on Spark.",
    "sweep": "Run the simulations of experiments as a Spark job.",
    "pipeline": "Make bronze, silver and gold tables from recorded logs, on Spark.",
    "health": "Ask whether a domain, or one process of it, is well: exit code 0 or 1.",
    "version": "Show the version of Vivum, of Python and of the compiled parts.",
    "doctor": "Tell what this machine has for Vivum, and what to do about the rest.",
}
"""Name and one line of help of every command, in the order of the help."""

PLACES: dict[str, tuple[str, str]] = {
    "send-file": ("files", "send_app"),
    "receive-file": ("files", "receive_app"),
    "health": ("probe", "app"),
}
"""File and application of commands that are not `app` in the file of their own name."""

NEEDS: dict[str, str] = {"record": "log", "replay": "log", "audit": "spark", "sweep": "spark", "pipeline": "spark"}
"""The extra that a command needs in all, to be named when one of its libraries is missing."""


class _Commands(typer.core.TyperGroup):
    """A group whose entries are only names until one of them is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command by its name, and only then import its file."""
        name, placeholder, rest = super().resolve_command(ctx, args)
        if name is None or placeholder is None:
            return name, placeholder, rest
        file, attribute = PLACES.get(name, (name, "app"))
        try:
            module = importlib.import_module(f"vivum.cli.{file}")
        except ImportError as error:
            raise missing_library(error, f"vivum {name} needs", NEEDS.get(name)) or error from error
        command = typer.main.get_command(getattr(module, attribute))
        command.name = name
        return name, command, rest


_app = typer.Typer(
    cls=_Commands,
    help="Live groups for Python: typed channels and replicated objects over reliable multicast.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _placeholder() -> None:
    """Stand in the help for a command that has not been imported."""


for _name, _help in COMMANDS.items():
    _app.command(_name, help=_help)(_placeholder)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"vivum {__version__}")
        raise typer.Exit


@_app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run(_app, arguments)
