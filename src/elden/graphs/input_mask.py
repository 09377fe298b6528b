"""A learnt binary mask over the inputs that depends on them (paper, baseline "Input Mask")."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from elden.dynamics.config import TrainConfig
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import Batch
from elden.dynamics.network import Modulation
from elden.dynamics.products import attended, pair_products, times
from elden.dynamics.training import Model
from elden.dynamics.variants import Extra, Variant, logistic_noise, rising
from elden.factors import Granularity
from elden.graphs.base import Reference
from elden.graphs.thresholds import Rule

_COOLING = 4
"""The temperature falls over 2 M updates in the authors' programs, which make 500 k."""


@dataclass(frozen=True)
class LearntMask:
    """A second, small attention network says for each input whether the child may see it.

    Each input's own features become keys and values; a learnt query for each input gathers what decides about it. The
    coin flip is relaxed by a Gumbel softmax whose temperature falls geometrically; the flip itself goes forward, the
    relaxation backward. The loss pays `coefficient` for every input seen.
    """

    coefficient: float = 1e-2
    """Price of seeing one input."""
    start: int = 50_000
    """Update up to which inputs are free."""
    stop: int = 100_000
    """Update from which they have their full price."""
    cooling: int = 2_000_000
    """Updates over which the temperature falls from 1 to 0.1."""

    def init(self, key: Key[Array, ""], layout: Layout) -> Extra:
        """Parameters of the mask network of every child."""
        config, children, inputs = layout.network, layout.num_children, layout.num_inputs
        width, projected = config.width, config.heads * config.head_size
        first, pair, query, out = jax.random.split(key, 4)
        real = jnp.asarray((layout.input_source >= 0), jnp.float32)[:, None]

        def uniform(key: Key[Array, ""], shape: tuple[int, ...], fan_in: int) -> Float[Array, "..."]:
            return jax.random.uniform(key, shape, minval=-1.0, maxval=1.0) * (1.0 / math.sqrt(fan_in))

        return {
            "first": uniform(first, (inputs, children * width, layout.input_entries), 8) * real,
            "pair": uniform(pair, (children, 2 * projected, width), width),
            "query": jax.random.normal(query, (children, projected, inputs)),
            "out": uniform(out, (children, inputs, projected), projected),
            # Inputs start out seen: a mask that starts closed learns nothing.
            "bias": jnp.full((children, inputs), 2.0),
        }

    def logits(
        self, layout: Layout, extra: Extra, inputs: Float[Array, "input entry batch"]
    ) -> Float[Array, "child input batch"]:
        """Log odds that each child sees each input."""
        config, children, num_inputs = layout.network, layout.num_children, layout.num_inputs
        size = inputs.shape[-1]
        hidden = jax.nn.relu(times(extra["first"], inputs)).reshape(num_inputs, children, config.width, size)
        flat = jnp.transpose(hidden, (1, 2, 0, 3)).reshape(children, config.width, num_inputs * size)
        heads = (children, config.heads, config.head_size, num_inputs, size)
        key, value = (part.reshape(heads) for part in jnp.split(times(extra["pair"], flat), 2, axis=1))
        query = jnp.broadcast_to(extra["query"].reshape(*heads[:-1], 1), heads)
        weights = jax.nn.softmax(pair_products(query, key) * config.head_size**-0.5, axis=3)
        gathered = attended(weights, value).reshape(children, -1, num_inputs, size)
        return jnp.sum(gathered * jnp.swapaxes(extra["out"], 1, 2)[..., None], axis=1) + extra["bias"][..., None]

    def modulate(
        self,
        layout: Layout,
        extra: Extra,
        inputs: Float[Array, "input entry batch"],
        features: Float[Array, "child feature input batch"],
        key: Key[Array, ""] | None,
        step: Int[Array, ""],
    ) -> tuple[Modulation, Float[Array, ""]]:
        """Hide inputs, and pay for those that are seen."""
        logits = self.logits(layout, extra, inputs)
        if key is None:
            return Modulation(features=(logits > 0).astype(features.dtype)), jnp.zeros(())
        temperature = 0.1 ** rising(step, 0, self.cooling)
        noise = logistic_noise(key, logits.shape).astype(logits.dtype)
        soft = jax.nn.sigmoid((logits + noise) / temperature.astype(logits.dtype))
        hard = (soft > 0.5).astype(soft.dtype)
        seen = hard + soft - jax.lax.stop_gradient(soft)
        price = self.coefficient * rising(step, self.start, self.stop)
        cost = price * jnp.mean(jnp.sum(seen.astype(jnp.float32), axis=(0, 1)))
        return Modulation(features=seen.astype(features.dtype)), cost


@dataclass(frozen=True)
class InputMask:
    """Probability that the mask lets the child see the input."""

    name: ClassVar[str] = "input-mask"
    penalised: ClassVar[bool] = False
    threshold_rule: ClassVar[Rule] = "change"

    mask: LearntMask = LearntMask()
    """The mask and its schedule."""

    @property
    def variant(self) -> Variant:
        """A network behind a mask."""
        return self.mask

    def fitted(self, train: TrainConfig, updates: int) -> "InputMask":
        """Inputs get their price when derivatives get theirs, and the mask cools as far as in the authors' programs.

        Those cool over four times as many updates as they make, so the temperature ends at 0.1^(1/4), about 0.56.
        """
        mask = replace(self.mask, start=train.penalty_start, stop=train.penalty_stop, cooling=_COOLING * updates)
        return replace(self, mask=mask)

    def sources(self, layout: Layout) -> Granularity:
        """The network's inputs."""
        return layout.network.inputs

    def scores(self, layout: Layout, model: Model, batch: Batch, reference: Reference) -> Float[Array, "batch dst src"]:
        """Scores of all edges for one model."""
        return jnp.transpose(jax.nn.sigmoid(self.mask.logits(layout, model.extra, batch.inputs)), (2, 0, 1))
