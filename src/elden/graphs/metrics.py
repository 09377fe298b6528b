"""How well scores of edges agree with the true local graphs: ROC-AUC, F1, average precision, and what was missed.

Scores and truth are `[time, dst, src]` with the action as the last source; a *mask* `[dst, src]` says which edges
count. An edge is predicted where its score is at least the threshold. A measure is *pooled* over all counted
(transition, edge) pairs, or taken for each edge over its transitions and averaged over the edges that have both
classes (*per pair*).

With TP, FP and FN the true positives, false positives and misses: precision = TP / (TP + FP), recall = TP / (TP + FN),
F1 = 2 TP / (2 TP + FP + FN). Where there are no positives, or no negatives for ROC-AUC, a measure is NaN. Scores may be
infinite, and are then ordered as usual; NaN is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

NO_EVENT = "(no event)"
"""The event type of positives that no event explains."""


class F1(NamedTuple):
    """F1 at a threshold, with what it is made of; precision is NaN where nothing is predicted."""

    f1: float
    threshold: float
    precision: float
    recall: float


@dataclass(frozen=True)
class Measures:
    """How well scores agree with the truth.

    Attributes:
        roc_auc: Chance that a dependency scores above a non-dependency, pooled.
        f1: Best F1 over all thresholds, pooled.
        threshold: The threshold of that F1.
        precision: At that threshold.
        recall: At that threshold.
        average_precision: Mean precision over recall, pooled.
        positive_rate: Share of counted pairs that are dependencies.
        per_pair_roc_auc: Mean ROC-AUC over the edges that have both classes.
        per_pair_f1: Mean over the same edges of the best F1, each with a threshold of its own.
        num_transitions: Number of transitions.
        num_edges: Number of counted edges.
    """

    roc_auc: float
    f1: float
    threshold: float
    precision: float
    recall: float
    average_precision: float
    positive_rate: float
    per_pair_roc_auc: float
    per_pair_f1: float
    num_transitions: int
    num_edges: int


class _Counted:
    """What follows from how many there are and how many are found."""

    positives: int
    found: int

    @property
    def missed(self) -> int:
        """Positives that are not predicted."""
        return self.positives - self.found

    @property
    def recall(self) -> float:
        """Share of the positives that are predicted; NaN without positives."""
        return _ratio(self.found, self.positives)


@dataclass(frozen=True)
class EdgeRow(_Counted):
    """How one edge fares at a threshold.

    Attributes:
        dst: Name of the node that is influenced.
        src: Name of the node that influences.
        positives: In how many transitions the dependency is there.
        found: In how many of those it is predicted.
        false_alarms: In how many of the others it is predicted, per transition of the data.
        roc_auc: Over the transitions, for this edge alone; NaN where it is always or never there.
    """

    dst: str
    src: str
    positives: int
    found: int
    false_alarms: float
    roc_auc: float


@dataclass(frozen=True)
class TypeRow(_Counted):
    """How often an edge, switched on by one type of event, is found at a threshold.

    Attributes:
        event: Type of the event.
        dst: Name of the node that is influenced.
        src: Name of the node that influences.
        positives: In how many transitions such an event switched the edge on.
        found: In how many of those it is predicted.
    """

    event: str
    dst: str
    src: str
    positives: int
    found: int


def roc_auc(scores: Float[np.ndarray | jax.Array, "*pair"], truth: Bool[np.ndarray | jax.Array, "*pair"]) -> float:
    """Area under the ROC curve over all pairs; ties count one half. NaN unless there are both classes."""
    return _roc_auc(_rank(scores, truth))


def average_precision(
    scores: Float[np.ndarray | jax.Array, "*pair"], truth: Bool[np.ndarray | jax.Array, "*pair"]
) -> float:
    """Σ_k (recall_k − recall_{k−1}) · precision_k over the thresholds, from high to low. NaN without positives."""
    return _average_precision(_rank(scores, truth))


def best_f1(scores: Float[np.ndarray | jax.Array, "*pair"], truth: Bool[np.ndarray | jax.Array, "*pair"]) -> F1:
    """The largest F1 over all thresholds; of equally good ones the highest. All NaN without positives."""
    return _best_f1(_rank(scores, truth))


class Pooled(NamedTuple):
    """Measures over all pairs."""

    roc_auc: float
    best: F1
    average_precision: float


def pooled(scores: Float[np.ndarray | jax.Array, "*pair"], truth: Bool[np.ndarray | jax.Array, "*pair"]) -> Pooled:
    """`roc_auc`, `best_f1` and `average_precision` by one sort."""
    ranked = _rank(scores, truth)
    return Pooled(_roc_auc(ranked), _best_f1(ranked), _average_precision(ranked))


def f1_at(
    scores: Float[np.ndarray | jax.Array, "*pair"],
    truth: Bool[np.ndarray | jax.Array, "*pair"],
    threshold: float | int,
) -> F1:
    """F1 of predicting `score >= threshold`. F1 and recall are NaN without positives."""
    _check_threshold(threshold)
    values, labels = _checked(scores, truth)
    predicted = values >= threshold
    positives, hits = int(labels.sum()), int((predicted & labels).sum())
    return _f1(float(threshold), hits, int(predicted.sum()), positives)


def measure(
    scores: Float[np.ndarray | jax.Array, "time dst src"],
    truth: Bool[np.ndarray | jax.Array, "time dst src"],
    mask: Bool[np.ndarray, "dst src"],
) -> Measures:
    """All measures of scores against the truth, on the edges of the mask."""
    values, labels = _counted(scores, truth, mask)
    every = pooled(values, labels)
    mixed = labels.any(0) & ~labels.all(0)
    edges = [_rank(values[:, edge], labels[:, edge]) for edge in np.flatnonzero(mixed)]
    return Measures(
        roc_auc=every.roc_auc,
        f1=every.best.f1,
        threshold=every.best.threshold,
        precision=every.best.precision,
        recall=every.best.recall,
        average_precision=every.average_precision,
        positive_rate=float(labels.mean()),
        per_pair_roc_auc=_mean([_edge_roc_auc(edge) for edge in edges]),
        per_pair_f1=_mean([_best_f1(edge).f1 for edge in edges]),
        num_transitions=labels.shape[0],
        num_edges=labels.shape[1],
    )


def edge_table(
    scores: Float[np.ndarray | jax.Array, "time dst src"],
    truth: Bool[np.ndarray | jax.Array, "time dst src"],
    mask: Bool[np.ndarray, "dst src"],
    threshold: float | int,
    dst_names: Sequence[str],
    src_names: Sequence[str],
) -> list[EdgeRow]:
    """One row for each counted edge, those with the most missed positives first."""
    _check_threshold(threshold)
    _check_names(mask, dst_names, src_names)
    values, labels = _counted(scores, truth, mask)
    predicted = values >= threshold
    rows = [
        EdgeRow(
            dst=dst_names[dst],
            src=src_names[src],
            positives=int(labels[:, edge].sum()),
            found=int((labels[:, edge] & predicted[:, edge]).sum()),
            false_alarms=float((predicted[:, edge] & ~labels[:, edge]).mean()),
            roc_auc=_edge_roc_auc(_rank(values[:, edge], labels[:, edge])),
        )
        for edge, (dst, src) in enumerate(np.argwhere(mask))
    ]
    return sorted(rows, key=lambda row: -row.missed)


def type_table(
    scores: Float[np.ndarray | jax.Array, "time dst src"],
    truth: Bool[np.ndarray | jax.Array, "time dst src"],
    mask: Bool[np.ndarray, "dst src"],
    threshold: float | int,
    events: Bool[np.ndarray | jax.Array, "time event"],
    edges_of_event: Bool[np.ndarray, "event dst src"],
    event_types: Sequence[str],
    dst_names: Sequence[str],
    src_names: Sequence[str],
) -> list[TypeRow]:
    """One row for each (event type, edge) with positives, those with the most missed ones first.

    A positive is credited to every type of event that happened in its transition and switches its edge on, so one that
    has two causes is counted in two rows; one that has none goes to `NO_EVENT` (such as the diagonal, if it counts).

    Args:
        scores: Scores of the edges.
        truth: Where the dependencies are.
        mask: The edges that count.
        threshold: An edge is predicted where its score is at least this.
        events: Which events happened.
        edges_of_event: The edges that each event switches on, at the granularity of the scores.
        event_types: The type of each event; events of one type share rows.
        dst_names: Names of the influenced nodes.
        src_names: Names of the sources.
    """
    _check_threshold(threshold)
    _check_names(mask, dst_names, src_names)
    if len(event_types) != edges_of_event.shape[0]:
        raise ValueError(f"{edges_of_event.shape[0]} events need as many types, got {len(event_types)}")
    values, labels = _counted(scores, truth, mask)
    found = labels & (values >= threshold)
    credit_of = _credits(np.asarray(events), edges_of_event[:, mask], event_types)
    places = np.argwhere(mask)
    rows = [
        TypeRow(kind, dst_names[places[edge, 0]], src_names[places[edge, 1]], int(positives), int(hits))
        for kind, credit in credit_of.items()
        for edge, (positives, hits) in enumerate(zip((labels & credit).sum(0), (found & credit).sum(0), strict=True))
        if positives
    ]
    return sorted(rows, key=lambda row: -row.missed)


def _credits(
    events: Bool[np.ndarray, "time event"], edges: Bool[np.ndarray, "event edge"], event_types: Sequence[str]
) -> dict[str, Bool[np.ndarray, "time edge"]]:
    """For each event type, and for none, the pairs that are its doing."""
    kinds = np.asarray(event_types)
    credit_of = {}
    for kind in dict.fromkeys(event_types):
        members = kinds == kind
        credit_of[kind] = events[:, members].astype(np.float32) @ edges[members].astype(np.float32) > 0
    explained = np.zeros((len(events), edges.shape[1]), bool)
    for credit in credit_of.values():
        explained |= credit
    return credit_of | {NO_EVENT: ~explained}


def mean_and_error(values: Sequence[float] | Float[np.ndarray, " n"]) -> tuple[float, float]:
    """Mean and its standard error, s / √n with the divisor n − 1 in s; the error of a single value is NaN."""
    array = np.asarray(values, np.float64)
    if array.size == 0:
        raise ValueError("mean_and_error needs at least one value, got none")
    with np.errstate(invalid="ignore"):
        error = float(array.std(ddof=1) / np.sqrt(array.size)) if array.size > 1 else float("nan")
        return float(array.mean()), error


@dataclass(frozen=True)
class _Ranked:
    """Pairs with their scores replaced by ranks: one sort serves every measure, and infinities are harmless.

    Attributes:
        levels: The distinct scores, ascending.
        ranks: For each pair the index of its score.
        labels: For each pair whether it is a dependency.
    """

    levels: Float[np.ndarray, " level"]
    ranks: Int[np.ndarray, " pair"]
    labels: Bool[np.ndarray, " pair"]

    @property
    def num_positives(self) -> int:
        return int(self.labels.sum())

    @cached_property
    def counts(self) -> tuple[Int[np.ndarray, " level"], Int[np.ndarray, " level"]]:
        """How many pairs with and without a dependency have each score."""
        on, off = (
            np.bincount(self.ranks[chosen], minlength=len(self.levels)) for chosen in (self.labels, ~self.labels)
        )
        return on, off

    def sorted_classes(
        self,
    ) -> tuple[Bool[np.ndarray, " entry"], Int[np.ndarray, " entry"], Int[np.ndarray, " entry"]]:
        """Class, rank and number of pairs of every score that either class has, in order: soon sorted again."""
        weights = np.stack(self.counts, axis=1).reshape(-1)
        there = np.flatnonzero(weights)
        return there % 2 == 0, there // 2, weights[there]


def _rank(scores: Float[np.ndarray | jax.Array, "*pair"], truth: Bool[np.ndarray | jax.Array, "*pair"]) -> _Ranked:
    values, labels = _checked(scores, truth)
    levels, ranks = np.unique(values, return_inverse=True)
    return _Ranked(levels, ranks.reshape(-1), labels.reshape(-1))


def _roc_auc(ranked: _Ranked) -> float:
    if ranked.num_positives in (0, ranked.labels.size):
        return float("nan")
    from sklearn.metrics import roc_auc_score  # takes longer to load than all the rest

    labels, ranks, weights = ranked.sorted_classes()
    return float(roc_auc_score(labels, ranks, sample_weight=weights))


def _edge_roc_auc(ranked: _Ranked) -> float:
    """The same of the few pairs of one edge, where scikit-learn's checks take longer than the sum."""
    positives, negatives = ranked.num_positives, ranked.labels.size - ranked.num_positives
    if not positives or not negatives:
        return float("nan")
    on, off = ranked.counts
    return float(on @ (off.cumsum() - 0.5 * off) / (positives * negatives))


def _average_precision(ranked: _Ranked) -> float:
    if ranked.num_positives == 0:
        return float("nan")
    from sklearn.metrics import average_precision_score

    labels, ranks, weights = ranked.sorted_classes()
    return float(average_precision_score(labels, ranks, sample_weight=weights))


def _best_f1(ranked: _Ranked) -> F1:
    positives = ranked.num_positives
    if positives == 0:
        return F1(*[float("nan")] * 4)
    num_levels = len(ranked.levels)
    predicted = np.bincount(ranked.ranks, minlength=num_levels)[::-1].cumsum()
    hits = np.bincount(ranked.ranks[ranked.labels], minlength=num_levels)[::-1].cumsum()
    best = int(np.argmax(2 * hits / (predicted + positives)))
    return _f1(float(ranked.levels[num_levels - 1 - best]), int(hits[best]), int(predicted[best]), positives)


def _f1(threshold: float, hits: int, predicted: int, positives: int) -> F1:
    f1 = _ratio(2 * hits, predicted + positives) if positives else float("nan")
    return F1(f1, threshold, _ratio(hits, predicted), _ratio(hits, positives))


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else float("nan")


def _checked(
    scores: Float[np.ndarray | jax.Array, "*pair"], truth: Bool[np.ndarray | jax.Array, "*pair"]
) -> tuple[Float[np.ndarray, "*pair"], Bool[np.ndarray, "*pair"]]:
    values, labels = np.asarray(scores, np.float64), np.asarray(truth)
    if values.shape != labels.shape:
        raise ValueError(f"scores and truth must have one shape, got {values.shape} and {labels.shape}")
    if values.size == 0:
        raise ValueError(f"there is nothing to measure: scores have shape {values.shape}")
    bad = int(np.isnan(values).sum())
    if bad:
        raise ValueError(f"{bad} of {values.size} scores are NaN; a score must be a number (infinities are allowed)")
    return values, labels


def _counted(
    scores: Float[np.ndarray | jax.Array, "time dst src"],
    truth: Bool[np.ndarray | jax.Array, "time dst src"],
    mask: Bool[np.ndarray, "dst src"],
) -> tuple[Float[np.ndarray, "time edge"], Bool[np.ndarray, "time edge"]]:
    """The pairs that count, one column for each edge of the mask in row-major order."""
    chosen = np.asarray(mask)
    if scores.shape[1:] != chosen.shape or truth.shape != scores.shape:
        raise ValueError(
            f"scores and truth must be [time, {', '.join(map(str, chosen.shape))}] like the mask, "
            f"got {scores.shape} and {truth.shape}"
        )
    if not chosen.any():
        raise ValueError("the mask counts no edge, so there is nothing to measure")
    return _checked(np.asarray(scores)[:, chosen], np.asarray(truth)[:, chosen])


def _check_threshold(threshold: float | int) -> None:
    if np.isnan(threshold):
        raise ValueError("threshold=nan: give a number (best_f1 finds one, or NaN without positives)")


def _check_names(mask: Bool[np.ndarray, "dst src"], dst_names: Sequence[str], src_names: Sequence[str]) -> None:
    if mask.shape != (len(dst_names), len(src_names)):
        raise ValueError(f"a mask of {mask.shape} needs as many names, got {len(dst_names)} and {len(src_names)}")
