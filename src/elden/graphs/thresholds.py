"""A threshold for scores of edges, from unlabelled data alone.

The paper leaves its threshold to the user. Two rules choose one without a single true graph:

- `change_threshold` uses what every transition shows: which entities changed. What stays as it was has itself as its
  only cause, and what changes has another one. The best threshold is therefore the one at which "has some other parent"
  agrees best (by F1) with "changed"; where own edges count, those of what did not change must be there too.
- `otsu_threshold` cuts the scores into two groups that differ most. It suits scores that lie between 0 and 1 and mean
  the same everywhere, and scores that are 0 wherever nothing changed, of which the first rule learns nothing.

A dependency is predicted where `score >= threshold`.
"""

from typing import Literal, TypeAlias

import numpy as np
from jaxtyping import Bool, Float

from elden.graphs.metrics import best_f1

Rule: TypeAlias = Literal["change", "otsu"]

_BINS = 1024
_TOP = 0.9999  # scores above this quantile count as equal: one outlier must not stretch the bins


def automatic(
    scores: Float[np.ndarray, "time dst src"],
    changed: Bool[np.ndarray, "time dst"],
    mask: Bool[np.ndarray, "dst src"],
    rule: Rule,
    own: bool = False,
) -> float:
    """A threshold for these scores.

    Args:
        scores: Scores of all edges.
        changed: Whether the entity of each destination changed in the step.
        mask: The edges between different nodes.
        rule: How the threshold is chosen.
        own: Whether the threshold is for the edges from a node to itself as well.
    """
    if rule == "change":
        return change_threshold(scores, changed, mask, own)
    # Own edges would only add a heap of their own to the scores that are to be cut in two.
    return otsu_threshold(scores[:, mask])


def change_threshold(
    scores: Float[np.ndarray, "time dst src"],
    changed: Bool[np.ndarray, "time dst"],
    mask: Bool[np.ndarray, "dst src"],
    own: bool = False,
) -> float:
    """The threshold at which destinations with some other parent agree best with those that changed.

    Destinations without any edge to another node are left out. Where nothing changes, or everything does, there is
    nothing to learn from and the threshold is just above the highest score, or the lowest one.

    Args:
        scores: Scores of all edges.
        changed: Whether the entity of each destination changed in the step.
        mask: The edges between different nodes.
        own: Whether the own edges of destinations that did not change are asked for as well.
    """
    _check(scores)
    counted = mask.any(axis=1)
    if not counted.any():
        raise ValueError("no edge counts: the mask is empty")
    highest = np.where(mask, scores, -np.inf).max(axis=2)[:, counted].ravel()
    happened = changed[:, counted].ravel()
    if own and not mask.all():
        itself = np.where(mask, -np.inf, scores).max(axis=2)[~changed & ~mask.all(axis=1)]
        highest, happened = np.append(highest, itself), np.append(happened, np.ones(len(itself), bool))
    if not happened.any():
        return float(np.nextafter(highest.max(), np.inf, dtype=highest.dtype))
    return float(best_f1(highest, happened).threshold)


def otsu_threshold(scores: Float[np.ndarray, "..."]) -> float:
    """The cut that maximises the variance between the scores below and above it (Otsu 1979).

    Where all scores are equal the threshold is that score.
    """
    _check(scores)
    values = scores.ravel().astype(np.float64)
    low, high = float(values.min()), float(np.quantile(values, _TOP))
    if high <= low:
        high = float(values.max())
    if high <= low:
        return low
    counts, edges = np.histogram(np.minimum(values, high), _BINS, (low, high))
    middle = (edges[1:] + edges[:-1]) / 2
    below, moment = np.cumsum(counts)[:-1], np.cumsum(counts * middle)[:-1]
    total, mean = counts.sum(), (counts * middle).sum() / counts.sum()
    between = (mean * below - moment) ** 2 / np.maximum(below * (total - below), 1)
    best = np.flatnonzero(between >= between.max() * (1 - 1e-12))
    # All cuts inside an empty stretch are equally good: take the middle one.
    return float(edges[1 + int(best[len(best) // 2])])


def _check(scores: Float[np.ndarray, "..."]) -> None:
    if scores.size == 0 or not np.isfinite(scores).all():
        raise ValueError(f"scores of shape {scores.shape} given; a threshold needs at least one, all of them finite")
