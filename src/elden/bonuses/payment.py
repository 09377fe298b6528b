"""How amounts become rewards: everything at every step, or each item once in an episode."""

from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from elden.pytree import pytree

Paid = Bool[Array, "env item"]

_Tree = TypeVar("_Tree")


@runtime_checkable
class Episodic(Protocol):
    """A part of a bonus's state that remembers the episodes under way."""

    def forget(self) -> "Episodic":
        """The same when all environments begin new episodes."""


def forget_episodes(state: _Tree) -> _Tree:
    """The state of a bonus, whichever, when all environments begin new episodes: nothing has been paid in them."""

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
            seen: Paid, now: tuple[Bool[Array, "env item"], Bool[Array, " env"]]
        ) -> tuple[Paid, Bool[Array, "env item"]]:
            bit, ended = now
            return (seen | bit) & ~ended[:, None], bit & ~seen

        seen, first = jax.lax.scan(step, self.seen, (bits, done))
        return Episodes(seen), first


def pay(
    amounts: Float[Array, "time env item"], done: Bool[Array, "time env"], paid: Paid, once: bool
) -> tuple[Paid, Float[Array, "time env"]]:
    """Mean amount over the items of each step.

    Args:
        amounts: What each item (an edge, a child) of each step is worth.
        done: Whether the step was the last one of its episode.
        paid: Which items were worth something earlier in the episode.
        once: Whether an item counts only in the first step of an episode in which it is worth something.

    Returns:
        What was paid by the end, and the rewards.
    """
    if not once:
        return paid, jnp.mean(amounts, axis=-1)

    def step(
        paid: Paid, now: tuple[Float[Array, "env item"], Bool[Array, " env"]]
    ) -> tuple[Paid, Float[Array, " env"]]:
        amount, ended = now
        reward = jnp.mean(jnp.where(paid, 0.0, amount), axis=-1)
        return (paid | (amount > 0)) & ~ended[:, None], reward

    return jax.lax.scan(step, paid, (amounts, done))
