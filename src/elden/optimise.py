"""A step of an optimiser that does nothing where the loss or its gradient is not finite."""

from typing import TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

Parameters = TypeVar("Parameters")


def tree_norm(tree: object) -> Float[Array, ""]:
    """Euclidean norm of all numbers of a tree."""
    return jnp.sqrt(sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)), start=jnp.zeros(())))


def finite_step(
    optimiser: optax.GradientTransformation,
    state: optax.OptState,
    parameters: Parameters,
    loss: Float[Array, ""],
    gradient: Parameters,
) -> tuple[Parameters, optax.OptState, Bool[Array, ""]]:
    """The parameters and the optimiser's state after a step, and whether one was made."""
    finite = jnp.isfinite(loss) & jnp.isfinite(tree_norm(gradient))
    with jax.numpy_dtype_promotion("standard"):  # Adam raises a float to a power of its integer count
        changes, following = optimiser.update(gradient, state, parameters)
    after = optax.apply_updates(parameters, changes), following
    parameters, state = jax.tree.map(lambda new, old: jnp.where(finite, new, old), after, (parameters, state))
    return parameters, state, finite
