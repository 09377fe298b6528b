"""`python -m elden` is `elden`."""

from elden.cli import run

run()
