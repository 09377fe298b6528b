"""Intrinsic curiosity module (Pathak et al. 2017): surprise in features that say what the action was."""

from dataclasses import dataclass, field
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, Num

from elden.bonuses.base import Metrics, Space
from elden.bonuses.fitted import FitConfig, Fitted
from elden.factors import Discrete
from elden.nn import Mlp
from elden.pytree import pytree
from elden.transitions import Steps, Transitions

_FORWARD_WEIGHT = 0.2  # of the two losses, as in the original


@pytree()
@dataclass(frozen=True)
class IcmNetworks:
    """Features of a state; the action from two of them; the second from the first and the action."""

    features: Mlp
    inverse: Mlp
    forward: Mlp


@dataclass(frozen=True)
class Icm:
    """`½ ‖φ̂(φ(s), a) − φ(s')‖² / features`, with φ learnt by telling the action from `φ(s)` and `φ(s')`."""

    name: ClassVar[str] = "icm"

    space: Space
    config: FitConfig = field(default_factory=FitConfig)

    def init(self, key: Key[Array, ""], num_envs: int) -> Fitted[IcmNetworks]:
        """Untrained networks."""
        keys = jax.random.split(key, 3)
        config, size, action = self.config, self.config.features, self.space.action.encoded_size
        networks = IcmNetworks(
            features=Mlp.init(keys[0], (self.space.factors.encoded_width, *config.hidden, size), "relu"),
            inverse=Mlp.init(keys[1], (2 * size, *config.hidden, action), "relu"),
            forward=Mlp.init(keys[2], (size + action, *config.hidden, size), "relu"),
        )
        return Fitted.init(config, networks)

    def _action(self, action: Num[Array, "..."], shape: tuple[int, ...]) -> Float[Array, "*batch encoded"]:
        if isinstance(self.space.action, Discrete):
            return jax.nn.one_hot(action.reshape(shape), self.space.action.n)
        return action.reshape(*shape, self.space.action.size).astype(jnp.float32)

    def _losses(
        self,
        networks: IcmNetworks,
        obs: Num[Array, "*batch width"],
        action: Num[Array, "..."],
        next_obs: Num[Array, "*batch width"],
    ) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
        """Surprise about the features of what follows, and about the action."""
        before, after = (networks.features(self.space.factors.one_hot(x)) for x in (obs, next_obs))
        done = self._action(action, obs.shape[:-1])
        inferred = networks.inverse(jnp.concatenate([before, after], axis=-1))
        if isinstance(self.space.action, Discrete):
            inverse = -jnp.sum(done * jax.nn.log_softmax(inferred), axis=-1)
        else:
            inverse = jnp.mean((inferred - done) ** 2, axis=-1)
        guess = networks.forward(jnp.concatenate([before, done], axis=-1))
        return 0.5 * jnp.mean((guess - after) ** 2, axis=-1), inverse

    def reward(
        self, state: Fitted[IcmNetworks], steps: Steps
    ) -> tuple[Fitted[IcmNetworks], Float[Array, "time env"], Metrics]:
        """Surprise about the features of the state after each step."""
        rewards, _ = self._losses(state.parameters, steps.obs, steps.action, steps.next_obs)
        return state, rewards, {"bonus/mean": jnp.mean(rewards)}

    def update(
        self, state: Fitted[IcmNetworks], key: Key[Array, ""], steps: Steps
    ) -> tuple[Fitted[IcmNetworks], Metrics]:
        """Learn to tell actions, and to foresee features."""

        def loss(networks: IcmNetworks, some: Transitions) -> Float[Array, ""]:
            forward, inverse = self._losses(networks, some.obs, some.action, some.next_obs)
            return jnp.mean(_FORWARD_WEIGHT * forward + (1.0 - _FORWARD_WEIGHT) * inverse)

        fitted, mean = state.fit(self.config, loss, key, steps.transitions())
        return fitted, {"bonus/loss": mean}
