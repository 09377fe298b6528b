"""The options that tyro makes of a dataclass: how each is written, which setting it is, and what it takes.

Options of nested dataclasses are written with the name of the part before theirs (`--ppo.entropy`), unless the part is
marked with `OmitArgPrefixes` or has the empty name.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass
from typing import Annotated, get_args, get_origin, get_type_hints

import tyro

from elden.cli.check import flag_of
from elden.worlds.base import World


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        setting: Its dotted name in the dataclass.
        flags: How it is written, short ways first.
        off: How it is switched off; empty where it takes a value.
        takes: What it takes: "nothing", "int", "float", "many" values, or "value", which is anything else.
    """

    setting: str
    flags: tuple[str, ...]
    off: str = ""
    takes: str = "value"


def options_of(cls: type) -> Iterator[Option]:
    """The options of a dataclass, those of a world excepted."""
    return _options(cls, "", "", False)


def _options(cls: type, setting: str, prefix: str, flat: bool) -> Iterator[Option]:
    hints = get_type_hints(cls, include_extras=True)
    for one in fields(cls):
        kind, *marks = get_args(hints[one.name]) if get_origin(hints[one.name]) is Annotated else (hints[one.name],)
        hidden = not one.init or tyro.conf.Suppress in marks or tyro.conf.Positional in marks
        if hidden or is_world(kind):
            continue
        names = [mark.name for mark in marks if getattr(mark, "name", None) is not None]
        name = (names[0] if names else one.name).replace("_", "-")
        path = f"{setting}{one.name}"
        if isinstance(kind, type) and is_dataclass(kind):
            without = flat or tyro.conf.OmitArgPrefixes in marks
            yield from _options(kind, f"{path}.", prefix if without or not name else f"{prefix}{name}.", without)
            continue
        others = [alias for mark in marks for alias in getattr(mark, "aliases", None) or ()]
        off = f"--{prefix}no-{name}" if kind is bool else ""
        yield Option(path, (*others, f"--{prefix}{name}"), off, _takes(kind))


def _takes(kind: object) -> str:
    """What an option of this type takes."""
    if kind is bool:
        return "nothing"
    if any(get_origin(each) is tuple for each in (kind, *get_args(kind))):
        return "many"
    numbers = {int: "int", float: "float"}
    kinds = [each for each in get_args(kind) or (kind,) if each is not type(None)]
    return numbers.get(kinds[0], "value") if len(kinds) == 1 else "value"


def taken(cls: type) -> dict[str, str]:
    """The options of a dataclass as they are written ("--max-steps"), and what each of them takes."""
    found = ((flag, option.takes) for option in options_of(cls) for flag in (*option.flags, option.off) if flag)
    return dict(found)


def is_world(kind: object) -> bool:
    """Whether this is the type of a world, or of a world and something else."""
    return any(isinstance(each, type) and issubclass(each, World) for each in (kind, *get_args(kind)))


def value_of(option: str, words: Sequence[str]) -> str | None:
    """The value of an option among the words of a command line."""
    for index, word in enumerate(words):
        if word == option:
            return words[index + 1] if index + 1 < len(words) else None
        if word.startswith(f"{option}="):
            return word.removeprefix(f"{option}=")
    return None


def as_options(message: str, options: Collection[Option], part: str = "") -> str:
    """A message about settings (`name=value`) with their names as they are typed (`--name value`).

    Args:
        message: What is wrong.
        options: All of them.
        part: Dotted name of the part whose settings the message is about.
    """
    known = {one.setting.removeprefix(part): one.flags[0] for one in options if one.setting.startswith(part)}
    # A setting of a part that is written without its name is known by its own.
    known |= {flag.removeprefix("--").replace("-", "_"): flag for flag in known.values() if "." not in flag}
    names = "|".join(sorted(map(re.escape, known), key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])({names})=", lambda found: f"{known[found[1]]} ", message) if known else message


@dataclass(frozen=True)
class PresetOptions:
    """Options of a subcommand whose settings are those that a preset has for a world, and what is given beside it."""

    preset: str = ""
    """The settings to start from."""
    config: object = None
    """The settings."""
    given: tyro.conf.Suppress[tuple[str, ...]] = ()
    """Dotted names of the settings that stand on the command line."""

    @classmethod
    def preset_config(cls, preset: str, world: str, words: Sequence[str]) -> object:
        """The settings that a preset has for a world (for none if its name is empty) and the rest of a command line."""
        raise NotImplementedError

    @classmethod
    def showing(cls, words: Sequence[str], world: str | None) -> type["PresetOptions"]:
        """The same options with the settings, as defaults, that the preset among these words has for a world."""
        hints = get_type_hints(cls, include_extras=True)
        chosen = value_of("--preset", words)
        # tyro will refuse one that is not there
        known = chosen if chosen is not None and chosen in get_args(hints["preset"]) else cls.preset
        config = field(default=cls.preset_config(known, world or "", words))
        made: type[PresetOptions] = make_dataclass(
            cls.__name__,
            [("config", hints["config"], config)],
            bases=(cls,),
            namespace={"__doc__": cls.__doc__},
            frozen=True,
        )
        return made

    @classmethod
    def settings_among(cls, words: Sequence[str]) -> tuple[str, ...]:
        """Dotted names of the settings that stand among these words, each once."""
        settings = {flag: one.setting for one in options_of(cls) for flag in (*one.flags, one.off)}
        found = (settings.get(flag_of(word), "") for word in words if word.startswith("--"))
        return tuple(dict.fromkeys(name.removeprefix("config.") for name in found if name.startswith("config.")))
