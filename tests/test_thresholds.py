"""Thresholds from unlabelled data: hand-made scores with known cuts."""

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from hypothesis import given

from elden.graphs.metrics import best_f1, f1_at
from elden.graphs.thresholds import automatic, change_cut, change_threshold, otsu_threshold

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


@pytest.mark.parametrize("own", [False, True])
def test_the_rule_is_the_one_that_tries_every_threshold_and_can_be_compiled(own: bool) -> None:
    rng = np.random.default_rng(0)
    mask = np.array([[False, True, True], [True, True, True], [False, False, False]])
    changed = rng.random((40, 3)) < 0.4
    scores = (rng.random((40, 3, 3)) + 0.3 * changed[..., None]).astype(np.float32).round(1)
    found = np.where(mask, scores, -1.0).max(2)[:, :2].ravel()
    wanted = changed[:, :2].ravel()
    if own:
        itself = np.where(mask, -1.0, scores).max(2)[:, [0, 2]][~changed[:, [0, 2]]]
        found, wanted = np.append(found, itself), np.append(wanted, np.ones(len(itself), bool))
    best = max(np.unique(found)[::-1], key=lambda cut: f1_at(found, wanted, float(cut)).f1)
    assert change_threshold(scores, changed, mask, own) == best
    compiled = jax.jit(lambda scores, changed: change_cut(scores, changed, mask, own))
    assert float(compiled(scores, changed)) == best
    assert float(compiled(scores, np.zeros_like(changed))) == change_threshold(scores, changed & False, mask, own)


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


def test_everything_changed_means_every_destination_has_a_parent() -> None:
    scores, changed, _ = graphs(0.2)
    threshold = change_threshold(scores, np.ones_like(changed), ALL)
    assert (scores.max(axis=2) >= threshold).all()


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
