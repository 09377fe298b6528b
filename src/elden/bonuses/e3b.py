"""E3B (Henaff et al. 2022): an elliptical bonus for what is new to the episode, in features of an inverse model."""

from dataclasses import dataclass, field
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from elden.bonuses.base import Metrics, Space, Steps
from elden.bonuses.fitted import FitConfig, Fitted
from elden.bonuses.icm import Icm, IcmNetworks
from elden.pytree import pytree

_RIDGE = 0.1
"""λ, as in the original."""


@pytree()
@dataclass(frozen=True)
class E3bState:
    """The inverse model, and the inverse of each environment's matrix of features in its episode."""

    icm: Fitted[IcmNetworks]
    inverse: Float[Array, "*run env feature feature"]

    def forget(self) -> "E3bState":
        """No feature seen in the episodes under way."""
        return E3bState(self.icm, jnp.broadcast_to(_fresh(self.inverse.shape[-1]), self.inverse.shape))


def _fresh(features: int) -> Float[Array, "feature feature"]:
    """The inverse of the matrix at the beginning of an episode."""
    return jnp.eye(features) / _RIDGE


@dataclass(frozen=True)
class E3b:
    """`φ(s')ᵀ C⁻¹ φ(s')` with `C = λI + Σ φφᵀ` over the earlier states of the episode."""

    name: ClassVar[str] = "e3b"

    space: Space
    config: FitConfig = field(default_factory=FitConfig)

    @property
    def _icm(self) -> Icm:
        return Icm(self.space, self.config)

    def init(self, key: Key[Array, ""], num_envs: int) -> E3bState:
        """Untrained networks at the beginning of episodes."""
        fresh = _fresh(self.config.features)
        return E3bState(self._icm.init(key, num_envs), jnp.broadcast_to(fresh, (num_envs, *fresh.shape)))

    def reward(self, state: E3bState, steps: Steps) -> tuple[E3bState, Float[Array, "time env"], Metrics]:
        """How far the features lie outside of what the episode has shown."""
        fresh = _fresh(self.config.features)
        features = state.icm.parameters.features(self.space.factors.one_hot(steps.next_obs))

        def step(inverse, now):  # type: ignore[no-untyped-def]
            phi, done = now
            along = jnp.einsum("eij,ej->ei", inverse, phi)
            amount = jnp.sum(phi * along, axis=-1)
            # Sherman and Morrison: the inverse with one more φφᵀ.
            after = inverse - along[:, :, None] * along[:, None, :] / (1.0 + amount)[:, None, None]
            return jnp.where(done[:, None, None], fresh, after), amount

        inverse, rewards = jax.lax.scan(step, state.inverse, (features, steps.done))
        return E3bState(state.icm, inverse), rewards, {"bonus/mean": jnp.mean(rewards)}

    def update(self, state: E3bState, key: Key[Array, ""], steps: Steps) -> tuple[E3bState, Metrics]:
        """Train the inverse model."""
        icm, metrics = self._icm.update(state.icm, key, steps)
        return E3bState(icm, state.inverse), metrics
