"""What the networks' outputs say of a next state, and how that changes with the inputs.

For a discrete variable `p̂` is categorical; for a continuous one it is normal with mean `s + out` and variance 1 in each
component. A child that is an entity is the product of its variables.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from elden.dynamics.config import DerivativeOf
from elden.dynamics.layout import Layout
from elden.dynamics.network import UNCHANGED, Modulation, Network, Output, first_layer, input_features, predict
from elden.dynamics.products import transpose_times
from elden.pytree import pytree

_LOG_NORM = 0.5 * math.log(2 * math.pi)
_NEVER = -1e30  # a logit of padding; finite, so that 0 times its logarithm stays 0


@pytree()
@dataclass(frozen=True)
class Batch:
    """Transitions as the networks read them.

    Attributes:
        inputs: Encoded state and action.
        target: Encoded next state.
        current: The current state, encoded like the target.
    """

    inputs: Float[Array, "*stack input entry batch"]
    target: Float[Array, "*stack child slot value batch"]
    current: Float[Array, "*stack child slot value batch"]


def encode(layout: Layout, obs: Array, action: Array, next_obs: Array) -> Batch:
    """Transitions `[batch, …]` as the networks read them."""
    return Batch(layout.encode(obs, action), layout.target(next_obs), layout.target(obs))


def slot_log_likelihood(
    layout: Layout, out: Float[Array, "child slot value batch"], batch: Batch
) -> Float[Array, "child slot batch"]:
    """`log p̂` of each variable's target; 0 for padding. Soft targets give the expectation under them."""
    parts = []
    if layout.discrete.any():
        logits = log_probabilities(layout, out)
        parts.append((layout.discrete, jnp.sum(batch.target * logits, axis=2)))
    continuous = layout.slot_mask & ~layout.discrete
    if continuous.any():
        error = jnp.where(layout.target_mask[..., None], batch.target - batch.current - out, 0.0)
        components = layout.target_mask.sum(-1)[..., None].astype("float32")
        parts.append((continuous, -0.5 * jnp.sum(error**2, axis=2) - _LOG_NORM * components))
    return sum((jnp.where(where[..., None], part, 0.0) for where, part in parts), start=jnp.zeros(()))


def log_probabilities(
    layout: Layout, out: Float[Array, "child slot value batch"]
) -> Float[Array, "child slot value batch"]:
    """Logarithms of the categorical probabilities; meaningless where a slot is continuous."""
    masked = jnp.where(layout.target_mask[..., None], out, _NEVER)
    shifted = masked - jax.lax.stop_gradient(jnp.max(masked, axis=2, keepdims=True))
    return shifted - jnp.log(jnp.sum(jnp.exp(shifted), axis=2, keepdims=True))


def log_likelihood(
    layout: Layout, out: Float[Array, "child slot value batch"], batch: Batch
) -> Float[Array, "child batch"]:
    """`log p̂(s'_j)` of every child."""
    return jnp.sum(slot_log_likelihood(layout, out, batch), axis=1)


def forward(
    layout: Layout,
    net: Network,
    inputs: Float[Array, "input entry batch"],
    modulation: Modulation = UNCHANGED,
) -> Output:
    """The predictions for these inputs."""
    return predict(layout, net, input_features(layout, net, first_layer(net, inputs)), modulation)


Modulate: TypeAlias = Callable[[Float[Array, "child feature input batch"]], tuple[Modulation, Float[Array, ""]]]
"""From the features of the inputs to what is done to the network, and what that costs in the loss."""


def likelihood_and_derivative(
    layout: Layout, net: Network, batch: Batch, of: DerivativeOf
) -> tuple[Float[Array, "child batch"], Float[Array, "input child entry batch"]]:
    """`log p̂(s'_j)` and its derivative (or that of `p̂`) with respect to every input entry."""
    log_p, derivative, _ = slots_and_derivative(layout, net, batch, of, _unchanged)
    return jnp.sum(log_p, axis=1), derivative


def slots_and_derivative(
    layout: Layout, net: Network, batch: Batch, of: DerivativeOf, modulate: Modulate
) -> tuple[Float[Array, "child slot batch"], Float[Array, "input child entry batch"], Float[Array, ""]]:
    """`log p̂` of each variable, the derivatives of their products `p̂(s'_j)`, and what the modulation costs.

    One backward pass serves all children: each has its own part of the first layer's result, so the derivative of the
    sum of all `log p̂(s'_j)` with respect to that result holds every child's derivative apart. A continuous variable
    also counts as the value that the predicted change is added to.
    """

    def total(
        hidden: Float[Array, "input hidden batch"], current: Float[Array, "child slot value batch"]
    ) -> tuple[Float[Array, ""], tuple[Float[Array, "child slot batch"], Float[Array, ""]]]:
        features = input_features(layout, net, hidden)
        modulation, cost = modulate(features)
        out = predict(layout, net, features, modulation).out
        slots = slot_log_likelihood(layout, out, replace(batch, current=current))
        log_p = jnp.sum(slots, axis=1)
        return jnp.sum(jnp.exp(log_p) if of == "probability" else log_p), (slots, cost)

    (slope, own), (log_p, cost) = jax.grad(total, (0, 1), has_aux=True)(first_layer(net, batch.inputs), batch.current)
    shape = (layout.num_inputs, layout.num_children, layout.network.features[0], slope.shape[-1])
    weight = net.first.weight.reshape(*shape[:3], layout.input_entries)
    derivative = transpose_times(weight, slope.reshape(shape))
    row, entry, child, slot, value = layout.own_components
    if row.size:
        own = own[child, slot, value].astype(derivative.dtype)
        derivative = derivative.at[row, child, entry].add(own, unique_indices=True)
    return log_p, derivative, cost


def _unchanged(features: Float[Array, "child feature input batch"]) -> tuple[Modulation, Float[Array, ""]]:
    return UNCHANGED, jnp.zeros(())


def slot_errors(layout: Layout, log_p: Float[Array, "child slot batch"]) -> Float[Array, "child slot batch"]:
    """Prediction error of each variable from its `log p̂`; 0 for padding.

    It is `1 − p̂` of a discrete variable, and the squared error (summed over components) of a continuous one.
    """
    components = layout.target_mask.sum(-1)[..., None].astype("float32")
    squared = jnp.maximum(-2.0 * (log_p + _LOG_NORM * components), 0.0)
    errors = jnp.where(layout.discrete[..., None], 1.0 - jnp.exp(log_p), squared)
    return jnp.where(layout.slot_mask[..., None], errors, 0.0)
