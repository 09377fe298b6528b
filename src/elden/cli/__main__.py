"""`python -m elden.cli` is `elden`."""

from elden.cli import run

run()
