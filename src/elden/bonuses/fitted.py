"""Small networks that a bonus fits to steps: what RND and ICM have in common."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from elden.optimise import finite_step
from elden.pytree import pytree
from elden.transitions import Transitions

Parameters = TypeVar("Parameters")
Data = TypeVar("Data")


@dataclass(frozen=True)
class FitConfig:
    """Networks that are fitted while the agent explores."""

    hidden: tuple[int, ...] = (128, 128)
    """Widths of the hidden layers."""
    features: int = 64
    """Length of the feature vectors."""
    learning_rate: float = 3e-4
    """Step size of Adam."""
    batch_size: int = 256
    """Transitions in one update."""
    updates: int = 32
    """Updates for one rollout."""

    def __post_init__(self) -> None:
        for name in ("features", "batch_size", "updates"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} given; it must be 1 or more")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate={self.learning_rate} given; it must be above 0")
        if not all(width >= 1 for width in self.hidden):
            raise ValueError(f"hidden={self.hidden} given; all widths must be 1 or more")


@pytree()
@dataclass(frozen=True)
class Fitted(Generic[Parameters]):
    """Parameters in training.

    Attributes:
        parameters: The parameters.
        optimiser: State of Adam.
        skipped: Updates that were skipped because the loss or its gradient was not finite.
    """

    parameters: Parameters
    optimiser: optax.OptState
    skipped: Int[Array, "*run"]

    @classmethod
    def init(cls, config: FitConfig, parameters: Parameters) -> "Fitted[Parameters]":
        """Parameters that have not been trained."""
        return cls(parameters, optax.adam(config.learning_rate).init(parameters), jnp.int32(0))

    def fit(
        self,
        config: FitConfig,
        loss: Callable[[Parameters, Transitions], Float[Array, ""]],
        key: Key[Array, ""],
        seen: Transitions,
    ) -> tuple["Fitted[Parameters]", Float[Array, ""]]:
        """Several updates on batches of these transitions; also the mean loss."""
        return self.fit_on(config, loss, key, seen, jnp.int32(seen.obs.shape[0]))

    def fit_on(
        self,
        config: FitConfig,
        loss: Callable[[Parameters, Data], Float[Array, ""]],
        key: Key[Array, ""],
        data: Data,
        number: Int[Array, ""],
        members: int = 1,
    ) -> tuple["Fitted[Parameters]", Float[Array, ""]]:
        """Several updates on batches of the first `number` items of some data, a batch for each member."""
        shape = (config.updates, config.batch_size * members)
        indices = jax.random.randint(key, shape, 0, number, jnp.int32)

        def update(
            fitted: "Fitted[Parameters]", index: Int[Array, " batch"]
        ) -> tuple["Fitted[Parameters]", Float[Array, ""]]:
            batch: Data = jax.tree.map(lambda leaf: leaf[index], data)
            value, gradient = jax.value_and_grad(loss)(fitted.parameters, batch)
            parameters, optimiser, finite = finite_step(
                optax.adam(config.learning_rate), fitted.optimiser, fitted.parameters, value, gradient
            )
            return Fitted(parameters, optimiser, fitted.skipped + (~finite).astype(jnp.int32)), value

        fitted, losses = jax.lax.scan(update, self, indices)
        return fitted, jnp.mean(losses, where=jnp.isfinite(losses))
