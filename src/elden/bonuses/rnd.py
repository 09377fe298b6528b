"""Random network distillation (Burda et al. 2018): states are new where a fixed random network is hard to imitate."""

from dataclasses import dataclass, field
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, Num

from elden.bonuses.base import Metrics, Space
from elden.bonuses.fitted import FitConfig, Fitted
from elden.nn import Mlp
from elden.pytree import pytree
from elden.transitions import Steps, Transitions


@pytree()
@dataclass(frozen=True)
class RndState:
    """The network that is imitated, and the one that imitates."""

    target: Mlp
    predictor: Fitted[Mlp]


@dataclass(frozen=True)
class Rnd:
    """`‖f̂(s') − f(s')‖² / features` with a random f and an f̂ that learns to imitate it on what is visited."""

    name: ClassVar[str] = "rnd"

    space: Space
    config: FitConfig = field(default_factory=FitConfig)

    def init(self, key: Key[Array, ""], num_envs: int) -> RndState:
        """A random network, and an untrained imitation."""
        target_key, predictor_key = jax.random.split(key)
        sizes = (self.space.factors.encoded_width, *self.config.hidden, self.config.features)
        predictor = Mlp.init(predictor_key, sizes, "relu")
        return RndState(Mlp.init(target_key, sizes, "relu"), Fitted.init(self.config, predictor))

    def _errors(self, predictor: Mlp, target: Mlp, obs: Num[Array, "*batch width"]) -> Float[Array, "*batch"]:
        encoded = self.space.factors.one_hot(obs)
        return jnp.mean((predictor(encoded) - target(encoded)) ** 2, axis=-1)

    def errors(self, state: RndState, obs: Num[Array, "*batch width"]) -> Float[Array, "*batch"]:
        """How badly each state is imitated: its novelty."""
        return self._errors(state.predictor.parameters, state.target, obs)

    def reward(self, state: RndState, steps: Steps) -> tuple[RndState, Float[Array, "time env"], Metrics]:
        """How badly the state after each step is imitated."""
        rewards = self.errors(state, steps.next_obs)
        return state, rewards, {"bonus/mean": jnp.mean(rewards)}

    def update(self, state: RndState, key: Key[Array, ""], steps: Steps) -> tuple[RndState, Metrics]:
        """Imitate on these states."""

        def loss(predictor: Mlp, some: Transitions) -> Float[Array, ""]:
            return jnp.mean(self._errors(predictor, state.target, some.next_obs))

        predictor, mean = state.predictor.fit(self.config, loss, key, steps.transitions())
        return RndState(state.target, predictor), {"bonus/loss": mean}
