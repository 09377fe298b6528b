"""Forty entities: what graphs cost in memory and in arithmetic, counted by the compiler and not by a clock."""

from collections.abc import Callable
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from elden.dynamics.config import NetworkConfig
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import Batch, encode, forward, log_likelihood
from elden.dynamics.training import Model, Trainer
from elden.factors import Continuous, Discrete, Entity, Factors, Variable
from elden.graphs.base import Detector, Reference
from elden.graphs.evaluate import score_transitions, time_scores
from elden.graphs.gradient import Gradient
from elden.graphs.intervention import Intervention
from elden.graphs.pcmi import Pcmi
from elden.graphs.pcmi_sampled import PcmiSampled
from elden.graphs.sweep import all_swaps
from elden.transitions import Transitions

MANY, FEW = 40, 4
SAMPLES = 4


def layout_of(num_entities: int) -> Layout:
    variables = (Variable("kind", Discrete(3)), Variable("place", Continuous(1, -1, 1)))
    factors = Factors(tuple(Entity(f"thing{i}", variables) for i in range(num_entities)))
    return Layout(factors, Discrete(3), NetworkConfig("entity", features=(8, 8), heads=2, head_size=4, mlp=(8, 8)))


@lru_cache
def models_of(num_entities: int) -> Model:
    """One run of one member."""
    trainer = Trainer(layout_of(num_entities))
    models: Model = jax.jit(jax.vmap(trainer.init))(jax.random.split(jax.random.key(0), 1)).model
    return models


def transitions_of(layout: Layout, size: int) -> Transitions:
    rng = np.random.default_rng(0)
    kinds, places = (
        rng.integers(0, 3, (2, size, layout.factors.num_entities)),
        rng.uniform(-1, 1, (2, size, layout.factors.num_entities)),
    )
    obs, next_obs = jnp.asarray(np.stack([kinds, places], -1).reshape(2, size, -1), jnp.float32)
    return Transitions(obs, jnp.asarray(rng.integers(0, 3, size), jnp.int32), next_obs)


def reference_of(layout: Layout) -> Reference:
    seen = transitions_of(layout, SAMPLES)
    return Reference.of(layout, seen.obs, seen.action, seen.next_obs)


@lru_cache
def compiled(num_entities: int, size: int, detector: Detector | None, tag: str = "") -> jax.stages.Compiled:
    """Scores of `size` transitions, or without a detector one prediction of all children."""
    layout = layout_of(num_entities)
    reference = reference_of(layout)
    data = transitions_of(layout, size)
    batch = jax.jit(encode, static_argnums=0)(layout, data.obs, data.action, data.next_obs)
    model = jax.tree.map(lambda leaf: leaf[0, 0], models_of(num_entities))

    def predicted(model: Model, batch: Batch) -> Float[Array, "child batch"]:
        return log_likelihood(layout, forward(layout, model.net, batch.inputs).out, batch)

    def scores(model: Model, batch: Batch) -> Float[Array, "batch dst src"]:
        assert detector is not None
        return detector.scores(layout, model, batch, reference)

    return jax.jit(predicted if detector is None else scores).lower(model, batch).compile()


def flops(num_entities: int, detector: Detector | None, tag: str = "") -> float:
    costs = compiled(num_entities, 4, detector, tag).cost_analysis()  # type: ignore[arg-type]  # detectors are frozen
    assert costs is not None
    return float(costs["flops"])


def live_bytes(num_entities: int, size: int, detector: Detector | None) -> int:
    """Memory beside arguments and result."""
    memory = compiled(num_entities, size, detector).memory_analysis()  # type: ignore[arg-type]  # as above
    assert memory is not None
    return int(memory.temp_size_in_bytes)


@pytest.mark.parametrize("num_entities", [FEW, MANY])
def test_gradient_costs_as_much_as_a_few_predictions_however_many_entities(num_entities: int) -> None:
    assert 1.5 < flops(num_entities, Gradient()) / flops(num_entities, None) < 3.5


def unrolled(function: Callable[[Array], Array], values: Array) -> Array:
    """`jax.lax.map` written out, so that the compiler counts every turn of the loop."""
    return jnp.stack([function(value) for value in values])


def test_pcmi_costs_a_prediction_for_each_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop's body is counted once, so with many entities its turns are multiplied by hand.

    That this is right is seen with few entities, where the loop can be written out and is counted in full.
    """
    turns = layout_of(FEW).num_inputs + 1
    with monkeypatch.context() as patch:
        patch.setattr(jax.lax, "map", unrolled)
        in_full = flops(FEW, Pcmi(), "unrolled")
    assert in_full > FEW * flops(FEW, None)
    # By hand the features of the inputs, which all turns share, are counted in every turn.
    assert 0.5 * turns * flops(FEW, Pcmi()) < in_full < turns * flops(FEW, Pcmi())

    many_turns = layout_of(MANY).num_inputs + 1
    # With many entities nearly all work is attention, which is inside the loop: a turn is a whole prediction.
    assert abs(flops(MANY, Pcmi()) / flops(MANY, None) - 1) < 0.05
    assert many_turns * flops(MANY, Pcmi()) > MANY * flops(MANY, None)
    assert many_turns * flops(MANY, Pcmi()) > 10 * flops(MANY, Gradient())


@pytest.mark.parametrize(
    ("detector", "times"),
    [
        (Pcmi(), 1.5),
        pytest.param(PcmiSampled(SAMPLES), 2.0, marks=pytest.mark.slow),
        (Intervention(SAMPLES), 2.0),
        (Gradient(), 8.0),
    ],
)
def test_memory_is_that_of_a_few_predictions(detector: Detector, times: float) -> None:
    """Not of one for each input, of which there are 41, or for each value tried, of which there are far more."""
    layout = layout_of(MANY)
    assert (layout.num_inputs, len(all_swaps(layout, SAMPLES).source)) == (41, 40 * (3 + SAMPLES) + 3)
    small, large = (live_bytes(MANY, size, detector) for size in (4, 16))
    assert large < times * live_bytes(MANY, 16, None)
    assert large < 4.5 * small


def test_more_transitions_run_through_the_same_program() -> None:
    """Transitions are scored in pieces: four times as many run through the very program that was compiled before."""
    layout = layout_of(MANY)
    reference, models = reference_of(layout), models_of(MANY)
    data = transitions_of(layout, 16)
    few: Transitions = jax.tree.map(lambda leaf: leaf[:4], data)
    first = time_scores(Gradient(), layout, models, few, reference, chunk=4)
    whole = time_scores(Gradient(), layout, models, data, reference, chunk=4)
    assert whole.compile_s == 0.0
    assert whole.scores.shape == (1, 16, MANY, 2 * MANY + 1)
    np.testing.assert_array_equal(whole.scores[:, :4], first.scores)
    single: Transitions = jax.tree.map(lambda leaf: leaf[13:14], data)
    alone = score_transitions(Gradient(), layout, models, single, reference, chunk=4)
    np.testing.assert_allclose(whole.scores[:, 13:14], alone, rtol=1e-4, atol=1e-6)
