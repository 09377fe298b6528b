"""Thresholds from unlabelled data: hand-made scores with known cuts."""

from typing import get_args

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from hypothesis import given

from elden.graphs.metrics import best_f1, f1_at
from elden.graphs.thresholds import (
    Rule,
    automatic,
    automatic_cut,
    change_cut,
    change_threshold,
    otsu_cut,
    otsu_threshold,
)

ALL = np.ones((2, 3), bool)


def graphs(rate: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Truth where a destination changes and has two parents, and scores that show it with noise over decades."""
    rng = np.random.default_rng(seed)
    changed = rng.random((4000, 2)) < rate
    parents = np.stack([np.isin(np.arange(3), rng.permutation(3)[:2]) for _ in range(8000)]).reshape(4000, 2, 3)
    truth = parents & changed[..., None]
    noise = rng.normal(size=truth.shape)
    scores = np.exp(np.where(truth, -1.0, -7.0) + noise).astype(np.float32)
    return scores, changed, truth


@pytest.mark.parametrize("rate", [0.02, 0.2, 0.6])
def test_changes_show_the_threshold(rate: float) -> None:
    scores, changed, truth = graphs(rate)
    found = f1_at(scores.ravel(), truth.ravel(), change_threshold(scores, changed, ALL)).f1
    assert found > best_f1(scores.ravel(), truth.ravel()).f1 - 0.05


def kappa(called: np.ndarray, happened: np.ndarray) -> float:
    """Cohen's kappa: observed agreement against that of independent answers."""
    observed, p, q = (called == happened).mean(), happened.mean(), called.mean()
    chance = p * q + (1 - p) * (1 - q)
    return float((observed - chance) / (1 - chance)) if chance < 1 else 0.0


@pytest.mark.parametrize("own", [False, True])
def test_the_rule_is_the_one_that_tries_every_threshold_and_can_be_compiled(own: bool) -> None:
    rng = np.random.default_rng(0)
    mask = np.array([[False, True, True], [True, True, True], [False, False, False]])
    changed = rng.random((40, 3)) < 0.4
    scores = (rng.random((40, 3, 3)) + 0.3 * changed[..., None]).astype(np.float32).round(1)
    highest, itself = np.where(mask, scores, -1.0).max(2), np.where(mask, -1.0, scores).max(2)
    cuts, children = np.unique(scores)[::-1], (0, 1)
    weight = [max(kappa(highest[:, child] >= cut, changed[:, child]) for cut in cuts) ** 2 for child in children]

    def agreement(cut: float) -> float:
        found = wanted = hits = 0.0
        for child in children:
            called, happened = highest[:, child] >= cut, changed[:, child]
            hits += weight[child] * (called & happened).sum()
            wanted += weight[child] * happened.sum()
            found += weight[child] * (called & happened).sum() + (called & ~happened).sum()
        for child in (0, 2) if own else ():
            there = itself[~changed[:, child], child] >= cut
            hits, wanted, found = hits + there.sum(), wanted + len(there), found + there.sum()
        return float(2 * hits / (wanted + found))

    best = max(cuts, key=lambda cut: round(agreement(cut), 6))
    assert change_threshold(scores, changed, mask, own) == best
    compiled = jax.jit(lambda scores, changed: change_cut(scores, changed, mask, own))
    assert float(compiled(scores, changed)) == best
    assert float(compiled(scores, np.zeros_like(changed))) == change_threshold(scores, changed & False, mask, own)


BY_ITSELF = {"always": 1.0, "nearly always": 0.95, "mostly": 0.8, "half of the time": 0.5, "rarely": 0.05, "never": 0.0}


@pytest.mark.parametrize("rate", BY_ITSELF.values(), ids=BY_ITSELF.keys())
@pytest.mark.parametrize("level", [-14.0, -7.0, -4.0])
@pytest.mark.parametrize("time", [128, 512, 4000])
def test_an_entity_that_changes_by_itself_does_not_move_the_threshold(rate: float, level: float, time: int) -> None:
    """Whether its scores, which mean nothing, lie far below those of the others, among them, or near the true ones."""
    scores, changed, truth = (part[:time] for part in graphs(0.1))
    rng = np.random.default_rng(1)
    spurious = np.exp(level + 0.5 * rng.normal(size=(time, 1, 3))).astype(np.float32)
    more, happened = np.append(scores, spurious, axis=1), np.append(changed, rng.random((time, 1)) < rate, axis=1)
    threshold = change_threshold(more, happened, np.ones((3, 3), bool))
    assert f1_at(scores.ravel(), truth.ravel(), threshold).f1 > best_f1(scores.ravel(), truth.ravel()).f1 - 0.05


def test_many_entities_that_change_by_themselves_do_not_move_the_threshold() -> None:
    """One of every kind, so that they are three times as many as those with causes; one of them has wild scores."""
    scores, changed, truth = (part[:512] for part in graphs(0.1))
    rng = np.random.default_rng(2)
    rates = np.array(list(BY_ITSELF.values()))
    spurious = np.exp(-12.0 + 4.0 * rng.random(6)[:, None] + rng.normal(size=(512, 6, 3))).astype(np.float32)
    spurious[rng.random(spurious.shape) < 0.01] = 1e6
    more, happened = np.append(scores, spurious, axis=1), np.append(changed, rng.random((512, 6)) < rates, axis=1)
    threshold = change_threshold(more, happened, np.ones((8, 3), bool))
    assert f1_at(scores.ravel(), truth.ravel(), threshold).f1 > best_f1(scores.ravel(), truth.ravel()).f1 - 0.05


def test_edges_that_do_not_count_do_not_matter() -> None:
    scores, changed, _ = graphs(0.2)
    mask = ALL.copy()
    mask[:, 0] = False
    wild = scores.copy()
    wild[:, :, 0] = 1e6
    assert change_threshold(wild, changed, mask) == change_threshold(scores, changed, mask)


def test_a_destination_without_edges_is_left_out() -> None:
    scores, changed, _ = graphs(0.2)
    mask = ALL.copy()
    mask[1] = False
    other = changed.copy()
    other[:, 1] = ~other[:, 1]
    assert change_threshold(scores, other, mask) == change_threshold(scores, changed, mask)


def test_nothing_changed_means_nothing_is_found() -> None:
    scores, changed, _ = graphs(0.2)
    assert not (scores >= change_threshold(scores, np.zeros_like(changed), ALL)).any()


@pytest.mark.parametrize("always", [[True, True], [True, False]])
def test_where_changes_say_nothing_scores_are_cut_in_two(always: list[bool]) -> None:
    scores, changed, _ = graphs(0.2)
    mask = ALL.copy()
    mask[0, 0] = mask[1, 1] = False
    changed = np.broadcast_to(np.array(always), changed.shape)
    assert change_threshold(scores, changed, mask) == np.float32(otsu_threshold(scores[:, mask]))


def test_scores_that_say_the_opposite_of_changes_are_cut_in_two() -> None:
    scores, changed, _ = graphs(0.2)
    assert change_threshold(scores, ~changed, ALL) == np.float32(otsu_threshold(scores))


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_otsu_separates_two_groups(share: float) -> None:
    rng = np.random.default_rng(1)
    truth = rng.random(20_000) < share
    scores = np.where(truth, rng.beta(8, 2, truth.shape), rng.beta(1, 20, truth.shape)).astype(np.float32)
    assert f1_at(scores, truth, otsu_threshold(scores)).f1 > best_f1(scores, truth).f1 - 0.05


def test_otsu_by_brute_force() -> None:
    values = np.array([0.0, 0.1, 0.1, 0.2, 0.7, 0.9, 1.0], np.float32)

    def between(cut: float) -> float:
        low, high = values[values < cut], values[values >= cut]
        return float(len(low) * len(high) * (low.mean() - high.mean()) ** 2)

    best = max(np.unique(values)[1:], key=between)
    assert np.array_equal(values >= otsu_threshold(values), values >= best)


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e4])
def test_otsu_is_the_same_when_compiled(factor: float) -> None:
    rng = np.random.default_rng(3)
    scores = np.where(rng.random((300, 4, 5)) < 0.1, rng.beta(8, 2, (300, 4, 5)), rng.beta(1, 20, (300, 4, 5)))
    scores = (scores * factor).astype(np.float32)
    compiled = jax.jit(otsu_cut)
    bin_width = scores.max() / 1024
    assert abs(float(compiled(scores)) - otsu_threshold(scores)) <= 2 * bin_width
    two = np.repeat(np.array([0.0, factor], np.float32), 50)
    assert float(compiled(two)) == pytest.approx(otsu_threshold(two), rel=1e-5) == pytest.approx(factor / 2, rel=0.01)
    assert float(compiled(two[:50] + np.float32(factor))) == np.float32(factor)


def test_rules_by_name_when_compiled() -> None:
    scores, changed, _ = (part[:512] for part in graphs(0.2))
    mask = ALL.copy()
    mask[0, 0] = mask[1, 1] = False
    for rule in get_args(Rule):
        compiled = jax.jit(lambda scores, changed, rule=rule: automatic_cut(scores, changed, mask, rule))
        assert float(compiled(scores, changed)) == pytest.approx(automatic(scores, changed, mask, rule), rel=1e-3)


def test_one_outlier_does_not_move_otsu() -> None:
    scores = np.concatenate([np.zeros(90_000), np.ones(10_000)]).astype(np.float32)
    assert 0 < otsu_threshold(np.append(scores, np.float32(1e9))) <= 1


def test_equal_scores_are_their_own_threshold() -> None:
    assert otsu_threshold(np.full(10, 0.25, np.float32)) == 0.25


@given(hnp.arrays(np.float32, st.integers(2, 50), elements=st.floats(0, 1, width=32)), st.sampled_from([0.125, 8.0]))
def test_otsu_scales_with_the_scores(scores: np.ndarray, factor: float) -> None:
    threshold, scaled = otsu_threshold(scores), otsu_threshold(scores * np.float32(factor))
    assert scores.min() <= threshold <= max(scores.max(), scores.min())
    if scores.max() > 1e-3:
        assert scaled == pytest.approx(threshold * factor, rel=1e-3, abs=1e-6)


def test_rules_by_name() -> None:
    scores, changed, _ = graphs(0.2)
    assert automatic(scores, changed, ALL, "change") == change_threshold(scores, changed, ALL)
    assert automatic(scores, changed, ALL, "otsu") == otsu_threshold(scores)


@pytest.mark.parametrize("bad", [np.zeros((0, 2, 3), np.float32), np.full((1, 2, 3), np.nan, np.float32)])
def test_scores_without_sense_are_refused(bad: np.ndarray) -> None:
    with pytest.raises(ValueError, match="finite"):
        otsu_threshold(bad)
    with pytest.raises(ValueError, match="finite"):
        change_threshold(bad, np.ones(bad.shape[:2], bool), ALL)


def test_an_empty_mask_is_refused() -> None:
    scores, changed, _ = graphs(0.2)
    with pytest.raises(ValueError, match="mask is empty"):
        change_threshold(scores, changed, np.zeros_like(ALL))


def test_own_edges_of_what_did_not_change_are_asked_for() -> None:
    """Own edges score lower than others here, so a threshold for all edges lies below one for the others."""
    scores, changed, truth = graphs(0.2)
    mask = ALL.copy()
    mask[0, 0] = mask[1, 1] = False
    own = ~np.broadcast_to(mask, scores.shape)
    truth = np.where(own, ~changed[..., None], truth)
    scores = np.where(own & truth, scores * 30, scores)
    alone, together = (change_threshold(scores, changed, mask, own=each) for each in (False, True))
    assert together < alone
    best = best_f1(scores.ravel(), truth.ravel()).f1
    assert f1_at(scores.ravel(), truth.ravel(), together).f1 > best - 0.05
    assert f1_at(scores.ravel(), truth.ravel(), alone).f1 < best - 0.1
    assert automatic(scores, changed, mask, "change", own=True) == together
    assert automatic(scores, changed, mask, "otsu", own=True) == otsu_threshold(scores[:, mask])


def test_an_entity_that_changes_by_itself_does_not_move_the_threshold_of_all_edges() -> None:
    """Own edges score as others do; low ones must not be let in for the sake of the last own edge."""
    scores, changed, truth = graphs(0.1)
    rng = np.random.default_rng(4)
    mask = np.ones((3, 3), bool)
    mask[0, 0] = mask[1, 1] = mask[2, 2] = False
    spurious = np.exp(-14.0 + rng.normal(size=(len(scores), 1, 3))).astype(np.float32)
    more, happened = np.append(scores, spurious, axis=1), np.append(changed, np.ones((len(scores), 1), bool), axis=1)
    real = np.append(truth, np.zeros((len(scores), 1, 3), bool), axis=1)
    own = ~np.broadcast_to(mask, more.shape)
    real = np.where(own, ~happened[..., None], real)
    more = np.where(own & real, np.exp(-1.0 + rng.normal(size=more.shape)), more).astype(np.float32)
    threshold = change_threshold(more, happened, mask, own=True)
    assert f1_at(more.ravel(), real.ravel(), threshold).f1 > best_f1(more.ravel(), real.ravel()).f1 - 0.05
