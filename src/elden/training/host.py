"""Rollouts of environments that are stepped on the host, and iterations made of them.

Agents act in one compiled program for each step of all environments of all seeds; an iteration then learns from the
rollout as from one of our own worlds. Nothing on a device waits for an environment, so nothing can lock up between
the two. Where the environments are is not in a training's state: one that is taken up again begins new episodes.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, Num, Shaped

from elden.ahead import compile_ahead
from elden.bonuses.episodes import forget_episodes
from elden.hosts.vector import Hosts, env_seeds
from elden.hosts.world import HostWorld
from elden.training.algorithm import Loop, LoopState
from elden.training.config import TrainingConfig
from elden.training.rollout import Metrics, Recorded, Rollout
from elden.transitions import Steps

_Act: TypeAlias = Callable[..., tuple[Int[Array, "seed env"], Float[Array, "seed env"]]]
_Learn: TypeAlias = Callable[..., tuple[LoopState[Any], Metrics]]


class HostCollector:
    """Takes rollouts of all environments of all seeds, those of one seed after those of the one before."""

    def __init__(self, loop: Loop[Any], seeds: Sequence[int], start: int, act: _Act | None = None) -> None:
        """Begin episodes.

        Args:
            loop: The training's loop.
            seeds: The agents' seeds.
            start: The iteration that comes first. All randomness of environments comes from it and the seeds.
            act: What agents do: of policy, keys, the step, observations, how much is over, and whether it is warm;
                None takes what the loop's agents do.

        Raises:
            EnvironmentFailedError: An environment cannot be made or begun.
        """
        if not isinstance(loop.world, HostWorld):
            raise TypeError(f"{loop.world.name} is a world of its own, which is not stepped on the host")
        self.loop, self.seeds = loop, len(seeds)
        self.world, envs = loop.world, loop.config.num_envs
        self.hosts = Hosts(self.world, self.seeds * envs)
        try:
            obs = self.hosts.reset([each for seed in seeds for each in env_seeds(seed, start, envs)])
        except BaseException:
            self.close()
            raise
        self.obs, self.elapsed = obs, np.zeros(len(obs), np.int32)
        self.act: _Act = act or jax.jit(partial(_act, loop))

    def close(self) -> None:
        """End the environments' processes."""
        self.hosts.close()

    def _apart(self, flat: Shaped[np.ndarray, "world ..."]) -> Shaped[np.ndarray, "seed env ..."]:
        return flat.reshape(self.seeds, -1, *flat.shape[1:])

    @property
    def now(self) -> tuple[Num[np.ndarray, "seed env width"], Float[np.ndarray, "seed env"]]:
        """What is observed, and how much of each episode is over."""
        elapsed = self.elapsed.astype(np.float32) / np.float32(self.world.max_steps)
        return self._apart(self.obs), self._apart(elapsed)

    def collect(
        self, worlds: None, policy: Any, keys: Key[Array, " seed"], warm: Bool[Array, ""]
    ) -> tuple[None, Rollout]:
        """A rollout of all seeds; see `Collector`. Where the environments are is their own business."""
        taken = [self._step(policy, keys, time, warm) for time in range(self.loop.config.rollout)]
        parts = {name: jnp.asarray(np.stack([step[name] for step in taken], axis=1)) for name in taken[0]}
        steps = Steps(*(parts.pop(name) for name in ("obs", "action", "next_obs", "done")))
        return None, Rollout(steps=steps, solvable=None, **parts)

    def _step(
        self, policy: Any, keys: Key[Array, " seed"], time: int, warm: Bool[Array, ""]
    ) -> dict[str, Shaped[np.ndarray, "seed env ..."]]:
        """One step of all environments, as parts of a rollout."""
        obs, elapsed = self.now
        action, log_prob = map(np.asarray, self.act(policy, keys, jnp.int32(time), obs, elapsed, warm))
        step = self.hosts.step(action.reshape(-1))
        self.obs, self.elapsed = step.following, np.where(step.done, 0, self.elapsed + 1)
        ended = step.terminated | (step.done & self.loop.config.horizon_ends)
        after = elapsed + np.float32(1.0 / self.world.max_steps)
        outcome = {
            "next_obs": step.next_obs,
            "done": step.done,
            "reward": step.reward,
            "terminated": ended,
            "success": step.success,
            "stages": step.stages,
        }
        return {
            "obs": obs,
            "action": action,
            "log_prob": log_prob,
            "elapsed": np.stack([elapsed, after], axis=-1),
            **{name: self._apart(part) for name, part in outcome.items()},
        }


class HostProgram:
    """Iterations whose rollouts come from the host."""

    def __init__(self, loop: Loop[Any], config: TrainingConfig, start: int) -> None:
        """Open the environments.

        Args:
            loop: The training's loop.
            config: Its settings.
            start: The iteration that comes first.
        """
        self.loop, self.start = loop, start
        self.programs = _programs(loop, config.seeds)
        self.collector = HostCollector(loop, config.all_seeds, start)

    def close(self) -> None:
        """End the environments' processes."""
        self.collector.close()

    def ready(self, state: LoopState[Any], keys: Key[Array, " seed"]) -> tuple[Callable[..., Any], float]:
        """What takes an iteration, and the time that it took to compile where it had not been yet."""
        compile_s = self.programs.compile(state, keys, *self.collector.now)
        self.collector.act = self.programs.act
        return self._advance, compile_s

    def _advance(
        self, state: LoopState[Any], keys: Key[Array, " seed"], iteration: Int[Array, ""], number: Int[Array, ""]
    ) -> tuple[LoopState[Any], Metrics]:
        """One iteration, `number` being 1; metrics have an axis for iterations before that of seeds."""
        if int(iteration) == self.start:
            state = begun_anew(state)
        act_keys = self.loop.keys_of(keys, iteration)[:, 0]
        warm = iteration >= self.loop.config.warmup_iterations
        _, rollout = self.collector.collect(None, state.policy, act_keys, warm)
        state, metrics = self.programs.learn(state, keys, iteration, Recorded(rollout))
        return state, {name: values[None] for name, values in metrics.items()}


class _Programs:
    """The two programs of an iteration whose rollout comes from the host."""

    def __init__(self, loop: Loop[Any]) -> None:
        self.loop, self.compiled = loop, False
        self.act: _Act = partial(_act, loop)
        self.learn: _Learn = loop.iterate

    def compile(
        self,
        state: LoopState[Any],
        keys: Key[Array, " seed"],
        obs: Num[np.ndarray, "seed env width"],
        elapsed: Float[np.ndarray, "seed env"],
    ) -> float:
        """Compile them for arguments like these where they have not been yet; the seconds that it took."""
        if self.compiled:
            return 0.0
        zero, warm = jnp.int32(0), jnp.asarray(False)
        self.act, act_s = compile_ahead(partial(_act, self.loop), (state.policy, keys, zero, obs, elapsed, warm))
        self.learn, learn_s = compile_ahead(self.loop.iterate, (state, keys, zero, Recorded(self._example(obs))))
        self.compiled = True
        return act_s + learn_s

    def _example(self, obs: Num[np.ndarray, "seed env width"]) -> Rollout:
        """A rollout of zeros."""
        (seeds, envs, _), time = obs.shape, self.loop.config.rollout
        shape = (seeds, time, envs)

        def zeros(dtype: Any, *more: int) -> Shaped[Array, "seed time env ..."]:
            return jnp.zeros((*shape, *more), dtype)

        seen = zeros(obs.dtype, obs.shape[-1])
        return Rollout(
            steps=Steps(seen, zeros(jnp.int32), seen, zeros(jnp.bool_)),
            elapsed=zeros(jnp.float32, 2),
            log_prob=zeros(jnp.float32),
            reward=zeros(jnp.float32),
            terminated=zeros(jnp.bool_),
            success=zeros(jnp.bool_),
            stages=zeros(jnp.bool_, len(self.loop.world.stage_names)),
            solvable=None,
        )


def _act(
    loop: Loop[Any],
    policy: Any,
    keys: Key[Array, " seed"],
    time: Int[Array, ""],
    obs: Num[Array, "seed env width"],
    elapsed: Float[Array, "seed env"],
    warm: Bool[Array, ""],
) -> tuple[Int[Array, "seed env"], Float[Array, "seed env"]]:
    actor = loop.actor
    return actor.act(policy, actor.keys_at(keys, time)[:, :2], obs, elapsed, warm)


@lru_cache(maxsize=8)
def _programs(loop: Loop[Any], seeds: int) -> _Programs:
    """What has been compiled so far for a loop."""
    return _Programs(loop)


def on_host(config: TrainingConfig) -> TrainingConfig:
    """The settings with few environments, each being slow and a process, and few updates for their short rollouts.

    Args:
        config: Settings for our own worlds.
    """
    updates = (
        64 if config.bonus.models else 8
    )  # one small model beside the bonus; where the bonus reads models, five of them
    ensemble = replace(config.bonus.ensemble, updates=updates, capacity=128_000, chunk=512)
    return replace(
        config,
        bonus=replace(config.bonus, ensemble=ensemble),
        ppo=replace(config.ppo, minibatch_size=160),
        loop=replace(config.loop, num_envs=8, rollout=160, steps=128_000, warmup_steps=1_280),
        seeds=1,
    )


def begun_anew(state: LoopState[Any]) -> LoopState[Any]:
    """The state with all episodes at their beginning: nothing rewarded in them, no reward summed up."""
    running = jnp.zeros_like(state.scale.running)
    return replace(state, bonus=forget_episodes(state.bonus), scale=replace(state.scale, running=running))
