"""How much memory a training run needs, before anything is compiled, and what would fit."""

import os
from dataclasses import dataclass
from typing import Any

import jax
from jaxtyping import Array, Key

from elden.training.algorithm import Loop

_STATES = 2
"""An iteration makes a new state from the old one."""
_ROLLOUTS = 4
"""A rollout is there as steps, as what the bonus and the models read of it, and in the agent's order."""
_GIB = 2**30


@dataclass(frozen=True)
class MemoryNeed:
    """What a training run keeps in memory, in bytes, for all seeds.

    Attributes:
        state: Everything that goes from one iteration to the next.
        replay: The part of it that models learn from again.
        rollout: The steps of one rollout.
        seeds: How many seeds there are.
    """

    state: int
    replay: int
    rollout: int
    seeds: int

    @property
    def whole(self) -> int:
        """A forecast of what an iteration needs."""
        return _STATES * self.state + _ROLLOUTS * self.rollout

    def advice(self, there: int | None) -> str:
        """What is needed, in a line, and what would fit into so many bytes.

        Args:
            there: The memory of the device; None where nobody knows.
        """
        parts = {
            "replay (--bonus.ensemble.capacity)": _STATES * self.replay,
            "rollouts (--envs, --loop.rollout)": _ROLLOUTS * self.rollout,
            "networks and environments (--ppo.hidden, --envs)": _STATES * (self.state - self.replay),
        }
        what = max(parts, key=lambda name: parts[name])
        most = f"{parts[what] / _GIB:.3g} GiB for {what}"
        words = f"about {self.whole / _GIB:.3g} GiB are needed for {self.seeds} seeds, {most}"
        if there is None:
            return words
        seeds = there * self.seeds // max(1, self.whole)
        words = f"{words}, and {there / _GIB:.3g} GiB are there"
        if seeds >= self.seeds:
            return (
                f"{words}: so other programs use the memory, or models read too many transitions at a time; try fewer"
                " --seeds, or a smaller --bonus.ensemble.chunk"
            )
        return (
            f"{words}: --seeds {seeds} would fit"
            if seeds
            else f"{words}: not even one seed would fit, so make that smaller"
        )


def memory_need(loop: Loop[Any], keys: Key[Array, " seed"]) -> MemoryNeed:
    """What a training run keeps, from the shapes of its state; nothing is computed.

    Args:
        loop: The training's loop.
        keys: A random key for each agent.
    """
    paths: list[tuple[Any, ...]] = []

    def leaves(keys: Key[Array, " seed"]) -> list[Array]:
        found = jax.tree.leaves_with_path(loop.init(keys))
        paths.extend(path for path, _ in found)
        return [leaf for _, leaf in found]

    # Leaves rather than trees, because checked dataclasses refuse descriptions of arrays.
    state, replay = 0, 0
    shapes = jax.eval_shape(leaves, keys)
    for path, leaf in zip(paths, shapes, strict=True):
        size = leaf.size * getattr(leaf.dtype, "itemsize", 8)
        state += size
        replay += size if {"ring", "priorities"} & {getattr(key, "name", None) for key in path} else 0
    steps = keys.shape[0] * loop.config.steps_per_iteration
    width = loop.world.factors.width
    return MemoryNeed(state, replay, steps * (8 * width + 64), keys.shape[0])


def memory_there() -> int | None:
    """The memory of the device in bytes; None where nobody knows."""
    known = jax.local_devices()[0].memory_stats()
    if known and "bytes_limit" in known:
        return int(known["bytes_limit"])
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return None
