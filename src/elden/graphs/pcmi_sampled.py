"""Point-wise conditional mutual information by averaging over a source (Seitzer et al. 2021)."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import Batch, forward, log_likelihood
from elden.dynamics.training import Model
from elden.dynamics.variants import Plain, Variant
from elden.factors import Granularity
from elden.graphs.base import Reference
from elden.graphs.sweep import all_swaps, sweep
from elden.graphs.thresholds import Rule


@dataclass(frozen=True)
class PcmiSampled:
    """`log p(s'_j | s, a) − log mean_v p(s'_j | s with s_i = v, a)`, one pass for every value of every source.

    The mean is over all values of a discrete source, and over `samples` values from the data of a continuous one.
    """

    name: ClassVar[str] = "pcmi-sampled"
    penalised: ClassVar[bool] = False
    threshold_rule: ClassVar[Rule] = "change"

    samples: int = 30
    """Values tried of a continuous source."""

    @property
    def variant(self) -> Variant:
        """The network as it is."""
        return Plain()

    def sources(self, layout: Layout) -> Granularity:
        """Variables, whatever the inputs are."""
        return "variable"

    def scores(self, layout: Layout, model: Model, batch: Batch, reference: Reference) -> Float[Array, "batch dst src"]:
        """Scores of all edges for one model."""
        swaps = all_swaps(layout, min(self.samples, reference.inputs.shape[-1]))
        tried = sweep(layout, model, batch, reference, swaps)
        log_p = log_likelihood(layout, forward(layout, model.net, batch.inputs).out, batch)
        parts = [tried[where] for where in swaps.slices(layout.num_sources)]
        means = [jax.nn.logsumexp(part, axis=0) - jnp.log(jnp.float32(part.shape[0])) for part in parts]
        return jnp.transpose(log_p[:, None] - jnp.stack(means, axis=1), (2, 0, 1))
