"""From the words of a command line to a command that can be run.

tyro reads the words. Before it does, names are checked here, so that a mistyped one is answered with its nearest
neighbours; what tyro then refuses is told in one line instead of its box.
"""

import contextlib
import io
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import Annotated, Any, Protocol, Union, get_args, get_type_hints, runtime_checkable

import tyro

from elden.cli.collect import Collect
from elden.cli.compare import Compare
from elden.cli.demo import Demo
from elden.cli.detect import Detect
from elden.cli.errors import UsageError
from elden.cli.evaluate import Evaluate
from elden.cli.film import Film
from elden.cli.info import Info
from elden.cli.options import PresetOptions, as_options, flag_of, option_flags, options_of, spelled
from elden.cli.play import Play
from elden.cli.reproduce import Reproduce
from elden.cli.train import Resume, Train
from elden.cli.worlds import HOST, first_line
from elden.hosts.world import PREFIX, HostConfig
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
    r"^Error parsing ": "",
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
        raise UsageError(_with_options(ordered[0], _one_line(box.getvalue()))) from None
    except ValueError as error:  # settings that no part of them refuses, and tyro lets through
        options = (*options_of(COMMANDS[ordered[0]]), *options_of(HostConfig))
        raise UsageError(as_options(as_options(str(error), options), options, "config.")) from None
    if isinstance(command, PresetOptions):
        return replace(command, given=command.settings_among(ordered))
    return command


# Options of a subcommand may stand before or after the world, and none of them is written as --world.size.
_MARKERS = (tyro.conf.CascadeSubcommandArgs, tyro.conf.OmitSubcommandPrefixes)


def _commands(words: Sequence[str]) -> Any:
    """All subcommands as one type for tyro, with the defaults that they have with these words."""
    world = words[1] if len(words) > 1 and words[1] in (*WORLDS, HOST) else None
    commands = {
        name: command.showing(words, world) if issubclass(command, PresetOptions) else command
        for name, command in COMMANDS.items()
    }
    choices = tuple(
        Annotated[command, tyro.conf.subcommand(name, description=first_line(command.__doc__))]
        for name, command in commands.items()
    )
    return Union[choices]  # noqa: UP007 (the members are known at run time only)


def _checked(words: list[str]) -> list[str]:
    """The same words with the world right after the subcommand; names that do not exist are refused."""
    name, *rest = map(spelled, words)
    if name.startswith("-"):
        return words
    if name not in COMMANDS:
        raise UsageError(f"no subcommand {name!r}; {nearest_names(name.lower(), COMMANDS)}")
    command = COMMANDS[name]
    flags = _HELP | option_flags(command)
    for cls in (*WORLDS.values(), HostConfig):
        flags |= option_flags(cls)
    options = (*options_of(command), *options_of(HostConfig))
    bare = _bare_words(rest, flags, {flag for one in options if one.many for flag in one.flags})
    helps = not _HELP.keys().isdisjoint(rest)
    if all(option.name != "world" for option in fields(command)):  # type: ignore[arg-type]
        _check_options(f"elden {name}", rest, flags, _HELP | option_flags(command))
    else:
        world = _world_class(name, command, rest[bare[0]] if bare else None, helps)
        allowed = _HELP | option_flags(command) | (option_flags(world) if world is not None else {})
        if not helps and world is not None:
            _check_options(f"elden {name} {rest[bare[0]] if bare else world.name}", rest, flags, allowed)
    if len(bare) > 1:
        raise UsageError(f"{rest[bare[1]]!r} is one word too many; options are written --like-this (see {name} --help)")
    first = [part for i in bare for part in _host_words(rest[i])]
    return [name, *first, *(word for i, word in enumerate(rest) if i not in bare)]


def _host_words(word: str) -> list[str]:
    """`gym:ID` as the subcommand that it is, other words as they are."""
    return [HOST, "--id", word.removeprefix(PREFIX)] if word.startswith(PREFIX) else [word]


def _bare_words(words: list[str], flags: Mapping[str, bool], lists: Collection[str] = ()) -> list[int]:
    """Where the words are that are neither options nor values of options; options in `lists` take many values."""
    bare, value_next, many = [], False, False
    for index, word in enumerate(words):
        if value_next:
            value_next = False
        elif word.startswith("-"):
            many = flag_of(word) in lists
            value_next = "=" not in word and not flags.get(flag_of(word), False)
        elif not many:
            bare.append(index)
    return bare


def _world_class(
    name: str, command: type[Command], given: str | None, helps: bool
) -> type[World] | type[HostConfig] | None:
    """The class of the world in question; None where none is named and the subcommand's own default is not one."""
    if given is None:
        default = getattr(command, "world", None)
        if isinstance(default, World):
            return type(default)
        if not helps:
            hosts = HostConfig in get_args(get_type_hints(command)["world"])
            raise UsageError(f"elden {name} needs a world: {', '.join(WORLDS)}{', or gym:ID' if hosts else ''}")
        return None
    if given.startswith(PREFIX) or given == HOST:
        if HostConfig not in get_args(get_type_hints(command)["world"]):
            raise UsageError(f"elden {name} is for worlds of elden, not for environments of others such as {given!r}")
        if given in (HOST, PREFIX) and not helps:
            raise UsageError(f"{given!r} names no environment; write gym:ID, such as gym:elden/Chain-v0")
        return HostConfig
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
        if flag_of(word) not in allowed:
            raise UsageError(f"{where} has no option {flag_of(word)!r}; {nearest_names(flag_of(word), allowed)}")
        value_next = "=" not in word and not flags[flag_of(word)]


def _with_options(name: str, said: str) -> str:
    """What tyro refuses, with settings as they are typed; it begins with the part that they stand in, or an option."""
    found = re.match(r"(?!--)(\S+): ", said)
    rest = said if found is None else said[found.end() :]
    if found is not None:
        _, config, part = found[1].partition("config")
        where = f"{config}{part}.".replace("-", "_") if config else ""
        rest = as_options(rest, tuple(options_of(COMMANDS[name])), where)
    return as_options(rest, tuple(options_of(HostConfig)))


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
