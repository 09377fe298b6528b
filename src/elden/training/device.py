"""Rollouts in our own worlds, on the device that agents learn on.

Seeds and environments are one axis, so that initial states are drawn only in steps in which some episode ends.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, Shaped

from elden.pytree import pytree
from elden.training.config import LoopConfig
from elden.training.rollout import Actor, Rollout
from elden.transitions import Steps
from elden.worlds.base import World, WorldState


@pytree()
@dataclass(frozen=True)
class Worlds:
    """Where the environments are, those of one seed after those of the one before.

    Attributes:
        states: Their states.
        solvable: Whether the task could be solved from the initial state of each episode.
    """

    states: WorldState
    solvable: Bool[Array, " world"]


@dataclass(frozen=True)
class DeviceCollector:
    """Takes rollouts inside compiled programs. Frozen and hashable."""

    world: World
    actor: Actor[Any]
    config: LoopConfig

    def init(self, keys: Key[Array, " seed"]) -> Worlds:
        """All environments at the beginning of an episode."""
        states = jax.vmap(lambda key: self.world.reset_many(key, self.config.num_envs))(keys)
        flat: WorldState = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), states)
        return Worlds(flat, jax.vmap(self.world.solvable)(flat))

    def collect(
        self, worlds: Worlds, policy: Any, keys: Key[Array, " seed"], warm: Bool[Array, ""]
    ) -> tuple[Worlds, Rollout]:
        """A rollout of all seeds; see `Collector`."""
        config, seeds, world = self.config, keys.shape[0], self.world

        def apart(leaf: Shaped[Array, "world ..."]) -> Shaped[Array, "seed env ..."]:
            return leaf.reshape(seeds, config.num_envs, *leaf.shape[1:])

        def step(worlds: Worlds, time: Int[Array, ""]) -> _Step:
            now = self.actor.keys_at(keys, time)
            obs = apart(jax.vmap(world.observe)(worlds.states))
            elapsed = apart(jax.vmap(world.elapsed_fraction)(worlds.states))
            action, log_prob = self.actor.act(policy, now[:, :2], obs, elapsed, warm)
            step_keys, reset_keys = (
                jax.vmap(jax.random.split, in_axes=(0, None))(now[:, i], config.num_envs).reshape(-1) for i in (2, 3)
            )
            after, transition = world.step_each(step_keys, reset_keys, worlds.states, action.reshape(-1))
            done = transition.done
            following = Worlds(after, self._solvable(after, done, worlds.solvable))
            length = jnp.float32(world.max_steps)
            taken = Rollout(
                steps=Steps(*map(apart, (transition.obs, transition.action, transition.next_obs, done))),
                elapsed=jnp.stack([elapsed, elapsed + 1.0 / length], axis=-1),
                log_prob=log_prob,
                reward=apart(transition.reward),
                terminated=apart(transition.terminated | (done & config.horizon_ends)),
                success=apart(transition.success),
                stages=apart(transition.stages),
                solvable=apart(worlds.solvable),
            )
            return following, taken

        worlds, rollout = jax.lax.scan(step, worlds, jnp.arange(config.rollout, dtype=jnp.int32))
        by_seed: Rollout = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), rollout)
        return worlds, by_seed

    def _solvable(
        self, states: WorldState, begun: Bool[Array, " world"], known: Bool[Array, " world"]
    ) -> Bool[Array, " world"]:
        """Whether the task can be solved in each episode; computed only where one has begun."""

        def look(known: Bool[Array, " world"]) -> Bool[Array, " world"]:
            return jnp.where(begun, jax.vmap(self.world.solvable)(states), known)

        solvable: Bool[Array, " world"] = jax.lax.cond(jnp.any(begun), look, lambda known: known, known)
        return solvable


_Step: TypeAlias = tuple[Worlds, Rollout]
