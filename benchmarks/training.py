"""Environment steps per second of a whole training, and what share of the time each part takes.

A training run of some rollouts, whose last ones are timed as one compiled program, without logs. Then each part of an
iteration alone, from the state that the training has left: acting in the worlds, reading the bonus (with its graphs),
the policy's learning, the learning of what the bonus reads. Their times need not add up to that of the whole, since the
compiler lets parts overlap, and a part alone also writes the state that it returns; shares are of their sum. Graphs are
read only of steps in which some child passes the gate, so their cost falls as models learn: `--rollouts` says how far
that has gone.

    python benchmarks/training.py --world carwash --seeds 10 --rollouts 60 --out results/speed/training_speed_gpu.json
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import elden
from elden.ahead import compile_ahead
from elden.bonuses import BONUSES
from elden.dynamics.config import Precision
from elden.provenance import provenance
from elden.training.algorithm import Loop
from elden.training.presets import TrainingPreset, training_preset

_Tree = TypeVar("_Tree")


@dataclass(frozen=True)
class Args:
    """What to measure."""

    world: str = "carwash"
    """The world."""
    bonuses: tuple[str, ...] = ("elden", "none")
    """The bonuses."""
    preset: TrainingPreset = "plus"
    """The settings."""
    precisions: tuple[Precision, ...] = ("float32",)
    """Number formats of the activations of what the bonus reads; a bonus without models has only the first."""
    seeds: int = 10
    """Agents side by side."""
    rollouts: int = 20
    """Rollouts of the training."""
    timed: int = 10
    """How many of them, the last ones, are timed together."""
    repeats: int = 3
    """How often each part alone is timed; the figure is the median."""
    out: Path | None = None
    """Where to write the JSON; None writes nothing."""


@dataclass(frozen=True)
class Row:
    """The speed of one training run."""

    world: str
    bonus: str
    precision: Precision
    seeds: int
    steps_per_rollout: int
    """Of all seeds together."""
    steps_per_s: float
    """Of all seeds together."""
    compile_s: float
    open_children: float | None
    """Share of children that passed the gate in the last rollout."""
    seconds: dict[str, float]
    """Of each part, for one rollout of all seeds."""
    shares: dict[str, float]
    """Of each part in their sum."""


def ready(tree: _Tree) -> _Tree:
    """The same arrays once they have been computed."""
    for leaf in jax.tree.leaves(tree):
        leaf.block_until_ready()
    return tree


def timed(repeats: int, run: Callable[[], object]) -> float:
    """Median time of a call that has been compiled."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        ready(run())
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def measure(args: Args, bonus: str, precision: Precision) -> Row:
    """Train, and time the end of it and each part."""
    config = replace(training_preset(args.preset, args.world, bonus), seeds=args.seeds)
    ensemble = config.bonus.ensemble
    ensemble = replace(ensemble, train=replace(ensemble.train, precision=precision))
    config = replace(config, bonus=replace(config.bonus, ensemble=ensemble))
    loop: Loop[Any] = Loop.of(elden.make(args.world), config)
    keys = jax.vmap(jax.random.key)(jnp.arange(args.seeds, dtype=jnp.uint32))
    state = jax.jit(loop.init)(keys)

    def some(state: Any, keys: Any, first: Any) -> Any:
        return jax.lax.scan(lambda s, i: loop.iterate(s, keys, i), state, first + jnp.arange(args.timed))

    program, compile_s = compile_ahead(some, (state, keys, jnp.int32(0)))
    for first in range(0, args.rollouts - args.timed, args.timed):
        state, metrics = program(state, keys, jnp.int32(first))
    ready(state)
    began = time.perf_counter()
    state, metrics = ready(program(state, keys, jnp.int32(args.rollouts - args.timed)))
    whole_s = (time.perf_counter() - began) / args.timed
    steps = config.loop.steps_per_iteration * args.seeds
    seconds = {"whole": whole_s, **parts(args, loop, state, keys)}
    total = sum(value for name, value in seconds.items() if name != "whole")
    opened = metrics.get("bonus/open")
    return Row(
        world=args.world,
        bonus=bonus,
        precision=precision,
        seeds=args.seeds,
        steps_per_rollout=steps,
        steps_per_s=round(steps / whole_s, 1),
        compile_s=round(compile_s, 1),
        open_children=None if opened is None else round(float(jnp.mean(opened[-1])), 4),
        seconds={name: round(value, 5) for name, value in seconds.items()},
        shares={name: round(value / total, 3) for name, value in seconds.items() if name != "whole"},
    )


def parts(args: Args, loop: "Loop[Any]", state: Any, keys: Any) -> dict[str, float]:
    """Seconds of each part of an iteration."""
    warm = jnp.asarray(True)
    collect, reward = loop.collector.collect, jax.vmap(loop.bonus.reward)
    _, rollout = jax.jit(collect)(state.worlds, state.policy, keys, warm)
    _, intrinsic, _ = jax.jit(reward)(state.bonus, rollout.steps)
    trajectory = jax.jit(jax.vmap(loop.trajectory))(rollout, intrinsic)
    calls: dict[str, tuple[Callable[..., object], tuple[object, ...]]] = {
        "world and acting": (collect, (state.worlds, state.policy, keys, warm)),
        "bonus and graphs": (reward, (state.bonus, rollout.steps)),
        "policy": (jax.vmap(loop.agent.update), (state.policy, keys, trajectory)),
        "dynamics": (jax.vmap(loop.bonus.update), (state.bonus, keys, rollout.steps)),
    }
    seconds = {}
    for name, (function, arguments) in calls.items():
        program, _ = compile_ahead(function, arguments)
        ready(program(*arguments))
        seconds[name] = timed(args.repeats, lambda program=program, arguments=arguments: program(*arguments))  # type: ignore[misc]
    return seconds


def show(rows: list[Row]) -> None:
    """Print the table."""
    table = Table(box=SIMPLE_HEAD)
    for name in ("bonus", "activations", "steps/s", "compile s", *rows[0].shares):
        table.add_column(name, justify="right")
    for row in rows:
        shares = (f"{share:.0%}" for share in row.shares.values())
        table.add_row(row.bonus, row.precision, f"{row.steps_per_s:,.0f}", f"{row.compile_s:.0f}", *shares)
    Console().print(table)


def main(args: Args) -> None:
    """Measure every bonus."""
    if args.timed < 1 or args.rollouts % args.timed:
        sys.exit(f"--rollouts {args.rollouts} given; it must be a multiple of --timed, which is {args.timed}")
    rows = [
        measure(args, bonus, precision)
        for bonus in args.bonuses
        for precision in (args.precisions if "ensemble" in BONUSES[bonus].reads else args.precisions[:1])
    ]
    show(rows)
    if args.out is not None:
        said = {**provenance(), "preset": args.preset, "rollouts": args.rollouts, "rows": [asdict(row) for row in rows]}
        args.out.write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Args))
