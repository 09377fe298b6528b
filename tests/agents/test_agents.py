"""PPO and its parts against slow oracles, and in probe worlds whose right values are known."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Array, Float, Key, Num

from elden.agents import (
    Agent,
    Categorical,
    Experience,
    Normal,
    Ppo,
    PpoConfig,
    PpoState,
    Trajectory,
    act,
    actions_of,
)
from elden.agents.gae import advantages
from elden.factors import Continuous, Discrete
from elden.nn import orthogonal


def slow_advantages(
    rewards: np.ndarray,
    values: np.ndarray,
    next_values: np.ndarray,
    terminated: np.ndarray,
    done: np.ndarray,
    discount: float,
    gae: float,
) -> np.ndarray:
    """The definition: a sum over the rest of the episode, one step after the other."""
    steps = len(rewards)
    result = np.zeros(steps)
    for t in range(steps):
        weight = 1.0
        for k in range(t, steps):
            follows = 0.0 if terminated[k] else discount * next_values[k]
            result[t] += weight * (rewards[k] + follows - values[k])
            if done[k]:
                break
            weight *= discount * gae
    return result


@given(seed=st.integers(0, 2**16), discount=st.floats(0, 1), gae=st.floats(0, 1))
def test_advantages_are_those_of_the_definition(seed: int, discount: float, gae: float) -> None:
    rng = np.random.default_rng(seed)
    rewards, values, following = rng.normal(size=(3, 12)).astype(np.float32)
    done = rng.random(12) < 0.3
    terminated = done & (rng.random(12) < 0.5)
    slow = slow_advantages(rewards, values, following, terminated, done, discount, gae)
    numbers = [jnp.asarray(part) for part in (rewards, values, following)]
    ends = [jnp.asarray(part) for part in (terminated, done)]
    fast = advantages(numbers[0], numbers[1], numbers[2], ends[0], ends[1], discount, gae)
    np.testing.assert_allclose(fast, slow, rtol=1e-4, atol=1e-4)


def test_a_truncated_episode_is_worth_what_would_follow_and_a_terminated_one_is_not() -> None:
    zero, one, yes, no = jnp.zeros(1), jnp.ones(1), jnp.array([True]), jnp.array([False])
    assert float(advantages(zero, zero, one, no, yes, 0.9, 1.0)[0]) == pytest.approx(0.9)
    assert float(advantages(zero, zero, one, yes, yes, 0.9, 1.0)[0]) == 0.0


def test_categorical_is_what_its_logits_say(key: Key[Array, ""]) -> None:
    actions = actions_of(Discrete(3))
    assert actions == Categorical(3)
    numbers = jnp.log(jnp.array([0.2, 0.5, 0.3]))
    drawn = actions.sample(key, jnp.broadcast_to(numbers, (20_000, 3)))
    np.testing.assert_allclose(np.bincount(np.asarray(drawn)) / 20_000, [0.2, 0.5, 0.3], atol=0.02)
    assert int(actions.mode(numbers)) == 1
    np.testing.assert_allclose(actions.log_prob(jnp.stack([numbers] * 2), jnp.array([0, 2])), np.log([0.2, 0.3]), 1e-5)
    assert float(actions.entropy(numbers)) == pytest.approx(-sum(p * np.log(p) for p in (0.2, 0.5, 0.3)), rel=1e-5)


def test_normal_is_what_its_numbers_say(key: Key[Array, ""]) -> None:
    actions = actions_of(Continuous(2, -1.0, 1.0))
    assert actions == Normal(2)
    numbers = jnp.array([1.0, -2.0, np.log(0.5), np.log(2.0)], jnp.float32)
    drawn = np.asarray(actions.sample(key, jnp.broadcast_to(numbers, (20_000, 4))))
    np.testing.assert_allclose(drawn.mean(0), [1.0, -2.0], atol=0.05)
    np.testing.assert_allclose(drawn.std(0), [0.5, 2.0], rtol=0.05)
    # The entropy is the mean of −log p.
    several = jnp.broadcast_to(numbers, (20_000, 4))
    assert float(-jnp.mean(actions.log_prob(several, jnp.asarray(drawn)))) == pytest.approx(
        float(actions.entropy(numbers)), abs=0.03
    )


@pytest.mark.parametrize(("rows", "columns"), [(5, 3), (3, 5), (94, 128), (1, 1)])
def test_weights_begin_orthogonal(rows: int, columns: int) -> None:
    weight = np.asarray(orthogonal(jax.random.key(0), rows, columns), np.float64)
    assert weight.shape == (rows, columns)
    product = weight.T @ weight if rows >= columns else weight @ weight.T
    np.testing.assert_allclose(product, np.eye(min(rows, columns)), atol=1e-5)


# Probe worlds: one step or two, whose values and best actions are known.


@dataclass(frozen=True)
class Probe:
    """Draws states, pays actions; episodes of one step."""

    draw: Callable[[Key[Array, ""]], Float[Array, "env feature"]]
    pay: Callable[[Float[Array, "env feature"], Num[Array, "env ..."]], Float[Array, " env"]]


def learn(agent: Ppo, probe: Probe, rounds: int) -> PpoState:
    """Train on episodes of one step."""

    def one(state: PpoState, key: Key[Array, ""]) -> tuple[PpoState, None]:
        draw_key, act_key, update_key = jax.random.split(key, 3)
        inputs = probe.draw(draw_key)
        action, log_prob = act(agent, state, act_key, inputs)
        reward = probe.pay(inputs, action)
        ended = jnp.ones((1, reward.shape[0]), jnp.bool_)
        taken = Trajectory(
            inputs=inputs[None],
            next_inputs=inputs[None],
            action=action[None],
            log_prob=log_prob[None],
            rewards=reward[None, :, None],
            terminated=ended,
            done=ended,
        )
        return agent.update(state, update_key, taken)[0], None

    start = agent.init(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), rounds)
    trained: PpoState = jax.jit(lambda state: jax.lax.scan(one, state, keys)[0])(start)
    return trained


CONFIG = PpoConfig(learning_rate=3e-3, minibatch_size=64, hidden=(16,), entropy=0.0)


def test_values_of_states_that_are_paid_whatever_is_done() -> None:
    def draw(key: Key[Array, ""]) -> Float[Array, "env feature"]:
        return jnp.where(jax.random.bernoulli(key, 0.5, (64, 1)), 1.0, -1.0)

    state = learn(Ppo(CONFIG, Categorical(2), 1), Probe(draw, lambda inputs, _: inputs[:, 0]), 200)
    np.testing.assert_allclose(state.network.values(jnp.array([[1.0], [-1.0]]))[:, 0], [1.0, -1.0], atol=0.1)


def test_the_right_action_depends_on_the_state() -> None:
    def draw(key: Key[Array, ""]) -> Float[Array, "env feature"]:
        return jnp.where(jax.random.bernoulli(key, 0.5, (64, 1)), 1.0, -1.0)

    def pay(inputs: Float[Array, "env feature"], action: Num[Array, "env ..."]) -> Float[Array, " env"]:
        return ((action == 1) == (inputs[:, 0] > 0)).astype(jnp.float32)

    agent = Ppo(CONFIG, Categorical(2), 1)
    state = learn(agent, Probe(draw, pay), 200)
    numbers = state.network.numbers(jnp.array([[1.0], [-1.0]]))
    assert agent.actions.mode(numbers).tolist() == [1, 0]
    np.testing.assert_allclose(state.network.values(jnp.array([[1.0], [-1.0]]))[:, 0], [1.0, 1.0], atol=0.15)


def test_a_continuous_action_comes_to_its_target() -> None:
    def draw(key: Key[Array, ""]) -> Float[Array, "env feature"]:
        return jnp.ones((256, 1), jnp.float32)

    def pay(inputs: Float[Array, "env feature"], action: Num[Array, "env ..."]) -> Float[Array, " env"]:
        return -((action[:, 0] - 0.7) ** 2)

    agent = Ppo(CONFIG, Normal(1), 1)
    state = learn(agent, Probe(draw, pay), 300)
    assert float(agent.actions.mode(state.network.numbers(jnp.ones((1, 1))))[0, 0]) == pytest.approx(0.7, abs=0.1)


def test_an_update_that_is_not_finite_is_skipped_and_counted() -> None:
    agent = Ppo(CONFIG, Categorical(2), 1)
    state = agent.init(jax.random.key(0))
    ones = jnp.ones(64, jnp.float32)
    bad = Experience(ones[:, None], jnp.zeros(64, jnp.int32), -ones, ones * jnp.nan, ones[:, None])
    after, metrics = agent.learn(state, jax.random.key(1), bad)
    assert int(after.skipped) == agent.config.epochs == int(metrics["policy/skipped"])
    for before, now in zip(jax.tree.leaves(state.network), jax.tree.leaves(after.network), strict=True):
        np.testing.assert_array_equal(before, now)


def test_every_stream_of_rewards_has_its_own_values_and_discount() -> None:
    agent = Ppo(ONE_BATCH, Categorical(2), 3, discounts=(0.9, 0.5))
    assert isinstance(agent, Agent)
    network, rng = agent.init(jax.random.key(0)).network, np.random.default_rng(0)
    inputs, following = (jnp.asarray(rng.normal(size=(6, 2, 3)), jnp.float32) for _ in range(2))
    rewards = rng.normal(size=(6, 2, 2)).astype(np.float32)
    done = rng.random((6, 2)) < 0.4
    ends = done & (rng.random((6, 2)) < 0.5)
    action, log_prob = jnp.zeros((6, 2), jnp.int32), jnp.zeros((6, 2))
    parts = (inputs, following, action, log_prob, jnp.asarray(rewards), jnp.asarray(ends), jnp.asarray(done))
    experience = agent.experience(network, Trajectory(*parts))
    values, after = (np.asarray(network.values(each)) for each in (inputs, following))
    slow = np.zeros((6, 2, 2))
    for env, stream in np.ndindex(2, 2):
        at = (slice(None), env, stream)
        numbers = (rewards[at], values[at], after[at], ends[:, env], done[:, env])
        slow[at] = slow_advantages(*numbers, agent.discounts[stream], agent.config.gae)
    np.testing.assert_allclose(experience.advantage, slow.sum(-1).ravel(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(experience.returns, (slow + values).reshape(-1, 2), rtol=1e-4, atol=1e-5)


def moved_by(agent: Ppo, experience: Experience, updates: int) -> list[float]:
    """How far each update moves the policy's first layer."""
    state, moved, learn = agent.init(jax.random.key(0)), [], jax.jit(agent.learn)
    for _ in range(updates):
        after, _ = learn(state, jax.random.key(1), experience)
        layers = [each.network.policy.layers[0].weight for each in (state, after)]
        moved.append(float(jnp.abs(layers[1] - layers[0]).sum()))
        state = after
    return moved


SOME = jnp.linspace(-1.0, 1.0, 8)
ONE_BATCH = PpoConfig(minibatch_size=8, epochs=1, hidden=(4,))


def test_the_learning_rate_falls_to_nothing() -> None:
    with pytest.raises(ValueError, match="total_updates"):
        Ppo(PpoConfig(anneal_from=0.0), Categorical(2), 1)
    experience = Experience(SOME[:, None], jnp.zeros(8, jnp.int32), -jnp.ones(8), SOME, SOME[:, None])
    constant = moved_by(Ppo(ONE_BATCH, Categorical(2), 1), experience, 5)
    agent = Ppo(replace(ONE_BATCH, anneal_from=0.5), Categorical(2), 1, total_updates=4)
    late = moved_by(agent, experience, 5)
    assert late[:3] == constant[:3]  # the rate of the third of four updates is still the whole
    assert 0.0 < late[3] < constant[3]
    assert late[4] == 0.0
    whole = moved_by(replace(agent, config=replace(ONE_BATCH, anneal_from=0.0)), experience, 5)
    assert whole[0] == constant[0]
    assert whole[1] < constant[1]
    assert whole[4] == 0.0


def test_errors_of_values_do_not_hold_the_policy_back_where_gradients_are_clipped_apart() -> None:
    """Adam divides a constant scale away, so the scale must fall between two updates."""

    def moved(apart: bool, wrong: float) -> float:
        agent = Ppo(replace(ONE_BATCH, clip_apart=apart, value_weight=1.0), Categorical(2), 1)
        state, learn = agent.init(jax.random.key(0)), jax.jit(agent.learn)
        for returns in (SOME, SOME + wrong):
            before = state
            experience = Experience(SOME[:, None], jnp.zeros(8, jnp.int32), -jnp.ones(8), SOME, returns[:, None])
            state, _ = learn(state, jax.random.key(1), experience)
        layers = [each.network.policy.layers[0].weight for each in (before, state)]
        return float(jnp.abs(layers[1] - layers[0]).sum())

    assert moved(True, 1e4) == pytest.approx(moved(True, 0.0))
    assert moved(False, 1e4) < 0.9 * moved(False, 0.0)


@pytest.mark.parametrize(
    "wrong", [{"epochs": 0}, {"clip": 0.0}, {"entropy": -1.0}, {"gae": 1.5}, {"anneal_from": -0.5}]
)
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}="):
        PpoConfig(**wrong)  # type: ignore[arg-type]
