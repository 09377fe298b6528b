"""What the gates of a bonus open for, early in a training run: children that changed, and children that did not.

The ensemble of a preset learns from some rollouts of random actions. Then every gate looks at steps of such actions,
and at steps of the scripted policy, most of which the models have never seen the like of. A gate is good where it opens
for what models have yet to learn and stays closed for everything else: in worlds in which hardly anything changes by
itself, that is nearly the same as what changed. In a training gates see predictions and what happened, nothing else.

    python experiments/gates.py --world minecraft --out results/archive/gates_minecraft_cpu.json
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Array, Bool, Key
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import elden
from elden.bonuses.ensemble import chunked
from elden.bonuses.model_based import Gate, ModelBonus
from elden.provenance import provenance
from elden.training.algorithm import Loop
from elden.training.presets import TrainingPreset, training_preset
from elden.transitions import Transitions
from elden.worlds.base import World

_GATES = tuple(kind for kind in get_args(Gate) if kind != "none")


@dataclass(frozen=True)
class Args:
    """What to measure."""

    world: str = "minecraft"
    """The world."""
    preset: TrainingPreset = "plus"
    """The settings of the ensemble and the gates."""
    envs: int = 128
    """Environments."""
    rollouts: int = 8
    """Rollouts of random actions that the models learn from, the preset's number of updates for each."""
    epsilon: float = 0.1
    """Share of random actions in the scripted episodes."""
    out: Path | None = None
    """Where to write the JSON; None writes nothing."""


@dataclass(frozen=True)
class Row:
    """How often the gates were open for a child."""

    steps: str
    child: str
    changed: bool
    count: int
    open: dict[str, float]


def scripted(world: World, key: Key[Array, ""], args: Args) -> Transitions:
    """An episode of the scripted policy in every environment."""

    def step(states: Any, key: Key[Array, ""]) -> tuple[Any, Transitions]:
        act_key, step_key = jax.random.split(key)
        keys = jax.random.split(act_key, args.envs)
        actions = jax.vmap(world.scripted, in_axes=(0, 0, None))(keys, states, args.epsilon)
        states, taken = world.step_many(step_key, states, actions)
        return states, Transitions(taken.obs, taken.action, taken.next_obs)

    reset_key, step_key = jax.random.split(key)
    states = world.reset_many(reset_key, args.envs)
    _, taken = jax.jit(lambda s: jax.lax.scan(step, s, jax.random.split(step_key, world.max_steps)))(states)
    flat: Transitions = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), taken)
    return flat


def opened(bonus: ModelBonus, state: Any, seen: Transitions) -> dict[str, Bool[np.ndarray, "step child"]]:
    """The children that each gate opens."""
    ensemble, number = bonus.ensemble, seen.action.shape[0]

    @jax.jit
    def look(piece: Array) -> dict[str, Array]:
        batch = ensemble.encode(seen[piece])
        outputs = ensemble.outputs(ensemble.models(state.ensemble), batch)
        gates = {kind: replace(bonus.gate, kind=kind) for kind in _GATES}
        step = ensemble.reference(state.ensemble).step
        return {
            kind: gate.open(bonus.layout, outputs, batch, state.memory.noise, step).T for kind, gate in gates.items()
        }

    pieces = [look(piece) for piece in chunked(number, min(512, number))]
    return {kind: np.concatenate([piece[kind] for piece in pieces])[:number] for kind in _GATES}


def rows(world: World, bonus: ModelBonus, state: Any, steps: str, seen: Transitions) -> Iterator[Row]:
    """How often each gate is open for each child, by whether its entity changed."""
    is_open = opened(bonus, state, seen)
    layout = bonus.layout
    moved = np.asarray(seen.obs != seen.next_obs)
    ends = (*world.factors.offsets[1:], world.factors.width)
    columns = [slice(first, end) for first, end in zip(world.factors.offsets, ends, strict=True)]
    for child, name in enumerate(layout.names(layout.network.children)):
        mine = [variable for variable, (place, *_) in enumerate(layout.child_of) if place == child]
        changed = np.any([moved[:, columns[variable]].any(axis=1) for variable in mine], axis=0)
        for which in (True, False):
            some = changed == which
            if some.any():
                shares = {kind: round(float(values[some, child].mean()), 4) for kind, values in is_open.items()}
                yield Row(steps, name, which, int(some.sum()), shares)


def main(args: Args) -> None:
    """Train, look and tell."""
    world = elden.make(args.world)
    config = training_preset(args.preset, args.world, "elden")
    config = replace(config, seeds=1, loop=replace(config.loop, num_envs=args.envs))
    loop: Loop[Any] = Loop.of(world, config)
    assert isinstance(loop.bonus, ModelBonus)
    keys = jax.random.split(jax.random.key(0), 1)
    state = jax.jit(loop.init)(keys)
    collect, update = jax.jit(loop.collector.collect), jax.jit(jax.vmap(loop.bonus.update))
    for rollout in range(args.rollouts):
        now = jax.vmap(lambda key, number=rollout: jax.random.fold_in(key, number))(keys)
        worlds, taken = collect(state.worlds, state.policy, now, jnp.asarray(False))
        bonus, metrics = update(state.bonus, now, taken.steps)
        state = replace(state, worlds=worlds, bonus=bonus)
    _, taken = collect(state.worlds, state.policy, jax.random.split(jax.random.key(1), 1), jnp.asarray(False))
    learnt = jax.tree.map(lambda leaf: leaf[0], state.bonus)
    fresh = jax.tree.map(lambda leaf: leaf[0], taken.steps).transitions()
    found = [
        *rows(world, loop.bonus, learnt, "random", fresh),
        *rows(world, loop.bonus, learnt, "scripted", scripted(world, jax.random.key(2), args)),
    ]
    table = Table(box=SIMPLE_HEAD)
    for heading in ("steps", "child", "changed", "number", *_GATES):
        table.add_column(heading, justify="left" if heading in ("steps", "child") else "right")
    for row in found:
        shares = (f"{row.open[kind]:.1%}" for kind in _GATES)
        table.add_row(row.steps, row.child, "yes" if row.changed else "no", f"{row.count:,}", *shares)
    Console().print(table)
    if args.out is not None:
        said = {**provenance(), **asdict(replace(args, out=None)), "nll": float(metrics["dynamics/nll"][0])}
        said["rows"] = [asdict(row) for row in found]
        args.out.write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Args))
