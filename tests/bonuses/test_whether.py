"""Bonuses that ask whether something happens, not how, in a tiny space where the right reward is known.

A push turns the hand over. It may also make the ball jump: where to is drawn from the three other places, so that no
model ever knows more than that it jumps. A coin falls again in every step, whatever is done.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import assert_equal
from jaxtyping import Array, Bool, Float

from elden.agents.actions import Categorical
from elden.agents.ppo import ActorCritic, Experience, Ppo, PpoConfig
from elden.bonuses import AnyBonus, BonusConfig, EnsembleConfig, FitConfig, GateConfig, Space, make_bonus
from elden.bonuses.base import Metrics
from elden.bonuses.beside import Beside, BesideState
from elden.bonuses.changes import ChangeConfig, Spread, changed
from elden.bonuses.counts import StateCount, places
from elden.bonuses.dependency import DependencyConfig, DependencyState, DependencySurprise, EdgeCount, EdgeCountState
from elden.bonuses.e3b import E3b
from elden.bonuses.episodes import Episodes, forget_episodes
from elden.bonuses.fitted import Fitted
from elden.bonuses.habits import Habits
from elden.bonuses.influence import ChangeCount, CountConfig, CountState, InfluenceCount
from elden.bonuses.model_based import Gate, ModelBonus, ModelState
from elden.bonuses.noveld import NovelD
from elden.bonuses.rnd import Rnd
from elden.bonuses.whether import Whether, WhetherConfig, WhetherState, excess_surprise, surprise
from elden.dynamics.config import NetworkConfig, TrainConfig
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import encode
from elden.factors import Continuous, Discrete, Entity, Factors, Variable
from elden.nn import Dense, Mlp
from elden.transitions import Steps, Transitions

WAIT, PUSH = range(2)
HAND, BALL, COIN = range(3)
SPACE = Space(
    Factors(
        (
            Entity("hand", (Variable("side", Discrete(2)),)),
            Entity("ball", (Variable("place", Discrete(4)),)),
            Entity("coin", (Variable("side", Discrete(2)),)),
        )
    ),
    Discrete(2),
)
ENVS, TIME, EPISODE = 8, 64, 16
WHETHER = WhetherConfig(hidden=(32,), learning_rate=1e-2, batch_size=64, updates=150)
SMALL = WhetherConfig(hidden=(), learning_rate=1e-2, batch_size=16, updates=8)
TINY = BonusConfig(
    ensemble=EnsembleConfig(
        network=NetworkConfig(features=(16,), mlp=(16,), heads=2, head_size=8),
        train=TrainConfig(mixup=0.0, penalty=0.0, learning_rate=1e-2, batch_size=64),
        members=2,
        capacity=2048,
        updates=100,
        chunk=TIME * ENVS,
    ),
    fit=FitConfig(hidden=(), features=4, batch_size=32, updates=4),
    change=ChangeConfig(WHETHER),
    dependency=DependencyConfig(WHETHER),
    detector="intervention",
    threshold=0.3,
)
READ = replace(TINY, ensemble=replace(TINY.ensemble, updates=0))
"""For bonuses whose models have learnt already: training is what takes long to compile."""


def play(seed: int, jumps: bool, flips: bool = True, action: int | None = None) -> Steps:
    """Steps of random actions, or of one; the ball jumps at a push only where `jumps`, the coin falls where `flips`."""
    rng = np.random.default_rng(seed)
    state = np.stack([rng.integers(0, n, ENVS) for n in (2, 4, 2)], axis=1)
    taken = []
    for t in range(TIME):
        act = rng.integers(0, 2, ENVS) if action is None else np.full(ENVS, action)
        after = state.copy()
        after[:, HAND] ^= act
        after[:, BALL] = (state[:, BALL] + jumps * act * rng.integers(1, 4, ENVS)) % 4
        after[:, COIN] ^= flips * rng.integers(0, 2, ENVS)
        taken.append((state, act, after, np.full(ENVS, (t + 1) % EPISODE == 0)))
        state = after
    obs, acts, next_obs, done = (np.stack(part) for part in zip(*taken, strict=True))
    whole = [jnp.asarray(part, jnp.int32) for part in (obs, acts, next_obs)]
    return Steps(whole[0], whole[1], whole[2], jnp.asarray(done))


def steps_of(obs: Any, next_obs: Any, done: Any) -> Steps:
    """Steps of one environment, by hand."""
    before, after = (jnp.asarray(part)[:, None] for part in (obs, next_obs))
    return Steps(before, jnp.zeros((len(before), 1), jnp.int32), after, jnp.asarray(done, jnp.bool_)[:, None])


@lru_cache
def compiled(bonus: Any) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """`init`, `reward` and `update`, compiled once for equal bonuses."""
    return jax.jit(bonus.init, static_argnums=1), jax.jit(bonus.reward), jax.jit(bonus.update)


def taught(bonus: AnyBonus, state: Any, *lessons: Steps) -> Any:
    """The state after these lessons; None begins with an untrained one."""
    init, _, update = compiled(bonus)
    state = init(jax.random.key(0), ENVS) if state is None else state
    for number, steps in enumerate(lessons):
        state, said = update(state, jax.random.key(number), steps)
        assert all(np.isfinite(np.asarray(value)).all() for value in said.values())
    return state


def pays(bonus: AnyBonus, state: Any, steps: Steps) -> np.ndarray:
    """What each step is paid."""
    _, rewards, _ = compiled(bonus)[1](state, steps)
    assert rewards.shape == steps.done.shape
    return np.asarray(rewards)


QUIET = tuple((seed, False) for seed in range(2))
LOUD = tuple((seed, True) for seed in range(10, 12))


@lru_cache
def known(lessons: tuple[tuple[int, bool], ...]) -> BesideState[Any]:
    """Change-surprise after these lessons, with models beside it."""
    before = known(lessons[:-1]) if len(lessons) > 1 else None
    state = taught(make_bonus("change-surprise", SPACE, TINY, models=True), before, play(*lessons[-1]))
    assert isinstance(state, BesideState)
    return state


def models(lessons: tuple[tuple[int, bool], ...]) -> ModelState:
    """The models as a bonus about edges reads them."""
    bonus = make_bonus("elden", SPACE, READ)
    assert isinstance(bonus, ModelBonus)
    return ModelState(known(lessons).model.ensemble, bonus.remember(ENVS))


# A reaction whose outcome stays unknown.


def test_an_unpredictable_reaction_is_paid_until_it_is_known_that_it_happens() -> None:
    bonus = make_bonus("change-surprise", SPACE, TINY)
    pushes = play(99, True, action=PUSH)
    unknown = pays(bonus, known(QUIET).bonus, pushes)
    np.testing.assert_allclose(unknown, 1 / 3, rtol=1e-6)  # the ball in every step, and nothing else
    np.testing.assert_array_equal(pays(bonus, known(QUIET).bonus, play(99, False)), 0.0)
    after = pays(bonus, known(QUIET + LOUD).bonus, pushes)
    assert after.mean() < 0.02 * unknown.mean()


def test_curiosity_goes_on_paying_for_an_outcome_that_no_model_can_know() -> None:
    curious = make_bonus("curiosity", SPACE, TINY)
    assert isinstance(curious, ModelBonus)
    state = ModelState(known(LOUD).model.ensemble, curious.remember(ENVS))
    amounts, _ = jax.jit(curious.item_rewards)(state, play(99, True, action=PUSH).transitions())
    each = np.asarray(amounts).mean((0, 2))
    assert each[HAND] < 0.05
    assert each[BALL] == pytest.approx(2 / 3, abs=0.05)  # one of three places
    assert each[COIN] == pytest.approx(1 / 2, abs=0.05)


# Noise.


def test_noise_is_an_event_only_until_it_is_known_to_be_noise() -> None:
    bonus = make_bonus("change-surprise", SPACE, TINY)
    still = taught(bonus, None, *(play(seed, False, flips=False) for seed in range(2)))
    steps = play(99, False)
    flipped = np.asarray(steps.obs != steps.next_obs)[..., COIN]
    assert 0.4 < flipped.mean() < 0.6
    np.testing.assert_allclose(pays(bonus, still, steps), flipped / 3, rtol=1e-6)
    noisy = pays(bonus, taught(bonus, still, *(play(seed, False) for seed in range(2))), steps)
    assert noisy.mean() < 0.02 * flipped.mean() / 3


def test_noise_is_worth_little_to_counts_beside_something_new() -> None:
    bonus = ChangeCount(SPACE)
    steps = play(99, False, action=WAIT)
    state = bonus.init(jax.random.key(0), ENVS)
    first = pays(bonus, state, steps).sum()
    episodes = ENVS * TIME // EPISODE
    assert first == pytest.approx(episodes / 3)  # the coin turns at least once in sixteen steps
    state = taught(bonus, state, *(play(seed, False, action=WAIT) for seed in range(3)))
    assert state.counts.tolist() == [0, 0, 3 * episodes]
    assert pays(bonus, state, steps).sum() == pytest.approx(first * (3 * episodes + 1) ** -0.5)
    new = pays(bonus, state, play(99, True, flips=False, action=PUSH))
    np.testing.assert_allclose(new[0], 2 / 3, rtol=1e-6)  # hand and ball, undiminished


# What everyone takes to be impossible.


@pytest.mark.parametrize("name", ["change-surprise", "change-count", "influence-count"])
def test_a_change_that_every_member_takes_to_be_impossible_is_paid_at_once(name: str) -> None:
    bonus = make_bonus(name, SPACE, TINY)
    lessons = (play(*each) for each in QUIET)
    state = known(QUIET).bonus if name == "change-surprise" else taught(bonus, None, *lessons)
    usual, new = pays(bonus, state, sudden(0)), pays(bonus, state, sudden(1))
    np.testing.assert_allclose(new[0] - usual[0], 1 / 3, rtol=1e-4)
    if name == "change-surprise":
        assert usual.max() == 0.0


def sudden(places: int) -> Steps:
    """Pushes that turn the hand as ever; in the first of them the ball jumps by so many places."""
    steps = play(99, False, action=PUSH)
    return replace(steps, next_obs=steps.next_obs.at[0, :, BALL].set((steps.obs[0, :, BALL] + places) % 4))


def test_members_that_agree_that_there_is_no_edge_pay_nothing_for_a_new_one() -> None:
    bonus = make_bonus("elden", SPACE, READ)
    assert pays(bonus, models(QUIET), sudden(1)).max() == 0.0


def test_the_models_find_the_edge_that_explains_a_reaction() -> None:
    bonus, pushes = make_bonus("dependency-surprise", SPACE, READ), play(99, True, action=PUSH)
    assert isinstance(bonus, DependencySurprise)
    read, flips = jax.jit(bonus.hindsight), np.asarray(pushes.obs != pushes.next_obs)[..., COIN].mean()
    for lessons, explained in ((QUIET, 0.0), (LOUD, 1.0)):
        bits, _ = read(models(lessons), pushes.transitions())
        seen = np.asarray(bits).reshape(-1, 3, 5).mean(0)
        np.testing.assert_allclose(seen[HAND], [0.0, 0.0, 0.0, 1.0, 0.0], atol=0.05)
        np.testing.assert_allclose(seen[BALL], [0.0, 0.0, 0.0, explained, 1.0 - explained], atol=0.05)
        np.testing.assert_allclose(seen[COIN], [0.0, 0.0, 0.0, 0.0, flips], atol=0.05)  # it has no parent


# Local graphs in hindsight.


@dataclass(frozen=True)
class Agreed(ModelBonus):
    """Members who see the same edges in every step; where `blind`, only own ones."""

    blind: bool = False

    def item_rewards(self, state: ModelState, seen: Transitions) -> tuple[Float[Array, "step child item"], Metrics]:
        """The share of members that sees each edge."""
        share = jnp.asarray([[1.0, 0.5, 0.2, 0.6], [0.9, 1.0, 0.0, 0.9], [0.1, 0.4, 1.0, 0.0]])
        share = jnp.eye(3, 4) if self.blind else share
        return jnp.broadcast_to(share, (seen.obs.shape[0], 3, 4)), {}


SEEN = np.array([[False, False, False, True], [True, False, False, True], [False] * 4])
"""What most of them see, apart from self-edges."""


def told(blind: bool = False, permuted: bool = False) -> DependencySurprise:
    """Dependency-surprise that reads graphs from them."""
    bonus = make_bonus("dependency-surprise", SPACE, READ, dependency=DependencyConfig(WHETHER, permuted=permuted))
    assert isinstance(bonus, DependencySurprise)
    return replace(bonus, consensus=Agreed(SPACE, bonus.consensus.signal, READ.ensemble, blind=blind))


def uncounted() -> EdgeCountState:
    """Edge-count before anything is counted."""
    nothing = Episodes.init(ENVS, 15)
    return EdgeCountState(models(QUIET), jnp.zeros(15, jnp.int32), nothing, nothing)


@pytest.mark.parametrize("blind", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_link_that_fires_for_the_first_time_is_paid_at_once(blind: bool) -> None:
    bonus = told(blind)
    networks = jax.jit(bonus.networks.init)(jax.random.key(0))
    state = DependencyState(models(QUIET), networks, Episodes.init(ENVS, 15))
    state = taught(bonus, state, *(play(*each) for each in QUIET))
    assert pays(bonus, state, sudden(0)).max() == 0.0
    new = pays(bonus, state, sudden(1))
    edges = 1 if blind else 2  # both of the ball's, or that it has none
    np.testing.assert_allclose(new[0], edges / 15, rtol=1e-5)
    assert new[1:].max() == 0.0
    after = taught(bonus, state, *(play(*each) for each in LOUD))
    assert pays(bonus, after, play(99, True)).mean() < 0.05 / 15  # known by now
    assert int(after.model.ensemble.ring.size) == 2048  # full: the models were given the lessons, too
    count = EdgeCount(bonus)
    np.testing.assert_allclose(pays(count, uncounted(), sudden(1))[0] - pays(count, uncounted(), sudden(0))[0], 1 / 3)


def edges_of(permuted: bool, steps: Steps) -> tuple[np.ndarray, np.ndarray]:
    """The edges, and which changes have none."""
    bits, said = jax.jit(told(permuted=permuted).hindsight)(models(QUIET), steps.transitions())
    edges, unexplained = np.split(np.asarray(bits).reshape(-1, 3, 5), [4], axis=-1)
    assert float(said["graph/unexplained"]) == pytest.approx(unexplained.mean())
    return edges, unexplained[..., 0]


def test_only_what_changed_has_parents_and_a_permutation_keeps_their_number() -> None:
    steps = play(99, True)
    change = np.asarray(steps.obs != steps.next_obs).reshape(-1, 3)
    assert 0.2 < change.mean() < 0.8
    edges, unexplained = edges_of(False, steps)
    np.testing.assert_array_equal(edges, change[..., None] & SEEN)
    np.testing.assert_array_equal(unexplained, change & [False, False, True])
    mixed, still_unexplained = edges_of(True, steps)
    np.testing.assert_array_equal(mixed.sum(-1), edges.sum(-1))
    np.testing.assert_array_equal(still_unexplained, unexplained)
    jumped = mixed[change[:, BALL], BALL]
    np.testing.assert_allclose(jumped.mean(0), 2 / 4, atol=0.12)  # two edges, from any of four


def test_edges_can_be_asked_about_alone() -> None:
    steps, bonus = play(99, True), told()
    alone = replace(bonus, config=replace(bonus.config, unexplained=False))
    (both, _), (edges, said) = (jax.jit(each.hindsight)(models(QUIET), steps.transitions()) for each in (bonus, alone))
    both, edges = (np.asarray(bits).reshape(-1, 3, 5) for bits in (both, edges))
    np.testing.assert_array_equal(edges[..., :4], both[..., :4])
    assert both[..., 4].any()
    assert not edges[..., 4].any()
    assert float(said["graph/unexplained"]) == pytest.approx(both[..., 4].mean())


def test_edges_are_counted_once_in_an_episode() -> None:
    bonus, steps = EdgeCount(told()), play(99, True)
    change = np.asarray(steps.obs != steps.next_obs)
    bits = np.zeros((TIME, ENVS, 3, 5), np.bool_)
    bits[..., :4], bits[..., COIN, 4] = change[..., None] & SEEN, change[..., COIN]
    first, _ = slow_first(bits.reshape(TIME, ENVS, 15), np.asarray(steps.done), np.zeros((ENVS, 15), np.bool_))
    begin = replace(uncounted(), counts=jnp.arange(15, dtype=jnp.int32))
    worth = (first / np.sqrt(np.arange(15) + 1.0)).reshape(TIME, ENVS, 3, 5)
    np.testing.assert_allclose(pays(bonus, begin, steps), worth.max(-1).mean(-1), rtol=1e-5)
    state = taught(bonus, begin, steps)
    np.testing.assert_array_equal(state.counts, np.arange(15) + first.sum((0, 1)))
    assert first.sum() > 0


# Changes.

PLACE, GRIP, HEIGHT = range(3)
MIXED = Space(
    Factors(
        (
            Entity("arm", (Variable("place", Continuous(2, -9.0, 9.0)), Variable("grip", Discrete(3)))),
            Entity("box", (Variable("height", Continuous(1, -9.0, 9.0)),)),
        )
    ),
    Discrete(2),
)


def test_a_continuous_variable_changes_by_a_thousandth_of_its_deviation_and_a_discrete_one_always() -> None:
    rows = np.random.default_rng(0).normal([0.0, 5.0, 1.0, 0.0], [1.0, 3.0, 0.5, 0.1], (50, 4)).astype(np.float32)
    see = jax.jit(lambda some, more: Spread.init(4).see(some).see(more))
    spread = see(jnp.asarray(rows[:20]), jnp.asarray(rows[20:].reshape(5, 6, 4)))
    np.testing.assert_allclose(spread.mean, rows.mean(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(spread.deviation, rows.std(0), rtol=1e-4)
    moves = rows.std(0) * np.array(
        [
            [0.9e-3, -0.9e-3, 0.0, 0.9e-3],
            [0.0, -1.1e-3, 0.0, 0.0],
            [0.0, 0.0, 0.0, 1.1e-3],
            [1.1e-3, 0.0, 0.0, -1.1e-3],
        ]
    )
    moves = np.concatenate([moves, [[0.0, 0.0, 1e-4, 0.0]]])  # far less than its deviation
    before = jnp.zeros((5, 4), jnp.float32)
    bits, whole = jax.jit(
        lambda after: [changed(MIXED.factors, before, after, spread, each) for each in ("variable", "entity")]
    )(jnp.asarray(moves, jnp.float32))
    assert bits.tolist() == [
        [False, False, False],
        [True, False, False],
        [False, False, True],
        [True, False, True],
        [False, True, False],
    ]
    assert whole.tolist() == [[False, False], [True, False], [False, True], [True, True], [True, False]]


def test_counts_in_a_mixed_space_pay_for_moves_that_count() -> None:
    bonus = ChangeCount(MIXED)
    state = bonus.init(jax.random.key(0), 1)
    ends = [False] * 4
    lesson = np.zeros((4, 4), np.float32)
    lesson[:, 3] = [-2.0, 2.0, -2.0, 2.0]  # the height has a deviation of 2, the place has none
    state, _ = compiled(bonus)[2](state, jax.random.key(0), steps_of(lesson, lesson, ends))
    assert state.counts.tolist() == [0, 0, 0]
    after = np.zeros((4, 4), np.float32)
    after[0, 3], after[1, 3], after[2, 2], after[3, 0] = 1e-3, 3e-3, 2.0, 1e-6
    rewards = pays(bonus, state, steps_of(np.zeros((4, 4), np.float32), after, ends))
    np.testing.assert_allclose(rewards[:, 0], [0.0, 1 / 2, 1 / 2, 1 / 2])


PLAIN = Space(
    Factors(
        (
            Entity("arm", (Variable("place", Discrete(3)), Variable("grip", Discrete(3)))),
            Entity("box", (Variable("height", Discrete(3)),)),
        )
    ),
    Discrete(2),
)
EVENTS = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1], [1, 1, 1], [0, 1, 0]], np.int32)
"""Which variables change, in two episodes of one environment, of which the second goes on."""
ENDS = [False, False, True, False, False]


def by_hand(power: float = 0.5, by_entity: bool = True) -> tuple[ChangeCount, CountState, Steps]:
    bonus = ChangeCount(PLAIN, CountConfig(power, by_entity))
    state = replace(bonus.init(jax.random.key(0), 1), counts=jnp.asarray([3, 0, 8], jnp.int32))
    return bonus, state, steps_of(np.ones_like(EVENTS), 1 + EVENTS, ENDS)


@pytest.mark.parametrize(
    ("power", "by_entity", "expected"),
    [
        (0.5, True, [1 / 4, 1 / 2, 1 / 6, (1 + 1 / 3) / 2, 0.0]),
        (0.5, False, [1 / 6, 1 / 3, 1 / 9, (1 / 2 + 1 + 1 / 3) / 3, 0.0]),
        (1.0, True, [1 / 8, 1 / 2, 1 / 18, (1 + 1 / 9) / 2, 0.0]),
    ],
)
def test_a_change_is_worth_a_power_of_its_count_once_in_an_episode(
    power: float, by_entity: bool, expected: list[float]
) -> None:
    bonus, state, steps = by_hand(power, by_entity)
    after, rewards, _ = compiled(bonus)[1](state, steps)
    np.testing.assert_allclose(rewards[:, 0], expected, rtol=1e-6)
    assert after.counts.tolist() == [3, 0, 8]  # nothing is counted by being paid
    again = pays(bonus, after, steps)
    assert again[:2, 0].tolist() == [0.0, 0.0]  # the second episode goes on, and had all of it
    np.testing.assert_allclose(again[3:, 0], expected[3:], rtol=1e-6)


def test_changes_are_counted_once_in_an_episode_and_variable() -> None:
    bonus, state, steps = by_hand()
    state, _ = compiled(bonus)[2](state, jax.random.key(0), steps)
    assert state.counts.tolist() == [3 + 2, 0 + 2, 8 + 2]
    later, _ = compiled(bonus)[2](state, jax.random.key(0), steps)
    assert later.counts.tolist() == [5 + 1, 2 + 1, 10 + 1]  # the first three steps end an episode that had all
    again, _ = compiled(bonus)[2](forget_episodes(state), jax.random.key(0), steps)
    assert again.counts.tolist() == [5 + 2, 2 + 2, 10 + 2]


# Payment.


def slow_first(bits: np.ndarray, done: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which bits are the first of theirs in an episode, and what has been seen by the end, step by step."""
    first, seen = np.zeros_like(bits), seen.copy()
    for t, env in np.ndindex(*done.shape):
        first[t, env] = bits[t, env] & ~seen[env]
        seen[env] = False if done[t, env] else seen[env] | bits[t, env]
    return first, seen


def test_the_first_in_an_episode_is_so_across_calls_and_until_its_last_step() -> None:
    rng = np.random.default_rng(0)
    bits, done = rng.random((40, 3, 4)) < 0.3, rng.random((40, 3)) < 0.15
    expected, seen = slow_first(bits, done, np.zeros((3, 4), np.bool_))
    memory, parts = Episodes.init(3, 4), []
    for part in (slice(0, 13), slice(13, 40)):
        memory, first = memory.first(jnp.asarray(bits[part]), jnp.asarray(done[part]))
        parts.append(first)
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    np.testing.assert_array_equal(memory.seen, seen)
    assert 0 < expected.sum() < bits.sum()
    # The last step of an episode belongs to it: what was seen is not new in it, and what is seen in it is forgotten.
    one = jnp.ones((3, 1, 1), jnp.bool_)
    _, first = Episodes.init(1, 1).first(one, jnp.asarray([[False], [True], [False]]))
    assert first.ravel().tolist() == [True, False, True]
    assert not forget_episodes({"bonus": memory})["bonus"].seen.any()


# Models beside a bonus.


def test_models_beside_a_bonus_learn_and_leave_what_is_paid_as_it_is() -> None:
    bonus, bare = make_bonus("change-surprise", SPACE, TINY, models=True), make_bonus("change-surprise", SPACE, TINY)
    assert isinstance(bonus, Beside)
    assert bonus.name == bare.name
    assert bonus.bonus == bare
    state, steps = known(QUIET), play(99, True)
    after, rewards, _ = compiled(bonus)[1](state, steps)
    np.testing.assert_array_equal(rewards, pays(bare, state.bonus, steps))
    assert rewards.max() > 0
    assert_equal(after.model, state.model)

    init, _, update = compiled(bonus)
    begin = init(jax.random.key(0), ENVS)
    once, said = update(begin, jax.random.key(0), play(*QUIET[0]))
    twice, later = update(once, jax.random.key(1), play(*QUIET[1]))
    chance = np.log(2)  # of the coin, below which no model gets
    assert 0 < float(later["dynamics/nll"]) - chance < 0.5 * (float(said["dynamics/nll"]) - chance)
    assert int(twice.model.ensemble.ring.size) == 2 * TIME * ENVS
    alone, _ = compiled(bare)[2](begin.bonus, jax.random.split(jax.random.key(0))[0], play(*QUIET[0]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), alone, once.bonus)


@pytest.mark.parametrize("name", ["elden", "curiosity", "dependency-surprise", "edge-count", "graph-count"])
def test_a_bonus_that_has_models_needs_none_beside_it(name: str) -> None:
    assert make_bonus(name, SPACE, TINY, models=True) == make_bonus(name, SPACE, TINY)


# Settings.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"members": 0}, "members=0"),
        ({"capacity": -1}, "capacity=-1"),
        ({"measure": "novelty"}, "measure='novelty'"),
        ({"measure": "disagreement", "members": 1}, "cannot disagree"),
        ({"updates": 0}, "updates=0"),
        ({"learning_rate": 0.0}, "learning_rate=0.0"),
        ({"hidden": (0,)}, "hidden="),
    ],
)
def test_impossible_settings_are_refused(changes: dict[str, object], message: str) -> None:
    settings = WhetherConfig()
    for name, value in changes.items():
        object.__setattr__(settings, name, value)  # past the type checks of the suite, which users do not have
    with pytest.raises(ValueError, match=message):
        settings.__post_init__()


# Measures.


def worth(config: WhetherConfig, logits: list[list[float]], bits: list[bool]) -> np.ndarray:
    """What bits are worth to members that expect the same of every step: a row of logits for each."""
    networks = Whether(PLAIN, len(bits), replace(config, members=len(logits)))
    inputs = PLAIN.factors.encoded_width + PLAIN.action.encoded_size
    layer = Dense(jnp.zeros((len(logits), inputs, len(bits))), jnp.asarray(logits, jnp.float32))
    state = WhetherState(Fitted.init(config, Mlp((layer,), "relu", False)), None, None)
    nowhere = jnp.zeros((1, 3), jnp.int32)
    amounts = jax.jit(networks.rewards)(state, Transitions(nowhere, nowhere[:, 0], nowhere), jnp.asarray([bits]))
    return np.asarray(amounts[0])


def test_an_event_is_what_was_nearly_impossible() -> None:
    rare = float(np.log(0.01 / 0.99))
    few = float(np.log(0.045 / 0.955))  # a surprise of 3.1 nats, of which 0.18 were expected
    logits = [[rare, rare, few, -rare]] * 2
    assert worth(SMALL, logits, [True, False, True, False]).tolist() == [1.0, 0.0, 0.0, 1.0]
    assert worth(replace(SMALL, excess=5.0), logits, [True, False, True, False]).tolist() == [0.0] * 4
    # One in a hundred was expected: it is paid that much less, and so is what happens in the other ninety-nine.
    centred = worth(replace(SMALL, centred=True), logits, [True, False, True, False])
    np.testing.assert_allclose(centred, [0.99, -0.01, 0.0, 0.99], atol=1e-6)


def test_excess_is_never_negative_and_zero_on_average_before_it_is_cut() -> None:
    p = np.array([0.5, 0.1, 0.02, 0.9])
    logits = np.log(p / (1 - p)).tolist()
    entropy = -p * np.log(p) - (1 - p) * np.log(1 - p)
    config = replace(SMALL, measure="excess")
    yes, no = (worth(config, [logits], [bit] * 4) for bit in (True, False))
    np.testing.assert_allclose(yes, np.maximum(-np.log(p) - entropy, 0.0), atol=1e-5)
    np.testing.assert_allclose(no, np.maximum(-np.log(1 - p) - entropy, 0.0), atol=1e-5)
    raw = [excess_surprise(jnp.asarray([[logits]], jnp.float32), jnp.full((1, 4), bit)) for bit in (True, False)]
    np.testing.assert_allclose(p * raw[0][0, 0] + (1 - p) * raw[1][0, 0], 0.0, atol=1e-6)
    assert float(raw[1][0, 0, 1]) < 0 == no[1]
    # Members are averaged before the cut: one that foresaw it makes up for one that did not.
    mixed = worth(config, [[2.0], [-2.0]], [True])
    alone = [float(excess_surprise(jnp.full((1, 1, 1), x), jnp.ones((1, 1), jnp.bool_))[0, 0, 0]) for x in (2.0, -2.0)]
    assert mixed.tolist() == pytest.approx([sum(alone) / 2])


def test_disagreement_is_what_members_know_differently_whatever_happens() -> None:
    config = replace(SMALL, measure="disagreement")
    same, apart = [3.0, -1.0], [30.0, -1.0]
    np.testing.assert_allclose(worth(config, [same, same], [True, True]), 0.0, atol=1e-6)
    for bit in (True, False):
        np.testing.assert_allclose(worth(config, [apart, [-30.0, -1.0]], [bit, bit]), [np.log(2), 0.0], atol=1e-6)


def test_progress_is_nothing_at_first_and_what_was_learnt_since() -> None:
    networks = Whether(SPACE, 2, replace(SMALL, measure="progress"))
    state, seen = jax.jit(networks.init)(jax.random.key(0)), play(0, False).transitions()
    bits = jnp.broadcast_to(jnp.asarray([True, False]), (seen.obs.shape[0], 2))
    progress, update = jax.jit(networks.rewards), jax.jit(networks.update)
    surprises = jax.jit(lambda members: surprise(networks.logits(members, seen), bits).mean(0))
    assert float(progress(state, seen, bits).max()) == 0.0
    begin = surprises(state.fitted.parameters)
    state, _ = update(state, jax.random.key(0), seen, bits)
    gained = np.asarray(progress(state, seen, bits))
    np.testing.assert_allclose(gained, np.maximum(begin - surprises(state.fitted.parameters), 0.0), atol=1e-6)
    assert gained.mean() > 0.05
    assert progress(state, seen, ~bits).mean() < 0.2 * gained.mean()  # the contrary was unlearnt
    for number in range(60):
        state, _ = update(state, jax.random.key(number), seen, bits)
    assert progress(state, seen, bits).mean() < 0.2 * gained.mean()  # nothing is left to learn


# E3B and NovelD against their formulas, written out.


def halves(steps: Steps) -> tuple[Steps, Steps]:
    """Two rollouts, the first of which ends within an episode."""
    first, rest = (jax.tree.map(lambda part, piece=piece: part[piece], steps) for piece in (slice(20), slice(20, 40)))
    return first, rest


def test_the_elliptical_bonus_is_its_formula() -> None:
    bonus = E3b(SPACE, TINY.fit)
    state = compiled(bonus)[0](jax.random.key(0), ENVS)
    pieces, rewards, now = halves(play(99, True)), [], state
    for piece in pieces:
        now, paid, _ = compiled(bonus)[1](now, piece)
        rewards.append(np.asarray(paid))
    parts = zip(*((p.obs, p.next_obs, p.done) for p in pieces), strict=True)
    obs, next_obs, done = (np.concatenate(part) for part in parts)
    features = jax.jit(lambda mlp, obs: mlp(SPACE.factors.one_hot(obs)))
    before, phi = (np.asarray(features(state.icm.parameters.features, each), np.float64) for each in (obs, next_obs))
    fresh = 0.1 * np.eye(phi.shape[-1])
    expected, matrices = np.zeros(done.shape), [fresh] * ENVS
    for t, env in np.ndindex(*done.shape):
        if t == 0 or done[t - 1, env]:  # the episode's first state is one that it has shown
            matrices[env] = matrices[env] + np.outer(before[t, env], before[t, env])
        expected[t, env] = phi[t, env] @ np.linalg.inv(matrices[env]) @ phi[t, env]
        matrices[env] = fresh if done[t, env] else matrices[env] + np.outer(phi[t, env], phi[t, env])
    np.testing.assert_allclose(np.concatenate(rewards), expected, rtol=2e-3)
    assert done.any()
    assert expected[EPISODE].mean() > 3 * expected[EPISODE - 1].mean()  # everything is new to a new episode
    _, again, _ = compiled(bonus)[1](forget_episodes(now), pieces[0])
    np.testing.assert_allclose(again, rewards[0], rtol=1e-5)


def test_noveld_pays_for_crossing_into_novel_states_once_in_an_episode() -> None:
    bonus = NovelD(SPACE, TINY.fit, alpha=0.8)
    state = compiled(bonus)[0](jax.random.key(0), ENVS)
    novelty = jax.jit(Rnd(SPACE, TINY.fit).errors)
    every = jnp.asarray(np.stack(np.unravel_index(np.arange(16), (2, 4, 2)), 1), jnp.int32)
    assert len(set(places(StateCount(SPACE).whole(every), 14).tolist())) == 16  # no two states share a place
    now, count = state, {True: 0, False: 0}
    visited: list[set[tuple[int, ...]]] = [set() for _ in range(ENVS)]
    begins = np.ones(ENVS, bool)
    for piece in halves(play(99, True)):
        now, rewards, _ = compiled(bonus)[1](now, piece)
        after, before = (np.asarray(novelty(state.rnd, each)) for each in (piece.next_obs, piece.obs))
        expected = np.maximum(after - 0.8 * before, 0.0)
        for t, env in np.ndindex(*piece.done.shape):
            here, where = (tuple(np.asarray(obs)[t, env].tolist()) for obs in (piece.obs, piece.next_obs))
            visited[env] |= {here} if begins[env] else set()
            begins[env] = piece.done[t, env]
            count[where in visited[env]] += 1
            expected[t, env] *= where not in visited[env]
            visited[env] = set() if piece.done[t, env] else visited[env] | {where}
        np.testing.assert_allclose(rewards, expected, rtol=1e-4, atol=1e-6)
        assert (expected > 0).any()
    assert min(count.values()) > 10
    first = halves(play(99, True))[0]
    np.testing.assert_array_equal(pays(bonus, forget_episodes(now), first), pays(bonus, state, first))
    assert (pays(bonus, now, first) != pays(bonus, state, first)).any()


# The entropy of a policy.


def policy(*logits: float) -> ActorCritic:
    """A policy that has these logits in every state, and values that are 0."""
    policy, values = (
        Mlp((Dense(jnp.zeros((2, len(bias))), jnp.asarray(bias)),), "tanh", False) for bias in (logits, (0.0,))
    )
    return ActorCritic(policy, jnp.zeros(0), values)


def entropy_weights(target: float, *policies: tuple[float, ...]) -> list[float]:
    """What the loss weighs the entropy by: nothing else is in it where all went as expected."""
    ppo = Ppo(PpoConfig(entropy=0.01, entropy_target=target, entropy_gain=4.0, hidden=()), Categorical(4), 2)
    action, weights, loss = jnp.zeros(3, jnp.int32), [], jax.jit(ppo.loss)
    for logits in policies:
        log_prob = jnp.full(3, logits[0] - np.log(np.exp(logits).sum()), jnp.float32)
        batch = Experience(jnp.zeros((3, 2)), action, log_prob, jnp.zeros(3), jnp.zeros((3, 1)))
        total, said = loss(policy(*logits), batch)
        weights.append(-float(total) / float(said["policy/entropy"]))
    return weights


def test_entropy_weighs_more_the_more_of_it_is_lacking() -> None:
    much, some, none = (0.5, 0.0, 0.0, 0.0), (2.0, 0.0, 0.0, 0.0), (12.0, 0.0, 0.0, 0.0)
    p = np.exp(some) / np.exp(some).sum()
    share = -float((p * np.log(p)).sum()) / np.log(4)
    assert 0.5 < share < 0.9
    np.testing.assert_allclose(entropy_weights(0.0, much, some, none), 0.01, rtol=1e-3)  # no target
    # Above the target; below it; far below, where it gains the most.
    expected = [1.0, 1.0 + 4.0 * (1.0 - share / 0.9), 1.0 + 4.0]
    np.testing.assert_allclose(entropy_weights(0.9, much, some, none), 0.01 * np.array(expected), rtol=1e-2)


def test_small_advantages_are_not_blown_up() -> None:
    """Where advantages are mere noise the policy stays; without a floor they count as much as large ones."""
    losses = {}
    for floor in (0.0, 0.1):
        ppo = Ppo(PpoConfig(entropy=0.0, value_weight=0.0, advantage_floor=floor, hidden=()), Categorical(2), 2)
        log_prob = jnp.log(jnp.asarray([0.45, 0.55]))  # of what has probability a half now
        advantage = jnp.asarray([1e-4, -1e-4])
        batch = Experience(jnp.zeros((2, 2)), jnp.arange(2, dtype=jnp.int32), log_prob, advantage, jnp.zeros((2, 1)))
        losses[floor] = float(jax.jit(ppo.loss)(policy(0.0, 0.0), batch)[0])
    full = -(0.5 / 0.45 - 0.5 / 0.55) / 2
    assert losses[0.0] == pytest.approx(full, rel=1e-2)
    assert losses[0.1] == pytest.approx(1e-3 * full, rel=1e-2)


# The gate about changes.


def opened(
    kind: Gate, layout: Layout, outputs: Any, before: Any, after: Any, *measures: Float[Array, "child slot"]
) -> list[list[bool]]:
    """The children that count, of each transition."""

    @jax.jit
    def gate(*given: Float[Array, "..."]) -> Bool[Array, "child batch"]:
        action = jnp.zeros(len(after), jnp.int32)
        return GateConfig(kind).open(layout, jnp.asarray(outputs), encode(layout, before, action, after), *given)

    children: list[list[bool]] = gate(*measures).T.tolist()
    return children


def test_the_gate_about_changes_asks_whether_and_not_how() -> None:
    layout = SPACE.layout(TINY.ensemble.network)
    outputs = np.zeros((2, 3, 1, 4, 7), np.float32)  # member child slot value transition; the coin is chance
    outputs[:, HAND, 0, 0] = 20.0  # stays
    outputs[:, BALL, 0, 1] = 20.0  # jumps, to place 1
    after = [[0, 1, 0], [0, 1, 1], [1, 1, 0], [1, 1, 1], [0, 0, 0], [0, 0, 1], [0, 2, 1]]
    usual, hand, ball = ([i == child for i in range(3)] for child in (None, HAND, BALL))
    steps = (jnp.zeros((7, 3), jnp.int32), jnp.asarray(after, jnp.int32), jnp.ones((3, 1)))
    # As usual; the hand turns, against all expectation; the ball should have jumped; it jumped, only elsewhere.
    assert opened("change", layout, outputs, *steps) == [usual, usual, hand, hand, ball, ball, usual]
    assert opened("surprise", layout, outputs, *steps) == [usual, usual, hand, hand, ball, ball, ball]


@pytest.mark.parametrize("unit", [1e-3, 1.0])
def test_the_gate_about_changes_measures_moves_by_typical_ones(unit: float) -> None:
    space = Space(Factors((Entity("box", (Variable("height", Continuous(1, -9.0, 9.0)),)),)), Discrete(2))
    layout = space.layout(TINY.ensemble.network)
    foreseen, after = ([0.0, 0.0, 1.0, 1.0], [0.0, 1.0, 0.0, 1.4])
    outputs = unit * np.array(foreseen, np.float32)[None, None, None, None]
    steps = (jnp.zeros((4, 1)), unit * jnp.asarray(after)[:, None])
    measures = (jnp.full((1, 1), 0.1 * unit), jnp.full((1, 1), unit))  # what predictions are off by, a typical move
    # As foreseen; moved, and should not have; did not, and should have; moved farther than foreseen.
    assert opened("change", layout, outputs, *steps, *measures) == [[False], [True], [True], [False]]


# Habits.

TICKING = Space(
    Factors(
        (
            Entity("clock", (Variable("hand", Discrete(4)),)),
            Entity("counter", (Variable("count", Discrete(60)),)),
            Entity("battery", (Variable("charge", Continuous(1, 0.0, 1.0)),)),
            Entity("lamp", (Variable("on", Discrete(2)),)),
        )
    ),
    Discrete(2),
)
"""A clock goes on by one, a counter counts down and starts again, a battery drains, a lamp rests."""


def tick(rows: np.ndarray) -> np.ndarray:
    """What they do by themselves."""
    clock, counter, battery, lamp = rows.T
    return np.stack([(clock + 1) % 4, (counter - 1) % 60, np.maximum(battery - 0.01, 0.0), lamp], axis=-1)


def ticking(seed: int, length: int = 400) -> Steps:
    """Steps in which nothing happens to them, from states all over."""
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.integers(n, size=length) for n in (4, 60, 1, 2)], axis=-1).astype(np.float32)
    rows[:, 2] = rng.uniform(0.1, 1.0, length)
    return steps_of(rows, tick(rows), [i % 4 == 3 for i in range(length)])


def happening(**now: float) -> Steps:
    """One step from the middle of their ranges, in which some end elsewhere than by themselves."""
    row = np.array([[1.0, 30.0, 0.5, 0.0]], np.float32)
    after = tick(row)
    for name, value in now.items():
        after[0, ["clock", "counter", "battery", "lamp"].index(name)] = value
    return steps_of(row, after, [False])


@pytest.mark.parametrize(
    ("now", "worth"),
    [
        ({}, 0.0),
        ({"clock": 1}, 1.0),  # it stops
        ({"clock": 3}, 1.0),  # it jumps
        ({"counter": 30}, 1.0),
        ({"counter": 31}, 1.0),
        ({"battery": 0.5}, 1.0),  # held
        ({"battery": 1.0}, 1.0),  # charged
        ({"battery": 0.4}, 1.0),  # drained ten times as fast
        ({"battery": 0.489}, 0.0),  # a tenth faster
        ({"lamp": 1}, 1.0),
        ({"lamp": 1, "clock": 1}, 2.0),
    ],
)
def test_what_goes_its_own_way_is_no_event_and_what_is_kept_from_it_is(now: dict[str, float], worth: float) -> None:
    bonus = InfluenceCount(TICKING)
    state = bonus.init(jax.random.key(0), 1)
    for seed in range(2):
        state, _ = compiled(bonus)[2](state, jax.random.key(0), ticking(seed))
    assert np.asarray(state.counts)[[0, 2, 3]].tolist() == [0, 0, 0]
    known = replace(state, counts=jnp.zeros(4, jnp.int32))
    assert float(pays(bonus, known, happening(**now))[0, 0]) == pytest.approx(worth / 4)


def test_the_control_takes_every_tick_for_an_event() -> None:
    bonus = ChangeCount(TICKING)
    state, _ = compiled(bonus)[2](bonus.init(jax.random.key(0), 1), jax.random.key(0), ticking(0))
    assert state.counts.tolist() == [100, 100, 100, 0]
    assert float(pays(bonus, state, happening())[0, 0]) == pytest.approx(3 / 4 * 101**-0.5)
    assert float(pays(bonus, state, happening(clock=1))[0, 0]) == pytest.approx(2 / 4 * 101**-0.5)


def test_before_anything_is_seen_habits_are_to_stay() -> None:
    rng = np.random.default_rng(0)
    before, after = (np.stack([rng.integers(n, size=50) for n in (4, 60, 3, 2)], -1).astype(np.float32) for _ in "ab")
    spread = Spread.init(4).see(jnp.asarray(before))
    habits = Habits.init(TICKING.factors)
    broken = habits.broken(TICKING.factors, spread, jnp.asarray(before), jnp.asarray(after), 1.0)
    expected = changed(TICKING.factors, jnp.asarray(before), jnp.asarray(after), spread)
    assert bool(expected.any(0).all())
    np.testing.assert_array_equal(broken, expected)


def against_habit(habits: Habits, rows: np.ndarray, after: np.ndarray, spread: Spread) -> Bool[np.ndarray, "row 2"]:
    """Whether the lamp and the battery break their habits in each row."""
    broken = habits.broken(TICKING.factors, spread, jnp.asarray(rows), jnp.asarray(after), 1.0)
    return np.asarray(broken)[:, [3, 2]]


def test_only_what_is_rarer_than_known_randomness_breaks_a_habit() -> None:
    """A lamp that is on flickers; off, it rests, but for 3 of 100 times."""
    flips = [(1, 0)] * 50 + [(1, 1)] * 30 + [(0, 0)] * 97 + [(0, 1)] * 3
    rows = np.zeros((2, len(flips), 4), np.float32)
    rows[:, :, 3] = np.array(flips).T
    spread = Spread.init(4).see(jnp.asarray(rows[0]))
    habits = Habits.init(TICKING.factors).see(TICKING.factors, spread, jnp.asarray(rows[0]), jnp.asarray(rows[1]))
    assert against_habit(habits, rows[0], rows[1], spread)[:, 0].tolist() == [False] * 177 + [True] * 3
    p = np.array([98, 3]) / 101  # the 1 that is there before anything is seen included
    expected = -np.log(p[1]) + float(np.sum(p * np.log(p)))
    assert float(habits.excess[3, 0, 1]) == pytest.approx(expected, rel=1e-3)


def test_a_trembling_variable_has_an_event_where_it_jumps() -> None:
    rng = np.random.default_rng(0)
    rows = np.zeros((2, 4000, 4), np.float32)
    rows[:, :, 2] = rng.choice([0.2, 0.8], 4000) + rng.normal(0, 0.01, (2, 4000))
    spread = Spread.init(4).see(jnp.asarray(rows[0]))
    habits = Habits.init(TICKING.factors).see(TICKING.factors, spread, jnp.asarray(rows[0]), jnp.asarray(rows[1]))
    assert np.mean(against_habit(habits, rows[0], rows[1], spread)[:, 1]) < 0.2
    jumps = rows[:, :100].copy()
    jumps[1, :, 2] = 1.0 - jumps[0, :, 2]
    assert against_habit(habits, jumps[0], jumps[1], spread)[:, 1].all()
