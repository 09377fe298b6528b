"""NovelD (Zhang et al. 2021): a reward for crossing from known states to novel ones, once in an episode."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from elden.bonuses.base import Metrics, Space
from elden.bonuses.counts import StateCount, places
from elden.bonuses.fitted import FitConfig
from elden.bonuses.rnd import Rnd, RndState
from elden.pytree import pytree
from elden.transitions import Steps

_BITS = 14
"""Places of each environment's table of visited states: after 500 others a new state shares one in 3 % of cases."""


@pytree()
@dataclass(frozen=True)
class NovelDState:
    """Random network distillation, and the states of the episodes under way.

    Attributes:
        rnd: The networks.
        visited: The states that each environment has seen in its episode, by hash.
        begun: Whether the episode's first state is among them.
    """

    rnd: RndState
    visited: Bool[Array, "*run env place"]
    begun: Bool[Array, "*run env"]

    def forget(self) -> "NovelDState":
        """Nothing visited in the episodes under way."""
        return NovelDState(self.rnd, jnp.zeros_like(self.visited), jnp.zeros_like(self.begun))


@dataclass(frozen=True)
class NovelD:
    """`max(n(s') − α n(s), 0)` at the first visit to s' in an episode, with n the error of RND."""

    name: ClassVar[str] = "noveld"

    space: Space
    config: FitConfig = field(default_factory=FitConfig)
    alpha: float = 0.5
    """Share of the novelty of the state before that is subtracted, as in the original."""

    @property
    def _rnd(self) -> Rnd:
        return Rnd(self.space, self.config)

    def init(self, key: Key[Array, ""], num_envs: int) -> NovelDState:
        """Untrained networks, nothing visited."""
        visited = jnp.zeros((num_envs, 2**_BITS), jnp.bool_)
        return NovelDState(self._rnd.init(key, num_envs), visited, jnp.zeros(num_envs, jnp.bool_))

    def reward(self, state: NovelDState, steps: Steps) -> tuple[NovelDState, Float[Array, "time env"], Metrics]:
        """How much more novel the state after each step is than the one before."""
        after = self._rnd.errors(state.rnd, steps.next_obs)
        before = self._rnd.errors(state.rnd, steps.obs)
        whole = StateCount(self.space).whole
        first, then = (places(whole(obs), _BITS) for obs in (steps.obs, steps.next_obs))
        rows = jnp.arange(steps.done.shape[1], dtype=jnp.int32)

        def step(carry, now):  # type: ignore[no-untyped-def]
            (visited, begun), (here, there, done) = carry, now
            visited = visited.at[rows, here].set(visited[rows, here] | ~begun)
            new = ~visited[rows, there]
            return (visited.at[rows, there].set(True) & ~done[:, None], ~done), new

        (visited, begun), new = jax.lax.scan(step, (state.visited, state.begun), (first, then, steps.done))
        rewards = jnp.where(new, jnp.maximum(after - self.alpha * before, 0.0), 0.0)
        return NovelDState(state.rnd, visited, begun), rewards, {"bonus/mean": jnp.mean(rewards)}

    def update(self, state: NovelDState, key: Key[Array, ""], steps: Steps) -> tuple[NovelDState, Metrics]:
        """Imitate the random network on these states."""
        rnd, metrics = self._rnd.update(state.rnd, key, steps)
        return replace(state, rnd=rnd), metrics
