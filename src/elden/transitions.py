"""What every room hands on: transitions in any order, and steps of environments in the order of time."""

from dataclasses import dataclass

import jax
from jaxtyping import Array, Bool, Int, Num

from elden.pytree import pytree


@pytree()
@dataclass(frozen=True)
class Transitions:
    """Flat transitions, in whatever integer or float types they are stored."""

    obs: Num[Array, "*axes width"]
    action: Num[Array, "..."]
    next_obs: Num[Array, "*axes width"]

    def __getitem__(self, index: Int[Array, "..."]) -> "Transitions":
        chosen: Transitions = jax.tree.map(lambda leaf: leaf[index], self)
        return chosen


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
