"""`vivum version`: what is installed, in one line."""

import platform

from vivum import __version__
from vivum.cli.conventions import JsonOption, command_group, console, write_json
from vivum.wire import codec

app = command_group("Show the version of Vivum, of Python and of the compiled parts.")


@app.command()
def version(as_json: JsonOption = False) -> None:
    """Show the version of Vivum, of Python and of the compiled parts."""
    parts = "compiled" if codec.COMPILED else "plain Python"
    if as_json:
        write_json({"vivum": __version__, "python": platform.python_version(), "compiled": bool(codec.COMPILED)})
    else:
        console().print(f"vivum {__version__}, Python {platform.python_version()}, {parts}")
