"""What an agent is: something that acts, and learns from what came of it."""

from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

from jaxtyping import Array, Bool, Float, Key, Num

from elden.agents.actions import Actions
from elden.pytree import pytree

Metrics: TypeAlias = dict[str, Float[Array, "..."]]
State = TypeVar("State")


@pytree()
@dataclass(frozen=True)
class Trajectory:
    """Steps of several environments in the order of time, and their rewards.

    Attributes:
        inputs: What the agent read before each step.
        next_inputs: What it would have read after it, also where a new episode then begins.
        action: What it did.
        log_prob: Logarithm of the probability with which it did that.
        rewards: Rewards of each stream, such as the task's and the intrinsic one.
        terminated: Whether the step ended the task.
        done: Whether it ended the episode, for whatever reason.
    """

    inputs: Float[Array, "time env feature"]
    next_inputs: Float[Array, "time env feature"]
    action: Num[Array, "time env *component"]
    log_prob: Float[Array, "time env"]
    rewards: Float[Array, "time env stream"]
    terminated: Bool[Array, "time env"]
    done: Bool[Array, "time env"]


@runtime_checkable
class Agent(Protocol[State]):
    """Learns to act from trajectories. Frozen and hashable: it is static when functions are compiled.

    To add one: write its file, with these four members, and make it in `elden.training.algorithm.Loop.agent`.
    """

    @property
    def actions(self) -> Actions:
        """What the numbers of the policy mean."""

    def init(self, key: Key[Array, ""]) -> State:
        """An untrained agent."""

    def numbers(self, state: State, inputs: Float[Array, "*batch feature"]) -> Float[Array, "*batch number"]:
        """The parameters of the distribution over actions, for each input."""

    def update(self, state: State, key: Key[Array, ""], trajectory: Trajectory) -> tuple[State, Metrics]:
        """Learn from a trajectory."""


def act(
    agent: Agent[State], state: State, key: Key[Array, ""], inputs: Float[Array, "env feature"]
) -> tuple[Num[Array, "env *component"], Float[Array, " env"]]:
    """An action for each environment, and the logarithm of its probability."""
    numbers = agent.numbers(state, inputs)
    action = agent.actions.sample(key, numbers)
    return action, agent.actions.log_prob(numbers, action)
