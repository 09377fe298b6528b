"""Whether things change: what counts as a change, and a bonus that predicts nothing else.

A discrete variable has changed where its value differs after the step. A continuous one has where it moved by more than
a thousandth of the standard deviation that it has shown so far.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, Num

from elden.bonuses.base import Metrics, Space
from elden.bonuses.episodes import Episodes, reward_of_items
from elden.bonuses.whether import Whether, WhetherConfig, WhetherState, check_once
from elden.factors import Discrete, Factors, Granularity
from elden.graphs.base import STILL
from elden.pytree import pytree
from elden.transitions import Steps


@pytree()
@dataclass(frozen=True)
class Spread:
    """Mean and variance of every component of the states seen so far (Chan et al. 1979)."""

    count: Float[Array, "*run"]
    mean: Float[Array, "*run width"]
    squares: Float[Array, "*run width"]

    @classmethod
    def init(cls, width: int) -> "Spread":
        """Nothing seen."""
        return cls(jnp.float32(0), jnp.zeros(width), jnp.zeros(width))

    def see(self, obs: Num[Array, "*batch width"]) -> "Spread":
        """With these states added."""
        rows = obs.reshape(-1, obs.shape[-1]).astype(jnp.float32)
        number, mean = jnp.float32(rows.shape[0]), jnp.mean(rows, axis=0)
        count, apart = self.count + number, mean - self.mean
        squares = self.squares + jnp.sum((rows - mean) ** 2, axis=0) + apart**2 * self.count * number / count
        return Spread(count, self.mean + apart * number / count, squares)

    @property
    def deviation(self) -> Float[Array, "*run width"]:
        """Standard deviations."""
        return jnp.sqrt(self.squares / jnp.maximum(self.count, 1.0))


def stillness(factors: Factors, spread: Spread) -> Float[Array, "*run width"]:
    """How far each component may move and still count as staying where it is."""
    continuous = np.concatenate([np.full(v.kind.size, not isinstance(v.kind, Discrete)) for v in factors.variables])
    return jnp.where(continuous, STILL * spread.deviation, 0.0)


def changed(
    factors: Factors,
    obs: Num[Array, "*batch width"],
    next_obs: Num[Array, "*batch width"],
    spread: Spread,
    granularity: Granularity = "variable",
) -> Bool[Array, "*batch bit"]:
    """Whether each variable, or any variable of each entity, changed."""
    moved = jnp.abs(next_obs.astype(jnp.float32) - obs.astype(jnp.float32)) > stillness(factors, spread)
    groups = [moved[..., factors.flat_slice(i)].any(-1) for i in range(factors.num_variables)]
    if granularity == "entity":
        groups = [jnp.stack(groups[part], axis=-1).any(-1) for part in factors.entity_slices]
    return jnp.stack(groups, axis=-1)


@dataclass(frozen=True)
class ChangeConfig:
    """Whether things change, as a bonus."""

    whether: WhetherConfig = field(default_factory=WhetherConfig)
    """The networks that predict changes."""
    granularity: Granularity = "variable"
    """Whether the questions are about variables or about whole entities."""
    once: bool = False
    """Reward a variable only once in an episode."""

    def __post_init__(self) -> None:
        if self.once:
            check_once(self.whether)


@pytree()
@dataclass(frozen=True)
class ChangeState:
    """Networks, what continuous variables vary by, and what was rewarded in the episodes under way."""

    whether: WhetherState
    spread: Spread
    episodes: Episodes


@dataclass(frozen=True)
class ChangeSurprise:
    """Mean over variables of `1(−log P(c) − H(P) > 3 nats)`, with c whether the variable changed."""

    name: ClassVar[str] = "change-surprise"

    space: Space
    config: ChangeConfig = field(default_factory=ChangeConfig)

    @property
    def networks(self) -> Whether:
        """What predicts changes."""
        factors = self.space.factors
        bits = factors.num_variables if self.config.granularity == "variable" else factors.num_entities
        return Whether(self.space, bits, self.config.whether)

    def init(self, key: Key[Array, ""], num_envs: int) -> ChangeState:
        """Untrained networks."""
        networks = self.networks
        spread = Spread.init(self.space.factors.width)
        return ChangeState(networks.init(key), spread, Episodes.init(num_envs, networks.bits))

    def _changed(self, state: ChangeState, steps: Steps) -> Bool[Array, "step bit"]:
        bits = changed(self.space.factors, steps.obs, steps.next_obs, state.spread, self.config.granularity)
        return bits.reshape(-1, bits.shape[-1])

    def reward(self, state: ChangeState, steps: Steps) -> tuple[ChangeState, Float[Array, "time env"], Metrics]:
        """Mean over the questions of the reward of each answer."""
        items = self.networks.rewards(state.whether, steps.transitions(), self._changed(state, steps))
        items = items.reshape(*steps.done.shape, -1)
        episodes, rewards, metrics = reward_of_items(items, steps.done, state.episodes, self.config.once)
        return replace(state, episodes=episodes), rewards, metrics

    def update(self, state: ChangeState, key: Key[Array, ""], steps: Steps) -> tuple[ChangeState, Metrics]:
        """Learn what changes."""
        state = replace(state, spread=state.spread.see(steps.obs))
        bits = self._changed(state, steps)
        whether, metrics = self.networks.update(state.whether, key, steps.transitions(), bits)
        return replace(state, whether=whether), metrics
