"""No bonus: the agent is rewarded by the task alone."""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from elden.bonuses.base import Metrics
from elden.transitions import Steps

Empty: TypeAlias = tuple[()]


@dataclass(frozen=True)
class Nothing:
    """Pays nothing and learns nothing."""

    name: ClassVar[str] = "none"

    def init(self, key: Key[Array, ""], num_envs: int) -> Empty:
        """Nothing."""
        return ()

    def reward(self, state: Empty, steps: Steps) -> tuple[Empty, Float[Array, "time env"], Metrics]:
        """Zeros."""
        return state, jnp.zeros(steps.done.shape, jnp.float32), {}

    def update(self, state: Empty, key: Key[Array, ""], steps: Steps) -> tuple[Empty, Metrics]:
        """Nothing."""
        return state, {}
