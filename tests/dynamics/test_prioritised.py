"""Training on batches that are drawn by prediction error."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dynamics_cases import DISCRETE, MIXED, random_transitions, small_layout
from jaxtyping import Array, Float
from scipy import stats

from elden.dynamics.config import TrainConfig
from elden.dynamics.likelihood import encode
from elden.dynamics.replay import Priorities
from elden.dynamics.runs import ModelTraining, Run
from elden.dynamics.training import Metrics, Model, Trainer, TrainState
from elden.transitions import Transitions

CONFIG = TrainConfig(
    learning_rate=1e-2, batch_size=8, penalty=0.0, mixup=0.0, penalty_start=0, penalty_stop=0, priority=0.5
)
SIZE = 33
TRAINER = Trainer(small_layout(DISCRETE), CONFIG, members=2)


def one_surprise() -> Transitions:
    """Nothing ever changes, but two transitions that start alike differ: one of them opens the door."""
    data = random_transitions(TRAINER.layout, SIZE)
    obs = data.obs.at[-2:].set(jnp.array([3, 1, 0])).at[:-2, 0].set(data.obs[:-2, 0] % 3)
    action = data.action.at[-2:].set(1)
    return Transitions(obs, action, obs.at[-1, 2].set(1))


@pytest.fixture(scope="module")
def trained() -> tuple[TrainState, TrainState, Metrics]:
    start = jax.jit(partial(TRAINER.init, data_size=SIZE))(jax.random.key(0))
    program = jax.jit(partial(TRAINER.train, num_updates=400, derivatives=False, mixup=False))
    state, metrics = program(start, TRAINER.settings(), one_surprise(), jax.random.key(1))
    return start, state, metrics


def errors_of(trainer: Trainer, models: Model, data: Transitions) -> Float[Array, "member example"]:
    """Prediction error of every transition, for each member."""
    batch = encode(trainer.layout, data.obs, data.action, data.next_obs)

    def one(model: Model) -> Float[Array, " example"]:
        weights = jnp.ones(data.action.shape[0])
        return trainer.loss(model, batch, weights, jax.random.key(0), jnp.int32(0), None)[1][1]

    errors: Float[Array, "member example"] = jax.jit(jax.vmap(one))(models)
    return errors


def test_all_transitions_start_alike(trained: tuple[TrainState, TrainState, Metrics]) -> None:
    start, _, _ = trained
    assert start.priorities is not None
    chances = jax.vmap(Priorities.probabilities)(start.priorities)
    np.testing.assert_allclose(chances, np.full((2, SIZE), 1 / SIZE), rtol=1e-5)


def test_what_cannot_be_learnt_is_seen_most(trained: tuple[TrainState, TrainState, Metrics]) -> None:
    """Of the two that start alike, no model predicts both; the others are soon known."""
    _, state, _ = trained
    assert state.priorities is not None
    errors = np.asarray(errors_of(TRAINER, state.model, one_surprise()))
    chances = np.asarray(jax.vmap(Priorities.probabilities)(state.priorities))
    for member in range(2):
        assert set(np.argsort(chances[member])[-2:]) == {SIZE - 2, SIZE - 1}
        assert chances[member, -2:].min() > 2 * np.median(chances[member, :-2])
        # Priorities are of the last time that a transition was seen, so they follow the errors but do not equal them.
        assert stats.spearmanr(chances[member], errors[member]).statistic > 0.7


def test_draws_follow_the_priorities(trained: tuple[TrainState, TrainState, Metrics]) -> None:
    _, state, _ = trained
    assert state.priorities is not None
    draw = jax.jit(jax.vmap(partial(TRAINER.draw, state.priorities)))
    index, weights = draw(jax.random.split(jax.random.key(5), 1000))
    chances = np.asarray(jax.vmap(Priorities.probabilities)(state.priorities))
    for member in range(2):
        counts = np.bincount(np.asarray(index[:, member]).ravel(), minlength=SIZE)
        expected = chances[member].astype(np.float64)
        assert stats.chisquare(counts, counts.sum() * expected / expected.sum()).pvalue > 1e-3
    assert (np.asarray(weights) == 1).all()


def test_an_update_leaves_the_errors_of_its_examples_as_priorities() -> None:
    start = jax.jit(partial(TRAINER.init, data_size=SIZE))(jax.random.key(0))
    data, key = one_surprise(), jax.random.key(2)
    program = jax.jit(partial(TRAINER.train, num_updates=1, derivatives=False, mixup=False))
    state, _ = program(start, TRAINER.settings(), data, key)
    assert start.priorities is not None
    draw_key = jax.random.split(jax.random.split(key, 3)[0], 1)[0]
    index, _ = jax.jit(TRAINER.draw)(start.priorities, draw_key)
    errors = np.asarray(errors_of(TRAINER, start.model, data))
    for member in range(2):
        expected = np.ones(SIZE)
        seen = np.asarray(index[member])
        expected[seen] = errors[member][seen] ** 0.5
        got = np.asarray(state.priorities.levels[0][member]).ravel()[:SIZE]
        np.testing.assert_allclose(got, expected, rtol=1e-4)


def test_weights_count_the_filled_slots_only() -> None:
    trainer = Trainer(TRAINER.layout, replace(CONFIG, weight=1.0), members=2)
    index, weights = jax.jit(trainer.draw)(trainer.priorities(capacity=100, filled=5), jax.random.key(0))
    assert int(index.max()) < 5
    np.testing.assert_allclose(weights, 1.0, rtol=1e-6)
    tree = Priorities.create(8, filled=2).insert(jnp.array([1, 6, 6, 3]))
    assert int(tree.size) == 4
    assert int(tree.insert(jnp.arange(8)).size) == 8


def test_full_weights_make_up_for_the_priorities() -> None:
    """With β = 1, `Σ P(i) · w_i · gradient_i` is the uniform mean of gradients, exactly, whatever the priorities."""
    size = 5
    trainer = Trainer(TRAINER.layout, replace(CONFIG, weight=1.0, batch_size=64))
    state = jax.jit(partial(trainer.init, data_size=size))(jax.random.key(0))
    assert state.priorities is not None
    new = jnp.array([[1e-3, 0.9, 0.05, 0.4, 0.01]])
    priorities = jax.vmap(Priorities.update)(state.priorities, jnp.arange(size)[None], new)
    index, drawn = jax.jit(trainer.draw)(priorities, jax.random.key(1))
    chances = np.asarray(priorities.levels[0][0, 0, :size] / priorities.levels[0].sum())
    np.testing.assert_allclose(drawn[0], 1 / (size * chances[np.asarray(index[0])]), rtol=1e-5)
    assert len(np.unique(drawn)) > 2
    weights = jnp.asarray(1 / (size * chances), jnp.float32)
    data = random_transitions(trainer.layout, size)

    @jax.jit
    @partial(jax.vmap, in_axes=(0, 0))
    def gradients(item: Transitions, weight: Float[Array, ""]) -> Model:
        batch = encode(trainer.layout, item.obs[None], item.action[None], item.next_obs[None])
        model: Model = jax.tree.map(lambda leaf: leaf[0], state.model)
        slope: Model = jax.grad(
            lambda model: trainer.loss(model, batch, weight[None], jax.random.key(0), jnp.int32(0), jnp.float32(0.1))[0]
        )(model)
        return slope

    weighted, plain = gradients(data, weights), gradients(data, jnp.ones(size))
    for by_priority, uniform in zip(jax.tree.leaves(weighted), jax.tree.leaves(plain), strict=True):
        expected = np.tensordot(chances, np.asarray(by_priority), 1)
        np.testing.assert_allclose(expected, np.asarray(uniform).mean(0), rtol=1e-3, atol=1e-5)


def test_errors_are_averaged_over_variables_then_children() -> None:
    """By hand: a perfect entity counts as much as a bad one, however many variables they have."""
    layout = small_layout(MIXED, "entity")
    log_p = np.zeros((3, 2, 1), np.float32)
    log_p[0, 0] = -0.5 * 0.8 - np.log(2 * np.pi)  # place: squared error 0.8 over two components
    log_p[0, 1] = np.log(0.25)  # held
    log_p[1, 0] = np.log(0.5)  # on
    log_p[2, 0] = -0.5 * np.log(2 * np.pi)  # force: exact
    errors = Trainer(layout, CONFIG)._errors(jnp.asarray(log_p))
    np.testing.assert_allclose(errors, [((0.8 + 0.75) / 2 + 0.5 + 0.0) / 3], rtol=1e-5)


def test_a_mixed_example_counts_for_its_larger_part() -> None:
    """With coefficients of 0 all examples are their neighbours; priorities must not be swapped with them."""
    trainer = Trainer(TRAINER.layout, replace(CONFIG, batch_size=32))
    start = jax.jit(partial(trainer.init, data_size=SIZE))(jax.random.key(0))
    settings = replace(trainer.settings(), mixup=jnp.zeros(4096))
    program = jax.jit(partial(trainer.train, num_updates=1, derivatives=False))
    state, _ = program(start, settings, one_surprise(), jax.random.key(2))
    errors = np.asarray(errors_of(trainer, start.model, one_surprise()))[0]
    masses = np.asarray(state.priorities.levels[0]).ravel()[:SIZE]
    seen = masses != 1
    assert seen.sum() > 10
    np.testing.assert_allclose(masses[seen], errors[seen] ** 0.5, rtol=1e-4)


@pytest.mark.slow
def test_runs_with_priorities_side_by_side_are_runs_one_by_one() -> None:
    data = one_surprise()
    runs = (Run(0, mixup=0.0), Run(1, mixup=0.0))
    together = ModelTraining(TRAINER, runs, data, 6, segment=3).finish().models
    alone = ModelTraining(TRAINER, runs[1:], data, 6, segment=3).finish().models
    pairs = list(zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True))
    assert all(np.allclose(a[1], b[0], atol=1e-4) for a, b in pairs)
    assert not all(np.allclose(a[0], b[0], atol=1e-4) for a, b in pairs)


def test_priorities_need_the_number_of_transitions() -> None:
    with pytest.raises(ValueError, match="without data_size"):
        TRAINER.init(jax.random.key(0))
    start = jax.jit(partial(TRAINER.init, data_size=SIZE + 1))(jax.random.key(0))
    with pytest.raises(ValueError, match="priorities of 34 transitions given for 33"):
        TRAINER.train(start, TRAINER.settings(), one_surprise(), jax.random.key(0), 1)
    uniform = Trainer(TRAINER.layout, replace(CONFIG, priority=0.0))
    assert uniform.init(jax.random.key(0), data_size=SIZE).priorities is None
