"""Figures of a detector's results, for the `media/` of a run folder."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, UInt8

from elden.factors import Factors
from elden.graphs.thresholds import automatic
from elden.studies.config import GRANULARITIES, GraphGranularity
from elden.studies.measuring import Held, entities_changed
from elden.studies.results import RowResult, slug
from elden.transitions import Transitions
from elden.viewing import EdgeCount, edge_breakdown, episode_strip, graph_heatmap, save, score_histogram
from elden.viewing.pictures import draw
from elden.worlds.base import Transition, World, WorldState

_Score: TypeAlias = Callable[[Transitions], Float[np.ndarray, "step dst src"]]

_STEPS = 8
_MOST_TYPES = 24
_TILE = 24


def draw_row(
    media: Path,
    world: World,
    granularity: GraphGranularity,
    result: RowResult,
    held: Held,
    scores: Float[np.ndarray, "time dst src"],
    score_episode: _Score,
) -> None:
    """All figures of one row, for its first seed: heat map, histogram, breakdown by type of edge, and an episode.

    Args:
        media: Folder for the figures.
        world: The world.
        granularity: The granularity of the scores.
        result: The results of the row.
        held: The transitions that were measured.
        scores: Their scores.
        score_episode: From transitions to scores between entities.
    """
    factors, name = world.factors, result.row.name
    dst, src = GRANULARITIES[granularity]
    truth, mask = held.truth(factors, granularity), factors.edge_mask(dst, src)
    first = result.seeds[0][granularity]
    best, auto = first.between.threshold, first.between.auto_threshold
    names = factors.source_names(dst)[:-1], factors.source_names(src)
    title = f"{world.name}, {name}"
    if truth[:, mask].any() and np.isfinite(scores).all():
        heatmap = graph_heatmap(
            truth, scores, best, *names, f"{title}: graphs of unseen episodes (first seed, best threshold)", ~mask
        )
        save(heatmap, media / f"{slug(name)}-heatmap.png")
        histogram = score_histogram(
            scores[:, mask], truth[:, mask], auto, best, f"{title}: scores between different nodes (first seed)"
        )
        save(histogram, media / f"{slug(name)}-histogram.png")
    if result.breakdown.types:
        predicted = int((scores[:, mask] >= result.breakdown.threshold).sum())
        wrong = int(((scores >= result.breakdown.threshold) & ~truth)[:, mask].sum())
        note = (
            f"between different nodes, at the best threshold there ({result.breakdown.threshold:.3g});"
            f" {predicted:,} edges are predicted in all, {wrong:,} of them false alarms"
        )
        save(
            edge_breakdown(_counts(result), f"{title}: what was found (first seed)", note),
            media / f"{slug(name)}-edges.png",
        )
    _draw_strip(media / f"{slug(name)}-episode.png", world, result, held, score_episode)


def _counts(result: RowResult) -> list[EdgeCount]:
    rows = sorted(result.breakdown.types, key=lambda row: -row.positives)[:_MOST_TYPES]
    return [EdgeCount(f"{row.event}: {row.src} → {row.dst}", row.positives, row.found) for row in rows]


def _draw_strip(path: Path, world: World, result: RowResult, held: Held, score_episode: _Score) -> None:
    """The graphs of the steps of one episode in which most depends on something else."""
    states, played = _play(world, jax.random.key(0))
    factors = world.factors
    truth = np.asarray(factors.reduce_graph(played.graph))
    mask = factors.edge_mask("entity", "entity")
    figure = episode_strip(
        truth,
        score_episode(Transitions(played.obs, played.action, played.next_obs)),
        _entity_threshold(factors, result, held, score_episode),
        factors.entity_names,
        factors.source_names("entity"),
        [world.action_names[action] for action in played.action.tolist()],
        [_picture(world, states, step) for step in range(len(truth))],
        _liveliest(truth[:, mask]),
        ~mask,
        f"{world.name}, {result.row.name}: the steps of an episode with most edges (first seed, automatic threshold)",
    )
    save(figure, path)


def _entity_threshold(factors: Factors, result: RowResult, held: Held, score_episode: _Score) -> float:
    """The automatic threshold of the scores between entities.

    Where these were not measured it comes from the held-out transitions, of whose true graphs it sees nothing.
    """
    if "entity" in result.seeds[0]:
        return result.seeds[0]["entity"].between.auto_threshold
    changed = entities_changed(factors, held.transitions)
    mask = factors.edge_mask("entity", "entity")
    return automatic(score_episode(held.transitions), changed, mask, result.row.detector.threshold_rule)


def _picture(world: World, states: WorldState, step: int) -> UInt8[np.ndarray, "height width 3"]:
    state: WorldState = jax.tree.map(lambda leaf: leaf[step], states)
    return draw(world.scene(state), _TILE)


def _liveliest(truth: Bool[np.ndarray, "time edge"]) -> list[int]:
    """The steps with most edges, in order; of equals the earlier ones."""
    order = np.argsort(-truth.sum(1), kind="stable")[:_STEPS]
    return sorted(order.tolist())


def _play(world: World, key: Key[Array, ""]) -> tuple[WorldState, Transition]:
    """The states and transitions of one scripted episode, up to its end."""
    states, transitions = _play_on(world, key)
    length = int(np.argmax(transitions.done)) + 1
    episode: tuple[WorldState, Transition] = jax.tree.map(lambda leaf: leaf[:length], (states, transitions))
    return episode


@partial(jax.jit, static_argnums=0)
def _play_on(world: World, key: Key[Array, ""]) -> tuple[WorldState, Transition]:
    """The same for as many steps as an episode can have, even where it ends before."""
    reset_key, key = jax.random.split(key)

    def step(state: WorldState, time: Array) -> tuple[WorldState, tuple[WorldState, Transition]]:
        act_key, step_key = jax.random.split(jax.random.fold_in(key, time))
        after, transition = world.step(step_key, state, world.scripted(act_key, state, 0.1))
        return after, (state, transition)

    _, played = jax.lax.scan(step, world.reset(reset_key, solvable=True), jnp.arange(world.max_steps))
    states, transitions = played
    return states, transitions
