"""Scripted policies: they solve what can be solved, and with random actions mixed in they show every dependency."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import PLAYED, long_world_of, world_of

from elden.worlds.base import World, WorldState

Played = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


def play(world: World, num_envs: int, length: int, epsilon: jax.Array, key: jax.Array) -> Played:
    """Which layouts were solvable, success at each step, how often each event and each edge occurred."""

    def step(states: WorldState, key: jax.Array) -> tuple[WorldState, tuple[jax.Array, jax.Array, jax.Array]]:
        act_key, step_key = jax.random.split(key)
        actions = jax.vmap(lambda k, s: world.scripted(k, s, epsilon))(jax.random.split(act_key, num_envs), states)
        states, transition = world.step_many(step_key, states, actions)
        count = partial(jnp.sum, axis=0, dtype=jnp.int32)
        return states, (transition.success, count(transition.events), count(transition.graph))

    reset_key, scan_key = jax.random.split(key)
    start = world.reset_many(reset_key, num_envs)
    success, events, edges = jax.lax.scan(step, start, jax.random.split(scan_key, length))[1]
    return jax.vmap(world.solvable)(start), success, jnp.sum(events, axis=0), jnp.sum(edges, axis=0)


@pytest.mark.parametrize("case", PLAYED)
def test_script_solves_the_world_and_shows_every_edge(case: str) -> None:
    world = long_world_of(case)
    num_envs = 20_000 // max(100, world.max_steps)
    length = 20_000 // num_envs
    run = jax.jit(partial(play, world, num_envs, length))
    solvable, success, _, _ = run(jnp.float32(0), jax.random.key(0))
    solved = np.asarray(success)[: world.max_steps].any(axis=0)
    np.testing.assert_array_equal(solved, np.asarray(solvable))

    _, _, events, edges = run(jnp.float32(0.1), jax.random.key(1))
    never = [event for event, count in zip(world.book.events, np.asarray(events), strict=True) if count == 0]
    # With lag 0 the wet rag never lies on the stained car, except in states made by hand.
    assert never == (["car_cleaned", "car_cleaned:rag"] if case == "carwash-lag0" else [])
    possible = world.book.possible
    assert possible.sum() > 0
    assert np.all(np.asarray(edges)[possible] > 0)


def test_epsilon_is_the_share_of_random_actions() -> None:
    world = world_of("carwash")
    states = jax.jit(world.reset_many, static_argnums=1)(jax.random.key(0), 4000)
    keys = jax.random.split(jax.random.key(1), 4000)
    plans = jax.jit(jax.vmap(lambda k, s: world.scripted(k, s, 0.0)))(keys, states)
    mixed = jax.jit(jax.vmap(lambda k, s: world.scripted(k, s, 0.3)))(keys, states)
    # A random action is the planned one once in ten.
    assert float(jnp.mean(plans != mixed)) == pytest.approx(0.3 * 0.9, abs=0.03)
    every = jax.jit(jax.vmap(lambda k, s: world.scripted(k, s, 1.0)))(keys, states)
    counts = np.bincount(np.asarray(every), minlength=world.num_actions)
    assert counts.min() > 300
