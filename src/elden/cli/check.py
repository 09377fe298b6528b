"""Whether the words of a command line name things that exist, by the index alone: without an import that takes long."""

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from decimal import Decimal

from elden.cli.commands import COMMANDS
from elden.cli.errors import UsageError
from elden.cli.index import CommandIndex, Options, index
from elden.names import HOST, PREFIX, nearest_names

_HELP = Options({"-h": "nothing", "--help": "nothing"})
_SUFFIXES = {"": 0, "k": 3, "M": 6}
_MOST_DIGITS = 30


def ordered(words: list[str]) -> list[str]:
    """The same words with the world right after the subcommand, as tyro reads them.

    Raises:
        UsageError: They name a subcommand, a world or an option that does not exist, or a number that is none.
    """
    name, *rest = map(spelled, words)
    if name not in COMMANDS:
        raise UsageError(f"no subcommand {name!r}; {nearest_names(name.lower(), COMMANDS)}")
    known, command = index(), index().commands[name]
    everything = _HELP | command.options | known.host
    for options in known.worlds.values():
        everything |= options
    bare = _bare_words(rest, everything)
    helps = not _HELP.takes.keys().isdisjoint(rest)
    world = command.default
    if command.world != "none":
        world = _world(name, command, rest[bare[0]] if bare else None, helps)
    allowed = _HELP | command.options | _options_of(world)
    if command.world == "none" or (world is not None and not helps):
        where = f"elden {name}" if world is None else f"elden {name} {rest[bare[0]] if bare else world}"
        _check(where, rest, allowed)
    if len(bare) > 1:
        raise UsageError(f"{rest[bare[1]]!r} is one word too many; options are written --like-this (see {name} --help)")
    first = [part for i in bare for part in _host_words(rest[i])]
    return [name, *first, *(word for i, word in enumerate(_with_plain_numbers(rest, allowed)) if i not in bare)]


def whole_number(word: str) -> int:
    """The whole number that a word is: 1000000, 1_000_000, 1e6, 1000k or 1M.

    Raises:
        ValueError: It is none.
    """
    try:
        return int(word)
    except ValueError:
        number, suffix = (word[:-1], word[-1]) if word[-1:] in ("k", "M") else (word, "")
    try:
        value = Decimal(number).scaleb(_SUFFIXES[suffix])
    except ArithmeticError:  # no number, or one beyond all bounds
        raise ValueError(word) from None
    if not value.is_finite() or value.adjusted() > _MOST_DIGITS or value != value.to_integral_value():
        raise ValueError(word)
    return int(value)


def _with_plain_numbers(words: list[str], options: Options) -> list[str]:
    """The same words with whole numbers as Python writes them; what is none stays as it is."""
    plain, counts = [], False
    for word in words:
        flag, equals, value = word.partition("=")
        takes_number = word.startswith("-") and options.takes.get(flag_of(flag)) == "int"
        if counts or (takes_number and equals):
            with suppress(ValueError):
                word = str(whole_number(word)) if counts else f"{flag}={whole_number(value)}"
        counts = takes_number and not equals and not counts
        plain.append(word)
    return plain


def flag_of(word: str) -> str:
    """The option that a word is, as tyro writes it: `--no-bonus.once=…` is `--bonus.no-once`."""
    flag = word.split("=", 1)[0].replace("_", "-")
    return re.sub(r"^--no-((?:[\w-]+\.)+)", r"--\1no-", flag)


def spelled(word: str) -> str:
    """A word of a command line as tyro reads it."""
    return flag_of(word) + word[len(word.split("=", 1)[0]) :] if word.startswith("--") else word


def _options_of(world: str | None) -> Options:
    if world is None:
        return Options({})
    return index().host if world == HOST else index().worlds[world]


def _host_words(word: str) -> list[str]:
    """`gym:ID` as the subcommand that it is, other words as they are."""
    return [HOST, "--id", word.removeprefix(PREFIX)] if word.startswith(PREFIX) else [word]


def _bare_words(words: list[str], options: Options) -> list[int]:
    """Where the words are that are neither options nor values of options."""
    bare, value_next, many = [], False, False
    for place, word in enumerate(words):
        if value_next:
            value_next = False
        elif word.startswith("-"):
            takes = options.takes.get(flag_of(word), "value")
            many, value_next = takes == "many", "=" not in word and takes != "nothing"
        elif not many:
            bare.append(place)
    return bare


def _world(name: str, command: CommandIndex, given: str | None, helps: bool) -> str | None:
    """The world in question; None where none is named, the subcommand has no default, and help is asked for."""
    worlds = index().worlds
    if given is None:
        if command.default is None and not helps:
            others = ", or gym:ID" if command.world == "any" else ""
            raise UsageError(f"elden {name} needs a world: {', '.join(worlds)}{others}")
        return command.default
    if given.startswith(PREFIX) or given == HOST:
        if command.world != "any":
            raise UsageError(f"elden {name} is for worlds of elden, not for environments of others such as {given!r}")
        if given in (HOST, PREFIX) and not helps:
            raise UsageError(f"{given!r} names no environment; write gym:ID, such as gym:elden/Chain-v0")
        return HOST
    if given not in worlds:
        raise UsageError(f"no world {given!r}; {nearest_names(given.lower(), worlds)}")
    return given


def _check(where: str, words: list[str], allowed: Options) -> None:
    """Refuse options that this subcommand and this world do not have, and numbers that are none."""
    values: Collection[str] = ()
    skip = False
    for place, word in enumerate(words):
        if skip or not word.startswith("-"):
            skip = False
            continue
        flag, _, value = word.partition("=")
        flag = flag_of(flag)
        if flag not in allowed.takes:
            raise UsageError(f"{where} has no option {flag!r}; {nearest_names(flag, allowed.takes)}")
        takes = allowed.takes[flag]
        if takes == "nothing":
            continue
        if "=" not in word:
            skip = True
            values = words[place + 1 : place + 2]
            if not values and takes != "many":
                raise UsageError(f"{flag} needs a value")
            value = next(iter(values), "")
        _check_number(flag, takes, value)


def _check_number(flag: str, takes: str, value: str) -> None:
    try:
        if takes == "int":
            whole_number(value)
        elif takes == "float":
            float(value)
    except ValueError:
        kind = "a whole number (1000000, 1e6 or 1M)" if takes == "int" else "a number"
        raise UsageError(f"{flag}: {value!r} is not {kind}") from None


def help_page(summary: str, names: Mapping[str, str]) -> str:
    """The first help page: what there is, in a line each."""
    width = max(map(len, names))
    lines = [f"  {name:<{width}}  {what}" for name, what in names.items()]
    return "\n".join(["usage: elden [-h] [--version] COMMAND ...", "", summary, "", "commands:", *lines, "", _MORE])


_MORE = "`elden COMMAND --help` lists the options of one, `elden COMMAND WORLD --help` with those of a world."
