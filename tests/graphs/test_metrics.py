"""Measures against brute force and scikit-learn."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from elden.factors import Discrete, Entity, Factors, Variable
from elden.graphs import metrics
from elden.graphs.metrics import NO_EVENT, EdgeRow, TypeRow

FACTORS = Factors(
    (
        Entity("agent", (Variable("x", Discrete(5)), Variable("y", Discrete(5)))),
        Entity("fish", (Variable("frozen", Discrete(2)),)),
    )
)


def brute_auc(scores: np.ndarray, truth: np.ndarray) -> float:
    """Share of (positive, negative) pairs in the right order, ties one half."""
    wins = [(p > n) + 0.5 * (p == n) for p in scores[truth] for n in scores[~truth]]
    return float(np.mean(wins)) if wins else math.nan


def brute_best_f1(scores: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """Best F1 and the highest threshold that reaches it."""
    best = (-1.0, -math.inf)
    for threshold in scores:
        predicted = scores >= threshold
        f1 = 2 * int((predicted & truth).sum()) / int(predicted.sum() + truth.sum())
        best = max(best, (f1, float(threshold)))
    return best


def brute_average_precision(scores: np.ndarray, truth: np.ndarray) -> float:
    area, recall = 0.0, 0.0
    for threshold in sorted(set(scores.tolist()), reverse=True):
        predicted = scores >= threshold
        now = (predicted & truth).sum() / truth.sum()
        area += (now - recall) * (predicted & truth).sum() / predicted.sum()
        recall = now
    return float(area)


_SCORE = st.sampled_from([0.0, 0.25, 0.5, 1.0, -1.0, math.inf, -math.inf, 1e-300, 1e300])
_PAIRS = st.lists(st.tuples(_SCORE, st.booleans()), min_size=1, max_size=25)


@given(pairs=_PAIRS)
def test_measures_match_brute_force_with_ties_and_infinities(pairs: list[tuple[float, bool]]) -> None:
    scores, truth = np.array([s for s, _ in pairs]), np.array([t for _, t in pairs])
    assert metrics.roc_auc(scores, truth) == pytest.approx(brute_auc(scores, truth), nan_ok=True)
    if not truth.any():
        assert all(map(math.isnan, metrics.best_f1(scores, truth)))
        assert math.isnan(metrics.average_precision(scores, truth))
        return
    best = metrics.best_f1(scores, truth)
    assert (best.f1, best.threshold) == brute_best_f1(scores, truth)
    assert metrics.f1_at(scores, truth, best.threshold) == best
    assert metrics.average_precision(scores, truth) == pytest.approx(brute_average_precision(scores, truth))


def test_measures_match_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    truth = rng.random(3000) < 0.05
    scores = (np.round(rng.normal(0, 1, 3000) + 2 * truth, 2)).astype(np.float32)
    assert metrics.roc_auc(scores, truth) == pytest.approx(sklearn_metrics.roc_auc_score(truth, scores))
    expected = sklearn_metrics.average_precision_score(truth, scores)
    assert metrics.average_precision(scores, truth) == pytest.approx(expected)
    precision, recall, _ = sklearn_metrics.precision_recall_curve(truth, scores)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    best = metrics.best_f1(scores, truth)
    assert best.f1 == pytest.approx(f1.max())
    predicted = scores >= np.float32(best.threshold)
    assert best.f1 == pytest.approx(sklearn_metrics.f1_score(truth, predicted))
    assert best.precision == pytest.approx(sklearn_metrics.precision_score(truth, predicted))
    assert best.recall == pytest.approx(sklearn_metrics.recall_score(truth, predicted))


def test_an_edge_has_the_roc_auc_of_scikit_learn() -> None:
    rng = np.random.default_rng(1)
    scores = rng.integers(0, 6, (40, 3, 4)) / 5.0  # with ties
    truth = rng.random((40, 3, 4)) < 0.3
    truth[:, 0, 0], truth[:, 1, 1] = True, False
    names = ("a", "b", "c", "action")
    rows = metrics.edge_table(scores, truth, np.ones((3, 4), bool), 0.5, names[:3], names)
    assert len(rows) == 12
    for row in rows:
        dst, src = names.index(row.dst), names.index(row.src)
        if (dst, src) in ((0, 0), (1, 1)):
            assert np.isnan(row.roc_auc)
        else:
            expected = sklearn_metrics.roc_auc_score(truth[:, dst, src], scores[:, dst, src])
            assert row.roc_auc == pytest.approx(expected)


def test_f1_by_hand() -> None:
    scores = np.array([0.9, 0.8, 0.8, 0.3, 0.1])
    truth = np.array([True, True, False, False, True])
    assert metrics.f1_at(scores, truth, 0.8) == (2 / 3, 0.8, 2 / 3, 2 / 3)
    assert metrics.f1_at(scores, truth, 0.85) == (0.5, 0.85, 1.0, 1 / 3)
    assert metrics.best_f1(scores, truth) == (0.75, 0.1, 0.6, 1.0)
    nothing = metrics.f1_at(scores, truth, 2)
    assert (nothing.f1, nothing.recall) == (0, 0)
    assert math.isnan(nothing.precision)


def test_the_measures_ignore_monotone_changes_of_the_scores() -> None:
    rng = np.random.default_rng(1)
    truth = rng.random(500) < 0.2
    scores = rng.random(500) + 0.3 * truth
    for change in (np.log, np.sqrt, lambda x: 1e6 * x - 3):
        assert metrics.roc_auc(change(scores), truth) == pytest.approx(metrics.roc_auc(scores, truth))
        assert metrics.best_f1(change(scores), truth).f1 == metrics.best_f1(scores, truth).f1


def test_no_positives_and_no_negatives() -> None:
    scores = np.array([0.1, 0.2])
    none, every = np.zeros(2, bool), np.ones(2, bool)
    assert math.isnan(metrics.roc_auc(scores, none))
    assert math.isnan(metrics.roc_auc(scores, every))
    assert math.isnan(metrics.f1_at(scores, none, 0.15).f1)
    assert metrics.f1_at(scores, none, 0.15).precision == 0
    assert metrics.best_f1(scores, every) == (1.0, 0.1, 1.0, 1.0)
    assert metrics.average_precision(scores, every) == 1


def test_what_cannot_be_measured_is_refused() -> None:
    truth = np.array([True, False, True])
    for function in (metrics.roc_auc, metrics.best_f1, metrics.average_precision):
        with pytest.raises(ValueError, match="1 of 3 scores are NaN"):
            function(np.array([0.1, np.nan, 2.0]), truth)
        with pytest.raises(ValueError, match="nothing to measure"):
            function(np.zeros(0), np.zeros(0, bool))
    with pytest.raises(ValueError, match="threshold=nan"):
        metrics.f1_at(np.array([0.1, 0.2, 2.0]), truth, math.nan)
    with pytest.raises(ValueError, match="counts no edge"):
        metrics.measure(np.zeros((3, 1, 2)), np.zeros((3, 1, 2), bool), np.zeros((1, 2), bool))


def made_up(num_steps: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    truth = rng.random((num_steps, 3, 4)) < np.linspace(0.1, 0.5, 12).reshape(3, 4)
    scores = np.round(rng.random((num_steps, 3, 4)) + 0.4 * truth, 1)
    return scores, truth, FACTORS.edge_mask("variable", "variable")


def test_measure_counts_the_masked_edges_only() -> None:
    scores, truth, mask = made_up()
    truth[:, 0, 1], truth[:, 1, 0] = False, True
    result = metrics.measure(scores, truth, mask)
    pooled_scores = np.concatenate([scores[:, d, s] for d, s in np.argwhere(mask)])
    pooled_truth = np.concatenate([truth[:, d, s] for d, s in np.argwhere(mask)])
    assert result.roc_auc == pytest.approx(brute_auc(pooled_scores, pooled_truth))
    assert (result.f1, result.threshold) == brute_best_f1(pooled_scores, pooled_truth)
    assert result.average_precision == pytest.approx(brute_average_precision(pooled_scores, pooled_truth))
    assert result.positive_rate == pytest.approx(pooled_truth.mean())
    assert (result.num_transitions, result.num_edges) == (60, 9)
    mixed = [(scores[:, d, s], truth[:, d, s]) for d, s in np.argwhere(mask) if (d, s) not in {(0, 1), (1, 0)}]
    assert len(mixed) == 7
    assert result.per_pair_roc_auc == pytest.approx(np.mean([brute_auc(*edge) for edge in mixed]))
    assert result.per_pair_f1 == pytest.approx(np.mean([brute_best_f1(*edge)[0] for edge in mixed]))
    at = metrics.f1_at(scores[:, mask], truth[:, mask], result.threshold)
    assert at == (result.f1, result.threshold, result.precision, result.recall)


def test_what_is_masked_does_not_matter() -> None:
    scores, truth, mask = made_up()
    before = metrics.measure(scores, truth, mask)
    scores[:, ~mask], truth[:, ~mask] = np.nan, ~truth[:, ~mask]
    assert metrics.measure(scores, truth, mask) == before


def test_measure_takes_jax_arrays() -> None:
    scores, truth, mask = made_up()
    halves = np.round(scores * 2) / 2
    assert metrics.measure(jnp.asarray(halves, jnp.float32), jnp.asarray(truth), mask) == metrics.measure(
        halves, truth, mask
    )


def test_measure_without_any_positive() -> None:
    scores, truth, mask = made_up()
    result = metrics.measure(scores, np.zeros_like(truth), mask)
    assert result.positive_rate == 0
    assert math.isnan(result.roc_auc)
    assert math.isnan(result.f1)
    assert math.isnan(result.per_pair_roc_auc)


def test_pooled_and_per_pair_can_disagree() -> None:
    """Each edge is ranked perfectly, but on a scale of its own."""
    truth = np.array([[[True, False]], [[False, True]]])
    scores = np.array([[[0.2, 0.8]], [[0.1, 0.9]]])
    result = metrics.measure(scores, truth, np.ones((1, 2), bool))
    assert result.per_pair_roc_auc == 1
    assert result.per_pair_f1 == 1
    assert result.roc_auc == 0.75


def test_edge_table_by_hand() -> None:
    truth = np.array([[[1, 0, 1]], [[1, 0, 1]], [[0, 0, 1]], [[1, 0, 1]]], bool)
    scores = np.array([[[0.9, 0.1, 0.9]], [[0.2, 0.7, 0.9]], [[0.6, 0.8, 0.1]], [[0.1, 0.2, 0.5]]])
    rows = metrics.edge_table(scores, truth, np.ones((1, 3), bool), 0.5, ["b"], ["a", "b", "action"])
    assert [(row.dst, row.src) for row in rows] == [("b", "a"), ("b", "action"), ("b", "b")]
    assert rows[0] == EdgeRow("b", "a", 3, 1, 0.25, rows[0].roc_auc)
    assert rows[0].roc_auc == pytest.approx(1 / 3)
    assert rows[0].missed == 2
    assert rows[0].recall == pytest.approx(1 / 3)
    assert (rows[1].positives, rows[1].found, rows[1].false_alarms) == (4, 3, 0)
    assert math.isnan(rows[1].roc_auc)
    assert (rows[2].positives, rows[2].found, rows[2].false_alarms) == (0, 0, 0.5)
    assert math.isnan(rows[2].recall)


def test_edge_table_adds_up_to_the_pooled_measures() -> None:
    scores, truth, mask = made_up()
    rows = metrics.edge_table(scores, truth, mask, 0.8, FACTORS.variable_names, FACTORS.source_names("variable"))
    assert len(rows) == mask.sum()
    assert [row.missed for row in rows] == sorted((row.missed for row in rows), reverse=True)
    pooled = metrics.f1_at(scores[:, mask], truth[:, mask], 0.8)
    assert sum(row.found for row in rows) / sum(row.positives for row in rows) == pooled.recall
    assert sum(row.false_alarms for row in rows) * 60 == pytest.approx((~truth & (scores >= 0.8))[:, mask].sum())


def test_type_table_by_hand() -> None:
    """Two events of one type share rows; an edge with two causes is in both; one without a cause is kept apart."""
    edges = np.zeros((3, 2, 3), bool)
    edges[0, 0, 1] = edges[1, 0, 1] = edges[1, 1, 2] = edges[2, 1, 2] = True
    events = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, 1], [0, 0, 0]], bool)
    truth = np.einsum("te,eds->tds", events, edges) > 0
    truth[4, 1, 0] = True
    scores = np.where(truth, 1.0, 0.0)
    scores[[0, 1, 3], 0, 1] = 0.2, 0.9, 0.2
    scores[[1, 2, 3], 1, 2] = 0.1, 0.1, 0.9
    rows = metrics.type_table(
        scores,
        truth,
        np.ones((2, 3), bool),
        0.5,
        events,
        edges,
        ["blocked", "blocked", "open"],
        ["a", "b"],
        ["a", "b", "action"],
    )
    assert rows == [
        TypeRow("blocked", "a", "b", 3, 1),
        TypeRow("blocked", "b", "action", 2, 1),
        TypeRow("open", "b", "action", 2, 1),
        TypeRow(NO_EVENT, "b", "a", 1, 1),
    ]
    assert rows[0].recall == pytest.approx(1 / 3)


def test_type_table_leaves_masked_edges_out() -> None:
    scores, truth, mask = made_up()
    rows = metrics.type_table(
        scores,
        truth,
        mask,
        0.5,
        np.zeros((60, 0), bool),
        np.zeros((0, 3, 4), bool),
        [],
        FACTORS.variable_names,
        FACTORS.source_names("variable"),
    )
    assert {row.event for row in rows} == {NO_EVENT}
    assert sum(row.positives for row in rows) == truth[:, mask].sum()
    assert sum(row.found for row in rows) == (truth & (scores >= 0.5))[:, mask].sum()


def test_tables_refuse_the_wrong_number_of_names() -> None:
    scores, truth, mask = made_up()
    with pytest.raises(ValueError, match="needs as many names, got 3 and 3"):
        metrics.edge_table(scores, truth, mask, 0.5, FACTORS.variable_names, FACTORS.variable_names)
    with pytest.raises(ValueError, match="2 events need as many types, got 1"):
        metrics.type_table(
            scores,
            truth,
            mask,
            0.5,
            np.zeros((60, 2), bool),
            np.zeros((2, 3, 4), bool),
            ["one"],
            FACTORS.variable_names,
            FACTORS.source_names("variable"),
        )


@pytest.mark.parametrize("values", [[1.0, 2.0, 4.0], [0.5, 0.5]])
def test_mean_and_error(values: list[float]) -> None:
    mean, error = metrics.mean_and_error(values)
    assert mean == pytest.approx(sum(values) / len(values))
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    assert error == pytest.approx(math.sqrt(variance / len(values)))


def test_mean_and_error_of_few_values() -> None:
    mean, error = metrics.mean_and_error([3.0])
    assert mean == 3
    assert math.isnan(error)
    with pytest.raises(ValueError, match="at least one value"):
        metrics.mean_and_error([])
