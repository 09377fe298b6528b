"""What `intervention` would come to with a perfect model: the simulator itself answers what would have happened.

    python experiments/ceiling.py --out results/detection/intervention_ceiling.json

The same values are tried of every source, distances and gate are the same, and what is known of continuous variables
comes from training data of the quick preset, as in `elden detect`. Only the predictions are the world's: frequencies
over some draws of chance, in scripted episodes with a tenth of random actions. Many of the states that are tried cannot
occur; a model must make something up there, the simulator has rules.

What is missing from 1 between different nodes is therefore not for a better model to find, but for another score: it is
where labels and the mean over other values differ. Self-edges are left out: labels keep them also where the past of an
entity has no influence (a goTo from wherever), and there a simulator knows better than any model that has learnt.
"""

import json
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Array, Bool, Float, Int, Key, Num

import elden
from elden.dynamics.config import NetworkConfig
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import encode
from elden.factors import Continuous, Discrete
from elden.graphs.base import Reference
from elden.graphs.evaluate import convert
from elden.graphs.intervention import Intervention, gated, sum_up, total_variation, trials
from elden.graphs.metrics import edge_table, pooled
from elden.graphs.sweep import kinds
from elden.provenance import provenance
from elden.studies.config import GRANULARITIES
from elden.studies.dataset import CollectConfig, collect
from elden.studies.detection import TYPICAL_OF
from elden.studies.measuring import sample
from elden.studies.presets import detection_preset
from elden.worlds.base import Transition, World, WorldState


@dataclass(frozen=True)
class Args:
    """What to measure."""

    worlds: tuple[str, ...] = ("thawing", "carwash", "minecraft", "kitchen")
    """In which worlds; kitchen with the labels of its rules, and once more with those that name every condition."""
    episodes: int = 50
    """Scripted episodes in each world, with a tenth of random actions."""
    draws: int = 8
    """Draws of chance for each prediction."""
    out: Path | None = None
    """Where to write the JSON; None writes nothing."""


def play(world: World, episodes: int, key: Key[Array, ""]) -> tuple[WorldState, Transition]:
    """States and transitions of scripted episodes, without the last of each, one after the other."""

    def episode(key: Key[Array, ""]) -> tuple[WorldState, Transition]:
        reset_key, key = jax.random.split(key)

        def step(state: WorldState, key: Key[Array, ""]) -> tuple[WorldState, tuple[WorldState, Transition]]:
            act_key, step_key = jax.random.split(key)
            after, transition = world.step(step_key, state, world.scripted(act_key, state, 0.1))
            return after, (state, transition)

        keys = jax.random.split(key, world.max_steps)
        played: tuple[WorldState, Transition] = jax.lax.scan(step, world.reset(reset_key), keys)[1]
        return played

    states, transitions = jax.jit(jax.vmap(episode))(jax.random.split(key, episodes))
    before_end = np.cumsum(np.asarray(transitions.done), axis=1) == 0
    kept: tuple[WorldState, Transition] = jax.tree.map(lambda leaf: leaf[before_end], (states, transitions))
    return kept


def simulated(
    world: World, layout: Layout, keys: Key[Array, " draw"], states: WorldState, actions: Int[Array, " batch"]
) -> Float[Array, "child slot value batch"]:
    """What `intervention` reads of a model, of the world: logarithms of frequencies, means of continuous variables."""

    def after(key: Key[Array, ""]) -> Float[Array, "child slot value batch"]:
        return layout.target(
            jax.vmap(lambda state, action: world.step(key, state, action)[1].next_obs)(states, actions)
        )

    mean = jnp.mean(jax.lax.map(after, keys), axis=0)
    return jnp.where(layout.discrete[..., None, None], jnp.log(mean), mean)


def scores(
    world: World,
    layout: Layout,
    keys: Key[Array, " draw"],
    reference: Reference,
    values: Num[Array, "example width"],
    states: WorldState,
    transitions: Transition,
) -> Float[Array, "batch dst src"]:
    """The scores of `intervention`, gate included, with the world in the place of the model."""
    detector, factors = Intervention(), layout.factors
    source, order, example = trials(layout, detector.samples, len(values))
    first = np.array([entry for _, entry, _ in layout.source_entries])[source]
    sizes = np.array([kind.encoded_size for kind in kinds(layout)])[source]
    shift = (first - order[np.arange(len(source)), first]) % sizes  # by how much a one-hot block is turned round
    owner = np.repeat(np.arange(factors.num_variables), [v.kind.size for v in factors.variables])
    continuous = np.array([isinstance(v.kind, Continuous) for v in factors.variables])[owner]
    count = np.array([v.kind.n if isinstance(v.kind, Discrete) else 1 for v in factors.variables])[owner]
    base = simulated(world, layout, keys, states, transitions.action)

    def change(trial: tuple[Array, Array, Array]) -> Float[Array, "child batch"]:
        source, shift, example = trial
        own = states.values[:, : factors.width]
        other = jnp.where(continuous, values[example], (own + shift.astype(own.dtype)) % count.astype(own.dtype))
        values_now = jnp.concatenate(
            [jnp.where(owner == source, other, own), states.values[:, factors.width :]], axis=1
        )
        tried = WorldState(values_now, states.elapsed, states.succeeded, states.stages)
        actions = (transitions.action + jnp.where(source == factors.num_variables, shift, 0)) % world.num_actions
        return total_variation(layout, base, simulated(world, layout, keys, tried, actions), reference)

    changes = jax.lax.map(change, tuple(jnp.asarray(column, jnp.int32) for column in (source, shift, example)))
    ends = np.cumsum(np.bincount(source, minlength=layout.num_sources))
    parts = jnp.split(changes, ends[:-1].tolist())
    found = sum_up(parts, [jnp.ones((part.shape[0], part.shape[-1]), jnp.bool_) for part in parts])
    batch = encode(layout, transitions.obs, transitions.action, transitions.next_obs)
    return gated(layout, found, batch, reference)


def measure(world: World, args: Args) -> dict[str, object]:
    """ROC-AUC and F1 between different nodes at every granularity, and what is called wrongly between entities."""
    config = detection_preset("quick", world.name)
    layout = Layout(world.factors, Discrete(world.num_actions), NetworkConfig())
    dataset = collect(world, CollectConfig(config.transitions, config.epsilon, seed=config.seed))
    seen = sample(dataset.train, TYPICAL_OF, seed=1)
    reference = Reference.of(layout, seen.obs, seen.action, seen.next_obs, config.reference)
    play_key, chance_key = jax.random.split(jax.random.key(0))
    states, transitions = play(world, args.episodes, play_key)
    keys = jax.random.split(chance_key, args.draws)
    program = jax.jit(partial(scores, world, layout, keys, reference, seen.obs[: config.reference]))
    total, parts = len(transitions.action), []
    for start in range(0, total, 128):
        index = np.minimum(np.arange(start, start + 128), total - 1)
        piece = jax.tree.map(lambda leaf, index=index: leaf[index], (states, transitions))
        parts.append(np.asarray(program(*piece)))
    return judged(layout, np.concatenate(parts)[:total], np.asarray(transitions.graph))


def judged(
    layout: Layout, found: Float[np.ndarray, "time dst src"], graph: Bool[np.ndarray, "time var src"]
) -> dict[str, object]:
    """Scores against true graphs, between different nodes."""
    factors = layout.factors
    content: dict[str, object] = {"transitions": len(graph)}
    for granularity, (dst, src) in GRANULARITIES.items():
        here, truth = convert(found, layout, "variable", dst, src), np.asarray(factors.reduce_graph(graph, dst, src))
        mask = factors.edge_mask(dst, src)
        between = pooled(here[:, mask], truth[:, mask])
        content[granularity] = {"roc_auc_between": between.roc_auc, "f1_between": between.best.f1}
        if granularity == "entity":
            names = factors.source_names(dst)[:-1], factors.source_names(src)
            edges = edge_table(here, truth, mask, between.best.threshold, *names)
            content["edges"] = [asdict(edge) for edge in edges if edge.missed or edge.false_alarms]
    return content


def main(args: Args) -> None:
    """Measure in all worlds."""
    worlds: dict[str, World] = {name: elden.make(name) for name in args.worlds}
    if "kitchen" in worlds:
        worlds["kitchen, full labels"] = elden.make("kitchen", full_labels=True)
    found: dict[str, object] = {}
    for name, world in worlds.items():
        found[name] = known = measure(world, args)
        print(name, {key: value for key, value in known.items() if key != "edges"}, flush=True)
    if args.out is not None:
        settings = {"episodes": args.episodes, "draws": args.draws, "detector": asdict(Intervention())}
        args.out.write_text(json.dumps({**provenance(), **settings, "worlds": found}, indent=2) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Args))
