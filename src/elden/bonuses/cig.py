"""Information gain of an ensemble over its noise, after CIG (Joseph et al. 2026) but for each step by itself."""

import math
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from elden.bonuses.beliefs import Noise, Outputs, components
from elden.bonuses.model_based import ChildSignal, Judged
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import log_probabilities


@dataclass(frozen=True)
class InformationGain(ChildSignal):
    """`½ log det(I + Cov_m(μ_m) / σ²)` for each child, with μ_m the prediction of member m and σ² the noise.

    It is the information about a normal variable with the members' covariance in one look at it through the noise.

    μ of a discrete variable is the vector of probabilities. Logits would not do: members that are all sure of the same
    value differ in them for ever. σ² is what the members themselves expect, their mean of `p (1 − p)`, plus `ridge²`:
    noise that they know to be noise has a small reward, however they differ about its odds. Of a continuous variable μ
    is the mean, and σ the recent error of the members, as for gates.

    The authors' *conditional* information gain is a log-determinant over the steps of a rollout: from what a step tells
    it takes off what the rollout's earlier steps have shown already. That is left out here.
    """

    name: ClassVar[str] = "cig"

    ridge: float = 0.1
    """What σ of a discrete variable is where members are sure."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.ridge) and self.ridge > 0):
            raise ValueError(f"ridge={self.ridge} given; it must be above 0")

    def rewards(self, layout: Layout, judged: Judged) -> Float[Array, "batch child 1"]:
        """Information about each child, over all of its variables together."""
        return information_gain(layout, judged.outputs, judged.noise, self.ridge).T[..., None]


def information_gain(layout: Layout, outputs: Outputs, noise: Noise, ridge: float) -> Float[Array, "child batch"]:
    """`½ log det(I + Cov_m(μ_m) / σ²)` in nats.

    Args:
        layout: What the arrays mean.
        outputs: What the members predict.
        noise: σ of continuous variables.
        ridge: What σ of a discrete variable is where members are sure.
    """
    means = outputs.astype(jnp.float32)
    variance = jnp.broadcast_to(jnp.square(jnp.asarray(noise, jnp.float32)), layout.slot_mask.shape)[..., None]
    if layout.discrete.any():
        p = jnp.exp(jax.vmap(lambda out: log_probabilities(layout, out))(means))
        expected = jnp.mean(jnp.sum(p * (1.0 - p), axis=3), axis=0) / components(layout)[..., None]
        means = jnp.where(layout.discrete[..., None, None], p, means)
        variance = jnp.where(layout.discrete[..., None], ridge**2 + expected, variance)
    apart = (means - jnp.mean(means, axis=0)) * jax.lax.rsqrt(variance)[:, :, None]
    apart = jnp.where(layout.target_mask[..., None], apart, 0.0)
    # det(I + DᵀD) = det(I + DDᵀ), and there are fewer members than values.
    return 0.5 * log_det_one_plus(jnp.einsum("mcsvb,ncsvb->mncb", apart, apart) / apart.shape[0])


def log_det_one_plus(gram: Float[Array, "member member *rest"]) -> Float[Array, "*rest"]:
    """`log det(I + G)` of positive semi-definite matrices, by elimination: there are as few rows as members.

    The pivots are the squares of the diagonal of the Cholesky factor. Not by `jnp.linalg`, whose library calls on CPUs
    can wait for each other's threads for ever when several run at the same time.
    """
    total = jnp.zeros(gram.shape[2:], gram.dtype)
    for _ in range(gram.shape[0]):
        above = gram[0, 0]
        total = total + jnp.log1p(above)
        gram = gram[1:, 1:] - gram[1:, None, 0] * gram[None, 0, 1:] / (1.0 + above)
    return total
