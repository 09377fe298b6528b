"""Several bonuses as one: a weighted sum, or a sum that counts only where that of the first is above 0.

Bonuses that read the same kind of ensemble share one, which is then trained once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from elden.bonuses.base import AnyBonus, Metrics
from elden.bonuses.elden import Dependencies
from elden.bonuses.ensemble import Ensemble, EnsembleState
from elden.bonuses.model_based import Memory, ModelBonus, ModelState, WithModels
from elden.pytree import pytree
from elden.transitions import Steps

Mode: TypeAlias = Literal["sum", "gated"]


@pytree()
@dataclass(frozen=True)
class CompositeState:
    """States of the parts.

    Attributes:
        ensembles: One for each kind that the parts need.
        parts: The parts' own states; of a part that reads an ensemble, only its memory.
    """

    ensembles: tuple[EnsembleState, ...]
    parts: tuple[object, ...]


@dataclass(frozen=True)
class Composite:
    """`Σ_k w_k r_k`, in mode "gated" only where `r_0 > 0`."""

    name: ClassVar[str] = "composite"

    parts: tuple[AnyBonus, ...]
    weights: tuple[float, ...]
    mode: Mode = "sum"

    def __post_init__(self) -> None:
        if not self.parts or len(self.parts) != len(self.weights):
            raise ValueError(
                f"{len(self.parts)} bonuses with {len(self.weights)} weights given; a mix needs a weight for each of at"
                " least one"
            )

    @property
    def ensembles(self) -> tuple[Ensemble, ...]:
        """The different ensembles of the parts, in the order in which they first appear."""
        return tuple(dict.fromkeys(part.ensemble for part in self.parts if isinstance(part, ModelBonus)))

    def init(self, key: Key[Array, ""], num_envs: int) -> CompositeState:
        """Every part at its beginning."""
        keys = jax.random.split(key, len(self.parts) + len(self.ensembles))
        ensembles = tuple(ensemble.init(each) for ensemble, each in zip(self.ensembles, keys, strict=False))
        own = zip(self.parts, keys[len(ensembles) :], strict=True)
        states = (
            part.remember(num_envs) if isinstance(part, ModelBonus) else part.init(each, num_envs) for part, each in own
        )
        return CompositeState(ensembles, tuple(states))

    def state_of(self, state: CompositeState, number: int) -> object:
        """The whole state of a part, with the ensemble that it may share."""
        part, own = self.parts[number], state.parts[number]
        if isinstance(part, ModelBonus) and isinstance(own, Memory):
            return ModelState(state.ensembles[self.ensembles.index(part.ensemble)], own)
        return own

    def models_in(self, state: CompositeState) -> tuple[ModelBonus, ModelState] | None:
        """Those of the first part that reads graphs, else of the first one that reads models at all."""
        parts = [(part, self.state_of(state, i)) for i, part in enumerate(self.parts) if isinstance(part, WithModels)]
        found = [each for each in (part.models_in(own) for part, own in parts) if each is not None]
        return min(found, key=lambda each: not isinstance(each[0].signal, Dependencies), default=None)

    def reward(self, state: CompositeState, steps: Steps) -> tuple[CompositeState, Float[Array, "time env"], Metrics]:
        """The mix of the parts' rewards; of a metric that several parts have, that of the first is logged."""
        rewards, states = [], []
        metrics: Metrics = {}
        for number, part in enumerate(self.parts):
            own, reward, more = part.reward(self.state_of(state, number), steps)
            rewards.append(reward)
            states.append(own.memory if isinstance(own, ModelState) else own)
            metrics = more | metrics | {f"bonus/{part.name}": jnp.mean(reward)}
        total = self.mixed(rewards)
        metrics["bonus/mean"] = jnp.mean(total)
        return CompositeState(state.ensembles, tuple(states)), total, metrics

    def mixed(self, rewards: Sequence[Float[Array, "time env"]]) -> Float[Array, "time env"]:
        """The parts' rewards as one."""
        total = sum((w * r for w, r in zip(self.weights, rewards, strict=True)), start=jnp.zeros_like(rewards[0]))
        return jnp.where(rewards[0] > 0, total, 0.0) if self.mode == "gated" else total

    def update(self, state: CompositeState, key: Key[Array, ""], steps: Steps) -> tuple[CompositeState, Metrics]:
        """Train each ensemble once, and every other part."""
        keys = jax.random.split(key, len(self.parts) + len(self.ensembles))
        metrics: Metrics = {}
        trained = []
        for ensemble, own, each in zip(self.ensembles, state.ensembles, keys, strict=False):
            after, more = ensemble.update(own, each, steps)
            trained.append(after)
            metrics = more | metrics
        state = CompositeState(tuple(trained), state.parts)
        states = []
        for number, (part, each) in enumerate(zip(self.parts, keys[len(trained) :], strict=True)):
            whole = self.state_of(state, number)
            if isinstance(part, ModelBonus) and isinstance(whole, ModelState):
                after_part, more = part.adapt(whole.ensemble, whole.memory)
            else:
                after_part, more = part.update(whole, each, steps)
            states.append(after_part)
            metrics = more | metrics
        return CompositeState(state.ensembles, tuple(states)), metrics
