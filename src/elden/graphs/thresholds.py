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

import jax
import numpy as np
from jaxtyping import Bool, Float

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
    if not mask.any():
        raise ValueError("no edge counts: the mask is empty")
    return float(change_cut(scores, changed, mask, own))


def change_cut(
    scores: Float[np.ndarray | jax.Array, "time dst src"],
    changed: Bool[np.ndarray | jax.Array, "time dst"],
    mask: Bool[np.ndarray, "dst src"],
    own: bool = False,
) -> Float[np.ndarray | np.generic | jax.Array, ""]:
    """`change_threshold` without its checks, of numpy's arrays or inside a compiled function."""
    xp = scores.__array_namespace__()
    counted = xp.broadcast_to(mask.any(axis=1), changed.shape)
    highest, happened = xp.max(xp.where(mask, scores, -xp.inf), axis=2), changed & counted
    if own:
        asked = ~changed & ~mask.all(axis=1)
        itself = xp.where(asked, xp.max(xp.where(mask, -xp.inf, scores), axis=2), -xp.inf)
        highest, happened, counted = (
            xp.stack(both) for both in ((highest, itself), (happened, asked), (counted, asked))
        )
    order = xp.argsort(-highest.ravel())  # what does not count has -inf and comes last
    ordered, hits, called = highest.ravel()[order], *(xp.cumsum(x.ravel()[order]) for x in (happened, counted))
    # A threshold cannot part equal scores: only the last one of them can be the lowest that counts.
    last = xp.append(ordered[:-1] != ordered[1:], True)
    f1 = xp.where(last, 2 * hits / (called + hits[-1]), -1.0)
    above = xp.nextafter(ordered[0], xp.full_like(ordered[0], xp.inf))
    return xp.where(hits[-1] > 0, ordered[xp.argmax(f1)], above)  # type: ignore[no-any-return]


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
