"""Names that stand on command lines, and hints for those that were mistyped."""

import difflib
from collections.abc import Iterable

HOST = "gym"
"""The subcommand of environments of others."""
PREFIX = f"{HOST}:"
"""The prefix of the name of an environment of others."""


def nearest_names(given: str, known: Iterable[str]) -> str:
    """A hint for an unknown name: the known ones that look like it, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(given, names, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {', '.join(map(repr, names))}"


def printable(text: str) -> str:
    """The text with control characters, but for ends of lines and tabs, as they are written in Python.

    Terminals obey such characters, and names and messages come from environments and folders of others.
    """
    return "".join(char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] for char in text)


def shown(value: object) -> str:
    """A value as it is written in Python; a number of numpy as the plain number that it is."""
    item = getattr(value, "item", None)
    return repr(item() if callable(item) and getattr(value, "ndim", None) == 0 else value)
