"""Causal action influence (Seitzer et al. 2021): how much the action had to do with what happened."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from elden.bonuses.model_based import Judged
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import Batch
from elden.dynamics.training import Model
from elden.dynamics.variants import Variant
from elden.graphs.base import Reference
from elden.graphs.pcmi import DropInputs, influence


@dataclass(frozen=True)
class ActionInfluence:
    """`log p(s'_j | s, a) − log p(s'_j | s)` for each child, by networks that can do without the action."""

    name: ClassVar[str] = "cai"

    @property
    def variant(self) -> Variant:
        """Networks that can do without any one input."""
        return DropInputs()

    def items(self, layout: Layout) -> int:
        """The child itself."""
        return 1

    def amounts(self, layout: Layout, judged: Judged) -> Float[Array, "batch child 1"]:
        """Mean influence over the members."""
        action = jnp.array([layout.num_inputs - 1], jnp.int32)
        scores = jax.vmap(lambda model: influence(layout, model, judged.batch, action))(judged.models)
        return jnp.mean(scores, axis=0)

    def threshold(self, layout: Layout, models: Model, batch: Batch, reference: Reference) -> None:
        """None: there are no edges."""
