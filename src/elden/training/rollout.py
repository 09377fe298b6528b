"""Rollouts: what environments did, and how agents act in them."""

from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, Num

from elden.agents.base import Agent, act
from elden.factors import Factors
from elden.pytree import pytree
from elden.transitions import Steps

Metrics: TypeAlias = dict[str, Float[Array, "..."]]
Worlds = TypeVar("Worlds")
Policy = TypeVar("Policy")


@pytree()
@dataclass(frozen=True)
class Rollout:
    """What the environments of one seed did.

    Attributes:
        steps: The steps.
        elapsed: How much of the episode was over, before each step and after it.
        log_prob: Logarithm of the probability of each action.
        reward: The task's reward.
        terminated: Whether the step ended the task.
        success: Whether the task has been solved in the episode.
        stages: Which stages have been reached in the episode.
        solvable: Whether the task could be solved in the episode; None where nobody knows.
    """

    steps: Steps
    elapsed: Float[Array, "*seed time env 2"]
    log_prob: Float[Array, "*seed time env"]
    reward: Float[Array, "*seed time env"]
    terminated: Bool[Array, "*seed time env"]
    success: Bool[Array, "*seed time env"]
    stages: Bool[Array, "*seed time env stage"]
    solvable: Bool[Array, "*seed time env"] | None


@runtime_checkable
class Collector(Protocol[Worlds]):
    """Takes rollouts of all environments of all seeds."""

    def collect(
        self, worlds: Worlds, policy: Policy, keys: Key[Array, " seed"], warm: Bool[Array, ""]
    ) -> tuple[Worlds, Rollout]:
        """A rollout from where the environments are.

        Args:
            worlds: Where they are.
            policy: The agents' states.
            keys: A key for each seed.
            warm: Whether agents act, or actions are random.
        """


@pytree()
@dataclass(frozen=True)
class Recorded(Generic[Worlds]):
    """A rollout that was taken elsewhere, as a collector."""

    rollout: Rollout

    def collect(
        self, worlds: Worlds, policy: Policy, keys: Key[Array, " seed"], warm: Bool[Array, ""]
    ) -> tuple[Worlds, Rollout]:
        """That rollout."""
        return worlds, self.rollout


@dataclass(frozen=True)
class Actor(Generic[Policy]):
    """How the agents of all seeds act, wherever their environments are stepped. Frozen and hashable."""

    agent: Agent[Policy]
    factors: Factors
    """What observations are made of."""
    num_actions: int
    """How many actions there are."""
    see_time: bool
    """Whether the policy sees how much of the episode is over."""

    def inputs(
        self, obs: Num[Array, "*batch width"], elapsed: Float[Array, "*batch"]
    ) -> Float[Array, "*batch feature"]:
        """What the policy reads."""
        encoded = self.factors.one_hot(obs)
        return jnp.concatenate([encoded, elapsed[..., None]], axis=-1) if self.see_time else encoded

    def keys_at(self, keys: Key[Array, " seed"], time: Int[Array, ""]) -> Key[Array, "seed 4"]:
        """The keys of one step of a rollout: two for the action, one for the step, one for the next episode."""
        return jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, time), 4))(keys)

    def act(
        self,
        policy: Policy,
        keys: Key[Array, "seed 2"],
        obs: Num[Array, "seed env width"],
        elapsed: Float[Array, "seed env"],
        warm: Bool[Array, ""],
    ) -> tuple[Int[Array, "seed env"], Float[Array, "seed env"]]:
        """What all agents do, or something random before they are warm, and the logarithms of the probabilities."""

        def one(
            policy: Policy, keys: Key[Array, " 2"], inputs: Float[Array, "env feature"]
        ) -> tuple[Int[Array, " env"], Float[Array, " env"]]:
            action, log_prob = act(self.agent, policy, keys[0], inputs)
            other = jax.random.randint(keys[1], action.shape, 0, self.num_actions, jnp.int32)
            return jnp.where(warm, action, other), log_prob

        acted: tuple[Int[Array, "seed env"], Float[Array, "seed env"]]
        acted = jax.vmap(one)(policy, keys, self.inputs(obs, elapsed))
        return acted

    def choose(
        self,
        policy: Policy,
        keys: Key[Array, " episode"],
        obs: Num[Array, "agent episode width"],
        elapsed: Float[Array, "agent episode"],
        greedy: bool,
    ) -> Int[Array, "agent episode"]:
        """What all agents do in their episodes; the agents of an episode of one number share its key."""

        def one(policy: Policy, inputs: Float[Array, "episode feature"]) -> Int[Array, " episode"]:
            numbers, actions = self.agent.numbers(policy, inputs), self.agent.actions
            return actions.mode(numbers) if greedy else jax.vmap(actions.sample)(keys, numbers)

        chosen: Int[Array, "agent episode"] = jax.vmap(one)(policy, self.inputs(obs, elapsed))
        return chosen
