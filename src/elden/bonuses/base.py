"""What a bonus is: a reward for a step that does not come from the task, and something that learns from steps."""

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from jaxtyping import Array, Bool, Float, Key, Num

from elden.dynamics.config import NetworkConfig
from elden.dynamics.layout import Layout
from elden.dynamics.training import Transitions
from elden.factors import Factors, Kind
from elden.pytree import pytree

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


@pytree()
@dataclass(frozen=True)
class Steps:
    """Steps of several environments, in the order of time.

    Attributes:
        obs: Flat states, as `Factors` lays them out.
        action: What was done.
        next_obs: The true states afterwards, also where a new episode then begins.
        done: Whether the step was the last one of an episode.
    """

    obs: Num[Array, "*run time env width"]
    action: Num[Array, "..."]
    next_obs: Num[Array, "*run time env width"]
    done: Bool[Array, "*run time env"]

    def transitions(self) -> Transitions:
        """All of them as one list, ordered by time."""
        obs, action, next_obs = (part.reshape(-1, *part.shape[2:]) for part in (self.obs, self.action, self.next_obs))
        return Transitions(obs, action, next_obs)


@runtime_checkable
class Bonus(Protocol[State]):
    """Frozen and hashable; everything that changes is in its state.

    A bonus pays for steps in the order in which they happen, and learns from them afterwards:

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
        """What each step is worth; the state remembers what it must of the episodes, if the steps are paid for."""

    def update(self, state: State, key: Key[Array, ""], steps: Steps) -> tuple[State, Metrics]:
        """Learn from these steps."""


AnyBonus: TypeAlias = Bonus[Any]
"""A bonus whose state is of a type that only it knows."""
