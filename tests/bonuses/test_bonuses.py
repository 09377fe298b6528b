"""Bonuses in a tiny world where the right reward is known.

A walker moves between three places; at the last one a lever turns a lamp on and off; a television shows a random
picture at every step, whatever is done.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import some_slow
from jaxtyping import Array, Bool, Float, Int, Key

from elden.bonuses import (
    BONUSES,
    AnyBonus,
    BonusConfig,
    EnsembleConfig,
    FitConfig,
    GateConfig,
    Space,
    beliefs,
    make_bonus,
)
from elden.bonuses.changes import ChangeConfig
from elden.bonuses.composite import Composite, CompositeState
from elden.bonuses.counts import places
from elden.bonuses.dependency import DependencyConfig
from elden.bonuses.disagreement import Disagreement
from elden.bonuses.elden import Dependencies
from elden.bonuses.ensemble import Ensemble, chunked
from elden.bonuses.episodes import Episodes, reward_of_items
from elden.bonuses.influence import CountConfig
from elden.bonuses.model_based import Gate, Judged, ModelBonus, ModelState, WithModels
from elden.bonuses.reading import MajorityReader
from elden.bonuses.registry import settings_read
from elden.dynamics.config import NetworkConfig, TrainConfig
from elden.dynamics.likelihood import Batch, encode
from elden.dynamics.variants import Plain
from elden.factors import Continuous, Discrete, Entity, Factors, Variable
from elden.graphs.gradient import Gradient
from elden.graphs.input_mask import LearntMask
from elden.graphs.reader import Reader
from elden.graphs.registry import DETECTORS
from elden.graphs.thresholds import Rule, automatic, change_threshold
from elden.transitions import Steps, Transitions

STAY, LEFT, RIGHT, PULL = range(4)
SPACE = Space(
    Factors(
        (
            Entity("walker", (Variable("x", Discrete(3)),)),
            Entity("lamp", (Variable("on", Discrete(2)),)),
            Entity("tv", (Variable("picture", Discrete(4)),)),
        )
    ),
    Discrete(4),
)
LAMP, TV = 1, 2
TINY = BonusConfig(
    ensemble=EnsembleConfig(
        network=NetworkConfig(features=(16,), mlp=(16,), heads=2, head_size=8),
        train=TrainConfig(mixup=0.1, penalty=0.0, learning_rate=3e-3, batch_size=64),
        members=3,
        capacity=4096,
        updates=250,
        chunk=64,
    )
)
ENVS = 8


def walk(seed: int, time: int, actions: tuple[int, ...] = (STAY, LEFT, RIGHT, PULL), dead: bool = False) -> Steps:
    """Steps of random actions among these; where `dead`, actions do nothing."""
    rng = np.random.default_rng(seed)
    state = np.stack([rng.integers(0, n, ENVS) for n in (3, 2, 4)], axis=1)
    taken = []
    for t in range(time):
        action = rng.choice(np.array(actions), ENVS)
        after = state.copy()
        if not dead:
            after[:, 0] = np.clip(state[:, 0] + (action == RIGHT) - (action == LEFT), 0, 2)
            after[:, LAMP] ^= (action == PULL) & (state[:, 0] == 2)
        after[:, TV] = rng.integers(0, 4, ENVS)
        taken.append((state, action, after, np.full(ENVS, t == time - 1)))
        state = after
    states, done_actions, following, ends = (np.stack(part) for part in zip(*taken, strict=True))
    whole = [jnp.asarray(part, jnp.int32) for part in (states, done_actions, following)]
    return Steps(whole[0], whole[1], whole[2], jnp.asarray(ends))


# One program each, in place of one for every operation.
encoded = jax.jit(encode, static_argnums=0)
excess_surprise = jax.jit(beliefs.excess_surprise, static_argnums=(0, 3))
opened = jax.jit(GateConfig.open, static_argnums=(0, 1))
added_to = jax.jit(Ensemble.add, static_argnums=0)
encoded_by = jax.jit(Ensemble.encode, static_argnums=0)
outputs_of_all = jax.jit(Ensemble.outputs, static_argnums=0)
recent_of = jax.jit(Ensemble.recent, static_argnums=(0, 2))
reference_of = jax.jit(Ensemble.reference, static_argnums=0)


def little() -> Steps:
    """As many steps as others have, but few different ones."""
    return jax.tree.map(lambda part: jnp.asarray(np.concatenate([part] * 16)), walk(0, 8))  # type: ignore[no-any-return]


def pulls(time: int = 128) -> Steps:
    """Steps in which the lamp changes."""
    steps = walk(5, time)
    obs = steps.obs.at[..., 0].set(2)
    next_obs = steps.next_obs.at[..., 0].set(2).at[..., LAMP].set(1 - obs[..., LAMP])
    return replace(steps, obs=obs, action=jnp.full_like(steps.action, PULL), next_obs=next_obs)


@lru_cache
def compiled(bonus: Any) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """`init`, `reward` and `update`, compiled once for equal bonuses."""
    return jax.jit(bonus.init, static_argnums=1), jax.jit(bonus.reward), jax.jit(bonus.update)


def trained(bonus: AnyBonus, *lessons: Steps) -> object:
    """The bonus's state after these."""
    init, _, update = compiled(bonus)
    state = init(jax.random.key(0), ENVS)
    for number, steps in enumerate(lessons):
        state, _ = update(state, jax.random.key(number), steps)
    return state


@lru_cache
def ignorant() -> ModelState:
    """Models of elden that know little, and disagree about much."""
    state = trained(make_bonus("elden", SPACE, gated()), little())
    assert isinstance(state, ModelState)
    return state


def mean_reward(bonus: AnyBonus, state: object, steps: Steps) -> float:
    _, rewards, _ = compiled(bonus)[1](state, steps)
    assert rewards.shape == steps.done.shape
    assert bool(jnp.isfinite(rewards).all())
    return float(rewards.mean())


def gated(once: bool = False) -> BonusConfig:
    """Networks this small and this smooth have derivatives above the paper's 3e-4 everywhere."""
    gate = GateConfig("information")
    return replace(TINY, gate=gate, once=once, threshold=0.3, measure="information")


@pytest.mark.slow
def test_curiosity_is_caught_by_the_television_and_elden_is_not() -> None:
    lessons = [walk(seed, 128) for seed in range(3)]
    curious, elden = make_bonus("curiosity", SPACE, TINY), make_bonus("elden", SPACE, gated())
    watching = walk(9, 128, (STAY,))
    # The picture is one of four: no model can do better than a quarter, and it is one of three things.
    assert mean_reward(curious, trained(curious, *lessons), watching) == pytest.approx(0.75 / 3, abs=0.05)
    before = mean_reward(elden, ignorant(), watching)
    after = mean_reward(elden, trained(elden, *lessons), watching)
    assert after <= 1e-3 < before


@pytest.mark.parametrize("name", some_slow(["elden", "disagreement"], ["disagreement"]))
def test_an_interaction_that_was_never_seen_is_worth_more_than_what_is_known(name: str) -> None:
    bonus = make_bonus(name, SPACE, gated())
    blind = trained(bonus, *(walk(seed, 128, (STAY, LEFT, RIGHT)) for seed in range(3)))
    known, hidden = mean_reward(bonus, blind, walk(9, 128, (STAY, LEFT, RIGHT))), mean_reward(bonus, blind, pulls())
    assert hidden > 10 * max(known, 1e-4)
    seen = trained(bonus, *(walk(seed, 128) for seed in range(4)))
    assert mean_reward(bonus, seen, pulls()) < hidden / 5


@pytest.mark.slow
def test_an_action_that_influences_nothing_is_worth_nothing_to_cai() -> None:
    bonus = make_bonus("cai", SPACE, TINY)
    alive = trained(bonus, *(walk(seed, 128) for seed in range(2)))
    dead = trained(bonus, *(walk(seed, 128, dead=True) for seed in range(2)))
    moves = mean_reward(bonus, alive, walk(9, 128, (LEFT, RIGHT)))
    nothing = mean_reward(bonus, dead, walk(9, 128, (LEFT, RIGHT), dead=True))
    assert moves > 0.2
    assert abs(nothing) < 0.03


@pytest.mark.parametrize(
    "name",
    some_slow(sorted(set(BONUSES) - {"none", "e3b"}), ["composite", "graph-count", "disagreement", "cai", "curiosity"]),
)
def test_every_bonus_fades_where_it_is_always_the_same(name: str) -> None:
    """And its shape, finiteness, and state are as the interface says."""
    config = TINY if name in ("curiosity", "cai") else gated()
    if name != "elden":  # whose programs other tests compile, too
        config = replace(config, ensemble=replace(config.ensemble, updates=80))
    bonus = make_bonus(name, SPACE, config)
    assert bonus.name == name
    same = walk(1, 128, (STAY,))
    same = replace(same, next_obs=same.obs.at[..., TV].set(0), obs=same.obs.at[..., TV].set(0))
    init, _, update = compiled(bonus)
    start = init(jax.random.key(0), ENVS)
    state, said = start, {}
    for number in range(3):
        state, said = update(state, jax.random.key(number), same)
    assert jax.tree.structure(state) == jax.tree.structure(start)  # type: ignore[operator]
    assert all(np.isfinite(np.asarray(value)).all() for value in said.values())
    assert mean_reward(bonus, state, same) < 0.6 * max(mean_reward(bonus, start, same), 1e-2)


def test_no_bonus_pays_nothing() -> None:
    bonus = make_bonus("none", SPACE)
    assert mean_reward(bonus, bonus.init(jax.random.key(0), ENVS), walk(0, 4)) == 0.0
    assert jax.tree.leaves(bonus.init(jax.random.key(0), ENVS)) == []


def test_an_unknown_bonus_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ValueError, match="curiosity"):
        make_bonus("curiousity", SPACE)
    with pytest.raises(ValueError, match="weights"):
        make_bonus("composite", SPACE, TINY, weights=(1.0,))
    with pytest.raises(ValueError, match="with 'composite'"):
        make_bonus("composite", SPACE, TINY, parts=("elden", "composite"))
    with pytest.raises(ValueError, match="cannot disagree"):
        make_bonus("elden", SPACE, TINY, ensemble=replace(TINY.ensemble, members=1))


def test_the_registry_says_which_settings_each_bonus_reads() -> None:
    """A bonus is another one where a setting that it reads is changed, and the same where one is that it does not."""
    changes: dict[str, Any] = {
        "ensemble": replace(TINY.ensemble, chunk=7),
        "fit": FitConfig(features=3),
        "change": ChangeConfig(granularity="entity"),
        "count": CountConfig(power=1.0),
        "dependency": DependencyConfig(permuted=True),
        "gate": GateConfig("votes"),
        "once": True,
        "detector": "attention",
        "threshold": 0.7,
        "automatic_threshold": True,
        "measure": "information",
        "mode": "gated",
    }
    for name in BONUSES:
        read = settings_read(name, replace(TINY, parts=("rnd", "state-count")))
        for setting, value in changes.items():
            made = [
                make_bonus(name, SPACE, TINY, parts=("rnd", "state-count"), **{setting: one})
                for one in (getattr(TINY, setting), value)
            ]
            quiet = setting == "threshold" and name in ("disagreement", "curiosity", "cai")  # kept, but never compared
            assert (made[0] != made[1]) == (setting in read or quiet), (name, setting)


# Once in an episode.


def slow_mean_reward(items: np.ndarray, done: np.ndarray) -> np.ndarray:
    rewards = np.zeros(done.shape)
    rewarded = np.zeros(items.shape[1:], np.bool_)
    for t, e in np.ndindex(*done.shape):
        for i in range(items.shape[2]):
            if not rewarded[e, i]:
                rewards[t, e] += items[t, e, i] / items.shape[2]
            rewarded[e, i] |= items[t, e, i] > 0
        if done[t, e]:
            rewarded[e] = False
    return rewards


def test_items_are_rewarded_once_in_an_episode_also_across_rollouts() -> None:
    rng = np.random.default_rng(0)
    items = (rng.random((20, 3, 4)) * (rng.random((20, 3, 4)) < 0.3)).astype(np.float32)
    done = rng.random((20, 3)) < 0.2
    nothing, given, ends = Episodes.init(3, 4), jnp.asarray(items), jnp.asarray(done)
    _, whole, metrics = reward_of_items(given, ends, nothing, once=True)
    np.testing.assert_allclose(whole, slow_mean_reward(items, done), rtol=1e-5)
    np.testing.assert_allclose(metrics["bonus/rewarded_steps"], (np.asarray(whole) > 0).mean())
    episodes, first, _ = reward_of_items(given[:7], ends[:7], nothing, once=True)
    _, rest, _ = reward_of_items(given[7:], ends[7:], episodes, once=True)
    np.testing.assert_array_equal(jnp.concatenate([first, rest]), whole)
    _, always, _ = reward_of_items(given, ends, nothing, once=False)
    np.testing.assert_allclose(always, items.mean(-1), rtol=1e-6)


# ELDEN against its formula, written out.


def slow_graphs(bonus: ModelBonus, state: ModelState, steps: Steps) -> tuple[np.ndarray, beliefs.Outputs]:
    """Each member's graph of each transition, and its prediction, member by member."""
    layout, seen = bonus.layout, steps.transitions()
    batch = encoded(layout, seen.obs, seen.action, seen.next_obs)
    reference = reference_of(bonus.ensemble, state.ensemble)
    score, predict = jax.jit(Gradient().scores, static_argnums=0), jax.jit(bonus.ensemble.outputs)
    graphs, outputs = [], []
    for member in range(TINY.ensemble.members):
        model = jax.tree.map(lambda leaf, m=member: leaf[m], state.ensemble.train.model)
        graphs.append(np.asarray(score(layout, model, batch, reference)) >= bonus.threshold)
        outputs.append(predict(jax.tree.map(lambda leaf: leaf[None], model), batch)[0])
    return np.stack(graphs), jnp.stack(outputs)


@pytest.mark.parametrize("kinds", [("none", "surprise"), pytest.param(get_args(Gate), marks=pytest.mark.slow)])
def test_elden_is_its_formula_whatever_the_gate(kinds: tuple[Gate, ...]) -> None:
    config = replace(gated(), threshold=0.05)
    state = ignorant()
    state = replace(state, memory=replace(state.memory, threshold=jnp.float32(0.05)))
    steps = walk(3, 11)  # 88 transitions, which chunks of 64 do not divide
    gates = [GateConfig(kind, excess=0.5) for kind in kinds]
    bonuses = [make_bonus("elden", SPACE, config, gate=gate) for gate in gates]
    assert isinstance(bonuses[0], ModelBonus)
    graphs, outputs = slow_graphs(bonuses[0], state, steps)
    batch = bonuses[0].ensemble.encode(steps.transitions())
    variance = np.var(graphs.astype(np.float64), axis=0, ddof=1)
    means = []
    for bonus in bonuses:
        assert isinstance(bonus, ModelBonus)
        is_open = np.asarray(opened(bonus.gate, bonus.layout, outputs, batch, state.memory.noise)).T
        _, rewards, said = jax.jit(bonus.reward)(state, steps)
        expected = (variance * is_open[..., None]).mean((1, 2)).reshape(steps.done.shape)
        np.testing.assert_allclose(rewards, expected, atol=1e-6)
        assert float(said["graph/density"]) == pytest.approx(graphs[:, is_open.any(1)].mean(), abs=1e-6)
        means.append(float(rewards.mean()))
    assert all(means[0] > mean > 0 for mean in means[1:])


@pytest.mark.slow
def test_runs_side_by_side_are_those_one_after_the_other() -> None:
    bonus = make_bonus("elden", SPACE, replace(gated(once=True), ensemble=replace(TINY.ensemble, updates=20)))
    keys = jax.random.split(jax.random.key(0), 2)
    steps = [walk(seed, 8) for seed in range(2)]

    def run(key: Key[Array, ""], steps: Steps) -> tuple[Float[Array, "time env"], Float[Array, "time env"]]:
        state = bonus.init(key, ENVS)
        state, first, _ = bonus.reward(state, steps)
        state, _ = bonus.update(state, key, steps)
        return first, bonus.reward(state, steps)[1]

    together = jax.jit(jax.vmap(run))(keys, jax.tree.map(lambda *parts: jnp.stack(parts), *steps))
    for number in range(2):
        alone = jax.jit(run)(keys[number], steps[number])
        for one, many in zip(alone, together, strict=True):
            np.testing.assert_allclose(one, many[number], atol=1e-6)


# Beliefs.


def outputs_of(*members: list[list[float]]) -> beliefs.Outputs:
    """Logits of the three variables for one transition, padded to four values."""
    padded = [[child + [0.0] * (4 - len(child)) for child in member] for member in members]
    return jnp.asarray(padded, jnp.float32)[:, :, None, :, None]


def test_chance_that_all_members_know_is_no_information() -> None:
    layout = SPACE.layout(TINY.ensemble.network)
    sure, coin = [20.0, 0.0, 0.0], [0.0, 0.0]
    tv = [0.0, 0.0, 0.0, 0.0]
    known = outputs_of([sure, coin, tv], [sure, coin, tv])
    np.testing.assert_allclose(beliefs.information(layout, known)[:, 0], 0.0, atol=1e-6)
    apart = outputs_of([[20.0, 0.0, 0.0], coin, tv], [[0.0, 20.0, 0.0], coin, tv])
    np.testing.assert_allclose(beliefs.information(layout, apart)[:, 0], [np.log(2), 0.0, 0.0], atol=1e-5)
    np.testing.assert_allclose(beliefs.disagreement(layout, apart)[:, 0], [np.log(2), 0.0, 0.0], atol=1e-5)
    # Votes over a near-uniform prediction differ for ever; information does not see a difference.
    noisy = outputs_of([sure, coin, [1e-3, 0.0, 0.0, 0.0]], [sure, coin, [0.0, 1e-3, 0.0, 0.0]])
    assert float(beliefs.disagreement(layout, noisy)[TV, 0]) == pytest.approx(np.log(2))
    assert float(beliefs.information(layout, noisy)[TV, 0]) < 1e-5


def test_information_of_continuous_variables_is_that_of_their_means() -> None:
    space = Space(Factors((Entity("ball", (Variable("place", Continuous(2, -1.0, 1.0)),)),)), Discrete(2))
    layout = space.layout(TINY.ensemble.network)
    outputs = jnp.asarray([[0.0, 1.0], [0.0, 3.0]], jnp.float32)[:, None, None, :, None]
    np.testing.assert_allclose(beliefs.information(layout, outputs), [[0.5 * np.log(2.0)]], rtol=1e-6)
    np.testing.assert_allclose(beliefs.information(layout, outputs, 0.5), [[0.5 * np.log(5.0)]], rtol=1e-6)
    np.testing.assert_allclose(beliefs.disagreement(layout, outputs), [[2.0]], rtol=1e-6)


def test_information_rewards_what_the_gate_of_that_name_reads() -> None:
    space = Space(Factors((Entity("ball", (Variable("place", Continuous(2, -1.0, 1.0)),)),)), Discrete(2))
    layout = space.layout(TINY.ensemble.network)
    judged = object.__new__(Judged)  # of which only these two are read
    object.__setattr__(judged, "outputs", jnp.asarray([[0.0, 1.0], [0.0, 3.0]], jnp.float32)[:, None, None, :, None])
    object.__setattr__(judged, "noise", jnp.full((1, 1), 0.5, jnp.float32))
    rewards = Disagreement("information").rewards(layout, judged)
    np.testing.assert_allclose(rewards, [[[0.5 * np.log(5.0)]]], rtol=1e-6)


def test_surprise_counts_beyond_what_members_expect() -> None:
    layout = SPACE.layout(TINY.ensemble.network)
    sure, coin, tv = [20.0, 0.0, 0.0], [0.0, 0.0], [0.0, 0.0, 0.0, 0.0]
    state, action = jnp.zeros((1, 3), jnp.int32), jnp.zeros(1, jnp.int32)
    outputs = outputs_of([sure, coin, tv], [sure, coin, [3.0, 0.0, 0.0, 0.0]])

    def excess(*after: int) -> np.ndarray:
        batch = encoded(layout, state, action, jnp.asarray([after], jnp.int32))
        return np.asarray(excess_surprise(layout, outputs, batch)[:, 0])

    p = np.exp([3.0, 0.0, 0.0, 0.0]) / np.exp([3.0, 0.0, 0.0, 0.0]).sum()
    expected = float(-np.log(p[2]) + (p * np.log(p)).sum()) / 2  # of the second member; that of the first is 0
    np.testing.assert_allclose(excess(0, 1, 2), [0.0, 0.0, expected], atol=1e-5)
    # All members are wrong in the same way: there is no information in how they differ, but surprise.
    assert excess(1, 1, 2)[0] == pytest.approx(20.0, abs=1e-3)
    space = Space(Factors((Entity("ball", (Variable("place", Continuous(2, -1.0, 1.0)),)),)), Discrete(2))
    ball, still = space.layout(TINY.ensemble.network), jnp.zeros((1, 2), jnp.float32)
    batch = encoded(ball, still, action, jnp.asarray([[0.0, 0.5]], jnp.float32))
    means = jnp.asarray([[0.0, 1.5], [0.0, 0.5]], jnp.float32)[:, None, None, :, None]
    np.testing.assert_allclose(excess_surprise(ball, means, batch), [[0.25 - 1.0]], rtol=1e-5)
    np.testing.assert_allclose(excess_surprise(ball, means, batch, 0.1), [[25.0 - 1.0]], rtol=1e-5)


def test_kinds_of_variables_do_not_make_up_for_each_other() -> None:
    place, lit = Variable("place", Continuous(3, -1.0, 1.0)), Variable("lit", Discrete(2))
    space = Space(Factors((Entity("lamp", (place, lit)),)), Discrete(2))
    layout = space.layout(replace(TINY.ensemble.network, children="entity"))
    action, before = jnp.zeros(1, jnp.int32), jnp.zeros((1, 4), jnp.float32)
    outputs = jnp.zeros((1, 1, 2, 3, 1), jnp.float32).at[0, 0, 1, :2, 0].set(jnp.asarray([4.0, 0.0]))

    def excess(x: float, lit: int) -> float:
        batch = encoded(layout, before, action, jnp.asarray([[x, 0.0, 0.0, lit]], jnp.float32))
        return float(excess_surprise(layout, outputs, batch, 0.1)[0, 0])

    p = np.exp([4.0, 0.0]) / np.exp([4.0, 0.0]).sum()
    entropy = -float((p * np.log(p)).sum())
    dark, light = -np.log(p) - entropy
    assert dark < 0 < light
    assert excess(0.0, 0) == 0.0  # both were predicted better than expected
    assert excess(0.0, 1) == pytest.approx(light, rel=1e-5)  # a place that is exactly right takes nothing away
    assert excess(0.4, 0) == pytest.approx(0.5 * (16.0 - 3.0), rel=1e-5)
    assert excess(0.4, 1) == pytest.approx(0.5 * (16.0 - 3.0) + light, rel=1e-5)
    # Each member has its own: one that is right does not make up for one that is wrong.
    batch = encoded(layout, before, action, jnp.asarray([[0.0, 0.0, 0.0, 1]], jnp.float32))
    both = jnp.concatenate([outputs, -outputs])  # the second one knew that it would be lit
    assert float(excess_surprise(layout, both, batch, 0.1)[0, 0]) == pytest.approx(light / 2, rel=1e-5)


@pytest.mark.parametrize("kind", ["information", "surprise"])
def test_gates_measure_continuous_variables_by_their_noise(kind: Gate) -> None:
    """The same predictions in other units open the same children."""
    space = Space(Factors((Entity("ball", (Variable("place", Continuous(1, -9.0, 9.0)),)),)), Discrete(2))
    layout, action = space.layout(TINY.ensemble.network), jnp.zeros(2, jnp.int32)
    for unit in (1e-3, 1.0):
        before, after = jnp.asarray([[0.0], [5.0]]) * unit, jnp.asarray([[0.0], [6.0]]) * unit
        batch, noise = encoded(layout, before, action, after), jnp.full((1, 1), 0.1 * unit)
        known, unknown = (
            unit * jnp.asarray(means)[:, None, None, None]
            for means in ([[0.0, 1.01], [0.0, 0.99]], [[0.0, 2.0], [0.0, 1.0]])
        )
        assert not opened(GateConfig(kind), layout, known, batch, noise).any()
        assert opened(GateConfig(kind), layout, unknown, batch, noise).tolist() == [[False, True]]


@pytest.mark.slow
def test_noise_is_what_members_are_off_by_and_a_share_of_typical_changes() -> None:
    place = Variable("place", Continuous(2, -1.0, 1.0))
    space = Space(Factors((Entity("ball", (place, Variable("lit", Discrete(2)))),)), Discrete(2))
    bonus = make_bonus("disagreement", space, replace(TINY, gate=GateConfig("surprise", noise=0.5)))
    assert isinstance(bonus, ModelBonus)
    state = bonus.init(jax.random.key(0), 1)
    assert isinstance(state, ModelState)
    obs = jax.random.uniform(jax.random.key(1), (64, 1, 3), minval=-1.0) * jnp.asarray([1.0, 1.0, 0.0])
    steps = Steps(obs, jnp.zeros((64, 1), jnp.int32), obs * 0.5, jnp.zeros((64, 1), jnp.bool_))
    ensemble = added_to(bonus.ensemble, state.ensemble, steps)
    memory, _ = bonus.adapt(ensemble, state.memory)
    seen = recent_of(bonus.ensemble, ensemble, 64)
    outputs = outputs_of_all(bonus.ensemble, bonus.ensemble.models(ensemble), encoded_by(bonus.ensemble, seen))
    change = np.asarray(seen.next_obs - seen.obs)[:, :2]
    errors = np.asarray(outputs)[:, 0, 0, :2].transpose(0, 2, 1) - change
    typical = np.asarray(reference_of(bonus.ensemble, ensemble).step)[0, 0]
    allowed = (0.5 * typical) ** 2 / 2  # of each of the two components
    assert float(memory.noise[0, 0]) == pytest.approx(np.sqrt(allowed + (errors**2).mean()), rel=1e-4)


# Every detector in a bonus.


@lru_cache
def shown(name: str) -> tuple[ModelBonus, ModelState]:
    """A bonus that reads untrained models with this detector, after it has been shown some steps."""
    ensemble = replace(TINY.ensemble, updates=0)
    bonus = make_bonus("elden", SPACE, TINY, ensemble=ensemble, detector=name, automatic_threshold=True)
    assert isinstance(bonus, ModelBonus)
    state = trained(bonus, walk(0, 64))
    assert isinstance(state, ModelState)
    return bonus, state


@pytest.mark.parametrize("name", DETECTORS)
def test_every_detector_reads_the_members_of_a_bonus(name: str) -> None:
    bonus, state = shown(name)
    assert isinstance(bonus.signal, Dependencies)
    detector = bonus.signal.detector
    score = jax.jit(detector.scores, static_argnums=0)
    models = [jax.tree.map(lambda leaf, m=m: leaf[m], state.ensemble.train.model) for m in range(3)]
    reference = reference_of(bonus.ensemble, state.ensemble)

    def scores(seen: Transitions) -> np.ndarray:
        batch = encoded(bonus.layout, seen.obs, seen.action, seen.next_obs)
        return np.stack([np.asarray(score(bonus.layout, model, batch, reference)) for model in models])

    recent = recent_of(bonus.ensemble, state.ensemble, TINY.ensemble.chunk)
    mask = SPACE.factors.edge_mask("variable", detector.sources(bonus.layout))
    changed = np.asarray(recent.obs != recent.next_obs)  # every entity has one variable
    threshold = automatic(scores(recent).mean(0), changed, mask, detector.threshold_rule)
    assert float(state.memory.threshold) == pytest.approx(threshold, rel=1e-4)
    steps = walk(1, 8)
    graphs = scores(steps.transitions()) >= float(state.memory.threshold)
    assert graphs.any()
    assert not graphs.all()
    _, rewards, _ = compiled(bonus)[1](state, steps)
    expected = np.var(graphs.astype(np.float64), axis=0, ddof=1).mean((1, 2))
    np.testing.assert_allclose(np.asarray(rewards).ravel(), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["input-mask", "attention-mask"])
def test_a_network_that_learns_behind_a_mask_is_read_behind_it(name: str) -> None:
    bonus, state = shown(name)
    ensemble = bonus.ensemble
    models, batch = ensemble.models(state.ensemble), encoded_by(ensemble, walk(1, 8).transitions())
    if name == "input-mask":  # it begins with all inputs seen
        models = replace(models, extra=models.extra | {"bias": models.extra["bias"] - 1e3})
    open_eyed = Ensemble(SPACE, ensemble.config, Plain())
    outputs = np.asarray(outputs_of_all(ensemble, models, batch))
    assert not np.allclose(outputs, outputs_of_all(open_eyed, models, batch))
    if name == "input-mask":  # who may see nothing says the same of everything
        np.testing.assert_allclose(outputs, np.broadcast_to(outputs[..., :1], outputs.shape), atol=1e-6)


@pytest.mark.parametrize(("updates", "rise"), [(1_000_000, (50_000, 100_000)), (50_000, (5_000, 10_000))])
def test_the_schedule_of_a_mask_is_fitted_to_the_training(updates: int, rise: tuple[int, int]) -> None:
    ensemble = replace(TINY.ensemble, schedule=updates)
    for name in ("elden", "graph-count"):
        bonus = make_bonus(name, SPACE, TINY, ensemble=ensemble, detector="input-mask")
        assert isinstance(bonus, WithModels)
        found = bonus.models_in(jax.eval_shape(lambda key, bonus=bonus: bonus.init(key, 2), jax.random.key(0)))
        assert found is not None
        mask = found[0].ensemble.variant
        assert isinstance(mask, LearntMask)
        assert (mask.start, mask.stop) == rise
        assert mask.cooling == 4 * updates


# Small parts.


def test_own_edges_and_those_of_the_rest() -> None:
    mask = Reader(SPACE.layout(TINY.ensemble.network), Gradient()).edge_mask
    assert mask.tolist() == [[False, True, True, True], [True, False, True, True], [True, True, False, True]]


@pytest.mark.slow
def test_a_threshold_is_where_scores_say_best_what_changed() -> None:
    bonus = make_bonus("elden", SPACE, gated(), automatic_threshold=True)
    state = trained(bonus, walk(0, 64))
    assert isinstance(state, ModelState)
    assert isinstance(bonus, ModelBonus)
    seen = recent_of(bonus.ensemble, state.ensemble, TINY.ensemble.chunk)
    batch, reference = encoded_by(bonus.ensemble, seen), reference_of(bonus.ensemble, state.ensemble)
    models = [jax.tree.map(lambda leaf, m=m: leaf[m], state.ensemble.train.model) for m in range(3)]
    score = jax.jit(Gradient().scores, static_argnums=0)
    scores = np.mean([score(bonus.layout, model, batch, reference) for model in models], axis=0)
    changed = np.asarray(seen.obs != seen.next_obs)  # every entity has one variable
    expected = change_threshold(scores, changed, Reader(bonus.layout, Gradient()).edge_mask)
    assert float(state.memory.threshold) == pytest.approx(expected, rel=1e-4)
    assert expected != pytest.approx(TINY.threshold)


def mean_scores(bonus: ModelBonus, state: ModelState, number: int) -> tuple[np.ndarray, Transitions]:
    """The members' mean scores of the steps that the threshold comes from."""
    assert isinstance(bonus.signal, Dependencies)
    seen = recent_of(bonus.ensemble, state.ensemble, number)
    batch, reference = encoded_by(bonus.ensemble, seen), reference_of(bonus.ensemble, state.ensemble)
    score = jax.jit(jax.vmap(bonus.signal.detector.scores, in_axes=(None, 0, None, None)), static_argnums=0)
    return np.asarray(score(bonus.layout, state.ensemble.train.model, batch, reference)).mean(0), seen


@pytest.mark.parametrize("name", ["gradient", "intervention"])
def test_a_threshold_is_found_by_the_rule_of_the_detector(name: str) -> None:
    bonus = make_bonus("elden", SPACE, gated(), automatic_threshold=True, detector=name)
    assert isinstance(bonus, ModelBonus)
    state = ignorant()
    memory, said = jax.jit(bonus.adapt)(state.ensemble, state.memory)
    assert isinstance(bonus.signal, Dependencies)
    rule, mask = bonus.signal.detector.threshold_rule, Reader(bonus.layout, bonus.signal.detector).edge_mask
    scores, seen = mean_scores(bonus, state, TINY.ensemble.chunk)
    changed = np.asarray(seen.obs != seen.next_obs)  # every entity has one variable
    expected = {each: automatic(scores, changed, mask, each) for each in get_args(Rule)}
    assert float(memory.threshold) == pytest.approx(expected[rule], rel=1e-3)
    assert expected["change"] != pytest.approx(expected["otsu"], rel=1e-2)
    reader = MajorityReader(bonus, Reader(bonus.layout, bonus.signal.detector))
    read = jax.jit(reader.automatic)(replace(state, memory=replace(memory, threshold=jnp.float32(7.0))))
    assert float(read.memory.threshold) == pytest.approx(float(said["bonus/threshold"]), rel=1e-3)


def test_a_battery_and_a_noisy_value_do_not_fill_the_graph() -> None:
    """Both change in every step and have no other parent; the graphs of the others stay what they are."""
    battery, level = Entity("battery", (Variable("charge", Discrete(8)),)), Variable("level", Continuous(1, -3.0, 3.0))
    factors = Factors((*SPACE.factors.entities, battery, Entity("noise", (level,))))
    bonus = make_bonus(
        "elden",
        replace(SPACE, factors=factors),
        TINY,
        automatic_threshold=True,
        ensemble=replace(TINY.ensemble, chunk=512, updates=400),
    )
    assert isinstance(bonus, ModelBonus)

    def charged(steps: Steps, seed: int) -> Steps:
        rng, shape = np.random.default_rng(seed), (*steps.done.shape, 1)
        charge = np.broadcast_to(np.arange(shape[0])[:, None, None] % 8, shape)
        before, after = ((charge, (charge + 1) % 8), rng.normal(size=(2, *shape)))
        obs, next_obs = (
            jnp.asarray(np.concatenate([whole, *more], axis=-1), jnp.float32)
            for whole, more in ((steps.obs, (before[0], after[0])), (steps.next_obs, (before[1], after[1])))
        )
        return replace(steps, obs=obs, next_obs=next_obs)

    state = trained(bonus, *(charged(walk(seed, 256), seed) for seed in range(2)))
    assert isinstance(state, ModelState)
    scores, seen = mean_scores(bonus, state, 512)
    graphs = scores >= float(state.memory.threshold)
    other, lit = Reader(bonus.layout, Gradient()).edge_mask, np.asarray(seen.obs != seen.next_obs)[:, LAMP]
    assert graphs[:, other].mean() < 0.3
    assert graphs[lit, LAMP][:, [0, -1]].mean() > 0.5  # the lamp changes by where the walker is, and the action
    assert graphs[~lit, LAMP][:, [0, -1]].mean() < 0.2
    _, rewards, _ = compiled(bonus)[1](state, charged(walk(9, 64), 9))
    assert float(rewards.mean()) > 0


def test_steps_of_late_are_spread_over_time() -> None:
    ensemble = Ensemble(SPACE, replace(TINY.ensemble, updates=0), Plain())
    state = ensemble.init(jax.random.key(0))
    steps = walk(0, 500)
    steps = replace(steps, action=jnp.arange(4000, dtype=jnp.int32).reshape(500, ENVS))
    some: Steps = jax.tree.map(lambda part: part[:1, :3], steps)
    assert set(recent_of(ensemble, added_to(ensemble, state, some), 6).action.tolist()) == {0, 1, 2}
    late = np.asarray(recent_of(ensemble, added_to(ensemble, state, steps), 80).action)
    assert late.min() < 50
    assert np.diff(np.sort(late)).max() < 100  # 50 on average
    assert np.bincount(late % ENVS).min() >= 5  # 10 on average; at equal distances of 50, half of them would have none


def test_steps_are_judged_in_the_number_format_of_the_models() -> None:
    train = replace(TINY.ensemble.train, precision="bfloat16")
    config = replace(gated(), gate=GateConfig("none"), threshold=0.05)
    full, half = (
        make_bonus("elden", SPACE, config, ensemble=replace(config.ensemble, train=each))
        for each in (config.ensemble.train, train)
    )
    assert isinstance(half, ModelBonus)
    state = ignorant()
    assert {leaf.dtype.name for leaf in jax.tree.leaves(half.ensemble.models(state.ensemble))} == {"bfloat16"}
    steps = walk(3, 64)
    exact, near = (np.asarray(compiled(bonus)[1](state, steps)[1]) for bonus in (full, half))
    assert near.dtype == np.float32
    assert 0 < np.abs(near - exact).mean() < 0.2 * exact.mean()


@pytest.mark.slow
def test_parts_of_a_mix_share_their_models() -> None:
    mix = make_bonus("composite", SPACE, gated(), parts=("elden", "curiosity", "rnd"), weights=(1.0, 0.5, 0.0))
    assert isinstance(mix, Composite)
    start = trained(mix)
    assert isinstance(start, CompositeState)
    assert len(start.ensembles) == 1
    state = replace(start, ensembles=(ignorant().ensemble,))
    steps = walk(2, 128)
    parts = [compiled(mix.parts[i])[1](mix.state_of(state, i), steps)[1] for i in range(3)]
    assert 0 < float((parts[0] > 0).mean()) < 1
    _, total, said = compiled(mix)[1](state, steps)
    np.testing.assert_allclose(total, parts[0] + 0.5 * parts[1], rtol=1e-5)
    assert 0 < float(said["graph/density"]) < 1
    only = replace(mix, mode="gated").mixed(parts)
    np.testing.assert_allclose(only, np.where(parts[0] > 0, parts[0] + 0.5 * parts[1], 0.0), rtol=1e-5)


def test_where_no_graph_is_read_there_is_no_density() -> None:
    bonus = make_bonus("elden", SPACE, gated())
    assert isinstance(bonus, ModelBonus)
    state = trained(bonus)
    same = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), state.ensemble.train.model)  # type: ignore[attr-defined]
    agreed = replace(state.ensemble, train=replace(state.ensemble.train, model=same))  # type: ignore[attr-defined]
    _, rewards, said = compiled(bonus)[1](ModelState(agreed, state.memory), walk(9, 128, (STAY,)))  # type: ignore[attr-defined]
    assert float(said["bonus/open"]) == float(jnp.abs(rewards).max()) == 0.0
    assert bool(jnp.isnan(said["graph/density"]))


def test_pieces_cover_everything() -> None:
    index = np.asarray(chunked(10, 4))
    assert index.shape == (3, 4)
    assert sorted(set(index.ravel().tolist())) == list(range(10))


def test_different_states_have_different_places() -> None:
    states: Int[Array, "state 4"] = jnp.asarray(np.stack(np.unravel_index(np.arange(10_000), (10,) * 4), 1), jnp.int32)
    assert len(set(np.asarray(places(states)).tolist())) > 9_900


def test_a_state_is_worth_less_the_more_often_it_was_seen() -> None:
    bonus = make_bonus("state-count", SPACE)
    steps = walk(0, 1)
    same: Steps = replace(steps, next_obs=jnp.zeros_like(steps.next_obs))
    state = bonus.init(jax.random.key(0), ENVS)
    assert mean_reward(bonus, state, same) == 1.0
    state, _ = bonus.update(state, jax.random.key(0), same)
    assert mean_reward(bonus, state, same) == pytest.approx((ENVS + 1) ** -0.5)
    done: Bool[Array, "time env"] = same.done
    assert done.shape == (1, ENVS)


def test_a_continuous_action_of_one_component_is_kept_as_it_is() -> None:
    space = Space(SPACE.factors, Continuous(1, -1.0, 1.0))
    bonus = make_bonus("curiosity", space, TINY, ensemble=replace(TINY.ensemble, updates=0))
    steps = replace(walk(0, 2), action=jnp.full((2, ENVS, 1), 0.25))
    state = trained(bonus, steps)
    assert isinstance(state, ModelState)
    np.testing.assert_array_equal(state.ensemble.ring.items.action[: 2 * ENVS], np.full((2 * ENVS, 1), 0.25))


@pytest.mark.slow
def test_priorities_are_kept_for_what_comes_in() -> None:
    ensemble = replace(TINY.ensemble, train=replace(TINY.ensemble.train, priority=0.5), capacity=100, updates=5)
    bonus = make_bonus("elden", SPACE, gated(), ensemble=ensemble)
    state = trained(bonus, walk(0, 4), walk(1, 20))
    assert isinstance(state, ModelState)
    tree = state.ensemble.train.priorities
    assert tree is not None
    assert tree.size.tolist() == [100, 100, 100]
    assert int(state.ensemble.ring.size) == 100
    assert isinstance(bonus, ModelBonus)
    batch: Batch = encoded_by(bonus.ensemble, recent_of(bonus.ensemble, state.ensemble, 8))
    newest = walk(1, 20).transitions()
    np.testing.assert_array_equal(
        batch.inputs[..., 0], encoded_by(bonus.ensemble, newest[jnp.array([-1])]).inputs[..., 0]
    )
