"""A learnt mask on attention: stochastic kernel modulated dot products (Weiss et al. 2022; baseline "Attn Mask")."""

import math
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import Batch
from elden.dynamics.network import Modulation, first_layer, input_features
from elden.dynamics.products import pair_products, times
from elden.dynamics.training import Model
from elden.dynamics.variants import Extra, Variant, logistic_noise
from elden.factors import Granularity
from elden.graphs.base import Reference
from elden.graphs.thresholds import Rule

_TINY = 1e-6
_PARTS = 4  # in which signatures are multiplied: short products are fast


@dataclass(frozen=True)
class Kernel:
    """Inputs attend to each other as far as their signatures are alike.

    Every input has a unit-norm signature `z`, linear in its features. Two inputs are linked with probability
    `k = exp(−(1 − z · z') / bandwidth)`; in training the link is drawn from the relaxed coin flip (temperature 1), in
    use it is `k` itself. The logarithm of the links, normalised over sources, is added to the logits of both attention
    layers. The drawing of links is what regularises: a link that is not needed is noise, so signatures move apart.
    """

    signature: int = 64
    """Length of a signature."""
    bandwidth: float = 1.0
    """Bandwidth of the kernel at the start; it is learnt."""

    def init(self, key: Key[Array, ""], layout: Layout) -> Extra:
        """Parameters of the signatures of every child."""
        width = layout.network.width
        shape = (layout.num_children, self.signature, width)
        weight = jax.random.uniform(key, shape, minval=-1.0, maxval=1.0) * width**-0.5
        return {"signature": weight, "bandwidth": jnp.full((layout.num_children,), jnp.log(self.bandwidth))}

    def links(
        self, extra: Extra, features: Float[Array, "child feature input batch"]
    ) -> Float[Array, "child dst src batch"]:
        """Probability of a link between every two inputs."""
        children, width, inputs, size = features.shape
        raw = times(extra["signature"], features.reshape(children, width, inputs * size))
        raw = raw.reshape(children, self.signature, inputs, size).astype(jnp.float32)
        unit = raw * jax.lax.rsqrt(jnp.sum(raw**2, axis=1, keepdims=True) + _TINY)
        parts = unit.reshape(children, math.gcd(self.signature, _PARTS), -1, inputs, size)
        likeness = jnp.sum(pair_products(parts, parts), axis=1)
        bandwidth = jnp.exp(extra["bandwidth"].astype(jnp.float32))[:, None, None, None]
        return jnp.exp(-jnp.maximum(1.0 - likeness, 0.0) / bandwidth)

    def modulate(
        self,
        layout: Layout,
        extra: Extra,
        inputs: Float[Array, "input entry batch"],
        features: Float[Array, "child feature input batch"],
        key: Key[Array, ""] | None,
        step: Int[Array, ""],
    ) -> tuple[Modulation, Float[Array, ""]]:
        """Bias both layers' attention towards linked inputs."""
        links = self.links(extra, features)
        if key is not None:
            odds = jnp.log(links + _TINY) - jnp.log1p(_TINY - links)
            links = jax.nn.sigmoid(odds + logistic_noise(key, links.shape))
        bias = jnp.log(links + _TINY) - jnp.log(jnp.sum(links, axis=2, keepdims=True) + _TINY)
        read = jnp.sum(jnp.where(layout.query[:, :, None, None], bias, 0.0), axis=1)
        return Modulation(mix=bias.astype(features.dtype), read=read.astype(features.dtype)), jnp.zeros(())


@dataclass(frozen=True)
class AttentionMask:
    """Normalised links multiplied along all ways from an input to the prediction, as with `attention`."""

    name: ClassVar[str] = "attention-mask"
    penalised: ClassVar[bool] = False
    threshold_rule: ClassVar[Rule] = "change"

    kernel: Kernel = Kernel()
    """The kernel of the links."""

    @property
    def variant(self) -> Variant:
        """A network whose attention is masked."""
        return self.kernel

    def sources(self, layout: Layout) -> Granularity:
        """The network's inputs."""
        return layout.network.inputs

    def scores(self, layout: Layout, model: Model, batch: Batch, reference: Reference) -> Float[Array, "batch dst src"]:
        """Scores of all edges for one model."""
        features = input_features(layout, model.net, first_layer(model.net, batch.inputs))
        links = self.kernel.links(model.extra, features)
        mix = links / jnp.sum(links, axis=2, keepdims=True)
        read = jnp.sum(jnp.where(layout.query[:, :, None, None], mix, 0.0), axis=1)
        return jnp.transpose(jnp.sum(read[:, :, None] * mix, axis=1), (2, 0, 1))
