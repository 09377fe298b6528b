"""Causal action influence (Seitzer et al. 2021): how much the action had to do with what happened."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from elden.bonuses.model_based import ChildSignal, Judged
from elden.dynamics.layout import Layout
from elden.dynamics.variants import Variant
from elden.graphs.pcmi import DropInputs, influence


@dataclass(frozen=True)
class ActionInfluence(ChildSignal):
    """`log p(s'_j | s, a) − log p(s'_j | s)` for each child, by networks that can do without the action."""

    name: ClassVar[str] = "cai"

    @property
    def variant(self) -> Variant:
        """Networks that can do without any one input."""
        return DropInputs()

    def rewards(self, layout: Layout, judged: Judged) -> Float[Array, "batch child 1"]:
        """Mean influence over the members."""
        action = jnp.array([layout.num_inputs - 1], jnp.int32)
        scores = jax.vmap(lambda model: influence(layout, model, judged.batch, action))(judged.models)
        return jnp.mean(scores, axis=0)
