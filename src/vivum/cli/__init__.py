"""The command line: everything a person types. `vivum.cli.app` lists the commands."""

from vivum.cli.app import main

__all__ = ["main"]
