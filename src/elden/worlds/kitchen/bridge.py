"""The two kitchens side by side: the same actions from the same start, in the twin and with physics.

Compared are what an agent could tell apart at a glance (what is held, what lies where, switch, levels, stages), the
true local graphs, and how far apart the poses are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num

from elden.worlds.base import WorldState
from elden.worlds.kitchen import table
from elden.worlds.kitchen.robosuite import KitchenRobosuiteEnv
from elden.worlds.kitchen.twin import Kitchen

MOVABLE: Final = ("robot", "butter", "meatball", "pot")
"""Whose places are compared; stove and switch never move."""
FLAGS: Final = ("held", "switch on", "melt", "cook", "overcooked", "butter in pot", "meatball in pot", "pot on stove")
"""What must be equal beside stages and success."""

Policy: TypeAlias = Callable[[KitchenRobosuiteEnv, int], int]
"""The action for an environment at a step."""


@dataclass(frozen=True)
class Comparison:
    """One episode in both kitchens, step by step.

    Attributes:
        action: What was done.
        flags: Whether each of `FLAGS` was equal after the step.
        stages: Whether stages and success were equal.
        graph: Whether the true local graphs were equal.
        apart_mm: How far apart each of `MOVABLE` was.
        one_step_flags: As `flags`, with the twin put into the state before the step as the simulation had it.
        one_step_apart_mm: As `apart_mm`, likewise.
        noop: Whether the skill could not be done.
        slip: Whether it failed.
        ticks: Control ticks of the step.
        stage_counts: Stages reached with physics and in the twin, after each step.
        success: Whether the task was solved, with physics and in the twin.
    """

    action: Int[np.ndarray, " time"]
    flags: Bool[np.ndarray, "time flag"]
    stages: Bool[np.ndarray, " time"]
    graph: Bool[np.ndarray, " time"]
    apart_mm: Float[np.ndarray, "time thing"]
    one_step_flags: Bool[np.ndarray, "time flag"]
    one_step_apart_mm: Float[np.ndarray, "time thing"]
    noop: Bool[np.ndarray, " time"]
    slip: Bool[np.ndarray, " time"]
    ticks: Int[np.ndarray, " time"]
    stage_counts: Int[np.ndarray, "time 2"]
    success: tuple[bool, bool]


@lru_cache(maxsize=8)
def _compiled(world: Kitchen) -> tuple[Any, Any, Any]:
    """A step, what can be seen at a glance, and a scripted action."""

    def glance(values: Num[Array, " value"]) -> tuple[Float[Array, " flag"], Float[Array, "thing 3"]]:
        view = world.unpack(values)
        flags = [
            table.held(view),
            view["switch.on"],
            view["butter.melt"],
            view["meatball.cook"],
            view["meatball.overcooked"],
            table.in_pot(view, "butter"),
            table.in_pot(view, "meatball"),
            table.pot_on_stove(view),
        ]
        places = jnp.stack([table.place(view, name) for name in MOVABLE])
        return jnp.stack([jnp.asarray(one, jnp.float32) for one in flags]), places

    return jax.jit(world.step), jax.jit(glance), jax.jit(world.scripted)


def scripted(seed: int, epsilon: float = 0.0) -> Policy:
    """The scripted policy, which looks at the kitchen with physics; some of its actions may be random."""
    key = jax.random.fold_in(jax.random.key(seed), 0x7363)

    def act(env: KitchenRobosuiteEnv, time: int) -> int:
        chosen = _compiled(env.world)[2](jax.random.fold_in(key, time), env.current, jnp.float32(epsilon))
        return int(chosen)

    return act


def uniform(seed: int) -> Policy:
    """Any skill, at random."""
    draws = np.random.default_rng([seed, 0x756E])
    return lambda env, _: int(draws.integers(env.world.num_actions))


def compare(env: KitchenRobosuiteEnv, policy: Policy, seed: int, until_solved: bool = False) -> Comparison:
    """Play an episode in both kitchens.

    Args:
        env: The kitchen with physics.
        policy: What to do; both kitchens get the same actions.
        seed: Decides the initial state.
        until_solved: Stop when both are solved.
    """
    world = env.world
    step, glance, _ = _compiled(world)
    env.reset(seed=seed)
    twin: WorldState = env.initial_state
    rows: list[dict[str, Any]] = []
    for time in range(world.max_steps):
        before, action = env.current, policy(env, time)
        _, _, terminated, truncated, info = env.step(action)
        twin, expected = step(jax.random.key(0), twin, jnp.int32(action))
        once, _ = step(jax.random.key(0), before, jnp.int32(action))
        here, there, single = (glance(state.values) for state in (env.current, twin, once))
        rows.append(
            {
                "action": action,
                "flags": _equal(here, there),
                "stages": bool(np.array_equal(info["stages"], np.asarray(twin.stages))),
                "graph": bool(np.array_equal(info["local_graph"], np.asarray(expected.graph))),
                "apart_mm": _apart_mm(here, there),
                "one_step_flags": _equal(here, single),
                "one_step_apart_mm": _apart_mm(here, single),
                "noop": info["noop"],
                "slip": info["slip"],
                "ticks": info["n_ticks"],
                "stage_counts": (info["stage"], int(np.sum(np.asarray(twin.stages)))),
            }
        )
        if terminated or truncated or (until_solved and info["success"] and bool(twin.succeeded)):
            break
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return Comparison(**columns, success=(bool(env.current.succeeded), bool(twin.succeeded)))


_Glance: TypeAlias = tuple[Float[Array, " flag"], Float[Array, "thing 3"]]


def _equal(one: _Glance, other: _Glance) -> Bool[np.ndarray, " flag"]:
    """Which flags are equal; levels are sums of the same numbers, so they are so to the last digits."""
    return np.array(np.isclose(np.asarray(one[0]), np.asarray(other[0]), rtol=0, atol=1e-5))


def _apart_mm(one: _Glance, other: _Glance) -> Float[np.ndarray, " thing"]:
    return np.array(1000 * np.linalg.norm(np.asarray(one[1]) - np.asarray(other[1]), axis=-1))


def summary(parts: Sequence[Comparison]) -> dict[str, Any]:
    """How many episodes went, all together."""
    flags = np.concatenate([part.flags for part in parts])
    stages = np.concatenate([part.stages for part in parts])
    graph = np.concatenate([part.graph for part in parts])
    once = np.concatenate([part.one_step_flags for part in parts])
    noop = np.concatenate([part.noop for part in parts])
    ticks = np.concatenate([part.ticks for part in parts])
    # Episodes are compared as long as they agree: after the first difference there is nothing more to learn.
    together = np.concatenate([_until_different(part) for part in parts])
    apart = np.concatenate([part.apart_mm for part in parts])
    once_apart = np.concatenate([part.one_step_apart_mm for part in parts])
    same = np.concatenate([part.one_step_flags.all(1) for part in parts])
    return {
        "episodes": len(parts),
        "steps": len(graph),
        "noop_rate": float(noop.mean()),
        "slips": int(sum(part.slip.sum() for part in parts)),
        "ticks_per_step": float(ticks.mean()),
        "ticks_per_skill": float(ticks[~noop].mean()),
        "success_rate": float(np.mean([part.success[0] for part in parts])),
        "success_rate_twin": float(np.mean([part.success[1] for part in parts])),
        "mean_length": float(np.mean([len(part.action) for part in parts])),
        "episodes_all_stages_equal": int(sum(part.stages.all() for part in parts)),
        "episodes_all_flags_equal": int(sum(part.flags.all() for part in parts)),
        "episodes_all_graphs_equal": int(sum(part.graph.all() for part in parts)),
        "steps_stages_equal": float(stages.mean()),
        "steps_flags_equal": float(flags.all(1).mean()),
        "steps_graph_equal": float(graph.mean()),
        "flags_equal": {name: float(flags[:, i].mean()) for i, name in enumerate(FLAGS)},
        "apart_mm": _spread(apart[together]),
        "one_step_flags_equal": float(once.all(1).mean()),
        "one_step_apart_mm": _spread(once_apart[same]),
    }


def _until_different(part: Comparison) -> Bool[np.ndarray, " time"]:
    return np.logical_and.accumulate(part.flags.all(1))


def _spread(apart: Float[np.ndarray, "time thing"]) -> dict[str, dict[str, float]]:
    """Median, most of 99 in 100, and most, for each thing."""
    return {
        name: {
            "median": float(np.median(apart[:, i])),
            "p99": float(np.percentile(apart[:, i], 99)),
            "max": float(apart[:, i].max()),
        }
        for i, name in enumerate(MOVABLE)
    }
