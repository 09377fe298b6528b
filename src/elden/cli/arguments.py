"""From the words of a command line to a command that can be run.

Names have been checked by then (`elden.cli.check`), so that a mistyped one is answered at once with its nearest
neighbours. tyro reads the words; what it refuses is answered in one line instead of its box.
"""

import contextlib
import io
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tyro

from elden.cli.check import ordered
from elden.cli.commands import COMMANDS, Command
from elden.cli.errors import UsageError
from elden.cli.options import PresetOptions, as_options, options_of
from elden.hosts.world import HostConfig
from elden.names import HOST
from elden.worlds.registry import WORLDS

_PLAINER = {
    r"^Error parsing ": "",
    r"invalid literal for int\(\) with base 10: (.*)": r"\1 is not a whole number",
    r"could not convert string to float: (.*)": r"\1 is not a number",
    r"no type matching .* could be instantiated from .* - <class '\w+'>: ": "",
    r"Missing value for argument '(.*)'\..*": r"\1 needs a value",
}
_COLORS = re.compile(r"\x1b\[[0-9;]*m")


def parse(words: Sequence[str]) -> Command:
    """The command that these words ask for.

    Raises:
        UsageError: The words are wrong; the message is one line.
        SystemExit: A help page was asked for and has been printed.
    """
    name, *rest = ordered(list(words))
    cls, box = _with_defaults(COMMANDS[name].load(), [name, *rest]), io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            command: Command = tyro.cli(
                cls, prog=f"elden {name}", description=COMMANDS[name].summary, args=rest, config=_MARKERS
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UsageError(_with_options(cls, _one_line(box.getvalue()))) from None
    except ValueError as error:  # settings that no part of them refuses, and tyro lets through
        options = (*options_of(cls), *options_of(HostConfig))
        raise UsageError(as_options(as_options(str(error), options), options, "config.")) from None
    if isinstance(command, PresetOptions):
        return replace(command, given=command.settings_among(rest))
    return command


# Options of a subcommand may stand before or after the world, and none of them is written as --world.size.
_MARKERS = (tyro.conf.CascadeSubcommandArgs, tyro.conf.OmitSubcommandPrefixes)


def _with_defaults(cls: type[Any], words: Sequence[str]) -> type[Any]:
    """The class of a subcommand, with the defaults that its settings have with these words."""
    if not issubclass(cls, PresetOptions):
        return cls
    return cls.showing(words, words[1] if len(words) > 1 and words[1] in (*WORLDS, HOST) else None)


def _with_options(cls: type[Any], message: str) -> str:
    """What tyro refuses, with settings as they are typed; it begins with the part that they stand in, or an option."""
    found = re.match(r"(?!--)(\S+): ", message)
    rest = message if found is None else message[found.end() :]
    if found is not None:
        _, config, part = found[1].partition("config")
        where = f"{config}{part}.".replace("-", "_") if config else ""
        rest = as_options(rest, tuple(options_of(cls)), where)
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
    message = " ".join(parts[0 if drawn or len(parts) < 2 else 1])
    for pattern, words in _PLAINER.items():
        message = re.sub(pattern, words, message)
    return message
