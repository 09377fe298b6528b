"""ELDEN's own detector: partial derivatives of the predicted probability (paper, section "Identifying Local …")."""

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Float

from elden.dynamics.config import DerivativeOf
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import Batch, likelihood_and_derivative
from elden.dynamics.training import Model
from elden.dynamics.variants import Plain, Variant
from elden.factors import Granularity
from elden.graphs.base import Reference
from elden.graphs.thresholds import Rule

Entries: TypeAlias = Literal["active", "norm"]


@dataclass(frozen=True)
class Gradient:
    """`|∂ p̂(s'_j) / ∂ s_i|` for the observed `s'_j`, all edges by one backward pass.

    A discrete `s_i` is a one-hot block with a derivative for each of its values. `entries="active"` takes the one of
    the value that it has; `"norm"` takes the Euclidean norm of all of them. A continuous `s_i` counts by the sum of
    its components' absolute derivatives, or by their norm. `of` chooses the derivative of `log p̂` or of `p̂`.
    """

    name: ClassVar[str] = "gradient"
    penalised: ClassVar[bool] = True
    threshold_rule: ClassVar[Rule] = "change"

    of: DerivativeOf = "log-probability"
    """Whose derivative is taken."""
    entries: Entries = "active"
    """Which of a one-hot block's derivatives count."""

    @property
    def variant(self) -> Variant:
        """The network as it is."""
        return Plain()

    def sources(self, layout: Layout) -> Granularity:
        """Variables, whatever the inputs are."""
        return "variable"

    def scores(self, layout: Layout, model: Model, batch: Batch, reference: Reference) -> Float[Array, "batch dst src"]:
        """Scores of all edges for one model."""
        _, derivative = likelihood_and_derivative(layout, model.net, batch, self.of)
        if self.entries == "norm":
            return jnp.sqrt(by_source(layout, derivative**2))
        continuous = layout.input_continuous[:, None, :, None]
        active = jnp.where(continuous, 1.0, batch.inputs[:, None])
        return by_source(layout, jnp.abs(derivative) * active)


def by_source(layout: Layout, values: Float[Array, "input child entry batch"]) -> Float[Array, "batch child src"]:
    """Sums over each source's entries."""
    sums = [jnp.sum(values[row, :, first : first + size], axis=1) for row, first, size in layout.source_entries]
    return jnp.transpose(jnp.stack(sums), (2, 1, 0))
