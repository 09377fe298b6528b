"""E3B (Henaff et al. 2022): an elliptical bonus for what is new to the episode, in features of an inverse model."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from elden.bonuses.base import Metrics, Space
from elden.bonuses.fitted import FitConfig, Fitted
from elden.bonuses.icm import Icm, IcmNetworks
from elden.pytree import pytree
from elden.transitions import Steps

_RIDGE = 0.1
"""λ, as in the original."""


@pytree()
@dataclass(frozen=True)
class E3bState:
    """The inverse model, and what each environment has seen in its episode.

    Attributes:
        icm: The inverse model.
        inverse: Inverse of the matrix of features.
        begun: Whether the episode's first state is in it.
    """

    icm: Fitted[IcmNetworks]
    inverse: Float[Array, "*run env feature feature"]
    begun: Bool[Array, "*run env"]

    def forget(self) -> "E3bState":
        """No feature seen in the episodes under way."""
        inverse = jnp.broadcast_to(_fresh(self.inverse.shape[-1]), self.inverse.shape)
        return E3bState(self.icm, inverse, jnp.zeros_like(self.begun))


def _fresh(features: int) -> Float[Array, "feature feature"]:
    """The inverse of the matrix at the beginning of an episode."""
    return jnp.eye(features) / _RIDGE


def _with(
    inverse: Float[Array, "env feature feature"], phi: Float[Array, "env feature"]
) -> tuple[Float[Array, "env feature feature"], Float[Array, " env"]]:
    """The inverse with one more φφᵀ (Sherman and Morrison), and `φᵀ C⁻¹ φ` before that."""
    along = jnp.einsum("eij,ej->ei", inverse, phi)
    amount = jnp.sum(phi * along, axis=-1)
    return inverse - along[:, :, None] * along[:, None, :] / (1.0 + amount)[:, None, None], amount


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
        inverse = jnp.broadcast_to(fresh, (num_envs, *fresh.shape))
        return E3bState(self._icm.init(key, num_envs), inverse, jnp.zeros(num_envs, jnp.bool_))

    def reward(self, state: E3bState, steps: Steps) -> tuple[E3bState, Float[Array, "time env"], Metrics]:
        """How far the features lie outside of what the episode has shown."""
        fresh = _fresh(self.config.features)
        before, after = (
            state.icm.parameters.features(self.space.factors.one_hot(obs)) for obs in (steps.obs, steps.next_obs)
        )

        def step(carry, now):  # type: ignore[no-untyped-def]
            (inverse, begun), (first, phi, done) = carry, now
            inverse = jnp.where(begun[:, None, None], inverse, _with(inverse, first)[0])
            inverse, amount = _with(inverse, phi)
            return (jnp.where(done[:, None, None], fresh, inverse), ~done), amount

        carry = (state.inverse, state.begun)
        (inverse, begun), rewards = jax.lax.scan(step, carry, (before, after, steps.done))
        return E3bState(state.icm, inverse, begun), rewards, {"bonus/mean": jnp.mean(rewards)}

    def update(self, state: E3bState, key: Key[Array, ""], steps: Steps) -> tuple[E3bState, Metrics]:
        """Train the inverse model."""
        icm, metrics = self._icm.update(state.icm, key, steps)
        return replace(state, icm=icm), metrics
