"""The console of all subcommands."""

import sys
import textwrap
from collections.abc import Iterable

from rich.console import Console

PIPED_WIDTH = 100
_HARD_SPACE = "\N{NO-BREAK SPACE}"


def make_console() -> Console:
    """A console on stdout that prints text as it is: names such as "moved:x:fish" are not markup or emoji."""
    width = None if sys.stdout.isatty() else PIPED_WIDTH
    return Console(width=width, markup=False, emoji=False, highlight=False)


def wrap_items(items: Iterable[str], width: int, gap: int) -> list[str]:
    """Lines of items with `gap` spaces between them; no item is broken."""
    # textwrap breaks at plain spaces only.
    joined = (" " * gap).join(item.replace(" ", _HARD_SPACE) for item in items)
    lines = textwrap.wrap(joined, max(20, width), break_on_hyphens=False, break_long_words=False)
    return [line.replace(_HARD_SPACE, " ") for line in lines]
