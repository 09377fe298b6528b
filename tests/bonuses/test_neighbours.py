"""Bonuses of others that are built to leave randomness alone, in a tiny world where the right reward is known.

A lever turns a lamp on and off; a television shows a random picture at every step, whatever is done.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Key

from elden.bonuses import BonusConfig, EnsembleConfig, FitConfig, GateConfig, Space, make_bonus
from elden.bonuses.beliefs import Outputs
from elden.bonuses.cig import InformationGain, information_gain, log_det_one_plus
from elden.bonuses.curiosity_critic import CuriosityCritic, CuriosityCriticState
from elden.dynamics.config import NetworkConfig, TrainConfig
from elden.factors import Continuous, Discrete, Entity, Factors, Variable
from elden.transitions import Steps

STAY, PULL = range(2)
LAMP, TV = range(2)
SPACE = Space(
    Factors((Entity("lamp", (Variable("on", Discrete(2)),)), Entity("tv", (Variable("picture", Discrete(4)),)))),
    Discrete(2),
)
BALL = Space(
    Factors((Entity("ball", (Variable("place", Continuous(2, -1.0, 1.0)), Variable("red", Discrete(2)))),)),
    Continuous(1, -1.0, 1.0),
)
TINY = BonusConfig(
    ensemble=EnsembleConfig(
        network=NetworkConfig(features=(16,), mlp=(16,), heads=2, head_size=8),
        train=TrainConfig(mixup=0.1, penalty=0.0, learning_rate=3e-3, batch_size=64),
        members=3,
        capacity=4096,
        updates=150,
        chunk=256,
    ),
    fit=FitConfig(hidden=(32,), learning_rate=3e-3, batch_size=128, updates=150),
)
NEIGHBOURS = ("cig", "curiosity-critic")
ENVS, TIME = 8, 64


def play(seed: int, actions: tuple[int, ...] = (STAY, PULL)) -> Steps:
    """Steps of random actions among these."""
    rng = np.random.default_rng(seed)
    action = rng.choice(np.array(actions), (TIME, ENVS))
    pictures = rng.integers(0, 4, (TIME + 1, ENVS))
    lamp = (rng.integers(0, 2, ENVS) + np.cumsum(np.vstack([np.zeros((1, ENVS), int), action == PULL]), 0)) % 2
    states = jnp.asarray(np.stack([lamp, pictures], -1), jnp.int32)
    done = jnp.zeros((TIME, ENVS), jnp.bool_).at[-1].set(True)
    return Steps(states[:-1], jnp.asarray(action, jnp.int32), states[1:], done)


@lru_cache
def compiled(bonus: Any) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    return jax.jit(bonus.init, static_argnums=1), jax.jit(bonus.reward), jax.jit(bonus.update)


@lru_cache
def taught(*lessons: tuple[int, ...]) -> CuriosityCriticState:
    """Models and critic after a rollout of each of these sets of actions."""
    init, _, update = compiled(make_bonus("curiosity-critic", SPACE, TINY))
    if not lessons:
        state = init(jax.random.key(0), ENVS)
    else:
        seed = len(lessons)
        state, _ = update(taught(*lessons[:-1]), jax.random.key(seed), play(seed, lessons[-1]))
    assert isinstance(state, CuriosityCriticState)
    return state


def mean_reward(name: str, state: CuriosityCriticState, steps: Steps, **changes: Any) -> float:
    """What a bonus pays for steps on average; both have the same models."""
    own = state.model if name in ("cig", "curiosity") else state
    _, rewards, said = compiled(make_bonus(name, SPACE, TINY, **changes))[1](own, steps)
    assert rewards.shape == steps.done.shape
    assert bool(jnp.isfinite(rewards).all())
    assert bool((rewards >= 0).all())
    assert float(said["bonus/mean"]) == pytest.approx(float(rewards.mean()), abs=1e-7)
    return float(rewards.mean())


WATCH, ALL = (STAY,), (STAY, PULL)


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_chance_is_not_paid_for_long(name: str) -> None:
    # The picture is one of four, and one of two things: curiosity pays 3/8 for it for ever.
    assert mean_reward("curiosity", taught(WATCH, WATCH, WATCH), play(9, WATCH)) == pytest.approx(3 / 8, abs=0.02)
    assert mean_reward(name, taught(WATCH, WATCH, WATCH), play(9, WATCH)) < 0.02


@pytest.mark.parametrize(("name", "early"), [("curiosity-critic", ()), ("cig", (ALL,))])
def test_a_reaction_is_paid_until_it_is_learnt(name: str, early: tuple[tuple[int, ...], ...]) -> None:
    """By information gain once members have seen a little of it: before, all are sure that there is none."""
    blind = (WATCH, WATCH, WATCH)
    known, reaction = play(9, WATCH), play(9, (PULL,))
    paid = mean_reward(name, taught(*blind, *early), reaction)
    assert paid > 5 * mean_reward(name, taught(*blind, *early), known)
    assert mean_reward(name, taught(*blind, ALL, ALL, ALL), reaction) < paid / 5


def test_the_critic_takes_its_floor_off_the_error_of_each_child() -> None:
    bonus, state, steps = make_bonus("curiosity-critic", SPACE, TINY), taught(WATCH), play(9)
    assert isinstance(bonus, CuriosityCritic)
    seen = steps.transitions()
    errors, _ = jax.jit(bonus.curiosity.item_rewards)(state.model, seen)
    first, last = state.critic.parameters.layers
    x = np.concatenate([np.eye(2)[seen.obs[:, 0]], np.eye(4)[seen.obs[:, 1]], np.eye(2)[seen.action]], axis=1)
    hidden = np.maximum(x @ np.asarray(first.weight) + np.asarray(first.bias), 0)
    floors = np.maximum(hidden @ np.asarray(last.weight) + np.asarray(last.bias), 0)
    stays = np.asarray(seen.action) == STAY
    assert floors[stays, TV].mean() == pytest.approx(0.75, abs=0.05)
    assert floors[stays, LAMP].mean() < 0.1
    expected = np.maximum(np.asarray(errors)[..., 0] - floors, 0).mean(1).reshape(steps.done.shape)
    np.testing.assert_allclose(compiled(bonus)[1](state, steps)[1], expected, atol=1e-5)


def test_a_critic_that_has_learnt_nothing_pays_as_curiosity_does() -> None:
    assert mean_reward("curiosity-critic", taught(), play(9)) == pytest.approx(
        mean_reward("curiosity", taught(), play(9)), rel=1e-5
    )


def test_a_closed_child_is_worth_nothing_to_the_critic() -> None:
    state, reaction = taught(WATCH, WATCH, WATCH), play(9, (PULL,))
    gate = GateConfig("surprise", excess=1.0)
    assert (
        0
        < mean_reward("curiosity-critic", state, reaction, gate=gate)
        <= mean_reward("curiosity-critic", state, reaction)
    )
    assert mean_reward("curiosity-critic", state, play(9, WATCH), gate=gate) == 0.0


def test_determinants_are_those_of_numpy() -> None:
    factors = np.random.default_rng(0).normal(size=(6, 5, 7)).astype(np.float32)
    grams = np.einsum("bmi,bni->mnb", factors, factors)
    expected = [np.linalg.slogdet(np.eye(5) + grams[..., b])[1] for b in range(6)]
    found = jax.jit(log_det_one_plus)(jnp.asarray(np.concatenate([grams, np.zeros((5, 5, 1), np.float32)], axis=-1)))
    np.testing.assert_allclose(found, [*expected, 0.0], rtol=1e-4)


def gains(space: Space, outputs: Outputs, noise: float = 1.0) -> np.ndarray:
    """Information gain of one transition of which the members predict this."""
    gain = jax.jit(information_gain, static_argnums=(0, 2, 3))
    return np.asarray(gain(space.layout(TINY.ensemble.network), outputs, noise, 0.1)[:, 0])


def test_information_gain_is_its_formula() -> None:
    lamp, tv = [[9.0, 0.0], [0.0, 9.0], [9.0, 0.0]], [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 2.0, 0.0], [0.0] * 4]
    outputs = jnp.zeros((3, 2, 1, 4, 1), jnp.float32)
    outputs = outputs.at[:, LAMP, 0, :2, 0].set(jnp.asarray(lamp)).at[:, TV, 0, :, 0].set(jnp.asarray(tv))
    expected = []
    for logits in (np.array(lamp), np.array(tv)):
        p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        noise = 0.01 + (p * (1 - p)).mean()
        expected.append(0.5 * np.linalg.slogdet(np.eye(p.shape[1]) + np.cov(p.T, ddof=0) / noise)[1])
    np.testing.assert_allclose(gains(SPACE, outputs), expected, rtol=1e-4)
    assert expected[LAMP] > 1.0 > 0.3 > expected[TV] > 0
    # Members that agree have nothing to tell, be they sure or not; nor is it new how sure they are.
    same = jnp.broadcast_to(outputs[:1], outputs.shape)
    np.testing.assert_allclose(gains(SPACE, same), 0.0, atol=1e-6)
    sure = jnp.zeros_like(outputs).at[:, LAMP, 0, 0, 0].set(jnp.asarray([20.0, 40.0, 60.0]))
    np.testing.assert_allclose(gains(SPACE, sure), 0.0, atol=1e-6)


def test_information_gain_counts_a_direction_of_continuous_variables_once() -> None:
    place = Variable("place", Continuous(2, -1.0, 1.0))
    space = Space(Factors((Entity("ball", (place,)),)), Discrete(2))
    along = jnp.asarray([[1.0, 1.0], [-1.0, -1.0]], jnp.float32)[:, None, None, :, None]
    np.testing.assert_allclose(gains(space, along, noise=0.5), [0.5 * np.log(1.0 + 2.0 / 0.25)], rtol=1e-5)
    across = jnp.asarray([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], jnp.float32)[:, None, None, :, None]
    np.testing.assert_allclose(gains(space, across, noise=0.5), [np.log(1.0 + 0.5 / 0.25)], rtol=1e-5)


def test_impossible_settings_of_information_gain_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot disagree"):
        make_bonus("cig", SPACE, TINY, ensemble=replace(TINY.ensemble, members=1))
    with pytest.raises(ValueError, match="ridge=0"):
        InformationGain(ridge=0.0)


@pytest.mark.slow
def test_runs_side_by_side_with_continuous_variables_are_finite() -> None:
    network = NetworkConfig(features=(8,), mlp=(8,), heads=1, head_size=8, children="entity")
    ensemble = replace(TINY.ensemble, network=network, updates=0)
    config = replace(TINY, ensemble=ensemble, fit=replace(TINY.fit, updates=5), once=True)
    gain, critic = (make_bonus(name, BALL, config) for name in NEIGHBOURS)
    rng = np.random.default_rng(0)
    place, red = rng.uniform(-1, 1, (2, 4, ENVS, 2)), rng.integers(0, 2, (2, 4, ENVS, 1))
    obs = jnp.asarray(np.concatenate([place, red], -1), jnp.float32)
    action = jnp.asarray(rng.uniform(-1, 1, (2, 4, ENVS, 1)), jnp.float32)
    steps = Steps(obs, action, obs[:, ::-1], jnp.zeros((2, 4, ENVS), jnp.bool_))

    def run(key: Key[Array, ""], steps: Steps) -> tuple[Float[Array, "2 time env"], dict[str, Any]]:
        state, said = critic.update(critic.init(key, ENVS), key, steps)
        after, rewards, more = critic.reward(state, steps)
        assert jax.tree.structure(after) == jax.tree.structure(state)  # type: ignore[operator]
        _, gains, most = gain.reward(state.model, steps)
        return jnp.stack([rewards, gains]), said | more | most

    rewards, said = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), 2), steps)
    assert rewards.shape == (2, 2, 4, ENVS)
    assert all(np.isfinite(np.asarray(value)).all() for value in (rewards, *said.values()))
    # One child, paid once in an episode: in no environment more than once.
    assert (np.asarray(rewards > 0).sum(2) <= 1).all()
    assert (np.asarray(rewards[:, 1]).sum(1) > 0).all()
