"""Lets `python -m vivum.cli` do what `vivum` does."""

import sys

from vivum.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
