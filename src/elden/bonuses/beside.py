"""Dynamics models beside a bonus that needs none: they learn from the same steps, for local graphs to be read."""

from dataclasses import dataclass
from typing import Generic

import jax
from jaxtyping import Array, Float, Key

from elden.bonuses.base import Bonus, Metrics, State
from elden.bonuses.model_based import ModelBonus, ModelState
from elden.pytree import pytree
from elden.transitions import Steps


@pytree()
@dataclass(frozen=True)
class BesideState(Generic[State]):
    """The state of the bonus, and that of the models beside it."""

    bonus: State
    model: ModelState


@dataclass(frozen=True)
class Beside(Generic[State]):
    """A bonus with models beside it. The reward does not depend on them."""

    bonus: Bonus[State]
    models: ModelBonus
    """What learns the dynamics; its signal is no reward."""

    @property
    def name(self) -> str:
        """That of the bonus."""
        return self.bonus.name

    def init(self, key: Key[Array, ""], num_envs: int) -> BesideState[State]:
        """Both at their beginning."""
        keys = jax.random.split(key)
        return BesideState(self.bonus.init(keys[0], num_envs), self.models.init(keys[1], num_envs))

    def models_in(self, state: BesideState[State]) -> tuple[ModelBonus, ModelState]:
        """The models beside the bonus."""
        return self.models, state.model

    def reward(
        self, state: BesideState[State], steps: Steps
    ) -> tuple[BesideState[State], Float[Array, "time env"], Metrics]:
        """That of the bonus."""
        bonus, rewards, metrics = self.bonus.reward(state.bonus, steps)
        return BesideState(bonus, state.model), rewards, metrics

    def update(
        self, state: BesideState[State], key: Key[Array, ""], steps: Steps
    ) -> tuple[BesideState[State], Metrics]:
        """Train the bonus and the models."""
        keys = jax.random.split(key)
        bonus, metrics = self.bonus.update(state.bonus, keys[0], steps)
        model, more = self.models.update(state.model, keys[1], steps)
        return BesideState(bonus, model), metrics | more
