"""Episodes of trained agents in environments that are stepped on the host."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, Num, Shaped

from elden.hosts.vector import Hosts
from elden.training.algorithm import Loop


@dataclass(frozen=True)
class HostSteps:
    """Steps of all agents in all episodes. `graph` is None where the environment does not tell true local graphs."""

    obs: Num[np.ndarray, "time agent episode width"]
    action: Int[np.ndarray, "time agent episode"]
    next_obs: Num[np.ndarray, "time agent episode width"]
    success: Bool[np.ndarray, "time agent episode"]
    stages: Bool[np.ndarray, "time agent episode stage"]
    graph: Bool[np.ndarray, "time agent episode dst src"] | None


@dataclass(frozen=True)
class HostPlayed:
    """What agents did in some episodes.

    Attributes:
        steps: The steps.
        counts: Whether the episode was still going on; steps after its end are to be ignored.
        solvable: None: nobody knows whether the task could be solved.
    """

    steps: HostSteps
    counts: Bool[np.ndarray, "time agent episode"]
    solvable: None = None


@partial(jax.jit, static_argnums=(0, 1))
def _act(
    loop: Loop[Any],
    greedy: bool,
    policy: Any,
    keys: Key[Array, " episode"],
    time: Int[Array, ""],
    obs: Num[Array, "agent episode width"],
) -> Int[Array, "agent episode"]:
    now = jax.vmap(lambda key: jax.random.fold_in(key, time))(keys)
    elapsed = jnp.full(obs.shape[:2], time.astype(jnp.float32) / loop.world.max_steps)
    return loop.actor.choose(policy, now, obs, elapsed, greedy)


def play_on_host(
    hosts: Hosts,
    loop: Loop[Any],
    greedy: bool,
    policy: Any,
    key: Key[Array, ""],
    numbers: Int[np.ndarray, " episode"],
) -> HostPlayed:
    """Play the episodes of these numbers with each agent.

    An environment's randomness comes from a seed, so all agents begin an episode of one number alike.

    Args:
        hosts: As many environments as there are episodes of all agents.
        loop: The training's loop.
        greedy: Whether the most likely action is taken.
        policy: The agents' states, stacked.
        key: The evaluation's key.
        numbers: Numbers of the episodes.
    """
    agents, episodes = jax.tree.leaves(policy)[0].shape[0], len(numbers)
    keys = jax.vmap(lambda number: jax.random.fold_in(key, number))(jnp.asarray(numbers, jnp.int32))
    word = int(np.asarray(jax.random.key_data(key)).ravel()[-1])
    seeds = [int(np.random.SeedSequence((word, int(n))).generate_state(1)[0]) >> 1 for n in numbers]
    obs, going = hosts.reset(seeds * agents), np.ones((agents, episodes), np.bool_)

    def apart(part: Shaped[np.ndarray, "world ..."]) -> Shaped[np.ndarray, "agent episode ..."]:
        return part.reshape(agents, episodes, *part.shape[1:])

    taken: list[dict[str, np.ndarray]] = []
    for time in range(loop.world.max_steps):
        if not going.any():
            break
        action = np.asarray(_act(loop, greedy, policy, keys, jnp.int32(time), jnp.asarray(apart(obs))))
        step = hosts.step(action.reshape(-1))
        outcome = {"obs": obs, "next_obs": step.next_obs, "success": step.success, "stages": step.stages}
        if step.graph is not None:
            outcome["graph"] = step.graph
        taken.append({"action": action, "counts": going, **{name: apart(part) for name, part in outcome.items()}})
        obs, going = step.following, going & ~apart(step.done)
    return _played(taken, loop.world.max_steps)


def _played(taken: list[dict[str, np.ndarray]], length: int) -> HostPlayed:
    """All steps, filled up with nothing to the length of the longest episode, so that all have the same shapes."""
    missing = length - len(taken)

    def joined(name: str) -> np.ndarray:
        parts = np.stack([step[name] for step in taken])
        return np.concatenate([parts, np.zeros((missing, *parts.shape[1:]), parts.dtype)])

    known = all("graph" in step for step in taken)
    parts = {name: joined(name) for name in ("obs", "action", "next_obs", "success", "stages")}
    return HostPlayed(HostSteps(**parts, graph=joined("graph") if known else None), joined("counts"))
