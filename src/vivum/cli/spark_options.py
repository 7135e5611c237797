"""Options of the commands that run on Spark."""

from typing import Annotated

import typer

MasterOption = Annotated[str | None, typer.Option(help="Where Spark runs; default local[*], this machine.")]
