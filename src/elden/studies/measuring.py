"""Scores against the truth: what a detector found, at every granularity and for every seed."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from elden.dynamics.layout import Layout
from elden.factors import Continuous, Factors
from elden.graphs.base import STILL, Detector
from elden.graphs.evaluate import convert
from elden.graphs.metrics import (
    EdgeRow,
    Measures,
    TypeRow,
    edge_table,
    f1_at,
    measure,
    pooled,
    roc_auc,
    type_table,
)
from elden.graphs.thresholds import Rule, automatic
from elden.provenance import cpu_cores
from elden.studies.config import GRANULARITIES, DetectConfig, GraphGranularity
from elden.studies.dataset import Dataset, Split
from elden.studies.errors import StudyError
from elden.transitions import Transitions
from elden.worlds.labels import RuleBook, event_type


@dataclass(frozen=True)
class Held:
    """The transitions that are measured.

    Attributes:
        transitions: What the detectors see.
        graph: The true graphs, at variable granularity.
        events: What happened.
    """

    transitions: Transitions
    graph: Bool[np.ndarray, "time var var+1"]
    events: Bool[np.ndarray, "time event"]

    def truth(self, factors: Factors, granularity: GraphGranularity) -> Bool[np.ndarray, "time dst src"]:
        """The true graphs at a granularity."""
        dst, src = GRANULARITIES[granularity]
        return np.asarray(factors.reduce_graph(self.graph, dst=dst, src=src))


def held_out(dataset: Dataset, episodes: int) -> Held:
    """The first held-out episodes, each without its last transition.

    Raises:
        StudyError: There are fewer episodes, or nothing is left of them.
    """
    split = dataset.held_out
    if split.graph is None or split.events is None:
        raise StudyError("the held-out part of the data has no true graphs, so nothing can be measured on it")
    numbers = np.unique(split.episode)
    if len(numbers) < episodes:
        raise StudyError(
            f"eval_episodes={episodes} given, but the data hold out {len(numbers)} episodes only; collect more"
            " transitions, hold out a larger share of them, or measure fewer episodes"
        )
    last = np.append(split.episode[1:] != split.episode[:-1], True)
    chosen = np.flatnonzero((split.episode <= numbers[episodes - 1]) & ~last)
    if not len(chosen):
        raise StudyError("every held-out episode has one transition only, and the last of each is left out")
    return Held(_transitions(split, chosen), split.graph[chosen], split.events[chosen])


def sample(split: Split, count: int, seed: int = 0) -> Transitions:
    """Some transitions of a part of the data, drawn without repetition: all where there are no more."""
    draw = np.random.default_rng(seed).permutation(len(split))
    return _transitions(split, draw[:count])


def entities_changed(factors: Factors, transitions: Transitions) -> Bool[np.ndarray, "time entity"]:
    """Whether any variable of each entity changed in each step: a continuous one by a thousandth of its deviation."""
    before, after = (np.asarray(part, np.float64) for part in (transitions.obs, transitions.next_obs))
    continuous = np.concatenate([np.full(v.kind.size, isinstance(v.kind, Continuous)) for v in factors.variables])
    columns = np.abs(after - before) > np.where(continuous, STILL * before.std(axis=0), 0.0)
    owner = np.concatenate([np.full(v.kind.size, e) for v, e in zip(factors.variables, factors.entity_of, strict=True)])
    return np.stack([columns[:, owner == entity].any(axis=1) for entity in range(factors.num_entities)], axis=1)


def all_transitions(split: Split) -> Transitions:
    """The transitions of a part of the data."""
    return _transitions(split, np.arange(len(split)))


def _transitions(split: Split, index: Int[np.ndarray, " n"]) -> Transitions:
    return Transitions(*(jnp.asarray(part[index]) for part in (split.obs, split.action, split.next_obs)))


@dataclass(frozen=True)
class Between:
    """The measures over the edges between different nodes.

    Attributes:
        roc_auc: As in `Measures`.
        f1: Best F1.
        threshold: The threshold of that F1.
        average_precision: As in `Measures`.
        positive_rate: Share of these edges that are dependencies.
        auto_threshold: The threshold that unlabelled training data suggest for these edges.
        auto_f1: F1 at that threshold.
    """

    roc_auc: float
    f1: float
    threshold: float
    average_precision: float
    positive_rate: float
    auto_threshold: float
    auto_f1: float


@dataclass(frozen=True)
class GranularityResult:
    """How well one model's scores tell the true edges, at one granularity.

    Attributes:
        measures: Over all edges, those from a node to itself included, as the authors' programs count.
        auto_threshold: The threshold that unlabelled training data suggest.
        auto_f1: F1 at that threshold.
        between: Over the edges between different nodes only.
    """

    measures: Measures
    auto_threshold: float
    auto_f1: float
    between: Between

    def numbers(self) -> dict[str, float]:
        """All of it by name."""
        flat = {name: float(value) for name, value in asdict(self.measures).items()}
        flat |= {"auto_threshold": self.auto_threshold, "auto_f1": self.auto_f1}
        return flat | {f"{name}_between": value for name, value in asdict(self.between).items()}


def measure_granularity(
    scores: Float[np.ndarray, "time dst src"],
    truth: Bool[np.ndarray, "time dst src"],
    unlabelled: Float[np.ndarray, "other dst src"],
    changed: Bool[np.ndarray, "other dst"],
    mask: Bool[np.ndarray, "dst src"],
    rule: Rule,
) -> GranularityResult:
    """All measures of one model's scores.

    Args:
        scores: Of held-out transitions.
        truth: Their true graphs.
        unlabelled: Scores of training transitions, from which the automatic threshold comes.
        changed: In which of these the entity of each destination changed.
        mask: The edges between different nodes.
        rule: How the automatic threshold comes from them.
    """
    threshold, threshold_between = (automatic(unlabelled, changed, mask, rule, own) for own in (True, False))
    some, true = scores[:, mask], truth[:, mask]
    found = pooled(some, true)
    between = Between(
        roc_auc=found.roc_auc,
        f1=found.best.f1,
        threshold=found.best.threshold,
        average_precision=found.average_precision,
        positive_rate=float(true.mean()),
        auto_threshold=threshold_between,
        auto_f1=f1_at(some, true, threshold_between).f1,
    )
    every = np.ones_like(mask)
    return GranularityResult(measure(scores, truth, every), threshold, f1_at(scores, truth, threshold).f1, between)


def self_edges_alone(factors: Factors, held: Held, granularity: GraphGranularity) -> tuple[float, float]:
    """ROC-AUC and F1 over all edges of a graph that has the edges from a node to itself and no others.

    Most of them are on at every step, so this is what a detector must beat before its numbers over all edges say
    anything.
    """
    dst, src = GRANULARITIES[granularity]
    truth = held.truth(factors, granularity)
    scores = np.broadcast_to((~factors.edge_mask(dst, src)).astype(np.float32), truth.shape)
    return roc_auc(scores, truth), f1_at(scores, truth, 1.0).f1


def all_into_changed(factors: Factors, held: Held, granularity: GraphGranularity) -> dict[str, float]:
    """What a graph of self-edges and every edge into an entity that changed is worth; it needs no model.

    A detector that knows what changed must beat it. Self-edges rank above the others.

    Returns:
        "roc_auc" and "f1", the better of the one with both kinds of edges and the one with self-edges alone; and
        "roc_auc_between" and "f1_between" over the edges between different nodes.
    """
    dst, src = GRANULARITIES[granularity]
    mask, truth = factors.edge_mask(dst, src), held.truth(factors, granularity)
    changed = entities_changed(factors, held.transitions)
    moved = changed if dst == "entity" else changed[:, factors.entity_of]
    scores = np.where(mask, 0.5 * moved[..., None], 1.0).astype(np.float32)
    both, between = pooled(scores, truth), pooled(scores[:, mask], truth[:, mask])
    return {
        "roc_auc": both.roc_auc,
        "f1": both.best.f1,
        "roc_auc_between": between.roc_auc,
        "f1_between": between.best.f1,
    }


def measure_all(
    scores: Float[np.ndarray, "run time dst src"],
    unlabelled: Float[np.ndarray, "run other dst src"],
    changed: Bool[np.ndarray, "other entity"],
    detector: Detector,
    layout: Layout,
    held: Held,
    config: DetectConfig,
) -> tuple[dict[GraphGranularity, GranularityResult], ...]:
    """For every run the measures at every granularity; runs are measured side by side: sorting is most of the work."""
    results: list[dict[GraphGranularity, GranularityResult]] = [{} for _ in scores]
    sources = detector.sources(layout)
    for granularity in config.granularities:
        dst, src = GRANULARITIES[granularity]
        mask, truth = layout.factors.edge_mask(dst, src), held.truth(layout.factors, granularity)
        here = convert(scores, layout, sources, dst, src)
        there = convert(unlabelled, layout, sources, dst, src)
        moved = changed if dst == "entity" else changed[:, layout.factors.entity_of]
        with ThreadPoolExecutor(cpu_cores()) as pool:
            jobs = [
                pool.submit(measure_granularity, mine, truth, others, moved, mask, detector.threshold_rule)
                for mine, others in zip(here, there, strict=True)
            ]
        for result, job in zip(results, jobs, strict=True):
            result[granularity] = job.result()
    return tuple(results)


@dataclass(frozen=True)
class Breakdown:
    """Which dependencies one model finds and which it misses, at its best threshold.

    Attributes:
        edges: One row for each edge between different nodes.
        types: One row for each such edge and type of event that switches it on.
        threshold: That threshold.
    """

    edges: list[EdgeRow]
    types: list[TypeRow]
    threshold: float


def break_down(
    scores: Float[np.ndarray, "time dst src"],
    threshold: float,
    granularity: GraphGranularity,
    held: Held,
    book: RuleBook,
) -> Breakdown:
    """The breakdown of scores that are already at a granularity."""
    factors = book.factors
    dst, src = GRANULARITIES[granularity]
    mask, truth = factors.edge_mask(dst, src), held.truth(factors, granularity)
    names = factors.source_names(dst)[:-1], factors.source_names(src)
    switched = np.stack([book.edges[event] for event in book.events])
    of_event = np.asarray(factors.reduce_graph(switched, dst=dst, src=src))
    kinds = [event_type(event) for event in book.events]
    types = type_table(scores, truth, mask, threshold, held.events, of_event, kinds, *names)
    return Breakdown(edge_table(scores, truth, mask, threshold, *names), types, threshold)


def file_rows(rows: Sequence[EdgeRow] | Sequence[TypeRow]) -> list[Mapping[str, object]]:
    """Rows for a file, with what follows from them."""
    return [{**asdict(row), "missed": row.missed, "recall": row.recall} for row in rows]
