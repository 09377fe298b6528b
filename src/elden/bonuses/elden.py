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
from elden.graphs.intervention import moved
from elden.graphs.thresholds import automatic_cut


@dataclass(frozen=True)
class Dependencies:
    """Variance over the members of each edge of their thresholded local graphs."""

    name: ClassVar[str] = "elden"

    detector: Detector = Gradient()  # noqa: RUF009 (frozen)
    """What reads a graph out of a member."""
    automatic: bool = False
    """Whether the threshold is set with every update from recent steps, by the detector's own rule."""

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
        """The threshold that the detector's own rule finds for the members' mean scores of these steps."""
        if not self.automatic:
            return None
        scores = jnp.mean(_scores(self.detector, layout, models, batch, reference), axis=0)
        changed = moved(layout, batch, reference).T > 0
        rule, mask = self.detector.threshold_rule, other_edges(layout, self.detector)
        return jnp.asarray(automatic_cut(scores, changed, mask, rule), jnp.float32)


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


def other_edges(layout: Layout, detector: Detector) -> Bool[np.ndarray, "child src"]:
    """Which edges do not come from the child itself, or from a part of it, or from what it is a part of."""
    variables = range(layout.factors.num_variables)
    by_entity = detector.sources(layout) == "entity"
    source_of = [layout.factors.entity_of[i] if by_entity else i for i in variables]
    other = np.ones((layout.num_children, max(source_of) + 2), np.bool_)
    for variable in variables:
        other[layout.child_of[variable][0], source_of[variable]] = False
    return other
