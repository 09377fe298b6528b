"""Which edges in the episodes of trained agents some legal state could show, and how well their models predict those.

    python experiments/evidence.py --runs runs/kitchen --out results/exploration/evidence.json

A model learns from what occurs. An edge that no legal state shows, one that differs in that source alone, has to be
distinguished from others that always go with it: in kitchen butter melts on the stove, and only there can it have
melted, so the meatball that needs melted butter shows a model nothing of the stove. So every source of every step is
set to each of its other values, everything else equal, as in the audit of the labels (`tools/labels_audit.py`), and the
simulator says which next variables change. F1 is given twice: over all edges between different entities, and without
the true edges that no legal state shows, whether they are predicted or not. In kitchen it is given a third time, with
the labels that name every condition (`full_labels`): those of its rules leave out that a hand that holds the pot keeps
it off the fire.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Array, Bool, Int, Shaped

from elden.bonuses.reading import models_of, reader_of
from elden.provenance import provenance
from elden.storage.files import write_json
from elden.studies.audit import Changes, Sampled, changes, interventions
from elden.training.evaluation import Played, evaluation_key, play, read_graphs, to_entities
from elden.training.run import TrainingRun
from elden.worlds.base import World, WorldState
from elden.worlds.kitchen.twin import Kitchen

_BATCH = 64
_DRAWS = 4


@dataclass(frozen=True)
class Args:
    """What to look at."""

    runs: tuple[Path, ...]
    """Folders of training runs in worlds of ours, with models beside the bonus."""
    episodes: int = 15
    """Episodes of each agent."""
    out: Path | None = None
    """Where to write the JSON; None writes nothing."""


def shown(world: World, states: WorldState, actions: Int[np.ndarray, " step"]) -> Bool[np.ndarray, "step dst src"]:
    """Which next variables some legal state changes that differs in one source alone."""
    sampled = Sampled(states, actions, np.zeros((len(actions), 0), bool))
    tried = interventions(world, sampled)
    keys = jax.random.split(jax.random.key(0), _DRAWS)

    @jax.jit
    def check(states: WorldState, actions: Int[Array, " step"]) -> Changes:
        return jax.vmap(lambda state, action: changes(world, keys, tried, state, action))(states, actions)

    total, parts = len(actions), []
    padded = np.arange(-(-total // _BATCH) * _BATCH) % total
    for start in range(0, len(padded), _BATCH):
        index = padded[start : start + _BATCH]
        part = jax.tree.map(lambda leaf, index=index: leaf[index], states)
        parts.append(check(part, jnp.asarray(actions[index])))
    return np.concatenate([np.asarray(part.by_legal) for part in parts])[:total]


def shares(
    true: Bool[np.ndarray, "step edge"], predicted: Bool[np.ndarray, "step edge"], legal: Bool[np.ndarray, "step edge"]
) -> dict[str, float]:
    """Metrics over the edges that some legal state shows (`legal`), over the others, and over both."""
    both, hidden = true & predicted, true & ~legal

    def rate(some: Bool[np.ndarray, "step edge"], of: Bool[np.ndarray, "step edge"]) -> float:
        return float(some.sum() / max(1, of.sum()))

    return {
        "true": float(true.sum()),
        "shown": rate(legal, true),
        "precision": rate(both, predicted),
        "recall": rate(both, true),
        "recall_shown": rate(both & legal, legal),
        "recall_hidden": rate(both & hidden, hidden),
        "f1": f1(true, predicted),
        "f1_shown": f1(legal, predicted & ~hidden),
    }


def of_agent(
    world: World, played: Played, graphs: Bool[np.ndarray, "time agent episode dst src"], agent: int
) -> dict[str, float]:
    """The metrics of one agent, whose models predict these graphs between entities."""
    factors, mask = world.factors, world.factors.edge_mask("entity", "entity")
    counts = np.asarray(played.counts[:, agent])

    def flat(leaf: Shaped[np.ndarray, "time episode ..."]) -> Shaped[np.ndarray, "step ..."]:
        kept: Shaped[np.ndarray, "step ..."] = leaf[counts]
        return kept

    def edges(graphs: Bool[np.ndarray, "step dst src"]) -> Bool[np.ndarray, "step edge"]:
        coarse: Bool[np.ndarray, "step edge"] = to_entities(factors, graphs, ("variable", "variable"))[:, mask]
        return coarse

    after = jax.tree.map(lambda leaf: np.asarray(leaf[:, agent]), played.states)
    before = jax.tree.map(
        lambda one, rest: flat(np.concatenate([np.asarray(one)[None], rest[:-1]])), played.first, after
    )
    actions = flat(np.asarray(played.steps.action[:, agent]))
    truth, predicted = flat(np.asarray(played.steps.graph[:, agent])), flat(graphs[:, agent])[:, mask]
    metrics = shares(edges(truth), predicted, edges(truth & shown(world, before, actions)))
    if isinstance(world, Kitchen):
        whole = edges(graphs_of(replace(world, full_labels=True), before, actions))
        metrics["f1_every_condition"] = f1(whole, predicted)
    return metrics


def graphs_of(world: World, states: WorldState, actions: Int[np.ndarray, " step"]) -> Bool[np.ndarray, "step dst src"]:
    """The true graphs of these steps, in a world whose steps depend on nothing random."""
    key = jax.random.key(0)
    step = jax.jit(jax.vmap(lambda state, action: world.step(key, state, action)[1].graph))
    return np.asarray(step(states, jnp.asarray(actions)))


def f1(true: Bool[np.ndarray, "step edge"], predicted: Bool[np.ndarray, "step edge"]) -> float:
    """The harmonic mean of precision and recall."""
    return float(2 * (true & predicted).sum() / max(1, true.sum() + predicted.sum()))


def look(folder: Path, episodes: int) -> dict[str, object]:
    """The agents of one training run.

    Raises:
        SystemExit: There is nothing to look at.
    """
    training = TrainingRun.open(folder)
    world, kept = training.world, training.kept()
    found = None if kept is None else models_of(training.loop.bonus, kept.tree.bonus)
    reader = None if found is None else reader_of(found[0], training.config.bonus.detector)
    if kept is None or found is None or reader is None or not isinstance(world, World):
        raise SystemExit(f"{folder} holds no agents with models that can be read, in a world of ours")
    models = jax.jit(jax.vmap(reader.automatic))(found[1])
    steps = play(training.loop, False, kept.tree.policy, evaluation_key(0), jnp.arange(episodes, dtype=jnp.int32))
    names = ("obs", "action", "next_obs")
    read = np.asarray(read_graphs(reader, models, *(getattr(steps.steps, name) for name in names)))
    predicted = to_entities(world.factors, read, reader.granularity)
    rows = [
        {"seed": seed, **of_agent(world, steps, predicted, agent)}
        for agent, seed in enumerate(training.config.all_seeds)
    ]
    measured = [name for name in rows[0] if name != "seed"]
    median = {name: float(np.median([row[name] for row in rows])) for name in measured}
    return {"world": world.name, "run": folder.name, "seeds": rows, "median": median}


def main(args: Args) -> None:
    """Look at all of them, and print the medians."""
    found = []
    for folder in args.runs:
        found.append(look(folder, args.episodes))
        print(json.dumps({name: found[-1][name] for name in ("run", "median")}))
    if args.out is not None:
        write_json(args.out, {**provenance(), "episodes": args.episodes, "runs": found})


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
