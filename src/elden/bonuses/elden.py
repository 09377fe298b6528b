"""ELDEN's bonus: disagreement of an ensemble about which edges the local graph has (paper, Algorithm 1).

    r = β / |edges| · Σ_ij Var_m[ 1(score_m(i → j) ≥ ε) ]

with the variance over members (divisor M − 1) and all edges counted, self-edges and those from the action included.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from elden.bonuses.model_based import Judged, StepMetrics
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import Batch
from elden.dynamics.training import Model
from elden.dynamics.variants import Variant
from elden.graphs.base import Detector, Reference
from elden.graphs.gradient import Gradient
from elden.graphs.reader import Reader


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
        return Reader(layout, self.detector).num_sources

    def rewards(self, graphs: Float[Array, "member batch child src"]) -> Float[Array, "batch child src"]:
        """The variance of each edge."""
        return jnp.var(graphs, axis=0, ddof=1)

    def judge(self, layout: Layout, judged: Judged) -> tuple[Float[Array, "batch child src"], StepMetrics]:
        """The reward of each edge, and the share of all members' edges that are there."""
        reader = Reader(layout, self.detector)
        graphs = reader.graphs(judged.models, judged.batch, judged.reference, judged.threshold).astype(jnp.float32)
        return self.rewards(graphs), {"graph/density": jnp.mean(graphs, axis=(0, 2, 3))}

    def threshold(self, layout: Layout, models: Model, batch: Batch, reference: Reference) -> Float[Array, ""] | None:
        """The automatic threshold for these steps, if it is asked for."""
        return Reader(layout, self.detector).threshold(models, batch, reference) if self.automatic else None


@dataclass(frozen=True)
class Consensus(Dependencies):
    """The share of members whose local graph has each edge."""

    name: ClassVar[str] = "consensus"

    def rewards(self, graphs: Float[Array, "member batch child src"]) -> Float[Array, "batch child src"]:
        """Means over members."""
        return jnp.mean(graphs, axis=0)
