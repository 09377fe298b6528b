"""ELDEN's bonus: disagreement of an ensemble about which edges the local graph has (paper, Algorithm 1).

    r = β / |edges| · Σ_ij Var_m[ 1(score_m(i → j) ≥ ε) ]

with the variance over members (divisor M − 1) and all edges counted, own ones and those from the action included.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from elden.bonuses.model_based import Judged, Told
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import Batch
from elden.dynamics.training import Model
from elden.dynamics.variants import Variant
from elden.graphs.base import Detector, Reference
from elden.graphs.gradient import Gradient
from elden.graphs.thresholds import change_cut


@dataclass(frozen=True)
class Dependencies:
    """Variance over the members of each edge of their thresholded local graphs."""

    name: ClassVar[str] = "elden"

    detector: Detector = Gradient()  # noqa: RUF009 (frozen)
    """What reads a graph out of a member."""
    automatic: bool = False
    """Whether the threshold is set anew with every update, from what recent steps changed."""

    @property
    def variant(self) -> Variant:
        """That of the detector."""
        return self.detector.variant

    def items(self, layout: Layout) -> int:
        """One for each source of an edge."""
        entities = self.detector.sources(layout) == "entity"
        return (layout.factors.num_entities if entities else layout.factors.num_variables) + 1

    def graphs(self, layout: Layout, judged: Judged) -> Float[Array, "member batch child src"]:
        """Each member's graph, as zeros and ones."""
        scores = _scores(self.detector, layout, judged.models, judged.batch, judged.reference)
        return (scores >= judged.threshold).astype(jnp.float32)

    def amounts(self, graphs: Float[Array, "member batch child src"]) -> Float[Array, "batch child src"]:
        """The variance of each edge."""
        return jnp.var(graphs, axis=0, ddof=1)

    def judge(self, layout: Layout, judged: Judged) -> tuple[Float[Array, "batch child src"], Told]:
        """What each edge is worth, and the share of all members' edges that are there."""
        graphs = self.graphs(layout, judged)
        return self.amounts(graphs), {"graph/density": jnp.mean(graphs, axis=(0, 2, 3))}

    def threshold(self, layout: Layout, models: Model, batch: Batch, reference: Reference) -> Float[Array, ""] | None:
        """The threshold at which the members' mean scores say best what changed."""
        if not self.automatic:
            return None
        scores = jnp.mean(_scores(self.detector, layout, models, batch, reference), axis=0)
        return jnp.asarray(change_cut(scores, _changed(layout, batch, reference), other_edges(layout, self.detector)))


@dataclass(frozen=True)
class Consensus(Dependencies):
    """The share of members whose local graph has each edge."""

    name: ClassVar[str] = "consensus"

    def amounts(self, graphs: Float[Array, "member batch child src"]) -> Float[Array, "batch child src"]:
        """Means over members."""
        return jnp.mean(graphs, axis=0)


def _scores(
    detector: Detector, layout: Layout, models: Model, batch: Batch, reference: Reference
) -> Float[Array, "member batch child src"]:
    scores = jax.vmap(lambda model: detector.scores(layout, model, batch, reference))(models)
    return scores.astype(jnp.float32)


def _changed(layout: Layout, batch: Batch, reference: Reference) -> Bool[Array, "batch child"]:
    """Whether the entity of each child changed in each step: a continuous variable by more than counts as still."""
    distance = jnp.sqrt(jnp.sum((batch.target - batch.current) ** 2, axis=2))
    moved = jnp.any(distance > reference.still[..., None], axis=1)
    entity = np.zeros(layout.num_children, np.int32)
    for variable, owner in enumerate(layout.factors.entity_of):
        entity[layout.child_of[variable][0]] = owner
    together = entity[:, None] == entity
    return jnp.any(together[..., None] & moved, axis=1).T


def other_edges(layout: Layout, detector: Detector) -> Bool[np.ndarray, "child src"]:
    """Which edges do not come from the child itself, or from a part of it, or from what it is a part of."""
    variables = range(layout.factors.num_variables)
    by_entity = detector.sources(layout) == "entity"
    source_of = [layout.factors.entity_of[i] if by_entity else i for i in variables]
    other = np.ones((layout.num_children, max(source_of) + 2), np.bool_)
    for variable in variables:
        other[layout.child_of[variable][0], source_of[variable]] = False
    return other
