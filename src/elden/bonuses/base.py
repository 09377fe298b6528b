"""What a bonus is: a reward for a step that does not come from the task, and something that learns from steps."""

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from elden.dynamics.config import NetworkConfig
from elden.dynamics.layout import Layout
from elden.factors import Discrete, Factors, Kind
from elden.transitions import Steps, Transitions

Metrics: TypeAlias = dict[str, Float[Array, "..."]]

State = TypeVar("State")


@dataclass(frozen=True)
class Space:
    """What states and actions are."""

    factors: Factors
    """Entities of a state and their variables."""
    action: Kind
    """Kind of an action."""

    def layout(self, network: NetworkConfig) -> Layout:
        """Arrays of dynamics models for this space."""
        return Layout(self.factors, self.action, network)

    def one_hot(self, seen: Transitions) -> Float[Array, "step feature"]:
        """State and action as one vector, discrete variables one-hot."""
        if isinstance(self.action, Discrete):
            action = jax.nn.one_hot(seen.action.astype(jnp.int32), self.action.n)
        else:
            action = seen.action.astype(jnp.float32)
        return jnp.concatenate([self.factors.one_hot(seen.obs), action], axis=-1)


@runtime_checkable
class Bonus(Protocol[State]):
    """Frozen and hashable; everything that changes is in its state.

    A bonus rewards steps in the order in which they happen, and learns from them afterwards:

        state = bonus.init(key, num_envs)
        state, rewards, metrics = bonus.reward(state, steps)
        state, metrics = bonus.update(state, key, steps)

    All three can be jitted, and vmapped over independent runs.
    """

    @property
    def name(self) -> str:
        """What the registry calls it."""

    def __hash__(self) -> int: ...

    def init(self, key: Key[Array, ""], num_envs: int) -> State:
        """The state before the first step."""

    def reward(self, state: State, steps: Steps) -> tuple[State, Float[Array, "time env"], Metrics]:
        """The intrinsic reward of each step; the state remembers what it must of the episodes under way."""

    def update(self, state: State, key: Key[Array, ""], steps: Steps) -> tuple[State, Metrics]:
        """Learn from these steps."""


AnyBonus: TypeAlias = Bonus[Any]
"""A bonus whose state is of a type that only it knows."""
