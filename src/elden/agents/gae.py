"""Generalised advantage estimation (Schulman et al. 2016), with the two ends of an episode told apart."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def advantages(
    rewards: Float[Array, "time *env"],
    values: Float[Array, "time *env"],
    next_values: Float[Array, "time *env"],
    terminated: Bool[Array, "time *env"],
    done: Bool[Array, "time *env"],
    discount: float,
    gae: float,
) -> Float[Array, "time *env"]:
    """`A_t = δ_t + γλ (1 − done_t) A_{t+1}` with `δ_t = r_t + γ (1 − terminated_t) V(s'_t) − V(s_t)`.

    Nothing follows a state that terminates an episode, so its value counts as 0. An episode that is only cut off
    (truncated, or by the end of the rollout) goes on in principle: there the value of the true next state stands for
    the rest, but no advantage is carried over from the next episode.

    Args:
        rewards: Reward of each step.
        values: Value of the state before each step.
        next_values: Value of the true state after each step, also where a new episode then begins.
        terminated: The task ended by this step.
        done: The episode ended by this step, for whatever reason.
        discount: γ.
        gae: λ.
    """
    follows = discount * jnp.where(terminated, 0.0, next_values)
    errors = rewards + follows - values

    def back(
        after: Float[Array, "*env"], step: tuple[Float[Array, "*env"], Bool[Array, "*env"]]
    ) -> tuple[Float[Array, "*env"], Float[Array, "*env"]]:
        error, ended = step
        advantage = error + discount * gae * jnp.where(ended, 0.0, after)
        return advantage, advantage

    _, result = jax.lax.scan(back, jnp.zeros_like(errors[0]), (errors, done), reverse=True)
    return result
