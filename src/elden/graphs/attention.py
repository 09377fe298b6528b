"""Attention as evidence: how much of an input reaches the prediction through both layers (paper, baseline "Attn")."""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import Batch, forward
from elden.dynamics.network import Output
from elden.dynamics.training import Model
from elden.dynamics.variants import Plain, Variant
from elden.factors import Granularity
from elden.graphs.base import Reference
from elden.graphs.thresholds import Rule


@dataclass(frozen=True)
class Attention:
    """`Σ_k c(g^i, h^k) · c(h^k, s'_j)`, with `c` the attention averaged over heads."""

    name: ClassVar[str] = "attention"
    penalised: ClassVar[bool] = False
    threshold_rule: ClassVar[Rule] = "change"

    @property
    def variant(self) -> Variant:
        """The network as it is."""
        return Plain()

    def sources(self, layout: Layout) -> Granularity:
        """The network's inputs."""
        return layout.network.inputs

    def scores(self, layout: Layout, model: Model, batch: Batch, reference: Reference) -> Float[Array, "batch dst src"]:
        """Scores of all edges for one model."""
        return composed(forward(layout, model.net, batch.inputs))


def composed(output: Output) -> Float[Array, "batch child src"]:
    """Both layers' attention multiplied along all ways from an input to the prediction."""
    mix, read = jnp.mean(output.mix, axis=1), jnp.mean(output.read, axis=1)
    return jnp.transpose(jnp.sum(read[:, :, None] * mix, axis=1), (2, 0, 1))
