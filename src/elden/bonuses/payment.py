"""How amounts become rewards: everything at every step, or each item once in an episode."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Paid = Bool[Array, "env item"]


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
