"""Disagreement of an ensemble about what happens next (Pathak et al. 2019)."""

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from jaxtyping import Array, Float

from elden.bonuses import beliefs
from elden.bonuses.model_based import ChildSignal, Judged
from elden.dynamics.layout import Layout

Measure: TypeAlias = Literal["votes", "information"]


@dataclass(frozen=True)
class Disagreement(ChildSignal):
    """How much the members' predictions of each child differ."""

    name: ClassVar[str] = "disagreement"

    measure: Measure = "votes"
    """Entropy of the members' votes (variance of their means), as in the authors' programs; or mutual information."""

    def rewards(self, layout: Layout, judged: Judged) -> Float[Array, "batch child 1"]:
        """Disagreement about each child."""
        if self.measure == "information":  # seen through the same noise as by the gate of that name
            return beliefs.information(layout, judged.outputs, judged.noise).T[..., None]
        return beliefs.disagreement(layout, judged.outputs).T[..., None]
