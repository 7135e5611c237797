"""What all commands have in common: output, errors and exit codes.

Output: data on standard output, talk on standard error (`say`). Results for people go through `console()`, with rich.
With `--json` standard output has JSON objects alone, one a line: one for each message or alert of commands that go on,
and one for the result of commands that have one, by `write_json()`.

| exit code | meaning |
|---|---|
| 0 | Done |
| 1 | Tried and failed: a violation was found, a file could not be written, the reader of a pipe went away |
| 2 | Wrong use: unknown words, wrong values, a missing extra, a scenario that says something impossible |
| 130 | Stopped with Ctrl-C, after leaving in order |
| 143 | Stopped by SIGTERM, after leaving in order; 0 for `up`, `record`, `sub`, `kv serve`, which have no other end |

A command raises `UsageError` for what the caller got wrong and `Failed` when its answer is no. Errors become
one line on standard error here and nowhere else. A traceback means a bug in Vivum.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from vivum.core.errors import UsageError, VivumError
from vivum.core.extras import missing_library

if TYPE_CHECKING:
    from rich.console import Console

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143

JsonOption = Annotated[
    bool, typer.Option("--json", help="Write JSON objects to standard output, one a line, and nothing else.")
]
"""The type of the parameter `as_json: JsonOption = False` that every command with a result has."""

MasterOption = Annotated[str | None, typer.Option(help="Where Spark runs; default local[*], this machine.")]


class Failed(typer.Exit):
    """Ends a command whose answer is no and has been shown: exit code 1, nothing more printed."""

    def __init__(self) -> None:
        super().__init__(EXIT_FAILED)


class Terminated(SystemExit):
    """Ends a command that SIGTERM interrupted, as Ctrl-C would."""

    def __init__(self) -> None:
        super().__init__(EXIT_TERMINATED)


def command_group(text: str) -> typer.Typer:
    """Make the `app` of a command file: one command, or a group of them."""
    return typer.Typer(help=text, no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)


def console(as_json: bool = False) -> "Console":
    """Return where text for people goes: standard output, or standard error beside `--json`."""
    from rich.console import Console

    # Colours and progress bars appear on a terminal alone; rich sees to it, and to NO_COLOR.
    return Console(stderr=as_json, highlight=False, soft_wrap=False)


def say(text: str) -> None:
    """Print what the command does or waits for on standard error: standard output is for its data."""
    # Not through rich: a line must come out whole, however narrow the terminal is.
    sys.stderr.write(f"vivum: {text}\n")
    sys.stderr.flush()


def write_json(result: Mapping[str, Any]) -> None:
    """Write the result for machines: one object, one line, the last one."""
    text = json.dumps(result, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    sys.stdout.write(text + "\n")


def run(command: Callable[..., Any], arguments: Sequence[str] | None = None) -> int:
    """Run the application and turn whatever ends it into an exit code and at most one line."""
    before = None
    if threading.current_thread() is threading.main_thread():
        before = signal.signal(signal.SIGTERM, _terminate)
    try:
        try:
            command(args=arguments, prog_name="vivum")
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else EXIT_FAILED if end.code else 0
        # A pipe that was closed early shows itself here, not when the interpreter ends.
        sys.stdout.flush()
    except BrokenPipeError:
        _let_go_of_stdout()
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except UsageError as error:
        return _complain(error, EXIT_USAGE)
    except ImportError as error:
        missing = missing_library(error, "this command needs")
        if missing is None:
            raise
        return _complain(missing, EXIT_USAGE)
    except UnicodeEncodeError as error:
        # Words that are not UTF-8 come as surrogates; paths may be such, what travels may not.
        return _complain(UsageError(f"{error.object!r} is not UTF-8 text"), EXIT_USAGE)
    except VivumError as error:
        return _complain(error, EXIT_FAILED)
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)
    return code


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Terminated


OPTION_WORDS = (
    ("pass seeds=, or let embedded=True carry one", "give --seed, or start a node, such as `vivum sub`"),
    ("pass seeds= or multicast=False", "give --seed or --unicast"),
    ("replay= needs", "--replay needs"),
)
"""Advice of the library, which speaks of arguments, and the same in options of the command line."""


def _complain(error: Exception, code: int) -> int:
    text = " ".join(str(error).splitlines())
    for arguments, options in OPTION_WORDS:
        text = text.replace(arguments, options)
    sys.stderr.write(f"vivum: error: {text}\n")
    return code


def _let_go_of_stdout() -> None:
    """Point standard output at nothing, so that the flush at the end of the process stays quiet."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
