"""Which key does what: a map from keys to actions for any world, and keys out of typed characters.

A key is one character. The arrow keys are the characters ← → ↑ ↓, and can be typed as < > ^ v where there are none.
"""

import re
import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from elden.cli.errors import UsageError

NEW, UNDO, GRAPH, QUIT = "r", "u", "g", "q"
COMMAND_KEYS = {NEW: "new episode", UNDO: "undo", GRAPH: "graph on/off", QUIT: "quit"}

_NATURAL = {"left": "←", "right": "→", "forward": "↑", "up": "↑", "down": "↓", "use": "e"}
_TYPED_ARROWS = {"<": "←", ">": "→", "^": "↑", "v": "↓"}
_SEQUENCES = {"A": "↑", "B": "↓", "C": "→", "D": "←"}
_QUIT_CHARACTERS = "\x03\x04"
_DIGITS = "1234567890"
_TAKEN = {*COMMAND_KEYS, *(key.upper() for key in COMMAND_KEYS), *_TYPED_ARROWS}
_CHARACTERS = _DIGITS + string.ascii_lowercase + string.ascii_uppercase + "!?+-*/=.,;:#%&@"
_KEYS = [key for key in _CHARACTERS if key not in _TAKEN]
_FAMILY = 3
"""From this many actions on that share their first word ("goto_..."), digits are handed out to them."""

_KEY_PATTERN = re.compile(r"\x1b[\[O]([A-D])|\x1b(?:\[[0-9;]*[~A-Za-z])?|(.)", re.DOTALL)


def assign_keys(action_names: Sequence[str]) -> dict[str, int]:
    """A key for every action, by key: arrows to moves, digits to large families, letters of their names to the rest.

    Raises:
        UsageError: There are more actions than keys.
    """
    verbs = Counter(name.split("_")[0] for name in action_names)
    families = [name for name in action_names if "_" in name and verbs[name.split("_")[0]] >= _FAMILY]
    wishes = dict(zip(families, _DIGITS, strict=False)) | _NATURAL
    keys: dict[str, int] = {}
    for index, name in enumerate(action_names):
        if name in wishes and wishes[name] not in keys:
            keys[wishes[name]] = index
    # Single actions choose their letters before what is left over of families.
    for index, name in sorted(enumerate(action_names), key=lambda entry: entry[1] in families):
        if index not in keys.values():
            words = name.split("_")
            keys[_free_key(name, words[:0:-1] if name in families else words, keys)] = index
    return dict(sorted(keys.items(), key=lambda entry: entry[1]))


def _free_key(name: str, words: Sequence[str], taken: Mapping[str, int]) -> str:
    """The best key that is left: an initial of the words, small or capital, a letter of the name, any other."""
    initials = [initial for word in words if word for initial in (word[0].lower(), word[0].upper())]
    wanted: list[str] = [*initials, *name.lower(), *_KEYS]
    for key in wanted:
        if key in _KEYS and key not in taken:
            return key
    raise UsageError(f"this world has more actions than there are keys to play it with ({len(taken)})")


def keys_in(text: str) -> Iterator[str]:
    """The keys in typed characters: escape sequences and < > ^ v are arrows, white space is skipped.

    Commands come in lower case; other letters keep theirs.
    """
    for match in _KEY_PATTERN.finditer(text):
        arrow, character = match.groups()
        if arrow:
            yield _SEQUENCES[arrow]
        elif character and character in _QUIT_CHARACTERS:
            yield QUIT
        elif character and not character.isspace():
            lowered = character.lower()
            yield lowered if lowered in COMMAND_KEYS else _TYPED_ARROWS.get(character, character)


def key_name(key: str) -> str:
    """The key as a legend shows it."""
    return key.upper() if key in COMMAND_KEYS else key
