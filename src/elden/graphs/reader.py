"""The one seam between detectors and everything that uses them: bonuses, evaluation and studies.

A detector scores the edges of one model. What its users need beyond that is here, once: the predictions of networks as
their variant modulates them, the scores of all members of an ensemble, local graphs at a threshold, and the threshold
that the detector's own rule chooses without labels.
"""

from dataclasses import dataclass
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from elden.dynamics import network
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import Batch
from elden.dynamics.training import Model
from elden.dynamics.variants import Variant
from elden.factors import Granularity
from elden.graphs.base import Detector, Reference, changed
from elden.graphs.thresholds import automatic_cut

Scores: TypeAlias = Float[Array, "member batch dst src"]


def predict(
    layout: Layout, variant: Variant, models: Model, batch: Batch
) -> Float[Array, "member child slot value batch"]:
    """The members' outputs, with their networks modulated as in training but without its noise.

    A network that was trained behind a mask knows nothing of a world without it, so it must be read behind it too.
    """

    def one(model: Model) -> Float[Array, "child slot value batch"]:
        features = network.input_features(layout, model.net, network.first_layer(model.net, batch.inputs))
        modulation, _ = variant.modulate(layout, model.extra, batch.inputs, features, None, jnp.int32(0))
        return network.predict(layout, model.net, features, modulation).out

    return jax.vmap(one)(models)


@dataclass(frozen=True)
class Reader:
    """Reads local graphs out of ensembles with one detector. Frozen and hashable."""

    layout: Layout
    """Meaning of the models' arrays."""
    detector: Detector
    """What scores the edges of one model."""

    @property
    def granularity(self) -> tuple[Granularity, Granularity]:
        """Whether the graphs' destinations and sources are variables or entities."""
        return self.layout.network.children, self.detector.sources(self.layout)

    @property
    def num_sources(self) -> int:
        """Sources of an edge, the action included."""
        return len(self.layout.factors.source_names(self.granularity[1]))

    @property
    def edge_mask(self) -> Bool[np.ndarray, "dst src"]:
        """All edges but self-edges."""
        return self.layout.factors.edge_mask(*self.granularity)

    def scores(self, models: Model, batch: Batch, reference: Reference) -> Scores:
        """Each member's scores of all edges."""
        scores = jax.vmap(lambda model: self.detector.scores(self.layout, model, batch, reference))(models)
        return scores.astype(jnp.float32)

    def graphs(
        self, models: Model, batch: Batch, reference: Reference, threshold: Float[Array, ""]
    ) -> Bool[Array, "member batch dst src"]:
        """Each member's local graphs: the edges whose score is at least the threshold."""
        return self.scores(models, batch, reference) >= threshold

    def threshold(self, models: Model, batch: Batch, reference: Reference) -> Float[Array, ""]:
        """The threshold that the detector's rule chooses for the members' mean scores, without labels."""
        scores = jnp.mean(self.scores(models, batch, reference), axis=0)
        happened = changed(self.layout, batch, reference)
        return jnp.asarray(automatic_cut(scores, happened, self.edge_mask, self.detector.threshold_rule), jnp.float32)
