"""Worlds as arguments: every registered world is a subcommand with its own options.

Nothing here names a world: one that is added to the registry appears here, and in the index of options once that is
made again.
"""

from dataclasses import fields
from typing import Annotated, Union

import tyro

from elden.hosts.world import HostConfig
from elden.names import HOST
from elden.worlds.base import World
from elden.worlds.registry import WORLDS


def shown_as(metavar: str, otherwise: str) -> object:
    """How an option shows in the help that is not there unless it is given."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {otherwise})")


def first_line(doc: str | None) -> str:
    """The first paragraph of a docstring as one line."""
    return " ".join((doc or "").split("\n\n")[0].split())


def world_choice(*, solvable_only: bool = False) -> object:
    """One type for tyro: a union of all worlds, each a subcommand.

    Args:
        solvable_only: Default of the option of that name.
    """
    return Union[_choices(solvable_only)]  # noqa: UP007 (the members are known at run time only)


def world_or_host_choice() -> object:
    """The same, and environments of others, which are the subcommand `HOST`."""
    words = "An environment of somebody else's, by its Gymnasium id: written gym:ID, such as gym:elden/Chain-v0"
    host = Annotated[HostConfig, tyro.conf.subcommand(HOST, description=words)]
    return Union[(*_choices(False), host)]


def _choices(solvable_only: bool) -> tuple[object, ...]:
    return tuple(
        Annotated[
            world,
            tyro.conf.subcommand(
                name,
                default=world(solvable_only=solvable_only),
                description=f"{first_line(world.__doc__)} (More: elden info {name})",
            ),
        ]
        for name, world in WORLDS.items()
    )


def describe_options(world: World) -> str:
    """The options of a world that are not at their defaults, as one would write them."""
    words = []
    for option in fields(world):
        value = getattr(world, option.name)
        if value != option.default:
            flag = option.name.replace("_", "-")
            words.append(f"--{'' if value else 'no-'}{flag}" if isinstance(value, bool) else f"--{flag} {value}")
    return " ".join(words)
