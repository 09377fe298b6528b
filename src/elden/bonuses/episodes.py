"""What a bonus remembers of the episodes under way, so that things can count once in each."""

from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from elden.bonuses.base import Metrics
from elden.pytree import pytree

_Tree = TypeVar("_Tree")


@runtime_checkable
class Episodic(Protocol):
    """A part of a bonus's state that remembers the episodes under way."""

    def forget(self) -> "Episodic":
        """The same when all environments begin new episodes."""


def forget_episodes(state: _Tree) -> _Tree:
    """The state of a bonus, whichever, when all environments begin new episodes."""

    def forget(part: object) -> object:
        return part.forget() if isinstance(part, Episodic) else part

    forgotten: _Tree = jax.tree.map(forget, state, is_leaf=lambda part: isinstance(part, Episodic))
    return forgotten


@pytree()
@dataclass(frozen=True)
class Episodes:
    """What a bonus remembers of the episodes under way: which items each environment has seen in its own."""

    seen: Bool[Array, "*run env item"]

    @classmethod
    def init(cls, num_envs: int, items: int) -> "Episodes":
        """Nothing seen."""
        return cls(jnp.zeros((num_envs, items), jnp.bool_))

    def forget(self) -> "Episodes":
        """Nothing seen."""
        return Episodes(jnp.zeros_like(self.seen))

    def first(
        self, bits: Bool[Array, "time env item"], done: Bool[Array, "time env"]
    ) -> tuple["Episodes", Bool[Array, "time env item"]]:
        """The memory after these steps, and which of the bits are the first of theirs in an episode.

        Args:
            bits: What happened in each step.
            done: Whether the step was the last one of its episode.
        """

        def step(
            seen: Bool[Array, "env item"], now: tuple[Bool[Array, "env item"], Bool[Array, " env"]]
        ) -> tuple[Bool[Array, "env item"], Bool[Array, "env item"]]:
            bit, ended = now
            return (seen | bit) & ~ended[:, None], bit & ~seen

        seen, first = jax.lax.scan(step, self.seen, (bits, done))
        return Episodes(seen), first


def reward_of_items(
    items: Float[Array, "time env item"], done: Bool[Array, "time env"], episodes: Episodes, once: bool
) -> tuple[Episodes, Float[Array, "time env"], Metrics]:
    """The mean over the items of each step, and what is logged of it.

    Args:
        items: The intrinsic reward of each item (an edge, a child, a question), none of them negative with `once`.
        done: Whether the step was the last one of its episode.
        episodes: Which items were rewarded earlier in the episodes under way.
        once: Whether an item counts only in the first step of an episode in which its reward is above 0.
    """
    if once:
        episodes, first = episodes.first(items > 0, done)
        items = jnp.where(first, items, 0.0)
    rewards = jnp.mean(items, axis=-1)
    share = jnp.mean((rewards > 0).astype(jnp.float32))
    return episodes, rewards, {"bonus/mean": jnp.mean(rewards), "bonus/rewarded_steps": share}
