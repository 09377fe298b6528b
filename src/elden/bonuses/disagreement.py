"""Disagreement of an ensemble about what happens next (Pathak et al. 2019)."""

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from jaxtyping import Array, Float

from elden.bonuses import beliefs
from elden.bonuses.model_based import Judged
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import Batch
from elden.dynamics.training import Model
from elden.dynamics.variants import Plain, Variant
from elden.graphs.base import Reference

Measure: TypeAlias = Literal["votes", "information"]


@dataclass(frozen=True)
class Disagreement:
    """How much the members' predictions of each child differ."""

    name: ClassVar[str] = "disagreement"

    measure: Measure = "votes"
    """Entropy of the members' votes (variance of their means), as in the authors' programs; or mutual information."""

    @property
    def variant(self) -> Variant:
        """The network as it is."""
        return Plain()

    def items(self, layout: Layout) -> int:
        """The child itself."""
        return 1

    def amounts(self, layout: Layout, judged: Judged) -> Float[Array, "batch child 1"]:
        """Disagreement about each child."""
        of = beliefs.information if self.measure == "information" else beliefs.disagreement
        return of(layout, judged.outputs).T[..., None]

    def threshold(self, layout: Layout, models: Model, batch: Batch, reference: Reference) -> None:
        """None: there are no edges."""
