"""Mixup: examples between two examples, which make one-hot inputs continuous (Zhang et al. 2017)."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from elden.dynamics.likelihood import Batch

_STEPS = 4096


def mixup_table(parameter: float) -> Float[Array, " quantile"]:
    """Quantiles of Beta(parameter, parameter), from which `mixup_coefficients` draws; all 1 where it is 0 (no mixup).

    A table because rejection sampling of Beta variables is a loop, which costs more than an update on a GPU.
    """
    if parameter < 0:
        raise ValueError(f"mixup={parameter} given; the parameter of a Beta distribution is above 0, and 0 is no mixup")
    if parameter == 0:
        return jnp.ones(_STEPS, jnp.float32)
    from scipy.special import betaincinv  # takes long to load

    middle = (np.arange(_STEPS) + 0.5) / _STEPS
    return jnp.asarray(betaincinv(parameter, parameter, middle), jnp.float32)


def mixup_coefficients(table: Float[Array, " quantile"], uniform: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Coefficients for numbers that are uniform in [0, 1)."""
    return table[(uniform * table.shape[0]).astype(jnp.int32)]


def mix(batch: Batch, coefficients: Float[Array, " batch"]) -> Batch:
    """Each example mixed with the one before it: inputs and targets alike.

    Batches are drawn independently, so the example before is as good as one from a random permutation.
    """

    def blend(x: Float[Array, "*axes batch"]) -> Float[Array, "*axes batch"]:
        return coefficients * x + (1.0 - coefficients) * jnp.roll(x, 1, axis=-1)

    return replace(batch, inputs=blend(batch.inputs), target=blend(batch.target), current=blend(batch.current))
