"""Compiled steps of one episode, and what they were on the host."""

from dataclasses import dataclass
from functools import partial

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from elden.worlds.base import Transition, World, WorldState


@partial(jax.jit, static_argnums=0)
def reset(world: World, key: Key[Array, ""]) -> WorldState:
    """Start an episode."""
    return world.reset(key)


@partial(jax.jit, static_argnums=0)
def step(
    world: World, key: Key[Array, ""], state: WorldState, action: int | Int[Array, ""]
) -> tuple[WorldState, Transition]:
    """One step with a chosen action."""
    return world.step(key, state, jax.numpy.asarray(action, jax.numpy.int32))


@partial(jax.jit, static_argnums=0)
def scripted_step(
    world: World, key: Key[Array, ""], state: WorldState, epsilon: float | Float[Array, ""]
) -> tuple[WorldState, Transition]:
    """One step of the scripted policy, which with probability `epsilon` does anything."""
    act_key, step_key = jax.random.split(key)
    return world.step(step_key, state, world.scripted(act_key, state, epsilon))


@dataclass(frozen=True)
class Step:
    """One step, on the host.

    Attributes:
        number: Steps taken in the episode, this one included.
        action: Name of the action.
        reward: Of the task.
        success: Whether the task has been solved in this episode.
        terminated: The episode ended by success.
        truncated: The episode ended by its length.
        stages: Which stages have been reached in this episode.
        events: Names of the events that happened.
        graph: The true local graph, at variable granularity.
    """

    number: int
    action: str
    reward: float
    success: bool
    terminated: bool
    truncated: bool
    stages: tuple[bool, ...]
    events: tuple[str, ...]
    graph: Bool[np.ndarray, "dst src"]

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self.terminated or self.truncated


def record(world: World, state: WorldState, transition: Transition) -> Step:
    """The step that led to `state`, in one transfer from the device."""
    t = transition
    wanted = (state.elapsed, t.action, t.reward, t.success, t.terminated, t.truncated, t.stages, t.events, t.graph)
    elapsed, action, reward, success, terminated, truncated, stages, events, graph = jax.device_get(wanted)
    return Step(
        number=int(elapsed),
        action=world.action_names[int(action)],
        reward=float(reward),
        success=bool(success),
        terminated=bool(terminated),
        truncated=bool(truncated),
        stages=tuple(map(bool, stages)),
        events=tuple(name for name, happened in zip(world.book.events, events, strict=True) if happened),
        graph=np.asarray(graph),
    )
