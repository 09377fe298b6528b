"""The environments: pure functions on frozen states, with the true local graph of every transition."""

from elden.worlds.base import ImpossibleStateError, Transition, World, WorldOptionError, WorldState
from elden.worlds.carwash import CarWash
from elden.worlds.chain import Chain
from elden.worlds.empty import Empty
from elden.worlds.kitchen import Kitchen
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
