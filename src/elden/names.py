"""Hints for names that were mistyped."""

import difflib
from collections.abc import Iterable


def nearest_names(given: str, known: Iterable[str]) -> str:
    """A hint for an unknown name: the known ones that look like it, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(given, names, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {', '.join(map(repr, names))}"
