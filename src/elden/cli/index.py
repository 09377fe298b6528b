"""The names of all options, as data: so that a mistyped one is refused before anything heavy is imported.

`index.json` is made from the classes of the subcommands and the worlds (`python tools/option_index.py` writes it). A
test checks that it is what would be made today.
"""

import json
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

from elden.cli.commands import COMMANDS

FILE = Path(__file__).with_name("index.json")


@dataclass(frozen=True)
class Options:
    """The options of a subcommand or a world.

    Attributes:
        takes: What each option takes: "nothing", "int", "float", "many" values, or "value", which is anything else.
    """

    takes: dict[str, str]

    def __or__(self, other: "Options") -> "Options":
        return Options({**self.takes, **other.takes})


@dataclass(frozen=True)
class CommandIndex:
    """A subcommand.

    Attributes:
        options: Its own options.
        world: Whether it takes a world: "none", "ours" or "any", that is, also an environment of others.
        default: The world that it takes where none is named.
    """

    options: Options
    world: str
    default: str | None


@dataclass(frozen=True)
class Index:
    """All subcommands and all worlds."""

    commands: dict[str, CommandIndex]
    worlds: dict[str, Options]
    host: Options


@cache
def index() -> Index:
    """What `index.json` says."""
    data = json.loads(FILE.read_bytes())
    commands = {
        name: CommandIndex(Options(each["options"]), each["world"], each["default"])
        for name, each in data["commands"].items()
    }
    return Index(commands, {name: Options(each) for name, each in data["worlds"].items()}, Options(data["host"]))


def made() -> dict[str, Any]:
    """What `index.json` should say."""
    from elden.cli.options import is_world, taken
    from elden.hosts.world import HostConfig
    from elden.worlds.base import World
    from elden.worlds.registry import WORLDS

    commands: dict[str, Any] = {}
    for name, entry in COMMANDS.items():
        cls = entry.load()
        asks = any(option.name == "world" and is_world(get_type_hints(cls)["world"]) for option in fields(cls))
        hosts = asks and HostConfig in get_args(get_type_hints(cls)["world"])
        default = getattr(cls, "world", None)
        commands[name] = {
            "options": taken(cls),
            "world": "any" if hosts else "ours" if asks else "none",
            "default": default.name if isinstance(default, World) else None,
        }
    worlds = {name: taken(world) for name, world in WORLDS.items()}
    return {"commands": commands, "worlds": worlds, "host": taken(HostConfig)}
