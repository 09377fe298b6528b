"""A threshold for scores of edges, from unlabelled data alone.

The paper leaves its threshold to the user. Two rules choose one without a single true graph:

- `change_threshold` uses what every transition shows: which entities changed. What stays as it was has itself as its
  only cause, and what changes usually has another one. The best threshold is therefore the one at which "has some other
  parent" agrees best (by F1) with "changed"; where self-edges count, those of what did not change must be there too.
  Some entities change without another cause: a battery or a clock in every step, a noisy value at random. Their changes
  do not go with their scores. So the changes of each destination count by how well its scores tell its changes from its
  other steps, beyond chance: by the square of the highest Cohen's kappa (Cohen 1960) that any threshold gives it alone.
  That is 0 for what changes always, nearly 0 for what changes at random, and 1 for what its scores explain.
- `otsu_threshold` cuts the scores into two groups that differ most. It suits scores that lie between 0 and 1 and mean
  the same everywhere, and scores that are 0 wherever nothing changed, of which the first rule learns nothing.

Each rule has one implementation, for numpy's arrays and for JAX's inside compiled functions: `change_cut`, `otsu_cut`
and, by the name of the rule, `automatic_cut`. A dependency is predicted where `score >= threshold`.
"""

from typing import Literal, TypeAlias

import jax
import numpy as np
from jaxtyping import Bool, Float

Rule: TypeAlias = Literal["change", "otsu"]

_BINS = 1024
_TOP = 0.9999  # scores above this quantile count as equal: one outlier must not stretch the bins
_EQUAL = 1e-6  # values of F1 that differ by no more count as equal, and weights up to this as none

_Values: TypeAlias = Float[np.ndarray | jax.Array, "time dst"]
_Rates: TypeAlias = Float[np.ndarray | jax.Array, " dst"]


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
    return otsu_threshold(scores[:, mask])


def automatic_cut(
    scores: Float[np.ndarray | jax.Array, "time dst src"],
    changed: Bool[np.ndarray | jax.Array, "time dst"],
    mask: Bool[np.ndarray, "dst src"],
    rule: Rule,
    own: bool = False,
) -> Float[np.ndarray | np.generic | jax.Array, ""]:
    """`automatic` without its checks, of numpy's arrays or inside a compiled function."""
    if rule == "change":
        return change_cut(scores, changed, mask, own)
    # Own edges would only add a heap of their own to the scores that are to be cut in two.
    return otsu_cut(scores[:, mask])


def change_threshold(
    scores: Float[np.ndarray, "time dst src"],
    changed: Bool[np.ndarray, "time dst"],
    mask: Bool[np.ndarray, "dst src"],
    own: bool = False,
) -> float:
    """The threshold at which destinations with some other parent agree best with those that changed.

    Of equally good thresholds it is the highest. Where nothing changes it is just above the highest score. Where
    changes say nothing of parents, since every destination changes always or never, it is `otsu_threshold`'s.
    Destinations whose changes their scores do not explain count little; see the module.

    Args:
        scores: Scores of all edges.
        changed: Whether the entity of each destination changed in the step.
        mask: The edges between different nodes; destinations without any are left out.
        own: Whether the self-edges of destinations that did not change are asked for as well.
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
    counted, highest = mask.any(axis=1), xp.max(xp.where(mask, scores, -xp.inf), axis=2)
    explained = _best_kappa(highest, changed) ** 2
    happened = xp.where(changed & counted, explained, 0.0)
    called = xp.where(changed & counted, explained, xp.where(counted, xp.ones_like(explained), 0.0))
    if own:
        asked = ~changed & ~mask.all(axis=1)
        itself = xp.where(asked, xp.max(xp.where(mask, -xp.inf, scores), axis=2), -xp.inf)
        highest = xp.stack([highest, itself])
        happened, called = (xp.stack([part, asked.astype(part.dtype)]) for part in (happened, called))
    order = xp.argsort(-highest.ravel())  # what does not count has -inf and comes last
    ordered, hits, calls = highest.ravel()[order], *(xp.cumsum(x.ravel()[order]) for x in (happened, called))
    f1 = xp.where(_last(ordered), 2.0 * hits / (calls + xp.maximum(hits[-1], _EQUAL)), -1.0)
    best = ordered[xp.argmax(f1 >= xp.max(f1) - _EQUAL)]
    above = xp.nextafter(ordered[0], xp.full_like(ordered[0], xp.inf))
    otherwise = xp.where((changed & counted).any(), otsu_cut(scores[:, mask]).astype(ordered.dtype), above)
    return xp.where(hits[-1] > _EQUAL, best, otherwise)  # type: ignore[no-any-return]


def _best_kappa(values: _Values, happened: Bool[np.ndarray | jax.Array, "time dst"]) -> _Rates:
    """The highest Cohen's kappa between `values >= cut` and what happened, of each destination over all cuts.

    It is 0 for what happens always or never.
    """
    xp = values.__array_namespace__()
    order, dtype = xp.argsort(-values, axis=0), xp.result_type(float)
    ordered, hits = (xp.take_along_axis(part, order, axis=0) for part in (values, happened))
    hits = xp.cumsum(hits, axis=0).astype(dtype) / len(values)
    called = xp.arange(1, len(values) + 1, dtype=dtype)[:, None] / len(values)
    apart = hits[-1] * (1.0 - called) + called * (1.0 - hits[-1])
    kappa = 2.0 * (hits - called * hits[-1]) / xp.where(apart > 0, apart, 1.0)
    return xp.max(xp.where(_last(ordered), kappa, 0.0), axis=0)  # type: ignore[no-any-return]


def _last(ordered: Float[np.ndarray | jax.Array, "item ..."]) -> Bool[np.ndarray | jax.Array, "item ..."]:
    """The last of each run of equal scores: a threshold cannot part them, so only that can be the lowest."""
    xp = ordered.__array_namespace__()
    other = ordered[:-1] != ordered[1:]
    return xp.concatenate([other, xp.ones_like(ordered[:1], dtype=bool)])  # type: ignore[no-any-return]


def otsu_threshold(scores: Float[np.ndarray, "..."]) -> float:
    """The cut that maximises the variance between the scores below and above it (Otsu 1979).

    Where all scores are equal the threshold is that score.
    """
    _check(scores)
    return float(otsu_cut(scores))


def otsu_cut(scores: Float[np.ndarray | jax.Array, "..."]) -> Float[np.ndarray | np.generic | jax.Array, ""]:
    """`otsu_threshold` without its checks, of numpy's arrays or inside a compiled function."""
    xp = scores.__array_namespace__()
    values = xp.sort(scores.ravel().astype(xp.result_type(float)))
    low, high = values[0], xp.quantile(values, _TOP)
    high = xp.where(high > low, high, values[-1])
    edges = xp.linspace(low, high, _BINS + 1)
    # Scores above the highest edge lie in the last bin.
    below = xp.searchsorted(values, edges[1:-1], side="left").astype(values.dtype)
    counts = xp.diff(below, prepend=xp.zeros_like(below[:1]), append=xp.full_like(below[:1], len(values)))
    moments = counts * (edges[1:] + edges[:-1]) / 2
    mean, rest = xp.sum(moments) / len(values), len(values) - below
    between = (mean * below - xp.cumsum(moments)[:-1]) ** 2 / xp.maximum(below * rest, 1.0)
    best = xp.cumsum(between >= xp.max(between) * (1.0 - 16.0 * xp.finfo(values.dtype).eps))
    # All cuts inside an empty stretch are equally good: take the middle one.
    cut = edges[1 + xp.argmax(best > best[-1] // 2)]
    return xp.where(high > low, cut, low)  # type: ignore[no-any-return]


def _check(scores: Float[np.ndarray, "..."]) -> None:
    if scores.size == 0 or not np.isfinite(scores).all():
        raise ValueError(f"scores of shape {scores.shape} given; a threshold needs at least one, all of them finite")
