"""Counts as a control: states, or local graphs, are rewarded by one over the root of how often they were seen.

Counts are kept in a table whose place is a hash. Two things that fall into one place count as one; with 2^20 places and
a hundred thousand different things that is one in ten.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, Num, UInt32

from elden.bonuses.base import Metrics, Space
from elden.bonuses.model_based import ModelBonus, ModelState
from elden.pytree import pytree
from elden.transitions import Steps, Transitions

_BITS = 20


def places(numbers: Int[Array, "*batch digit"], bits: int = _BITS) -> Int[Array, "*batch"]:
    """Place of each vector of integers in a table: a multiply-and-add hash with fixed odd factors."""
    factors = np.random.default_rng(0).integers(1, 2**32, numbers.shape[-1], np.uint32) | np.uint32(1)
    mixed = numbers.astype(jnp.uint32) * jnp.asarray(factors)
    total = jnp.sum(_scramble(mixed), axis=-1, dtype=jnp.uint32)
    return (_scramble(total) >> (32 - bits)).astype(jnp.int32)


def _scramble(x: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    """A bijection of 32-bit numbers that lets every bit change every other."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


@dataclass(frozen=True)
class StateCount:
    """`N(s')^-1/2`, with N counting this visit and those of earlier rollouts."""

    name: ClassVar[str] = "state-count"

    space: Space
    grain: float = 0.05
    """Continuous variables are cut into pieces of this size."""

    def init(self, key: Key[Array, ""], num_envs: int) -> Int[Array, " place"]:
        """Nothing seen."""
        return jnp.zeros(2**_BITS, jnp.int32)

    def whole(self, obs: Num[Array, "*batch width"]) -> Int[Array, "*batch width"]:
        """States as whole numbers."""
        cut = jnp.floor(obs / self.grain) if jnp.issubdtype(obs.dtype, jnp.floating) else obs
        return cut.astype(jnp.int32)

    def _places(self, obs: Num[Array, "*batch width"]) -> Int[Array, "*batch"]:
        return places(self.whole(obs))

    def reward(
        self, state: Int[Array, " place"], steps: Steps
    ) -> tuple[Int[Array, " place"], Float[Array, "time env"], Metrics]:
        """More for rare states."""
        seen = state[self._places(steps.next_obs)]
        rewards = jax.lax.rsqrt(seen.astype(jnp.float32) + 1.0)
        return state, rewards, {"bonus/mean": jnp.mean(rewards)}

    def update(
        self, state: Int[Array, " place"], key: Key[Array, ""], steps: Steps
    ) -> tuple[Int[Array, " place"], Metrics]:
        """Count these states."""
        counts = state.at[self._places(steps.next_obs).ravel()].add(1)
        return counts, {"bonus/places": jnp.sum(counts > 0, dtype=jnp.float32)}


@pytree()
@dataclass(frozen=True)
class GraphCountState:
    """The ensemble that graphs are read from, and how often each was seen."""

    model: ModelState
    counts: Int[Array, "*run place"]


@dataclass(frozen=True)
class GraphCount:
    """`N(parents of j)^-1/2`, averaged over children j: each child's row of the local graph is counted by itself.

    A row holds the edges that most members see.
    """

    name: ClassVar[str] = "graph-count"

    consensus: ModelBonus
    """Its signal is `Consensus`: what share of an ensemble's members sees each edge."""

    def init(self, key: Key[Array, ""], num_envs: int) -> GraphCountState:
        """Untrained models, nothing counted."""
        return GraphCountState(self.consensus.init(key, num_envs), jnp.zeros(2**_BITS, jnp.int32))

    def models_in(self, state: GraphCountState) -> tuple[ModelBonus, ModelState]:
        """Those that graphs are read from."""
        return self.consensus, state.model

    def rows(self, state: ModelState, seen: Transitions) -> tuple[Int[Array, "step child"], Metrics]:
        """Place of each child's row of the graph, and how well the ensemble predicted."""
        graph, metrics = self.consensus.item_rewards(state, seen)
        child = jnp.broadcast_to(jnp.arange(graph.shape[1], dtype=jnp.int32)[:, None], (*graph.shape[:2], 1))
        return places(jnp.concatenate([(graph > 0.5).astype(jnp.int32), child], axis=-1)), metrics

    def reward(self, state: GraphCountState, steps: Steps) -> tuple[GraphCountState, Float[Array, "time env"], Metrics]:
        """More for rare rows."""
        rows, metrics = self.rows(state.model, steps.transitions())
        rewards = jnp.mean(jax.lax.rsqrt(state.counts[rows].astype(jnp.float32) + 1.0), axis=1)
        rewards = rewards.reshape(steps.done.shape)
        return state, rewards, metrics | {"bonus/mean": jnp.mean(rewards)}

    def update(self, state: GraphCountState, key: Key[Array, ""], steps: Steps) -> tuple[GraphCountState, Metrics]:
        """Count the rows as the models see them now, then train the models."""
        rows, _ = self.rows(state.model, steps.transitions())
        counts = state.counts.at[rows.ravel()].add(1)
        model, metrics = self.consensus.update(state.model, key, steps)
        metrics["bonus/places"] = jnp.sum(counts > 0, dtype=jnp.float32)
        return GraphCountState(model, counts), metrics
