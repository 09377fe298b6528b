"""The environments: pure functions on frozen states, with the true local graph of every transition."""

from typing import TYPE_CHECKING

from elden.lazy import lazily

if TYPE_CHECKING:
    from elden.worlds.base import ImpossibleStateError, Transition, World, WorldOptionError, WorldState
    from elden.worlds.carwash import CarWash
    from elden.worlds.chain import Chain
    from elden.worlds.empty import Empty
    from elden.worlds.kitchen.twin import Kitchen
    from elden.worlds.minecraft import Minecraft
    from elden.worlds.registry import WORLDS, make
    from elden.worlds.thawing import Thawing

__all__ = [
    "WORLDS",
    "CarWash",
    "Chain",
    "Empty",
    "ImpossibleStateError",
    "Kitchen",
    "Minecraft",
    "Thawing",
    "Transition",
    "World",
    "WorldOptionError",
    "WorldState",
    "make",
]

_HOMES = {
    "CarWash": "elden.worlds.carwash",
    "Chain": "elden.worlds.chain",
    "Empty": "elden.worlds.empty",
    "ImpossibleStateError": "elden.worlds.base",
    "Kitchen": "elden.worlds.kitchen.twin",
    "Minecraft": "elden.worlds.minecraft",
    "Thawing": "elden.worlds.thawing",
    "Transition": "elden.worlds.base",
    "WORLDS": "elden.worlds.registry",
    "World": "elden.worlds.base",
    "WorldOptionError": "elden.worlds.base",
    "WorldState": "elden.worlds.base",
    "make": "elden.worlds.registry",
}
__getattr__, __dir__ = lazily(__name__, _HOMES)
