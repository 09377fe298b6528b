"""Local graphs as the ensemble behind a bonus sees them: an edge is there where most of its members see it."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from elden.bonuses.base import AnyBonus
from elden.bonuses.elden import Dependencies
from elden.bonuses.ensemble import chunked
from elden.bonuses.model_based import ModelBonus, ModelState, WithModels
from elden.dynamics.variants import Plain
from elden.factors import Granularity
from elden.graphs.base import Detector
from elden.graphs.reader import Reader
from elden.graphs.registry import detector_named
from elden.transitions import Transitions


@dataclass(frozen=True)
class MajorityReader:
    """Reads local graphs out of the models of a bonus. Frozen and hashable."""

    models: ModelBonus
    """The bonus whose ensemble is read."""
    reader: Reader
    """How each member is read."""

    @property
    def detector(self) -> Detector:
        """What scores the edges of one member."""
        return self.reader.detector

    @property
    def granularity(self) -> tuple[Granularity, Granularity]:
        """What destinations and sources of the graphs are."""
        return self.reader.granularity

    def graphs(self, state: ModelState, seen: Transitions) -> Bool[Array, "step dst src"]:
        """The edges that more than half of the members see, at the bonus's threshold."""
        ensemble, number = self.models.ensemble, seen.action.shape[0]
        pieces = chunked(number, min(ensemble.config.chunk, number))
        models, reference = ensemble.models(state.ensemble), ensemble.reference(state.ensemble)

        def read(piece: Int[Array, " chunk"]) -> Bool[Array, "chunk dst src"]:
            graphs = self.reader.graphs(models, ensemble.encode(seen[piece]), reference, state.memory.threshold)
            return jnp.mean(graphs.astype(jnp.float32), axis=0) > 0.5

        graphs: Bool[Array, "piece chunk dst src"] = jax.lax.map(read, pieces)
        return graphs.reshape(-1, *graphs.shape[2:])[:number]

    def automatic(self, state: ModelState) -> ModelState:
        """With the threshold that the detector's rule finds for the last steps of the training."""
        ensemble = self.models.ensemble
        batch = ensemble.encode(ensemble.recent(state.ensemble, min(ensemble.config.chunk, 512)))
        models, reference = ensemble.models(state.ensemble), ensemble.reference(state.ensemble)
        threshold = self.reader.threshold(models, batch, reference)
        return replace(state, memory=replace(state.memory, threshold=threshold))


def models_of(bonus: AnyBonus, state: object) -> tuple[ModelBonus, ModelState] | None:
    """The part of a bonus that reads an ensemble, with its state; None where nothing does."""
    return bonus.models_in(state) if isinstance(bonus, WithModels) else None


def reader_of(models: ModelBonus, detector: str) -> MajorityReader | None:
    """What reads these models: the bonus's own detector, or the named one where it reads no graphs.

    None where the detector needs networks of another kind than these.
    """
    signal = models.signal
    chosen = signal.detector if isinstance(signal, Dependencies) else detector_named(detector)
    readable = chosen.variant in (Plain(), models.ensemble.variant)
    return MajorityReader(models, Reader(models.layout, chosen)) if readable else None
