"""Algorithm 1 of the paper, for all seeds side by side in one compiled program.

What happens in an iteration depends on the state, the seed and the number of the iteration alone. Where a rollout comes
from is the collector's business: our own worlds are stepped inside the program (`elden.training.device`), environments
of others on the host (`elden.training.host`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

from elden.agents import Agent, Categorical, Ppo, PpoConfig, Trajectory
from elden.bonuses import Bonus, Space, make_bonus
from elden.factors import Discrete
from elden.hosts.world import HostWorld
from elden.pytree import pytree
from elden.training.config import LoopConfig, TrainingConfig
from elden.training.device import DeviceCollector
from elden.training.rollout import Actor, Collector, Metrics, Rollout
from elden.training.scale import Scale
from elden.worlds.base import World

BonusState = TypeVar("BonusState")
_Tree = TypeVar("_Tree")
_Flag: TypeAlias = bool | Bool[Array, ""]


@pytree()
@dataclass(frozen=True)
class LoopState(Generic[BonusState]):
    """Everything that a training run is, between two iterations.

    Attributes:
        worlds: Where the environments are; None where they are on the host.
        policy: The agents' states.
        bonus: The bonuses' states.
        scale: What intrinsic rewards are divided by.
    """

    worlds: Any
    policy: Any
    bonus: BonusState
    scale: Scale


@dataclass(frozen=True)
class Loop(Generic[BonusState]):
    """Agents that explore one world with one bonus. Frozen and hashable."""

    world: World | HostWorld
    bonus: Bonus[BonusState]
    ppo: PpoConfig
    config: LoopConfig

    @classmethod
    def of(cls, world: World | HostWorld, config: TrainingConfig) -> "Loop[Any]":
        """The loop of a training run."""
        space = Space(world.factors, Discrete(world.num_actions))
        ensemble = config.bonus.ensemble
        if ensemble.schedule is None:
            ensemble = replace(ensemble, schedule=max(1, config.loop.iterations * ensemble.updates))
        bonus = make_bonus(config.bonus_name, space, replace(config.bonus, ensemble=ensemble))
        return cls(world, bonus, config.ppo, config.loop)

    def iterate(
        self,
        state: LoopState[BonusState],
        keys: Key[Array, " seed"],
        iteration: Int[Array, ""],
        collector: Collector[Any] | None = None,
    ) -> tuple[LoopState[BonusState], Metrics]:
        """One iteration of all seeds (paper, Algorithm 1); metrics have a number for each seed.

        In the warm-up actions are random, intrinsic rewards are 0, and the policy does not learn.

        Args:
            state: The state before.
            keys: The seeds' keys.
            iteration: Its number.
            collector: What takes the rollout; None steps our own world.
        """
        warm = iteration >= self.config.warmup_iterations
        act_keys, agent_keys, bonus_keys = self.keys_of(keys, iteration).T
        worlds, rollout = (collector or self.collector).collect(state.worlds, state.policy, act_keys, warm)  # line 3
        bonus, intrinsic, metrics = jax.vmap(self.bonus.reward)(state.bonus, rollout.steps)  # lines 5 and 6
        scale, scaled = jax.vmap(self.weigh)(state.scale, intrinsic, rollout.steps.done)
        unpaid = (state.bonus, state.scale, jnp.zeros_like(scaled))
        bonus, scale, scaled = _where(warm, (bonus, scale, scaled), unpaid)
        trajectory = jax.vmap(self.trajectory)(rollout, scaled)  # line 7
        policy, policy_metrics = _only_if(warm, jax.vmap(self.agent.update), state.policy, agent_keys, trajectory)
        learns = self.config.learn_in_warmup or warm
        bonus, bonus_metrics = _only_if(learns, jax.vmap(self.bonus.update), bonus, bonus_keys, rollout.steps)
        metrics = jax.vmap(self.episode_metrics)(rollout) | metrics | policy_metrics | bonus_metrics
        metrics["bonus/scaled"] = jnp.mean(scaled, axis=(1, 2))
        return LoopState(worlds, policy, bonus, scale), metrics

    @property
    def agent(self) -> Agent[Any]:
        """What learns to act."""
        loop, ppo = self.config, self.ppo
        size = min(ppo.minibatch_size, loop.steps_per_iteration)
        learning = max(1, loop.iterations - loop.warmup_iterations)
        updates = learning * ppo.epochs * (loop.steps_per_iteration // size)
        inputs = self.world.factors.encoded_width + int(loop.see_time)
        discounts = (loop.discount, loop.intrinsic_discount) if loop.separate_values else (loop.discount,)
        return Ppo(ppo, Categorical(self.world.num_actions), inputs, discounts, updates)

    @property
    def actor(self) -> Actor[Any]:
        """How agents act."""
        return Actor(self.agent, self.world.factors, self.world.num_actions, self.config.see_time)

    @property
    def collector(self) -> DeviceCollector:
        """What takes rollouts of a world of ours."""
        if not isinstance(self.world, World):
            raise TypeError(f"{self.world.name} is stepped on the host, by HostCollector")
        return DeviceCollector(self.world, self.actor, self.config)

    def init(self, keys: Key[Array, " seed"]) -> LoopState[BonusState]:
        """Untrained agents at the beginning of episodes."""
        num_envs = self.config.num_envs
        world_keys, policy_keys, bonus_keys = jax.vmap(lambda key: jax.random.split(jax.random.split(key)[0], 3))(
            keys
        ).T
        worlds = self.collector.init(world_keys) if isinstance(self.world, World) else None
        policy = jax.vmap(self.agent.init)(policy_keys)
        bonus = jax.vmap(lambda key: self.bonus.init(key, num_envs))(bonus_keys)
        scale = jax.vmap(lambda _: Scale.init(num_envs))(keys)
        return LoopState(worlds, policy, bonus, scale)

    def keys_of(self, keys: Key[Array, " seed"], iteration: Int[Array, ""]) -> Key[Array, "seed 3"]:
        """The keys of an iteration: of its rollout, of the agent's learning and of the bonus's."""
        keys = jax.vmap(lambda key: jax.random.fold_in(jax.random.split(key)[1], iteration))(keys)
        return jax.vmap(lambda key: jax.random.split(key, 3))(keys)

    def weigh(
        self, scale: Scale, rewards: Float[Array, "time env"], done: Bool[Array, "time env"]
    ) -> tuple[Scale, Float[Array, "time env"]]:
        """Intrinsic rewards, normalised and times β."""
        loop = self.config
        if loop.normalise != "none":
            scale, sums = scale.sums(rewards, done, loop.intrinsic_discount)
            scale = scale.see(rewards if loop.normalise == "reward" else sums)
            rewards = rewards / scale.deviation
        return scale, loop.intrinsic_weight * rewards

    def trajectory(self, rollout: Rollout, intrinsic: Float[Array, "time env"]) -> Trajectory:
        """What the agent of one seed learns from."""
        steps, streams = rollout.steps, [rollout.reward, intrinsic]
        if not self.config.separate_values:
            streams = [rollout.reward + intrinsic]
        return Trajectory(
            inputs=self.actor.inputs(steps.obs, rollout.elapsed[..., 0]),
            next_inputs=self.actor.inputs(steps.next_obs, rollout.elapsed[..., 1]),
            action=steps.action,
            log_prob=rollout.log_prob,
            rewards=jnp.stack(streams, axis=-1),
            terminated=rollout.terminated,
            done=steps.done,
        )

    def episode_metrics(self, rollout: Rollout) -> Metrics:
        """How the episodes of one seed went that ended in this rollout; NaN where none did."""
        done, solvable = rollout.steps.done, rollout.solvable

        def rate(what: Shaped[Array, "time env"], among: Bool[Array, "time env"]) -> Float[Array, ""]:
            return jnp.mean(what.astype(jnp.float32), where=among)

        reached = jnp.mean(rollout.stages.astype(jnp.float32), axis=-1)
        known: Metrics = {}
        if solvable is not None:
            known = {
                "episode/success_solvable": rate(rollout.success, done & solvable),
                "episode/solvable": rate(solvable, done),
            }
        metrics = {
            "episode/count": jnp.sum(done, dtype=jnp.float32),
            "episode/success": rate(rollout.success, done),
            **known,
            "episode/normalized_stage": rate(reached, done),
            "episode/reward": jnp.sum(rollout.reward) / jnp.maximum(jnp.sum(done, dtype=jnp.float32), 1.0),
        }
        for i, name in enumerate(self.world.stage_names):
            metrics[f"stage/{name}"] = rate(rollout.stages[..., i], done)
        return metrics


def _where(condition: Bool[Array, ""], one: _Tree, other: _Tree) -> _Tree:
    """One of two trees of the same shapes."""
    chosen: _Tree = jax.tree.map(lambda a, b: a if a is b else jnp.where(condition, a, b), one, other)
    return chosen


def _only_if(
    condition: _Flag, update: Callable[..., tuple[_Tree, Metrics]], state: _Tree, *arguments: object
) -> tuple[_Tree, Metrics]:
    """What an update gives if the condition holds, else the state as it is, with NaN for all metrics."""
    if condition is True:
        return update(state, *arguments)
    shapes = jax.eval_shape(update, state, *arguments)[1]

    def leave(state: _Tree) -> tuple[_Tree, Metrics]:
        return state, {name: jnp.full(one.shape, jnp.nan, one.dtype) for name, one in shapes.items()}

    updated: tuple[_Tree, Metrics] = jax.lax.cond(condition, lambda state: update(state, *arguments), leave, state)
    return updated
