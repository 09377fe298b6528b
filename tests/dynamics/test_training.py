"""Training of ensembles: the loss, its schedule, mixup, what is not finite, and many runs in one program."""

from dataclasses import replace
from functools import lru_cache, partial
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import assert_equal
from dynamics_cases import MIXED, layout_of, random_batch, random_transitions, small_layout
from jaxtyping import Array, Float
from scipy import stats

from elden.dynamics.config import Precision, TrainConfig
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import Batch
from elden.dynamics.mixup import mix, mixup_coefficients, mixup_table
from elden.dynamics.runs import ModelTraining, Run
from elden.dynamics.training import Metrics, Model, Settings, Trainer, TrainState
from elden.dynamics.variants import rising
from elden.transitions import Transitions

FAST = TrainConfig(learning_rate=1e-2, batch_size=16, penalty=0.0, mixup=0.0, penalty_start=0, penalty_stop=0)
NUM_UPDATES = 80
Tree = TypeVar("Tree")


def learnable(size: int = 256) -> Transitions:
    """The key moves to where the action says if it is held, the door copies `held`, and `held` flips at place 0."""
    rng = np.random.default_rng(0)
    place, held, door = rng.integers(0, 4, size), rng.integers(0, 2, size), rng.integers(0, 2, size)
    action = rng.integers(0, 3, size)
    after = [np.where(held == 1, action, place), np.where(place == 0, 1 - held, held), held]
    obs, next_obs = (jnp.asarray(np.stack(columns, -1), jnp.int32) for columns in ([place, held, door], after))
    return Transitions(obs, jnp.asarray(action, jnp.int32), next_obs)


@lru_cache
def start_of(trainer: Trainer) -> TrainState:
    state: TrainState = jax.jit(trainer.init)(jax.random.key(0))
    return state


@lru_cache
def program_of(precision: Precision) -> tuple[Trainer, jax.stages.Wrapped]:
    """One program for most of these tests: with derivatives and mixup, whose amounts are arguments."""
    trainer = Trainer(small_layout(), replace(FAST, precision=precision), members=2)
    return trainer, jax.jit(partial(trainer.train, num_updates=NUM_UPDATES))


def train(
    penalty: float = 0.0, mixup: float = 0.0, precision: Precision = "float32", start: TrainState | None = None
) -> tuple[TrainState, Metrics]:
    trainer, program = program_of(precision)
    start = start_of(trainer) if start is None else start
    result: tuple[TrainState, Metrics] = program(
        start, trainer.settings(penalty, mixup), learnable(), jax.random.key(start.step)
    )
    return result


def largest_difference(first: object, second: object) -> float:
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs)


def one_of(tree: Tree, index: int) -> Tree:
    """One run, or one member, of many."""
    picked: Tree = jax.tree.map(lambda leaf: leaf[index], tree)
    return picked


def test_training_learns_and_says_so() -> None:
    state, early = train()
    state, late = train(start=state)
    assert float(late["loss/nll"]) < 0.7 * float(early["loss/nll"])
    children = [name for name in late if name.startswith("nll/")]
    assert set(children) == {"nll/key.place", "nll/key.held", "nll/door.open"}
    np.testing.assert_allclose(sum(float(late[name]) for name in children), float(late["loss/nll"]), rtol=1e-4)
    assert float(late["loss/skipped"]) == 0
    assert int(state.step) == 2 * NUM_UPDATES
    assert all(value.shape == () for value in late.values())


def test_members_differ() -> None:
    model = train()[0].model
    assert largest_difference(one_of(model, 0), one_of(model, 1)) > 0.1


@pytest.fixture(scope="module")
def problem() -> tuple[Trainer, Model, Batch]:
    layout = small_layout(MIXED)
    trainer = Trainer(layout, FAST)
    model = one_of(start_of(trainer).model, 0)
    return trainer, model, random_batch(layout, 4)


@partial(jax.jit, static_argnums=0)
def gradient(
    trainer: Trainer, model: Model, batch: Batch, penalty: Float[Array, ""] | None
) -> tuple[Float[Array, ""], Model]:
    weights = jnp.ones(batch.inputs.shape[-1])

    def loss(model: Model) -> Float[Array, ""]:
        return trainer.loss(model, batch, weights, jax.random.key(0), jnp.int32(0), penalty)[0]

    result: tuple[Float[Array, ""], Model] = jax.value_and_grad(loss)(model)
    return result


def test_a_penalty_of_nothing_is_no_penalty(problem: tuple[Trainer, Model, Batch]) -> None:
    (free, free_slope), (zero, zero_slope) = (gradient(*problem, penalty) for penalty in (None, jnp.float32(0.0)))
    np.testing.assert_allclose(free, zero, rtol=1e-5)
    assert largest_difference(free_slope, zero_slope) < 1e-4
    assert float(gradient(*problem, jnp.float32(1.0))[0]) > float(zero) + 0.1


def test_more_penalty_makes_derivatives_smaller() -> None:
    sums = [float(train(penalty)[1]["loss/derivatives"]) for penalty in (0.0, 0.1, 1.0)]
    assert sums[0] > 1.2 * sums[1] > 1.5 * sums[2]


@pytest.mark.parametrize(("step", "expected"), [(0, 0.0), (10, 0.0), (15, 0.25), (20, 0.5), (30, 1.0), (99, 1.0)])
def test_the_penalty_rises_linearly(step: int, expected: float) -> None:
    np.testing.assert_allclose(rising(jnp.int32(step), 10, 30), expected)


def test_a_rise_of_no_length_is_a_step() -> None:
    assert [float(rising(jnp.int32(step), 7, 7)) for step in (6, 7, 8)] == [0.0, 0.0, 1.0]


CAREFUL = Trainer(
    small_layout(MIXED),
    replace(FAST, penalty_start=10, penalty_stop=30, clip=0.01, anneal_start=40, anneal_stop=44),
    members=2,
)


@jax.jit
def update(
    state: TrainState, settings: Settings, transitions: Transitions
) -> tuple[TrainState, dict[str, Float[Array, ""]]]:
    """An update with derivatives and without mixup."""
    batch = jax.vmap(partial(CAREFUL.batch, coefficients=None))(transitions)
    weights = jnp.ones(transitions.action.shape)
    state, metrics, _ = CAREFUL.update(state, settings, batch, weights, jax.random.key(0), derivatives=True)
    return state, dict(zip(CAREFUL.metric_names, metrics, strict=True))


def examples() -> Transitions:
    """The same ones for both members."""
    few = random_transitions(CAREFUL.layout, 4)
    both: Transitions = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), few)
    return both


def updated(penalty: float, step: int) -> tuple[TrainState, Metrics]:
    state, metrics = update(replace(start_of(CAREFUL), step=jnp.int32(step)), CAREFUL.settings(penalty), examples())
    return state, metrics


def test_the_learning_rate_falls_from_its_start_to_its_stop() -> None:
    before = start_of(CAREFUL).model.net.head.weight
    moved = [
        float(jnp.abs(updated(1.0, step)[0].model.net.head.weight - before).sum()) for step in (30, 40, 42, 44, 45)
    ]
    assert moved[0] > 0
    np.testing.assert_allclose(np.divide(moved, moved[0]), [1, 1, 0.5, 0, 0], atol=1e-3)


def test_a_fall_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(ValueError, match="anneal_start=5, anneal_stop=4 given"):
        TrainConfig(anneal_start=5, anneal_stop=4)


def test_updates_use_the_penalty_of_their_step() -> None:
    """Half of λ at the middle of the rise is all of half λ at its end; before the start, no λ matters."""
    assert_equal(updated(2.0, 20)[0].model, updated(1.0, 30)[0].model)
    assert_equal(updated(2.0, 10)[0].model, updated(0.0, 30)[0].model)
    assert largest_difference(updated(2.0, 20)[0].optimiser, updated(2.0, 30)[0].optimiser) > 1e-5


def test_gradients_are_clipped_by_their_norm() -> None:
    """Seen in Adam's second moments, which are 0.001 times the squares after one update."""
    state, metrics = updated(1.0, 30)
    assert float(metrics["loss/gradient_norm"]) > 0.1
    squares = sum(float(leaf.sum()) for leaf in jax.tree.leaves(state.optimiser[0].nu)) / 0.001
    np.testing.assert_allclose(squares, 0.01**2, rtol=1e-3)


@pytest.mark.parametrize("parameter", [1.0, 0.1])
def test_coefficients_have_the_beta_distribution(parameter: float) -> None:
    uniform = jax.random.uniform(jax.random.key(0), (20_000,))
    got = np.asarray(mixup_coefficients(mixup_table(parameter), uniform))
    # In float32 the ends of the unit interval are points that Beta(0.1) hits often: the oracle is rounded too.
    drawn = stats.beta.rvs(parameter, parameter, size=20_000, random_state=1).astype(np.float32)
    assert stats.ks_2samp(got, drawn).pvalue > 0.01
    other = stats.beta.rvs(parameter * 1.3, parameter * 1.3, size=20_000, random_state=1).astype(np.float32)
    assert stats.ks_2samp(got, other).pvalue < 1e-4


def test_no_mixup_is_none_exactly() -> None:
    batch = random_batch(layout_of(MIXED), 8)
    coefficients = mixup_coefficients(mixup_table(0.0), jnp.linspace(0, 0.999, 8))
    assert_equal(mix(batch, coefficients), batch)
    with pytest.raises(ValueError, match="above 0, and 0 is no mixup"):
        mixup_table(-1.0)


def test_mixed_examples_lie_between_two_of_the_batch() -> None:
    batch = random_batch(layout_of(MIXED), 3)
    mixed = mix(batch, jnp.array([0.0, 0.25, 1.0]))
    for before, after in zip(jax.tree.leaves(batch), jax.tree.leaves(mixed), strict=True):
        np.testing.assert_allclose(after[..., 0], before[..., 2], atol=1e-6)
        np.testing.assert_allclose(after[..., 1], 0.25 * before[..., 1] + 0.75 * before[..., 0], atol=1e-6)
        np.testing.assert_allclose(after[..., 2], before[..., 2], atol=1e-6)


def test_mixup_changes_what_is_learnt_from() -> None:
    assert largest_difference(train()[0].model, train(mixup=1.0)[0].model) > 1e-2


@pytest.mark.parametrize("poison", [np.inf, np.nan])
def test_what_is_not_finite_is_skipped_and_counted(poison: float) -> None:
    start, settings, good = replace(start_of(CAREFUL), step=jnp.int32(30)), CAREFUL.settings(0.1), examples()
    bad = replace(good, obs=good.obs.at[1, 2, 0].set(poison))
    skipped, _ = update(start, settings, bad)
    assert_equal(skipped.model, start.model)
    assert_equal(skipped.optimiser, start.optimiser)
    assert (int(skipped.skipped), int(skipped.step)) == (1, 31)
    trained, _ = update(skipped, settings, good)
    assert (int(trained.skipped), int(trained.step)) == (1, 32)
    assert largest_difference(trained.model, start.model) > 1e-4
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(trained.model))


@lru_cache
def mixed_training(poisoned: int) -> tuple[Layout, TrainState, TrainState, Metrics]:
    """Some updates with everything on, on data of which some is infinite."""
    trainer, program = _mixed_program()
    data = random_transitions(trainer.layout, 64)
    data = replace(data, obs=data.obs.at[:poisoned, 0].set(jnp.inf))
    start = start_of(trainer)
    state, metrics = program(start, trainer.settings(0.5, 1.0), data, jax.random.key(1))
    return trainer.layout, start, state, metrics


@lru_cache
def _mixed_program() -> tuple[Trainer, jax.stages.Wrapped]:
    trainer = Trainer(small_layout(MIXED, "entity"), replace(FAST, batch_size=4))
    return trainer, jax.jit(partial(trainer.train, num_updates=20))


def test_metrics_leave_skipped_updates_out() -> None:
    _, _, state, metrics = mixed_training(poisoned=6)
    assert 0 < int(state.skipped) < 20
    assert float(metrics["loss/skipped"]) == int(state.skipped)
    assert all(np.isfinite(value) for value in metrics.values())


def test_padding_weights_stay_zero() -> None:
    layout, start, state, metrics = mixed_training(poisoned=0)
    before, after = (np.asarray(each.model.net.first.weight[0]) for each in (start, state))
    padding = np.broadcast_to(layout.input_source[:, None] < 0, after.shape)
    assert float(metrics["loss/derivatives"]) > 0
    assert padding.any()
    assert not after[padding].any()
    assert (after != before)[~padding].mean() > 0.5


@pytest.mark.slow
def test_half_precision_learns_as_well() -> None:
    (_, full), (state, half) = train(0.01), train(0.01, precision="bfloat16")
    assert abs(float(half["loss/nll"]) / float(full["loss/nll"]) - 1) < 0.05
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(state.model))


@pytest.mark.slow
def test_runs_side_by_side_are_runs_one_by_one() -> None:
    """To the rounding of batched products."""
    trainer, alone = program_of("float32")
    keys = jnp.stack([jax.random.key(seed) for seed in (3, 4)])
    settings = [trainer.settings(penalty, mixup) for penalty, mixup in ((0.0, 1.0), (0.5, 0.1))]
    stacked: Settings = jax.tree.map(lambda *leaves: jnp.stack(leaves), *settings)
    program = jax.vmap(partial(trainer.train, num_updates=NUM_UPDATES), in_axes=(0, 0, None, 0))
    starts = jax.jit(jax.vmap(trainer.init))(keys)
    together, metrics = jax.jit(program)(starts, stacked, learnable(), keys)
    for run in range(2):
        state, own = alone(one_of(starts, run), settings[run], learnable(), keys[run])
        assert largest_difference(one_of(together.model, run), state.model) < 1e-3
        np.testing.assert_allclose(metrics["loss/nll"][run], own["loss/nll"], rtol=1e-4)


RUNS = (Run(0, 0.0, 1.0), Run(1, 0.0, 0.1), Run(0, 0.5, 1.0), Run(1, 1.0, 0.1))
FORKED = Trainer(small_layout(), replace(FAST, penalty_start=4, penalty_stop=6))


@pytest.mark.slow
def test_the_shared_beginning_of_runs_changes_nothing() -> None:
    """Each run alone gives the same parameters, to the rounding of batched products, wherever segments end."""
    data = learnable()
    said: list[tuple[int, int, dict[str, list[float]]]] = []
    together = ModelTraining(
        FORKED, RUNS, data, 8, segment=3, progress=lambda done, total, metrics: said.append((done, total, metrics))
    ).finish()
    assert together.speed.updates == 2 * 4 + 4 * 4
    assert [done for done, _, _ in said] == [6, 8, 12, 16, 20, 24]
    assert {total for _, total, _ in said} == {24}
    assert all(len(values) == 2 for _, _, metrics in said for values in metrics.values())
    for index in (0, 2):
        alone = ModelTraining(FORKED, RUNS[index : index + 1], data, 8, segment=3).finish()
        assert largest_difference(one_of(together.models, index), one_of(alone.models, 0)) < 1e-4
    for first, second in ((0, 2), (1, 3), (0, 1)):
        assert largest_difference(one_of(together.models, first), one_of(together.models, second)) > 1e-3


def test_nothing_to_train_is_refused() -> None:
    trainer = Trainer(small_layout(), FAST)
    with pytest.raises(ValueError, match="0 runs of 5 updates"):
        ModelTraining(trainer, (), learnable(), 5)
    with pytest.raises(ValueError, match="1 runs of 0 updates"):
        ModelTraining(trainer, RUNS[:1], learnable(), 0)
    with pytest.raises(ValueError, match="at least 1"):
        Trainer(small_layout(), FAST, members=0)
