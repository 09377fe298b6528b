"""From the words of a command line to a command that can be run.

tyro reads the words. Before it does, names are checked here, so that a mistyped one is answered with its nearest
neighbours; what tyro then refuses is told in one line instead of its box.
"""

import contextlib
import io
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Annotated, Any, Protocol, Union, get_args, get_origin, get_type_hints, runtime_checkable

import tyro

from elden.cli.collect import Collect
from elden.cli.compare import Compare
from elden.cli.demo import Demo
from elden.cli.detect import Detect, StudyOptions, as_options
from elden.cli.errors import UsageError
from elden.cli.evaluate import Evaluate
from elden.cli.film import Film
from elden.cli.info import Info
from elden.cli.play import Play
from elden.cli.reproduce import Reproduce
from elden.cli.train import Resume, Train
from elden.cli.worlds import first_line, option_flags
from elden.studies.config import SETTINGS
from elden.worlds.base import World
from elden.worlds.registry import WORLDS, nearest_names, world_class


@runtime_checkable
class Command(Protocol):
    """What a subcommand is: a frozen dataclass of its options, which can be run."""

    def run(self, command_line: str) -> None:
        """Do it; `command_line` is what the user typed, for the records."""


COMMANDS: dict[str, type[Command]] = {
    "info": Info,
    "play": Play,
    "film": Film,
    "demo": Demo,
    "train": Train,
    "resume": Resume,
    "compare": Compare,
    "evaluate": Evaluate,
    "collect": Collect,
    "detect": Detect,
    "reproduce": Reproduce,
}
"""Every subcommand by its name. To add one: write its file and name it here."""

_DESCRIPTION = "Exploration via local dependencies. `elden --version` prints the version."
_PLAINER = {
    r"^Error parsing (__tyro\S*: |world: |[A-Z]\w*: )?": "",
    r"invalid literal for int\(\) with base 10: (.*)": r"\1 is not a whole number",
    r"could not convert string to float: (.*)": r"\1 is not a number",
    r"no type matching .* could be instantiated from .* - <class '\w+'>: ": "",
    r"Missing value for argument '(.*)'\..*": r"\1 needs a value",
}
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_HELP = {"-h": True, "--help": True}


def parse(words: Sequence[str]) -> Command:
    """The command that these words ask for.

    Raises:
        UsageError: The words are wrong; the message is one line.
        SystemExit: A help page was asked for and has been printed.
    """
    ordered = _checked(list(words)) if words else ["--help"]
    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            command: Command = tyro.cli(
                _commands(ordered), prog="elden", description=_DESCRIPTION, args=ordered, config=_MARKERS
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UsageError(as_options(_one_line(box.getvalue()))) from None
    if isinstance(command, StudyOptions):
        flags = [_flag(word).removeprefix("--").replace("-", "_") for word in ordered if word.startswith("--")]
        return replace(command, given=tuple(name for name in dict.fromkeys(flags) if name in SETTINGS))
    return command


# Options of a subcommand may stand before or after the world, and none of them is written as --world.size.
_MARKERS = (tyro.conf.CascadeSubcommandArgs, tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes)


def _commands(words: Sequence[str]) -> Any:
    """All subcommands as one type for tyro, with the defaults that they have with these words."""
    world = words[1] if len(words) > 1 and words[1] in WORLDS else None
    commands = {
        name: command.showing(words, world) if issubclass(command, StudyOptions) else command
        for name, command in COMMANDS.items()
    }
    choices = tuple(
        Annotated[command, tyro.conf.subcommand(name, description=first_line(command.__doc__))]
        for name, command in commands.items()
    )
    return Union[choices]  # noqa: UP007 (the members are known at run time only)


def _checked(words: list[str]) -> list[str]:
    """The same words with the world right after the subcommand; names that do not exist are refused."""
    name, *rest = words
    if name.startswith("-"):
        return words
    if name not in COMMANDS:
        raise UsageError(f"no subcommand {name!r}; {nearest_names(name.lower(), COMMANDS)}")
    command = COMMANDS[name]
    flags = _HELP | option_flags(command)
    for cls in WORLDS.values():
        flags |= option_flags(cls)
    bare = _bare_words(rest, flags, _list_flags(command))
    helps = not _HELP.keys().isdisjoint(rest)
    if all(option.name != "world" for option in fields(command)):  # type: ignore[arg-type]
        _check_options(f"elden {name}", rest, flags, _HELP | option_flags(command))
    else:
        world = _world_class(name, command, rest[bare[0]] if bare else None, helps)
        allowed = _HELP | option_flags(command) | (option_flags(world) if world is not None else {})
        if not helps and world is not None:
            _check_options(f"elden {name} {world.name}", rest, flags, allowed)
    if len(bare) > 1:
        raise UsageError(f"{rest[bare[1]]!r} is one word too many; options are written --like-this (see {name} --help)")
    return [name, *(rest[i] for i in bare), *(word for i, word in enumerate(rest) if i not in bare)]


def _bare_words(words: list[str], flags: Mapping[str, bool], lists: Collection[str] = ()) -> list[int]:
    """Where the words are that are neither options nor values of options; options in `lists` take many values."""
    bare, value_next, many = [], False, False
    for index, word in enumerate(words):
        if value_next:
            value_next = False
        elif word.startswith("-"):
            many = _flag(word) in lists
            value_next = "=" not in word and not flags.get(_flag(word), False)
        elif not many:
            bare.append(index)
    return bare


def _list_flags(command: type) -> set[str]:
    """The options of a subcommand that take as many values as are given."""
    found: set[str] = set()
    for name, kind in get_type_hints(command).items():
        if is_dataclass(kind) and isinstance(kind, type) and not issubclass(kind, World):
            found |= _list_flags(kind)
        elif any(get_origin(one) is tuple for one in (kind, *get_args(kind))):
            found.add(f"--{name.replace('_', '-')}")
    return found


def _flag(word: str) -> str:
    return word.split("=", 1)[0].replace("_", "-")


def _world_class(name: str, command: type[Command], given: str | None, helps: bool) -> type[World] | None:
    """The class of the world in question; None where none is named and the subcommand's own default is not one."""
    if given is None:
        default = getattr(command, "world", None)
        if isinstance(default, World):
            return type(default)
        if not helps:
            raise UsageError(f"elden {name} needs a world: {', '.join(WORLDS)}")
        return None
    try:
        return world_class(given)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _check_options(where: str, words: list[str], flags: Mapping[str, bool], allowed: Mapping[str, bool]) -> None:
    """Refuse options that this subcommand and this world do not have."""
    value_next = False
    for word in words:
        if value_next or not word.startswith("-"):
            value_next = False
            continue
        if _flag(word) not in allowed:
            raise UsageError(f"{where} has no option {_flag(word)!r}; {nearest_names(_flag(word), allowed)}")
        value_next = "=" not in word and not flags[_flag(word)]


def _one_line(box: str) -> str:
    """What a tyro error box says: all between its title and the rule above its last lines.

    The box is drawn with lines, colours or neither, as the terminal can show them.
    """
    lines = [_COLORS.sub("", line).strip(" │") for line in box.splitlines()]
    drawn = any(line.startswith("╭") for line in lines)
    parts: list[list[str]] = [[]]
    for line in lines:
        if re.fullmatch("[─-]{4,}", line):
            parts.append([])
        elif line and line[0] not in "╭╰":
            parts[-1].append(line)
    said = " ".join(parts[0 if drawn or len(parts) < 2 else 1])
    for pattern, words in _PLAINER.items():
        said = re.sub(pattern, words, said)
    return said
