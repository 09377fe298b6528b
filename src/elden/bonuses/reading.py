"""Local graphs as the ensemble behind a bonus sees them: an edge is there where most of its members see it."""

from dataclasses import dataclass, replace

import jax
from jaxtyping import Array, Bool, Int

from elden.bonuses.base import AnyBonus
from elden.bonuses.beside import Beside
from elden.bonuses.composite import Composite
from elden.bonuses.counts import GraphCount
from elden.bonuses.curiosity_critic import CuriosityCritic
from elden.bonuses.dependency import DependencySurprise, EdgeCount
from elden.bonuses.elden import Consensus, Dependencies
from elden.bonuses.ensemble import chunked
from elden.bonuses.model_based import ModelBonus, ModelState
from elden.dynamics.training import Transitions
from elden.dynamics.variants import Plain
from elden.factors import Granularity
from elden.graphs.base import Detector
from elden.graphs.registry import detector_named


@dataclass(frozen=True)
class MajorityReader:
    """Reads local graphs out of the models of a bonus. Frozen and hashable."""

    models: ModelBonus
    """The bonus whose ensemble is read."""
    detector: Detector
    """How each member is read."""

    @property
    def levels(self) -> tuple[Granularity, Granularity]:
        """What destinations and sources of the graphs are."""
        layout = self.models.layout
        return layout.network.children, self.detector.sources(layout)

    def graphs(self, state: ModelState, seen: Transitions) -> Bool[Array, "step dst src"]:
        """The edges that more than half of the members see, at the bonus's threshold."""
        ensemble, number = self.models.ensemble, seen.action.shape[0]
        pieces = chunked(number, min(ensemble.config.chunk, number))
        share, view = Consensus(self.detector), self.models.view(state)

        def read(piece: Int[Array, " chunk"]) -> Bool[Array, "chunk dst src"]:
            return share.judge(ensemble.layout, view(seen[piece]))[0] > 0.5

        graphs: Bool[Array, "piece chunk dst src"] = jax.lax.map(read, pieces)
        return graphs.reshape(-1, *graphs.shape[2:])[:number]

    def automatic(self, state: ModelState) -> ModelState:
        """With the threshold that the detector's own rule finds for the last steps of the training."""
        ensemble, rule = self.models.ensemble, Dependencies(self.detector, automatic=True)
        batch = ensemble.encode(ensemble.recent(state.ensemble, min(ensemble.config.chunk, 512)))
        reference = ensemble.reference(state.ensemble)
        threshold = rule.threshold(ensemble.layout, ensemble.models(state.ensemble), batch, reference)
        return state if threshold is None else replace(state, memory=replace(state.memory, threshold=threshold))


def models_of(bonus: AnyBonus, state: object) -> tuple[ModelBonus, ModelState] | None:
    """The part of a bonus that reads an ensemble, with its state; None where nothing does.

    Of a mix, the first part that reads graphs, else the first one that reads an ensemble at all.
    """
    if isinstance(bonus, ModelBonus) and isinstance(state, ModelState):
        return bonus, state
    if isinstance(bonus, CuriosityCritic):
        return bonus.curiosity, state.model  # type: ignore[attr-defined]
    if isinstance(bonus, Beside):
        return bonus.models, state.model  # type: ignore[attr-defined]
    if isinstance(bonus, GraphCount | DependencySurprise):
        return bonus.consensus, state.model  # type: ignore[attr-defined]
    if isinstance(bonus, EdgeCount):
        return bonus.reader.consensus, state.model  # type: ignore[attr-defined]
    if isinstance(bonus, Composite):
        found = [models_of(part, bonus.state_of(state, i)) for i, part in enumerate(bonus.parts)]  # type: ignore[arg-type]
        known = [each for each in found if each is not None]
        return min(known, key=lambda each: not isinstance(each[0].signal, Dependencies), default=None)
    return None


def reader_of(models: ModelBonus, detector: str) -> MajorityReader | None:
    """What reads these models: the bonus's own detector, or the named one where it reads no graphs.

    None where the detector needs networks of another kind than these.
    """
    signal = models.signal
    chosen = signal.detector if isinstance(signal, Dependencies) else detector_named(detector)
    readable = chosen.variant in (Plain(), models.ensemble.variant)
    return MajorityReader(models, chosen) if readable else None
