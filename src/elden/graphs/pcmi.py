"""Point-wise conditional mutual information by leaving one input out (Wang et al. 2021; paper, baseline "pCMI")."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import Batch, log_likelihood
from elden.dynamics.network import UNCHANGED, Modulation, first_layer, input_features, predict
from elden.dynamics.training import Model
from elden.dynamics.variants import Extra, Variant
from elden.factors import Granularity
from elden.graphs.base import Reference
from elden.graphs.thresholds import Rule


@dataclass(frozen=True)
class DropInputs:
    """In training, each example loses one input or none, with equal chance for each of the N + 2 outcomes."""

    def init(self, key: Key[Array, ""], layout: Layout) -> Extra:
        """No parameters."""
        return {}

    def modulate(
        self,
        layout: Layout,
        extra: Extra,
        inputs: Float[Array, "input entry batch"],
        features: Float[Array, "child feature input batch"],
        key: Key[Array, ""] | None,
        step: Int[Array, ""],
    ) -> tuple[Modulation, Float[Array, ""]]:
        """Zero the features of the lost input."""
        if key is None:
            return UNCHANGED, jnp.zeros(())
        children, _, num_inputs, size = features.shape
        lost = jax.random.randint(key, (size,), 0, num_inputs + 1, jnp.int32)
        kept = jnp.arange(num_inputs, dtype=jnp.int32)[:, None] != lost
        kept = jnp.broadcast_to(kept, (children, num_inputs, size))
        return Modulation(features=kept.astype(features.dtype)), jnp.zeros(())


@dataclass(frozen=True)
class Pcmi:
    """`log p(s'_j | s, a) − log p(s'_j | s ∖ s_i, a)`: one more pass for each input."""

    name: ClassVar[str] = "pcmi"
    penalised: ClassVar[bool] = False
    threshold_rule: ClassVar[Rule] = "change"

    @property
    def variant(self) -> Variant:
        """A network that can do without any one input."""
        return DropInputs()

    def sources(self, layout: Layout) -> Granularity:
        """The network's inputs."""
        return layout.network.inputs

    def scores(self, layout: Layout, model: Model, batch: Batch, reference: Reference) -> Float[Array, "batch dst src"]:
        """Scores of all edges for one model."""
        return influence(layout, model, batch, jnp.arange(layout.num_inputs, dtype=jnp.int32))


def influence(
    layout: Layout, model: Model, batch: Batch, inputs: Int[Array, " some"]
) -> Float[Array, "batch dst some"]:
    """The scores of these inputs alone."""
    features = input_features(layout, model.net, first_layer(model.net, batch.inputs))
    children, _, num_inputs, size = features.shape

    def without(lost: Int[Array, ""]) -> Float[Array, "child batch"]:
        kept = (jnp.arange(num_inputs, dtype=jnp.int32) != lost).astype(features.dtype)
        mask = jnp.broadcast_to(kept[:, None], (children, num_inputs, size))
        return log_likelihood(layout, predict(layout, model.net, features, Modulation(features=mask)).out, batch)

    # One after the other: memory then does not grow with the number of inputs. An index past the last loses none.
    log_p = jax.lax.map(without, jnp.append(inputs, jnp.int32(num_inputs)))
    return jnp.transpose(log_p[-1] - log_p[:-1], (2, 1, 0))
