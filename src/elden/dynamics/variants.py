"""Variants of the network that detectors train: what they add to it, and what they pay for it."""

from typing import Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from elden.dynamics.layout import Layout
from elden.dynamics.network import UNCHANGED, Modulation

Extra: TypeAlias = dict[str, Float[Array, "..."]]
"""Parameters that a variant has beside the network's."""


@runtime_checkable
class Variant(Protocol):
    """How a detector changes the network. Frozen and hashable: it is static when functions are compiled."""

    def init(self, key: Key[Array, ""], layout: Layout) -> Extra:
        """Parameters of one model."""

    def modulate(
        self,
        layout: Layout,
        extra: Extra,
        inputs: Float[Array, "input entry batch"],
        features: Float[Array, "child feature input batch"],
        key: Key[Array, ""] | None,
        step: Int[Array, ""],
    ) -> tuple[Modulation, Float[Array, ""]]:
        """What to do to the network, and what that costs in the loss (a mean over the batch).

        Args:
            layout: Meaning of the arrays.
            extra: Parameters from `init`.
            inputs: Encoded state and action.
            features: Features of the inputs, as yet unchanged.
            key: Random key in training; None when the model is used.
            step: Update that this is, for schedules.
        """


class Plain:
    """The network as it is."""

    def init(self, key: Key[Array, ""], layout: Layout) -> Extra:
        """Nothing."""
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
        """Nothing, for nothing."""
        return UNCHANGED, jnp.zeros(())

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))


def rising(step: Int[Array, ""], start: int, stop: int) -> Float[Array, ""]:
    """0 up to `start`, 1 from `stop` on, linear in between."""
    return jnp.clip((step - start).astype(jnp.float32) / max(stop - start, 1), 0.0, 1.0)


def logistic_noise(key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "..."]:
    """The difference of two Gumbel variables, which relaxes a coin flip."""
    return jax.random.logistic(key, shape, jnp.float32)
