"""Trained agents in another environment with the same spaces, without further training.

An agent that learnt in a world can be tried wherever observations, actions and `info` are the same: the kitchen's in
robosuite. Episodes have the initial states, and actions the draws, of `elden.training.evaluation`, so that the two can
be compared pair by pair.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, Num

from elden.storage.folder import RunFolderError
from elden.training.algorithm import Loop
from elden.training.evaluation import EvaluationConfig, Outcomes, Progress, episode_keys
from elden.training.run import TrainingRun
from elden.worlds.gym import WorldEnv

Policy: TypeAlias = Callable[[Num[np.ndarray, " width"], int, Key[Array, ""]], int]
"""The action for a flat observation, the number of steps taken, and a random key."""
Watch: TypeAlias = Callable[[], None]
"""Called at the start of an episode and after each step."""


@dataclass(frozen=True)
class EpisodeOutcome:
    """How one episode went.

    Attributes:
        success: Whether the task was solved.
        stages: Which stages were reached.
        length: Steps until the task was solved, else until the episode was over.
        noops: Steps in which nothing could be done, where the environment tells.
        slips: Steps that failed, where the environment tells.
    """

    success: bool
    stages: tuple[bool, ...]
    length: int
    noops: int
    slips: int


def play_episode(
    env: WorldEnv, policy: Policy, seed: int, number: int, watch: Watch | None = None, longer: int = 0
) -> EpisodeOutcome:
    """Play the episode of a number, until it is solved or over.

    Args:
        env: The environment.
        policy: What to do.
        seed: Decides, with the number, the initial state and all randomness.
        number: Number of the episode.
        watch: Called at the start and after each step.
        longer: Steps that are played after success.
    """
    tell = watch or (lambda: None)
    begin, chance = episode_keys(seed, number)
    state = env.world.to_named(_reset(env.world, begin))
    obs, info = env.reset(seed=number, options={"state": state})
    tell()
    taken = noops = slips = 0
    solved: int | None = None
    over = False
    while not over:
        act_key, _ = jax.random.split(jax.random.fold_in(chance, taken))
        action = policy(env.factors.from_space_sample(obs), taken, act_key)
        obs, _, terminated, truncated, info = env.step(action)
        tell()
        taken, noops, slips = taken + 1, noops + bool(info.get("noop")), slips + bool(info.get("slip"))
        solved = taken if solved is None and info["success"] else solved
        over = terminated or truncated or (solved is not None and taken >= solved + longer)
    stages = tuple(map(bool, info["stages"]))
    return EpisodeOutcome(solved is not None, stages, taken if solved is None else solved, noops, slips)


_reset = jax.jit(lambda world, key: world.reset(key), static_argnums=0)


def evaluate_policy(
    env: WorldEnv, policy: Policy, episodes: int, seed: int = 0, progress: Callable[[int], None] | None = None
) -> list[EpisodeOutcome]:
    """Play episodes with a policy.

    Args:
        env: The environment.
        policy: What to do.
        episodes: How many episodes are played.
        seed: Decides initial states and randomness.
        progress: Called with the number of episodes that have been played.
    """
    played = []
    for number in range(episodes):
        played.append(play_episode(env, policy, seed, number))
        if progress is not None:
            progress(number + 1)
    return played


def policies_of(training: TrainingRun, agents: int, greedy: bool = False) -> tuple[list[Policy], int]:
    """What the first agents of a training do, with the newest state that was kept; and the steps they had taken then.

    Args:
        training: The training.
        agents: How many of its agents.
        greedy: Whether they take the most likely action instead of drawing one.

    Raises:
        RunFolderError: The training has not kept a state yet.
    """
    kept = training.kept()
    if kept is None:
        raise RunFolderError(f"{training.folder.path} has kept no state yet; there is nothing to evaluate")
    states = kept.tree.policy

    def policy(agent: int, obs: Num[np.ndarray, " width"], elapsed: int, key: Key[Array, ""]) -> int:
        return int(_act(training.loop, greedy, states, jnp.asarray(obs), jnp.int32(elapsed), key)[agent])

    steps = kept.number * training.config.loop.steps_per_iteration
    return [partial(policy, agent) for agent in range(agents)], steps


@partial(jax.jit, static_argnums=(0, 1))
def _act(
    loop: Loop[Any],
    greedy: bool,
    policy: Any,
    obs: Num[Array, " width"],
    elapsed: Int[Array, ""],
    key: Key[Array, ""],
) -> Int[Array, " agent"]:
    """The same reading of an observation, and the same draw, as in training; what each agent would do."""
    alike = jnp.broadcast_to(obs, (jax.tree.leaves(policy)[0].shape[0], 1, obs.shape[0]))
    fraction = jnp.full(alike.shape[:2], elapsed.astype(jnp.float32) / loop.world.max_steps)
    return loop.actor.choose(policy, key[None], alike, fraction, greedy)[:, 0]


def evaluate_elsewhere(
    policies: Sequence[Policy], env: WorldEnv, config: EvaluationConfig, progress: Progress | None = None
) -> list[list[EpisodeOutcome]]:
    """Play the same episodes with each of some policies.

    Args:
        policies: What agents do.
        env: Where they are tried.
        config: How; the threshold of graphs does not matter here.
        progress: Told of what is done.
    """
    tell = progress or (lambda *_: None)
    found = []
    for agent, policy in enumerate(policies):
        before = agent * config.episodes

        def count(done: int, before: int = before) -> None:
            tell("playing", before + done, len(policies) * config.episodes)

        found.append(evaluate_policy(env, policy, config.episodes, config.seed, count))
    return found


def outcomes_of(found: list[list[EpisodeOutcome]]) -> Outcomes:
    """The same as arrays; every initial state of such an environment can be solved."""
    success = np.array([[one.success for one in row] for row in found])
    return Outcomes(
        success=success,
        solvable=np.ones_like(success),
        stages=np.array([[one.stages for one in row] for row in found]),
        length=np.array([[one.length for one in row] for row in found]),
    )
