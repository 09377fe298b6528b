"""The worlds and profiles that the suite goes through, made once and compiled once."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Bool, Int, Key

import elden
from elden.worlds.base import Transition, World, WorldState

CASES: dict[str, tuple[str, dict[str, str | int | bool]]] = {
    "thawing": ("thawing", {}),
    "thawing-path": ("thawing", {"goto": "path"}),
    "thawing-primitives": ("thawing", {"profile": "primitives"}),
    "carwash": ("carwash", {}),
    "carwash-path": ("carwash", {"goto": "path"}),
    "carwash-lag0": ("carwash", {"car_clean_lag": 0}),
    "carwash-primitives": ("carwash", {"profile": "primitives"}),
    "minecraft": ("minecraft", {}),
    "minecraft-path": ("minecraft", {"goto": "path"}),
    "minecraft-primitives": ("minecraft", {"profile": "primitives"}),
    "kitchen": ("kitchen", {}),
    "empty": ("empty", {}),
    "chain": ("chain", {}),
    "chain-continuous": ("chain", {"continuous": True}),
}

Step = Callable[[Key[Array, ""], WorldState, Int[Array, " env"]], tuple[WorldState, Transition]]


def world_of(case: str, **options: str | int | bool) -> World:
    """The world of a case, with further options."""
    name, own = CASES[case]
    return elden.make(name, **{**own, **options})


LONG = {case: 300 if case.startswith(("carwash", "minecraft")) else 100 for case in CASES if "primitives" in case}
"""Horizons for walking: the paper's are made for skills."""


def long_world_of(case: str) -> World:
    """The world of a case with a horizon in which its script gets to the end of its tour."""
    return world_of(case, **({"max_steps": LONG[case]} if case in LONG else {}))


LONGEST = (
    "thawing",
    "thawing-path",
    "thawing-primitives",
    "carwash-path",
    "carwash-lag0",
    "carwash-primitives",
    "minecraft",
    "minecraft-path",
    "minecraft-primitives",
    "kitchen",
)


def some_slow(names: Iterable[str], slow: Collection[str]) -> list[Any]:
    """Names to parametrise by, some of them for slow tests only."""
    return [pytest.param(name, marks=pytest.mark.slow) if name in slow else name for name in names]


SIMILAR = (
    "thawing-path",
    "thawing-primitives",
    "carwash-path",
    "carwash-lag0",
    "minecraft-path",
    "minecraft-primitives",
)
"""Cases that share nearly all rules with another one."""

PLAYED = some_slow(CASES, LONGEST)
"""All cases for tests that play long; those that take longest are slow ones."""

NUM_ENVS = 16
"""One number of environments for all, so that one compilation serves all."""

TRACES: Counter[tuple[str, World]] = Counter()
"""How often each of the functions below was traced."""


@lru_cache
def reset_many(world: World) -> Callable[[Key[Array, ""]], WorldState]:
    """Compiled `reset_many`."""

    def reset(key: Key[Array, ""]) -> WorldState:
        TRACES["reset", world] += 1
        return world.reset_many(key, NUM_ENVS)

    return jax.jit(reset)


@lru_cache
def step_many(world: World) -> Step:
    """Compiled `step_many`."""

    def step(key: Key[Array, ""], states: WorldState, actions: Int[Array, " env"]) -> tuple[WorldState, Transition]:
        TRACES["step", world] += 1
        return world.step_many(key, states, actions)

    return jax.jit(step)


@lru_cache
def legal_many(world: World) -> Callable[[WorldState], Bool[Array, " env"]]:
    """Compiled `legal`, for many states."""
    return jax.jit(jax.vmap(world.legal))


def random_actions(world: World, key: Key[Array, ""], num_envs: int = NUM_ENVS) -> Int[Array, " env"]:
    """Uniform actions."""
    return jax.random.randint(key, (num_envs,), 0, world.num_actions, jnp.int32)


def assert_equal(got: object, expected: object) -> None:
    """Two trees hold the same arrays, bit for bit."""
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b)


def one(states: WorldState, index: int) -> WorldState:
    """One state of many."""
    picked: WorldState = jax.tree.map(lambda leaf: leaf[index], states)
    return picked
