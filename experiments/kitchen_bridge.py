"""The kitchen with physics against its twin: do they agree, does the script solve it, how fast are they.

Needs robosuite: `make bridge`. Every episode is played in both kitchens with the same actions from the same start
(`elden.worlds.kitchen.bridge`).
"""

import json
import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

import elden
from elden.provenance import provenance
from elden.worlds.kitchen import bridge
from elden.worlds.kitchen.bridge import FLAGS, Comparison
from elden.worlds.kitchen.robosuite import KitchenRobosuiteEnv

KINDS = ("scripted", "random", "scripted wide", "mixed")
"""The script, looking at the state with physics; random actions; the script in the wide layout; the script with three
tenths of random actions."""


@dataclass(frozen=True)
class Args:
    """What to measure."""

    episodes: int = 100
    """Episodes of the kinds "scripted" and "random"."""
    more_episodes: int = 40
    """Episodes of the other kinds."""
    kinds: tuple[str, ...] = KINDS
    """Kinds of episodes."""
    processes: int = 2
    """Episodes side by side."""
    speed_steps: int = 300
    """Random steps with which the speed with physics is measured, alone."""
    seed: int = 0
    """Number of the first episode."""
    out: Path | None = None
    """Where to write the JSON; None writes nothing."""


@cache
def environment(layout: str) -> KitchenRobosuiteEnv:
    """One for each process and layout."""
    return KitchenRobosuiteEnv(layout=layout)


def play(job: tuple[str, int]) -> Comparison:
    """One episode."""
    kind, seed = job
    env = environment("wide" if "wide" in kind else "narrow")
    policy = bridge.uniform(seed) if kind == "random" else bridge.scripted(seed, 0.3 if kind == "mixed" else 0.0)
    return bridge.compare(env, policy, seed, until_solved=kind.startswith("scripted"))


def differences(names: Sequence[str], parts: Sequence[Comparison], first: int) -> list[dict[str, Any]]:
    """The first step of each episode that differs in what can be seen at a glance, in stages or in graph."""
    found = []
    for number, part in enumerate(parts):
        wrong = ~(part.flags.all(1) & part.stages & part.graph)
        if wrong.any():
            at = int(np.argmax(wrong))
            what = [flag for flag, same in zip(FLAGS, part.flags[at], strict=True) if not same]
            what += ["stages"] * (not part.stages[at]) + ["graph"] * (not part.graph[at])
            where = {"seed": first + number, "step": at, "action": names[int(part.action[at])]}
            found.append({**where, "differs": what, "slip": bool(part.slip[at])})
    return found


def physics_speed(steps: int, seed: int) -> dict[str, float]:
    """Steps per second with physics, random actions, one environment, resets counted."""
    env, draws = environment("narrow"), np.random.default_rng(seed)
    env.reset(seed=seed)
    env.step(0)
    ticks, begun, over = 0, time.perf_counter(), True
    for _ in range(steps):
        if over:
            env.reset()
        _, _, _, over, info = env.step(int(draws.integers(9)))
        ticks += info["n_ticks"]
    seconds = time.perf_counter() - begun
    return {"steps_per_s": steps / seconds, "ticks_per_s": ticks / seconds, "steps": steps}


def twin_speed(num_envs: int = 8192, steps: int = 200) -> dict[str, float]:
    """Steps per second of the twin, random actions, many environments on all cores, resets counted."""
    world = elden.make("kitchen")

    @jax.jit
    def run(key: jax.Array, states: Any) -> Any:
        def step(states: Any, key: jax.Array) -> Any:
            action_key, step_key = jax.random.split(key)
            actions = jax.random.randint(action_key, (num_envs,), 0, world.num_actions, jnp.int32)
            states, transition = world.step_many(step_key, states, actions)
            return states, (transition.reward.sum(), transition.graph.sum())

        return jax.lax.scan(step, states, jax.random.split(key, steps))

    states, (rewards, _) = run(jax.random.key(0), world.reset_many(jax.random.key(1), num_envs))
    rewards.block_until_ready()
    begun = time.perf_counter()
    _, (rewards, _) = run(jax.random.key(2), states)
    rewards.block_until_ready()
    return {"steps_per_s": num_envs * steps / (time.perf_counter() - begun), "envs": num_envs}


def main(args: Args) -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    physics, twin = physics_speed(args.speed_steps, args.seed), twin_speed()
    ratio = twin["steps_per_s"] / physics["steps_per_s"]
    print(f"speed: physics {physics['steps_per_s']:.1f} steps/s, twin {twin['steps_per_s']:,.0f}: {ratio:,.0f} times")
    results: dict[str, Any] = {
        **provenance(),
        **{package: version(package) for package in ("robosuite", "mujoco", "numpy")},
        "speed": {"physics": physics, "twin": twin, "ratio": ratio},
    }
    names = elden.make("kitchen").action_names
    with ProcessPoolExecutor(args.processes, multiprocessing.get_context("spawn")) as pool:
        for kind in args.kinds:
            number = args.episodes if kind in ("scripted", "random") else args.more_episodes
            jobs = [(kind, args.seed + episode) for episode in range(number)]
            begun = time.perf_counter()
            parts = list(pool.map(play, jobs))
            found = bridge.summary(parts)
            found |= {"wall_s": time.perf_counter() - begun, "differences": differences(names, parts, args.seed)}
            results[kind] = found
            print(kind, json.dumps({key: found[key] for key in found if key != "flags_equal"}, indent=1), flush=True)
            if args.out is not None:
                args.out.parent.mkdir(parents=True, exist_ok=True)
                args.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
