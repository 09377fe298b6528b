"""The worlds by name, and `make`."""

from typing import get_args, get_type_hints

import numpy as np

from elden.names import nearest_names, shown
from elden.worlds.base import World, WorldOptionError
from elden.worlds.carwash import CarWash
from elden.worlds.chain import Chain
from elden.worlds.empty import Empty
from elden.worlds.kitchen.twin import Kitchen
from elden.worlds.minecraft import Minecraft
from elden.worlds.thawing import Thawing

WORLDS: dict[str, type[World]] = {world.name: world for world in (Thawing, CarWash, Minecraft, Kitchen, Empty, Chain)}
"""Every world by its name. To add one: write its file, name it here, and run `python tools/option_index.py`."""


def world_class(name: str) -> type[World]:
    """The class of a world; an unknown name is refused with the nearest ones."""
    if name not in WORLDS:
        raise ValueError(f"no world {name!r}; {nearest_names(str(name).lower(), WORLDS)}")
    return WORLDS[name]


def make(name: str, **options: bool | int | float | str) -> World:
    """Make a world.

    Args:
        name: "thawing", "carwash", "minecraft", "kitchen", "empty" or "chain".
        **options: The fields of the world's class, such as `profile="primitives"`, `size=12` or `max_steps=50`.

    Raises:
        ValueError: The world is unknown.
        WorldOptionError: An option is unknown, of the wrong type or out of range. It is a ValueError too.
    """
    cls = world_class(name)
    for option, value in options.items():
        if option not in cls.option_names():
            raise WorldOptionError(f"{name} has no option {option!r}; {nearest_names(option, cls.option_names())}")
        _check_type(name, option, value, getattr(cls, option))
        choices = get_args(get_type_hints(cls)[option])
        if choices and value not in choices:
            known = ", ".join(map(repr, choices))
            raise WorldOptionError(f"{option}={shown(value)} given; {name} knows {known}")
    return cls(**options)  # type: ignore[arg-type]


def world_card(world: World) -> dict[str, object]:
    """Name and options of a world: what `make` needs to make it again."""
    return {"name": world.name, "options": {name: getattr(world, name) for name in world.option_names()}}


def _check_type(world: str, option: str, given: object, default: object) -> None:
    """Options have plain types, that of their default; a bool is not an int here."""
    whole = isinstance(given, int | np.integer) and not isinstance(given, bool)
    fits = type(given) is type(default) or (whole and type(default) in (int, float))
    if not fits:
        kinds = {bool: "True or False", int: "an integer", float: "a number", str: "a word"}
        raise WorldOptionError(
            f"{world}: option {option}={shown(given)} given; it takes {kinds[type(default)]}, not that"
        )
