"""Small networks for everybody: plain MLPs with orthogonal weights, and activation functions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from elden.pytree import pytree

Activation: TypeAlias = Literal["relu", "silu", "tanh"]


def activate(name: Activation, x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The activation function of that name."""
    return {"relu": jax.nn.relu, "silu": jax.nn.silu, "tanh": jnp.tanh}[name](x)


@pytree()
@dataclass(frozen=True)
class Dense:
    """`x · weight + bias`."""

    weight: Float[Array, "*stack in out"]
    bias: Float[Array, "*stack out"]

    @classmethod
    def init(cls, key: Key[Array, ""], size: int, out: int, scale: float) -> "Dense":
        """Orthogonal weights times `scale`; no bias."""
        return cls(scale * orthogonal(key, size, out), jnp.zeros(out))

    def __call__(self, x: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
        """The last axis is that of features."""
        return x @ self.weight + self.bias


def orthogonal(key: Key[Array, ""], rows: int, columns: int) -> Float[Array, "row column"]:
    """A random matrix whose columns (or rows, where these are fewer) are orthonormal.

    Gram and Schmidt, each vector twice for accuracy. Not by `jnp.linalg.qr`: on CPUs its library calls, when several
    run at the same time, can wait for each other's threads for ever.
    """
    many, few = max(rows, columns), min(rows, columns)

    def next_vector(i: Int[Array, ""], found: Float[Array, "few many"]) -> Float[Array, "few many"]:
        vector = vectors[i]
        for _ in range(2):
            vector = vector - (found @ vector) @ found
        return found.at[i].set(vector / jnp.linalg.norm(vector))

    vectors = jax.random.normal(key, (few, many), jnp.float32)
    found: Float[Array, "few many"] = jax.lax.fori_loop(0, few, next_vector, jnp.zeros_like(vectors))
    return found if rows <= columns else found.T


@pytree("activation", "layer_norm")
@dataclass(frozen=True)
class Mlp:
    """Layers with an activation after each but the last one.

    Attributes:
        layers: The layers.
        activation: Name of the activation.
        layer_norm: Whether features are brought to mean 0 and variance 1 before each activation.
    """

    layers: tuple[Dense, ...]
    activation: Activation
    layer_norm: bool

    @classmethod
    def init(
        cls,
        key: Key[Array, ""],
        sizes: Sequence[int],
        activation: Activation,
        layer_norm: bool = False,
        last_scale: float = 1.0,
    ) -> "Mlp":
        """Weights orthogonal times √2, the last layer's times `last_scale`.

        Args:
            key: Random key.
            sizes: Number of inputs, widths of the hidden layers, number of outputs.
            activation: Name of the activation.
            layer_norm: Whether features are normalised.
            last_scale: Small for policies, which then begin by trying everything.
        """
        scales = [2.0**0.5] * (len(sizes) - 2) + [last_scale]
        keys = jax.random.split(key, len(scales))
        pairs = zip(keys, sizes[:-1], sizes[1:], scales, strict=True)
        return cls(
            tuple(Dense.init(each, size, out, scale) for each, size, out, scale in pairs), activation, layer_norm
        )

    def __call__(self, x: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
        """What the last layer gives."""
        for layer in self.layers[:-1]:
            x = layer(x)
            if self.layer_norm:
                x = _normalised(x)
            x = activate(self.activation, x)
        return self.layers[-1](x)


def _normalised(x: Float[Array, "*batch size"]) -> Float[Array, "*batch size"]:
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-5)
