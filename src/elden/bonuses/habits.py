"""What variables do by themselves, as a table: which moves follow which value, whatever else is going on.

A lamp stays as it is, a clock goes on by one, noise does anything. A move that is far less likely than the moves from
that value mostly are is one that something else, an action or another entity, may have caused. The table is the
coarsest model of a variable from its own past alone, so this is the question of the local graph, *does it depend on
anything but itself here*, asked without asking on what.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num

from elden.bonuses.changes import Spread, stillness
from elden.factors import Discrete, Factors
from elden.graphs.base import STILL
from elden.pytree import pytree

_PLACES = 32
"""Values kept apart. A discrete variable with more, and a continuous one, have parts of their range instead."""
_WIDTHS = 2
"""The range of a variable reaches so many standard deviations to both sides of its mean."""
_STAYS = 0
_SIZES = (_PLACES - 1) // 2
"""Moves up, and moves down, of different sizes: each is up to twice as long as the one before it."""
_UNSEEN = 1e-3
"""How often a move that was never seen is taken to have been."""


@pytree()
@dataclass(frozen=True)
class Habits:
    """How often each move has followed each value, of every component of a flat state.

    The move of a discrete variable of few values is its next value; that of any other is to stay, or its direction and
    its size.
    """

    counts: Int[Array, "*run component value move"]

    @classmethod
    def init(cls, factors: Factors) -> "Habits":
        """Nothing seen: everything is taken to stay as it is."""
        counts = np.zeros((factors.width, _PLACES, _PLACES), np.int32)
        counts[:, :, _STAYS] = 1
        counts[_listed(factors)] = np.eye(_PLACES, dtype=np.int32)
        return cls(jnp.asarray(counts))

    def see(
        self, factors: Factors, spread: Spread, obs: Num[Array, "*batch width"], next_obs: Num[Array, "*batch width"]
    ) -> "Habits":
        """With these steps counted."""
        value, move = _moves(factors, spread, obs, next_obs)
        return Habits(self.counts.at[jnp.arange(factors.width, dtype=jnp.int32), value, move].add(1))

    def broken(
        self,
        factors: Factors,
        spread: Spread,
        obs: Num[Array, "*batch width"],
        next_obs: Num[Array, "*batch width"],
        excess: float,
    ) -> Bool[Array, "*batch variable"]:
        """Whether any component of each variable moved in a way that surprises by so many nats more than expected."""
        value, move = _moves(factors, spread, obs, next_obs)
        against = self.excess[jnp.arange(factors.width, dtype=jnp.int32), value, move] > excess
        return jnp.stack([against[..., factors.flat_slice(i)].any(-1) for i in range(factors.num_variables)], axis=-1)

    @property
    def excess(self) -> Float[Array, "*run component value move"]:
        """`-log P(move | value) - H(P)` in nats: 0 on average for what is random, however large its entropy."""
        total = jnp.sum(self.counts, axis=-1, keepdims=True, dtype=jnp.float32)
        p = jnp.maximum(self.counts.astype(jnp.float32), _UNSEEN) / total
        surprise = -jnp.log(p)
        return surprise - jnp.sum(jnp.where(self.counts > 0, p * surprise, 0.0), axis=-1, keepdims=True)


def _moves(
    factors: Factors, spread: Spread, obs: Num[Array, "*batch width"], next_obs: Num[Array, "*batch width"]
) -> tuple[Int[Array, "*batch width"], Int[Array, "*batch width"]]:
    """Where each component was and how it moved, as places in the table."""
    listed, before, after = _listed(factors), obs.astype(jnp.float32), next_obs.astype(jnp.float32)
    apart, reach = after - before, _WIDTHS * spread.deviation
    share = (before - spread.mean + reach) / jnp.where(reach > 0, 2 * reach, 1.0)
    part = jnp.clip(jnp.floor(share * _PLACES), 0, _PLACES - 1)
    least = STILL * jnp.where(spread.deviation > 0, spread.deviation, 1.0)
    size = jnp.clip(jnp.floor(jnp.log2(jnp.maximum(jnp.abs(apart) / least, 1.0))), 0, _SIZES - 1)
    way = jnp.where(apart > 0, 1 + size, 1 + _SIZES + size)
    way = jnp.where(jnp.abs(apart) <= stillness(factors, spread), _STAYS, way)
    value = jnp.where(listed, before, part).astype(jnp.int32)
    move = jnp.where(listed, after, way).astype(jnp.int32)
    return value, move


def _listed(factors: Factors) -> Bool[np.ndarray, " width"]:
    """Which components are discrete variables of few values."""
    kinds = [variable.kind for variable in factors.variables]
    few = [isinstance(kind, Discrete) and kind.n <= _PLACES for kind in kinds]
    return np.repeat(few, [kind.size for kind in kinds])
