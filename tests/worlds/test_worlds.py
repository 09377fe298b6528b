"""What holds in every world: laws of reset and step under any actions, ends of episodes, compilation, devices."""

from functools import partial
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import (
    CASES,
    NUM_ENVS,
    SIMILAR,
    TRACES,
    assert_equal,
    legal_many,
    one,
    random_actions,
    reset_many,
    some_slow,
    step_many,
    world_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import elden
from elden.viewing import pictures
from elden.worlds.base import World, WorldOptionError, WorldState

case = pytest.mark.parametrize("case", some_slow(CASES, SIMILAR))
some_cases = pytest.mark.parametrize(
    "case",
    some_slow(
        ["thawing", "carwash-primitives", "minecraft", "kitchen", "chain-continuous"],
        ["carwash-primitives", "minecraft", "kitchen"],
    ),
)


def things_present(world: World, values: np.ndarray) -> np.ndarray:
    """How many placed things each state holds. Minecraft's are used up one at a time; nothing else ever goes."""
    named = [world.all_factors.to_named(row) for row in values]
    return np.array([sum(entity.get("x", 1) != 0 for entity in state.values()) for state in named])


@case
@settings(max_examples=4)
@given(seed=st.integers(0, 2**31 - 1))
def test_any_actions_keep_the_laws(case: str, seed: int) -> None:
    """Every state is legal, every variable in range, latches never fall, and the parts of a transition agree."""
    world = world_of(case)
    key = jax.random.key(seed)
    states = reset_many(world)(key)
    assert bool(jnp.all(legal_many(world)(states)))
    for k in range(30):
        action_key, step_key = jax.random.split(jax.random.fold_in(key, k))
        after, transition = step_many(world)(step_key, states, random_actions(world, action_key))
        assert bool(jnp.all(legal_many(world)(after)))
        width = world.factors.width
        np.testing.assert_array_equal(transition.obs, states.values[:, :width])
        done = np.asarray(transition.done)
        np.testing.assert_array_equal(np.asarray(transition.next_obs)[~done], np.asarray(after.values)[~done, :width])
        assert np.all(np.asarray(transition.stages) >= np.asarray(states.stages))
        assert np.all(np.asarray(transition.success) >= np.asarray(states.succeeded))
        np.testing.assert_array_equal(np.asarray(transition.reward), np.asarray(transition.success, np.float32))
        np.testing.assert_array_equal(np.asarray(transition.stages)[:, -1], np.asarray(transition.success))
        assert np.all(np.asarray(transition.stages)[np.asarray(transition.success)])
        states = after


@case
def test_changed_variables_have_parents(case: str) -> None:
    """A variable changes only if an event wrote it: then its row of the graph has a parent, or forgot its own past."""
    world = world_of(case)
    n = world.factors.num_variables
    key = jax.random.key(3)
    states = reset_many(world)(key)
    changes = 0
    for k in range(60):
        action_key, step_key = jax.random.split(jax.random.fold_in(key, k))
        states, transition = step_many(world)(step_key, states, random_actions(world, action_key))
        before, after = np.asarray(transition.obs), np.asarray(transition.next_obs)
        graph = np.asarray(transition.graph)
        written = (graph != np.eye(n, n + 1, dtype=bool)).any(axis=2)
        for index in range(n):
            changed = (before != after)[:, world.factors.flat_slice(index)].any(axis=1)
            assert np.all(written[changed, index]), (world.factors.variable_names[index], changed)
            changes += int(changed.sum())
    assert changes > 100


@case
def test_furniture_and_numbers_of_things_are_kept(case: str) -> None:
    world = world_of(case)
    key = jax.random.key(5)
    states = reset_many(world)(key)
    fixed = [
        k
        for k, name in enumerate(world.all_factors.variable_names)
        if name.split(".")[0] in ("fridge", "sink", "car", "bucket", "shelf", "workshop") and name[-2:] in (".x", ".y")
    ]
    first = np.asarray(states.values)
    for k in range(world.max_steps - 1):
        action_key, step_key = jax.random.split(jax.random.fold_in(key, k))
        before = np.asarray(states.values)
        states, _ = step_many(world)(step_key, states, random_actions(world, action_key))
        np.testing.assert_array_equal(np.asarray(states.values)[:, fixed], first[:, fixed])
        if world.name == "minecraft" and k % 10 == 0:
            lost = things_present(world, before) - things_present(world, np.asarray(states.values))
            assert np.all((lost == 0) | (lost == 1))


@some_cases
def test_episodes_end_at_the_horizon_and_start_anew(case: str) -> None:
    world = world_of(case, max_steps=7)
    key = jax.random.key(1)
    states = reset_many(world)(key)
    alone = jax.jit(jax.vmap(world.step))
    for k in range(1, 22):
        action_key, step_key = jax.random.split(jax.random.fold_in(key, k))
        before = states
        states, transition = step_many(world)(step_key, states, random_actions(world, action_key))
        assert bool(jnp.all(transition.truncated == (k % 7 == 0)))
        assert not bool(jnp.any(transition.terminated))
        if k % 7 == 0:
            assert bool(jnp.all(states.elapsed == 0))
            assert not bool(jnp.any(states.succeeded | jnp.any(states.stages, axis=1)))
            keys = jax.random.split(jax.random.split(step_key)[0], NUM_ENVS)
            last, _ = alone(keys, before, transition.action)
            np.testing.assert_array_equal(transition.next_obs, last.values[:, : world.factors.width])
            assert not np.array_equal(transition.next_obs, states.values[:, : world.factors.width])


def solve(world: World, num_envs: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rewards, success, terminated and truncated of scripted episodes, as [time, env]."""

    def step(states: WorldState, key: jax.Array) -> tuple[WorldState, tuple[jax.Array, ...]]:
        act_key, step_key = jax.random.split(key)
        actions = jax.vmap(world.scripted)(jax.random.split(act_key, num_envs), states)
        states, transition = world.step_many(step_key, states, actions)
        return states, (transition.reward, transition.success, transition.terminated, transition.truncated)

    start = world.reset_many(jax.random.key(0), num_envs)
    keys = jax.random.split(jax.random.key(1), world.max_steps)
    out = jax.jit(lambda: jax.lax.scan(step, start, keys)[1])()
    return cast(tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], tuple(np.asarray(part) for part in out))


def test_reward_is_paid_on_every_step_from_success_on() -> None:
    reward, success, terminated, truncated = solve(elden.make("thawing"))
    first = success.argmax(axis=0)
    assert np.all(success.any(axis=0))
    assert np.all(reward.sum(axis=0) == 20 - first)
    assert not terminated.any()
    assert np.all(truncated.sum(axis=0) == 1)


def test_pay_once_pays_once() -> None:
    reward, success, _, _ = solve(elden.make("thawing", pay_once=True))
    assert np.all(reward.sum(axis=0) == 1)
    np.testing.assert_array_equal(reward.argmax(axis=0), success.argmax(axis=0))


def test_terminate_on_success_terminates_then() -> None:
    _, success, terminated, truncated = solve(elden.make("thawing", terminate_on_success=True))
    assert np.all(terminated.argmax(axis=0) == success.argmax(axis=0))
    assert terminated.any(axis=0).all()
    assert not (terminated & truncated).any()


@case
def test_one_trace_however_often_it_is_called(case: str) -> None:
    world = world_of(case)
    for seed in range(3):
        states = reset_many(world)(jax.random.key(seed))
        for k in range(3):
            key = jax.random.key(k)
            states, _ = step_many(world)(key, states, random_actions(world, key))
    assert TRACES["reset", world] == 1
    assert TRACES["step", world] == 1


@some_cases
def test_vmap_equals_a_loop(case: str) -> None:
    world = world_of(case)
    keys = jax.random.split(jax.random.key(2), 4)
    single_reset, single_step = jax.jit(world.reset), jax.jit(world.step)
    states = jax.jit(jax.vmap(world.reset))(keys)
    actions = random_actions(world, keys[0], 4)
    many = jax.jit(jax.vmap(world.step))(keys, states, actions)
    for k in range(4):
        alone = single_reset(keys[k])
        assert_equal(alone, one(states, k))
        assert_equal(single_step(keys[k], alone, actions[k]), jax.tree.map(lambda leaf, k=k: leaf[k], many))


@pytest.mark.parametrize("case", ["carwash", pytest.param("minecraft-path", marks=pytest.mark.slow)])
def test_two_devices_give_what_one_gives(case: str) -> None:
    devices = jax.devices("cpu")
    assert len(devices) == 2
    world = world_of(case)
    key = jax.random.key(4)
    states = reset_many(world)(key)
    actions = random_actions(world, key)
    expected = step_many(world)(key, states, actions)
    spread = NamedSharding(Mesh(np.array(devices), ("env",)), PartitionSpec("env"))  # type: ignore[no-untyped-call]
    on_two = jax.tree.map(lambda leaf: jax.device_put(leaf, spread), states)
    got = jax.jit(world.step_many)(key, on_two, jax.device_put(actions, spread))
    assert len(got[0].values.sharding.device_set) == 2
    assert_equal(got, expected)


def test_equal_worlds_are_one_to_jit() -> None:
    assert elden.make("carwash", goto="path") == elden.make("carwash", goto="path")
    assert hash(elden.make("carwash", goto="path")) == hash(elden.make("carwash", goto="path"))
    assert elden.make("carwash") != elden.make("carwash", goto="path")


@case
def test_pictures_and_text_of_played_states(case: str) -> None:
    world = world_of(case)
    states = reset_many(world)(jax.random.key(8))
    for k in range(12):
        action_key, step_key = jax.random.split(jax.random.key(k))
        states, _ = step_many(world)(step_key, states, random_actions(world, action_key))
    frames = [pictures.draw(world.scene(one(states, k)), tile=24) for k in range(4)]
    assert len({frame.shape for frame in frames}) == 1
    assert len({frame.tobytes() for frame in frames}) > 1
    assert len({pictures.text(world.scene(one(states, k))) for k in range(4)}) > 1


@case
def test_named_round_trip(case: str) -> None:
    world = world_of(case)
    state = one(reset_many(world)(jax.random.key(9)), 2)
    again = world.from_named(world.to_named(state))
    assert_equal(state, again)


def test_elapsed_fraction() -> None:
    world = world_of("thawing")
    states = reset_many(world)(jax.random.key(0))
    assert float(world.elapsed_fraction(one(states, 0))) == 0
    after, _ = step_many(world)(jax.random.key(0), states, random_actions(world, jax.random.key(0)))
    assert float(world.elapsed_fraction(one(after, 0))) == pytest.approx(1 / 20)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("thawing", {"size": 7}, "at least 8"),
        ("carwash", {"size": 6}, "at least 7"),
        ("minecraft", {"size": 8}, "at least 9"),
        ("minecraft", {"wood": 3}, "4 wood"),
        ("empty", {"size": 3}, "at least 4"),
        ("thawing", {"max_steps": 0}, "at least 1"),
        ("carwash", {"car_clean_lag": 2}, "0 or 1"),
        ("carwash", {"profile": "primitives", "reserved_actions": True}, "skills"),
        ("carwash", {"profile": "primitives", "goto": "path"}, "no goTo"),
        ("empty", {"profile": "skills"}, "'primitives'"),
        ("thawing", {"labels": "mine"}, "'fix', 'authors'"),
        ("thawing", {"goto": "fly"}, "'path'"),
        ("thawing", {"sise": 9}, "did you mean 'size'"),
        ("thawing", {"size": "9"}, "takes an integer"),
        ("thawing", {"size": True}, "takes an integer"),
    ],
)
def test_bad_options_are_refused(name: str, options: dict[str, str | int | bool], words: str) -> None:
    with pytest.raises(WorldOptionError, match=words):
        elden.make(name, **options)


def test_unknown_world_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'carwash'"):
        elden.make("carwsh")
    with pytest.raises(ValueError, match="there are 'thawing'"):
        elden.make("xyzzy")


def test_reserved_actions_do_nothing() -> None:
    world = elden.make("carwash", reserved_actions=True)
    assert world.action_names[10:] == ("reserved0", "reserved1")
    state = jax.jit(world.reset)(jax.random.key(0))
    for action in (10, 11):
        after, transition = jax.jit(world.step)(jax.random.key(1), state, jnp.int32(action))
        np.testing.assert_array_equal(after.values, state.values)
        assert not bool(jnp.any(transition.events))


Long = tuple[WorldState, jax.Array, jax.Array]


def million_steps(world: World, num_envs: int, key: jax.Array) -> Long:
    """A million random steps: the last states, whether all were legal, and whether things only went by being used."""
    names = world.all_factors.variable_names
    places = np.array([k for k, name in enumerate(names) if name.endswith(".x") and name != "agent.x"], int)
    uses = np.array([event.startswith("use:") and event.count(":") == 1 for event in world.book.events], bool)

    def step(carry: Long, key: jax.Array) -> tuple[Long, None]:
        states, legal, kept = carry
        action_key, step_key = jax.random.split(key)
        after, transition = world.step_many(step_key, states, random_actions(world, action_key, num_envs))
        legal = legal & jnp.all(jax.vmap(world.legal)(after))
        if world.name == "minecraft":
            before, now = states.values[:, places] > 0, after.values[:, places] > 0
            used = jnp.sum(transition.events & uses, axis=1)
            fair = (jnp.sum(before & ~now, axis=1) == used) & ~jnp.any(now & ~before, axis=1)
            kept = kept & jnp.all(fair | transition.done)
        return (after, legal, kept), None

    reset_key, scan_key = jax.random.split(key)
    start = (world.reset_many(reset_key, num_envs), jnp.asarray(True), jnp.asarray(True))
    return jax.lax.scan(step, start, jax.random.split(scan_key, 1_000_000 // num_envs))[0]


@pytest.mark.slow
@case
def test_a_million_random_steps(case: str) -> None:
    world = world_of(case)
    states, legal, kept = jax.jit(partial(million_steps, world, 1000))(jax.random.key(11))
    assert bool(legal)
    assert bool(kept)
    for k in range(0, 1000, 100):
        assert pictures.draw(world.scene(one(states, k)), tile=24).dtype == np.uint8
