"""Scores of many transitions: in pieces of any size, averaged over members, at every granularity."""

import gc
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dynamics_cases import DISCRETE, MIXED, layout_of, random_transitions
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Array, Float

from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import encode
from elden.dynamics.training import Model, Trainer
from elden.factors import Granularity
from elden.graphs import evaluate
from elden.graphs.attention import Attention
from elden.graphs.base import Detector, Reference
from elden.graphs.evaluate import convert, score_transitions, time_scores
from elden.graphs.gradient import Gradient
from elden.graphs.registry import DETECTORS, detector_named
from elden.transitions import Transitions


@lru_cache
def untrained(trainer: Trainer, runs: int) -> Model:
    model: Model = jax.jit(jax.vmap(trainer.init))(jax.random.split(jax.random.key(0), runs)).model
    return model


def models_of(layout: Layout, detector: Detector, runs: int = 2, members: int = 2) -> Model:
    return untrained(Trainer(layout, variant=detector.variant, members=members), runs)


@lru_cache
def reference_of(layout: Layout) -> Reference:
    seen = random_transitions(layout, 16, seed=9)
    made: Reference = jax.jit(Reference.of, static_argnums=0)(layout, seen.obs, seen.action, seen.next_obs)
    return made


def member(models: Model, run: int, which: int) -> Model:
    one: Model = jax.tree.map(lambda leaf: leaf[run, which], models)
    return one


@pytest.mark.parametrize("name", DETECTORS)
def test_every_detector_scores_every_edge(name: str) -> None:
    layout, detector = layout_of(MIXED), DETECTORS[name]
    scores = score_transitions(
        detector, layout, models_of(layout, detector), random_transitions(layout, 5), reference_of(layout), chunk=4
    )
    num_sources = len(MIXED.source_names(detector.sources(layout)))
    assert scores.shape == (2, 5, MIXED.num_variables, num_sources)
    assert np.isfinite(scores).all()
    assert detector.name == name


def test_scores_are_means_over_members() -> None:
    layout, detector = layout_of(DISCRETE), Gradient()
    models, transitions = models_of(layout, detector, runs=2, members=3), random_transitions(layout, 7)
    scores = score_transitions(detector, layout, models, transitions, reference_of(layout))
    batch = jax.jit(partial(encode, layout))(transitions.obs, transitions.action, transitions.next_obs)
    single = jax.jit(partial(detector.scores, layout))
    for run in range(2):
        each = [single(member(models, run, i), batch, reference_of(layout)) for i in range(3)]
        np.testing.assert_allclose(scores[run], np.mean(each, axis=0), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("detector", [pytest.param(Gradient(), marks=pytest.mark.slow), Attention()])
def test_the_size_of_pieces_does_not_matter(detector: Detector) -> None:
    layout = layout_of(DISCRETE)
    models, transitions = models_of(layout, detector), random_transitions(layout, 10)
    whole, pieces, padded = (
        score_transitions(detector, layout, models, transitions, reference_of(layout), chunk) for chunk in (10, 3, 32)
    )
    np.testing.assert_allclose(pieces, whole, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(padded, whole, rtol=1e-4, atol=1e-6)


def test_a_second_call_is_not_compiled_again() -> None:
    layout, detector = layout_of(DISCRETE), Attention()
    models = models_of(layout, detector)
    first, second = (
        time_scores(detector, layout, models, random_transitions(layout, size), reference_of(layout), chunk=6)
        for size in (6, 13)
    )
    assert first.compile_s > 0
    assert second.compile_s == 0
    # Three pieces of six transitions for two runs of two members: the median piece is no more than half of all.
    assert 0 < second.cost_s <= second.run_s / 2 / (6 * 4)


def test_devices_share_the_transitions(monkeypatch: pytest.MonkeyPatch) -> None:
    layout, detector = layout_of(DISCRETE), Attention()
    models, transitions = models_of(layout, detector), random_transitions(layout, 11)
    pieces: list[Transitions] = []
    piece = evaluate._piece

    def noted(*given: Any) -> Transitions:
        pieces.append(piece(*given))
        return pieces[-1]

    monkeypatch.setattr(evaluate, "_piece", noted)
    monkeypatch.setattr(evaluate, "FEWEST", 2)
    shared = score_transitions(detector, layout, models, transitions, reference_of(layout), chunk=5)
    assert len(pieces[0].action.devices()) == jax.local_device_count() == 2
    assert pieces[0].action.shape == (2, 3)  # one more than asked for, so that both have as many
    monkeypatch.setattr(evaluate, "FEWEST", 3)  # so that five are not worth two devices
    alone = score_transitions(detector, layout, models, transitions, reference_of(layout), chunk=5)
    assert pieces[-1].action.shape == (1, 5)
    np.testing.assert_allclose(shared, alone, rtol=1e-5, atol=1e-6)


def live_bytes() -> int:
    """Of all arrays that are on some device."""
    return sum(array.nbytes for array in jax.live_arrays())  # type: ignore[no-untyped-call]


def test_more_transitions_take_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    layout, detector = layout_of(DISCRETE), Attention()
    models, reference = models_of(layout, detector), reference_of(layout)
    compiled, held = evaluate._compiled, []

    def watched(*arguments: Any) -> tuple[Callable[..., Array], float]:
        program, compile_s = compiled(*arguments)

        def run(*given: Any) -> Array:
            held.append(live_bytes())
            return program(*given)

        return run, compile_s

    monkeypatch.setattr(evaluate, "_compiled", watched)
    monkeypatch.setattr(evaluate, "FEWEST", 3)

    def most_bytes(size: int) -> int:
        transitions = random_transitions(layout, size)
        held.clear()
        gc.collect()
        before = live_bytes()
        scores = score_transitions(detector, layout, models, transitions, reference, chunk=6)
        assert scores.shape[1] == size
        assert len(held) == size // 6 + 1  # a first call, and one for each piece
        return max(held) - before

    piece, copied = (
        sum(leaf.nbytes for leaf in jax.tree.leaves(tree))
        for tree in (random_transitions(layout, 6), (models, reference))
    )
    assert copied + piece <= most_bytes(12) == most_bytes(180) <= copied + 2 * piece


@pytest.mark.parametrize(("backend", "size"), [("cpu", 256), ("gpu", 1024)])
def test_pieces_are_larger_on_gpus(backend: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    assert evaluate.default_chunk() == size


def test_nothing_to_score_is_refused() -> None:
    layout, detector = layout_of(DISCRETE), Attention()
    with pytest.raises(ValueError, match="0 transitions in chunks of 256"):
        score_transitions(
            detector, layout, models_of(layout, detector), random_transitions(layout, 0), reference_of(layout)
        )


# Granularity. DISCRETE has the entities key (place, held) and door (open).

VARIABLES = np.array([[1.0, 2, 3, 4], [5, 6, 7, 8], [9, 10, 12, 11]], np.float32)
"""[place, held, open] x [place, held, open, action]."""


def test_variables_become_entities_by_the_maximum() -> None:
    layout = layout_of(DISCRETE)
    np.testing.assert_array_equal(convert(VARIABLES, layout, "variable", "variable", "variable"), VARIABLES)
    mixed = convert(VARIABLES, layout, "variable", "variable", "entity")
    np.testing.assert_array_equal(mixed, [[2, 3, 4], [6, 7, 8], [10, 12, 11]])
    np.testing.assert_array_equal(convert(VARIABLES, layout, "variable", "entity", "entity"), [[6, 7, 8], [10, 12, 11]])
    half = convert(VARIABLES, layout, "variable", "entity", "variable")
    np.testing.assert_array_equal(half, [[5, 6, 7, 8], [9, 10, 12, 11]])


def test_a_source_entity_stands_for_all_its_variables() -> None:
    layout = layout_of(DISCRETE)
    scores = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], np.float32)
    spread = convert(scores, layout, "entity", "variable", "variable")
    np.testing.assert_array_equal(spread, [[1, 1, 2, 3], [4, 4, 5, 6], [7, 7, 8, 9]])
    np.testing.assert_array_equal(convert(scores, layout, "entity", "entity", "entity"), [[4, 5, 6], [7, 8, 9]])


def test_entity_children_say_nothing_of_variables() -> None:
    layout = layout_of(DISCRETE, children="entity")
    scores = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(convert(scores, layout, "variable", "entity", "entity"), np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"cannot be evaluated for single variables.*children='variable'"):
        convert(scores, layout, "variable", "variable", "entity")


def test_scores_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(3, 3\) given; this layout's end with \(3, 4\)"):
        convert(np.ones((3, 3), np.float32), layout_of(DISCRETE), "variable", "entity", "entity")


@given(st.integers(0, 2**31), st.sampled_from(["variable", "entity"]), st.sampled_from(["variable", "entity"]))
def test_conversion_agrees_with_the_reduction_of_graphs(seed: int, dst: Granularity, src: Granularity) -> None:
    layout = layout_of(MIXED)
    n = MIXED.num_variables
    scores: Float[np.ndarray, "t n m"] = np.random.default_rng(seed).normal(size=(2, n, n + 1)).astype(np.float32)
    expected = MIXED.reduce_graph(jnp.asarray(scores), dst=dst, src=src)
    np.testing.assert_array_equal(convert(scores, layout, "variable", dst, src), expected)


# Names.


def test_names_of_detectors() -> None:
    assert {"gradient", "pcmi", "pcmi-sampled", "attention", "input-mask", "attention-mask"} <= set(DETECTORS)
    assert detector_named("gradient") == Gradient()
    with pytest.raises(ValueError, match="no detector 'Gradeint'; did you mean 'gradient'"):
        detector_named("Gradeint")
