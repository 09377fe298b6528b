"""Prioritised replay against a slow numpy oracle."""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from elden.dynamics import replay
from elden.dynamics.replay import FAN_OUT, MAX_PRIORITY, MIN_PRIORITY, Priorities, Replay, Ring

Item: TypeAlias = dict[str, jax.Array]

EXAMPLE: Item = {
    "obs": jnp.zeros((2,), jnp.int32),
    "action": jnp.zeros((), jnp.int32),
    "next_obs": jnp.zeros((2,), jnp.int32),
}


def batch_of(values: np.ndarray) -> Item:
    """One item for each value, recognisable by it."""
    pairs = np.stack([values, -values], axis=-1).astype(np.int32)
    return {"obs": jnp.asarray(pairs), "action": jnp.asarray(values, jnp.int32), "next_obs": jnp.asarray(pairs + 1)}


class Oracle:
    """The same buffer, one item at a time, in float64."""

    def __init__(self, capacity: int, exponent: float) -> None:
        self.capacity, self.exponent = capacity, exponent
        self.values = np.zeros(capacity, int)
        self.priorities = np.zeros(capacity)
        self.cursor = self.size = 0
        self.maximum = 1.0

    def add(self, values: np.ndarray) -> None:
        for value in values:
            self.values[self.cursor] = value
            self.priorities[self.cursor] = self.maximum
            self.cursor = (self.cursor + 1) % self.capacity
            self.size = min(self.size + 1, self.capacity)

    def update(self, indices: np.ndarray, priorities: np.ndarray) -> None:
        largest: dict[int, float] = {}
        for index, new in zip(indices.tolist(), priorities.tolist(), strict=True):
            cleaned = min(max(new, MIN_PRIORITY), MAX_PRIORITY) if np.isfinite(new) else MIN_PRIORITY
            largest[index] = max(cleaned, largest.get(index, 0.0))
        for index, priority in largest.items():
            if self.priorities[index] > 0:
                self.priorities[index] = priority
                self.maximum = max(self.maximum, priority)

    def probabilities(self) -> np.ndarray:
        masses = np.where(self.priorities > 0, self.priorities**self.exponent, 0.0)
        return np.asarray(masses / masses.sum())

    def weights(self, indices: np.ndarray, beta: float) -> np.ndarray:
        weights = (self.size * self.probabilities()[indices]) ** -beta
        return np.asarray(weights / weights.max())


def filled(capacity: int, priorities: np.ndarray, exponent: float = 0.5) -> Priorities:
    tree: Priorities = _filled(capacity, jnp.asarray(priorities, jnp.float32), jnp.float32(exponent))
    return tree


@partial(jax.jit, static_argnums=0)
def _filled(capacity: int, priorities: jax.Array, exponent: jax.Array) -> Priorities:
    tree = Priorities.create(capacity, exponent, filled=len(priorities))
    return tree.update(jnp.arange(len(priorities)), priorities)


@partial(jax.jit, static_argnums=2)
def _draw(tree: Priorities, key: jax.Array, batch_size: int, beta: float = 1.0) -> tuple[jax.Array, jax.Array]:
    return tree.sample(key, batch_size, beta)


def check_tree(tree: Priorities) -> None:
    """Every node is the sum of its children, and the padding is empty."""
    for below, above in zip(tree.levels[:-1], tree.levels[1:], strict=True):
        sums = np.asarray(below, np.float64).sum(-1)
        np.testing.assert_allclose(np.asarray(above).ravel()[: len(sums)], sums, rtol=1e-5)
        assert not np.asarray(above).ravel()[len(sums) :].any()
    assert not np.asarray(tree.levels[0]).ravel()[tree.capacity :].any()
    assert tree.levels[-1].shape == (1, FAN_OUT)


def check_equal(first: object, second: object) -> None:
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("capacity", "exponent"),
    [(1, 0.5), (2, 1.0), (31, 0.5), (32, 0.0), (33, 0.5), (1024, 1.0), (1025, 0.5), (40_000, 0.5)],
)
def test_probabilities_match_the_oracle(capacity: int, exponent: float) -> None:
    rng = np.random.default_rng(capacity)
    count = max(1, capacity * 2 // 3)
    priorities = np.exp(rng.normal(0, 3, count))
    oracle = Oracle(capacity, exponent)
    oracle.add(np.arange(count))
    oracle.update(np.arange(count), priorities)
    tree = filled(capacity, priorities, exponent)
    check_tree(tree)
    np.testing.assert_allclose(tree.probabilities(), oracle.probabilities(), rtol=5e-6)
    assert float(tree.total) == pytest.approx(float((oracle.priorities[:count] ** exponent).sum()), rel=1e-6)


@pytest.mark.parametrize(("capacity", "count"), [(7, 7), (50, 20), (3000, 2000)])
def test_frequencies_follow_the_probabilities(capacity: int, count: int, key: jax.Array) -> None:
    priorities = np.random.default_rng(1).uniform(0.01, 4, count)
    tree = filled(capacity, priorities)
    indices, _ = _draw(tree, key, 200_000)
    counts = np.bincount(np.asarray(indices), minlength=capacity)
    assert counts.sum() == 200_000
    assert not counts[count:].any()
    expected = priorities**0.5 / (priorities**0.5).sum() * 200_000
    assert stats.chisquare(counts[:count], expected, sum_check=False).pvalue > 0.01


def test_draws_are_independent(key: jax.Array) -> None:
    tree = filled(3, np.array([1.0, 4.0, 9.0]))
    indices = np.asarray(_draw(tree, key, 90_000)[0]).reshape(-1, 2)
    counts = np.bincount(indices[:, 0] * 3 + indices[:, 1], minlength=9).reshape(3, 3)
    assert stats.chi2_contingency(counts).pvalue > 0.01


def test_exponent_zero_is_exactly_uniform(key: jax.Array) -> None:
    priorities = np.array([1e-6, 1e-3, 1.0, 50.0, 1e6] * 20)
    tree = filled(1000, priorities, exponent=0.0)
    probabilities = np.asarray(tree.probabilities())
    assert (probabilities[:100] == np.float32(1) / np.float32(100)).all()
    assert not probabilities[100:].any()
    indices, weights = _draw(tree, key, 50_000, 0.7)
    assert (np.asarray(weights) == 1).all()
    assert stats.chisquare(np.bincount(np.asarray(indices), minlength=1000)[:100]).pvalue > 0.01


def test_ten_million_items_are_all_within_reach(key: jax.Array) -> None:
    """One float32 for the whole walk would only ever give every second item or so of the upper half."""
    capacity = 10_000_000
    tree = Priorities.create(capacity, 0.0, filled=capacity)
    assert float(tree.total) == capacity
    indices = np.asarray(_draw(tree, key, 100_000)[0])
    assert indices.min() >= 0
    assert indices.max() < capacity
    assert stats.kstest((indices + 0.5) / capacity, "uniform").pvalue > 0.01
    odd = int((indices[indices > capacity // 2] % 2).sum())
    assert stats.binomtest(odd, int((indices > capacity // 2).sum())).pvalue > 0.01


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_weights_match_the_oracle(beta: float, key: jax.Array) -> None:
    rng = np.random.default_rng(2)
    oracle = Oracle(100, 0.5)
    oracle.add(np.arange(70))
    priorities = np.exp(rng.normal(0, 2, 70))
    oracle.update(np.arange(70), priorities)
    indices, weights = _draw(filled(100, priorities), key, 64, beta)
    np.testing.assert_allclose(weights, oracle.weights(np.asarray(indices), beta), rtol=1e-5)
    assert float(weights.max()) == 1


def test_weights_make_the_mean_unbiased(key: jax.Array) -> None:
    """With β = 1 the weighted mean over draws is the plain mean over items."""
    priorities = np.array([0.1, 0.5, 2.0, 8.0])
    values = np.array([3.0, -1.0, 4.0, 10.0])
    indices, weights = _draw(filled(10, priorities), key, 200_000)
    weighted = np.asarray(weights, np.float64)
    assert (weighted * values[np.asarray(indices)]).sum() / weighted.sum() == pytest.approx(values.mean(), abs=0.05)


def test_a_rare_but_heavy_item_is_found(key: jax.Array) -> None:
    priorities = np.full(5000, MIN_PRIORITY)
    priorities[4321] = MAX_PRIORITY
    indices, _ = _draw(filled(5000, priorities, exponent=1.0), key, 100)
    assert (np.asarray(indices) == 4321).all()


def test_an_empty_tree_gives_slot_zero_with_weight_one(key: jax.Array) -> None:
    indices, weights = _draw(Priorities.create(100), key, 5)
    assert not np.asarray(indices).any()
    assert (np.asarray(weights) == 1).all()


def test_of_duplicates_the_largest_counts() -> None:
    tree = Priorities.create(40, 1.0, filled=40)
    indices = jnp.array([3, 5, 3, 3, 39, 5])
    values = jnp.array([0.5, 2.0, 7.0, 1.0, 0.25, 0.125])
    update = jax.jit(Priorities.update)
    for order in (np.arange(6), np.arange(6)[::-1], np.array([2, 0, 5, 3, 1, 4])):
        updated = update(tree, indices[order], values[order])
        masses = np.asarray(updated.levels[0]).ravel()
        assert masses[[3, 5, 39]].tolist() == [7.0, 2.0, 0.25]
        assert float(updated.total) == 37 + 9.25
        check_tree(updated)


def test_bad_priorities_cannot_poison_the_tree(key: jax.Array) -> None:
    tree = filled(8, np.array([np.nan, np.inf, -np.inf, -3.0, 0.0, 1e30, 2.0]), exponent=1.0)
    masses = np.asarray(tree.levels[0]).ravel()[:8]
    floor = np.float32(MIN_PRIORITY)
    np.testing.assert_array_equal(masses, np.array([floor] * 5 + [MAX_PRIORITY, 2.0, 0.0], np.float32))
    assert float(tree.maximum) == MAX_PRIORITY
    _, weights = _draw(tree, key, 1000)
    assert np.isfinite(np.asarray(weights)).all()


@pytest.mark.parametrize("exponent", [10.0, 100.0])
def test_a_large_exponent_neither_empties_nor_overflows(exponent: float, key: jax.Array) -> None:
    low, high = filled(100, np.full(100, MIN_PRIORITY), exponent), filled(100, np.full(100, MAX_PRIORITY), exponent)
    for tree in (low, high):
        np.testing.assert_allclose(tree.probabilities(), 0.01, rtol=1e-5)
        assert len(np.unique(np.asarray(_draw(tree, key, 1000)[0]))) > 90


def test_updating_an_empty_slot_changes_nothing() -> None:
    tree = Priorities.create(40, filled=10)
    updated = tree.update(jnp.array([10, 39, 45]), jnp.array([5.0, 6.0, 7.0]))
    check_equal(tree, updated)


def test_many_updates_do_not_drift(key: jax.Array) -> None:
    """After huge priorities came and went, the sums are those of the small ones that are left, to the last bit."""
    capacity = 2000
    tree = filled(capacity, np.full(capacity, 1e-3), exponent=1.0)

    def step(tree: Priorities, key: jax.Array) -> tuple[Priorities, None]:
        indices = jax.random.randint(key, (16,), 0, capacity)
        heavy = tree.update(indices, jnp.full(16, 1e6))
        return heavy.update(indices, jnp.full(16, 1e-3)), None

    after, _ = jax.lax.scan(step, tree, jax.random.split(key, 500))
    for before, now in zip(tree.levels, after.levels, strict=True):
        np.testing.assert_array_equal(before, now)


@pytest.mark.parametrize("batch", [1, 5, 63, 64, 500])
def test_small_and_large_updates_build_the_same_tree(batch: int) -> None:
    """Few items recompute the sums above them, many items recompute the whole level."""
    capacity = FAN_OUT * 64
    rng = np.random.default_rng(batch)
    indices = rng.choice(capacity, batch, replace=False)
    priorities = rng.uniform(0, 3, batch)
    tree = Priorities.create(capacity, filled=capacity).update(
        jnp.asarray(indices, jnp.int32), jnp.asarray(priorities, jnp.float32)
    )
    check_tree(tree)
    expected = np.ones(capacity)
    expected[indices] = np.maximum(priorities, MIN_PRIORITY) ** 0.5
    np.testing.assert_allclose(np.asarray(tree.levels[0]).ravel(), expected, rtol=1e-6)


def test_ring_keeps_the_last_items_in_order() -> None:
    ring = Ring.create(5, EXAMPLE)
    ring, slots = ring.add(batch_of(np.arange(3)))
    assert slots.tolist() == [0, 1, 2]
    assert (int(ring.size), int(ring.cursor)) == (3, 3)
    ring, slots = ring.add(batch_of(np.arange(3, 7)))
    assert slots.tolist() == [3, 4, 0, 1]
    assert (int(ring.size), int(ring.cursor)) == (5, 2)
    assert ring.items["action"].tolist() == [5, 6, 2, 3, 4]
    assert ring.gather(jnp.array([1, 4]))["next_obs"].tolist() == [[7, -5], [5, -3]]


def test_a_batch_longer_than_the_ring_leaves_its_end() -> None:
    ring = Ring.create(4, EXAMPLE)
    ring, _ = ring.add(batch_of(np.arange(3)))
    ring, slots = ring.add(batch_of(np.arange(10, 21)))
    oracle = Oracle(4, 0.5)
    oracle.add(np.arange(3))
    oracle.add(np.arange(10, 21))
    assert ring.items["action"].tolist() == oracle.values.tolist()
    assert (int(ring.cursor), int(ring.size)) == (oracle.cursor, 4)
    assert sorted(slots.tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("capacity", [1, 0x7FFFFFFF // 1000])
def test_capacity_is_what_was_asked_for(capacity: int) -> None:
    assert Ring.create(capacity, jnp.zeros((), jnp.int8)).capacity == capacity


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"action": jnp.zeros((3,), jnp.float32)}, r"batch\['action'\] must be int32\[batch\], got float32\[3\]"),
        ({"obs": jnp.zeros((3, 4), jnp.int32)}, r"batch\['obs'\] must be int32\[batch, 2\], got int32\[3, 4\]"),
        ({"action": jnp.zeros((2,), jnp.int32)}, r"one length, got \[2, 3\]"),
        ({"reward": jnp.zeros((3,), jnp.int32)}, "structure"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(change: Item, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replay.add(replay.init(8, EXAMPLE), batch_of(np.arange(3)) | change)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: replay.init(0, EXAMPLE), "capacity=0"),
        (lambda: replay.init(5, {}), "no arrays"),
        (lambda: replay.init(5, EXAMPLE, exponent=-0.5), "exponent=-0.5"),
        (lambda: replay.init(5, EXAMPLE, exponent=float("nan")), "exponent=nan"),
        (lambda: Priorities.create(5, filled=6), "filled=6"),
        (lambda: Priorities.create(0), "capacity=0"),
    ],
)
def test_impossible_options_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


_add = jax.jit(replay.add)
_update = jax.jit(replay.update)
_probabilities = jax.jit(lambda buffer: buffer.priorities.probabilities())


def check_against(oracle: Oracle, buffer: Replay[Item]) -> None:
    assert (int(buffer.ring.cursor), int(buffer.ring.size)) == (oracle.cursor, oracle.size)
    assert buffer.ring.items["action"].tolist() == oracle.values.tolist()
    assert float(buffer.priorities.maximum) == pytest.approx(oracle.maximum, rel=1e-6)
    np.testing.assert_allclose(_probabilities(buffer), oracle.probabilities(), rtol=1e-5)
    check_tree(buffer.priorities)


_PRIORITY = st.one_of(st.floats(0, 1e3), st.sampled_from([np.nan, np.inf, -1.0, 1e9]))
_OPERATION = st.one_of(
    st.tuples(st.just("add"), st.sampled_from([1, 4, 50])),
    st.tuples(st.just("update"), st.lists(st.tuples(st.integers(0, 36), _PRIORITY), min_size=6, max_size=6)),
)


@given(operations=st.lists(_OPERATION, min_size=1, max_size=8))
def test_any_history_matches_the_oracle(
    operations: list[tuple[str, int | list[tuple[int, float]]]],
) -> None:
    oracle, buffer = Oracle(37, 0.5), replay.init(37, EXAMPLE)
    written = 0
    for _, argument in [("add", 2), *operations]:
        if isinstance(argument, int):
            values = np.arange(written, written + argument)
            written += argument
            oracle.add(values)
            buffer = _add(buffer, batch_of(values))
        else:
            indices = np.array([index for index, _ in argument])
            priorities = np.array([priority for _, priority in argument])
            oracle.update(indices, priorities)
            buffer = _update(buffer, jnp.asarray(indices, jnp.int32), jnp.asarray(priorities, jnp.float32))
        check_against(oracle, buffer)


@given(
    priorities=st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=40).map(lambda p: np.resize(np.array(p), 40)),
    count=st.integers(1, 40),
    seed=st.integers(0, 2**31 - 1),
)
def test_only_filled_slots_are_drawn(priorities: np.ndarray, count: int, seed: int) -> None:
    tree = _filled_part(jnp.asarray(priorities, jnp.float32), jnp.int32(count))
    indices, weights = _draw(tree, jax.random.key(seed), 64, 0.5)
    assert int(indices.max()) < count
    assert int(indices.min()) >= 0
    assert 0 < float(weights.min()) <= float(weights.max()) == 1


@jax.jit
def _filled_part(priorities: jax.Array, count: jax.Array) -> Priorities:
    tree = Priorities.create(1100, 1.0)
    tree = tree.insert(jnp.where(jnp.arange(40) < count, jnp.arange(40), 0))
    return tree.update(jnp.arange(40), priorities)


def test_new_items_get_the_largest_priority_seen() -> None:
    buffer = replay.add(replay.init(6, EXAMPLE, exponent=1.0), batch_of(np.arange(2)))
    np.testing.assert_allclose(buffer.priorities.probabilities()[:2], 0.5)
    buffer = replay.update(buffer, jnp.array([0, 1]), jnp.array([3.0, 0.5]))
    buffer = replay.update(buffer, jnp.array([0]), jnp.array([0.5]))
    buffer = replay.add(buffer, batch_of(np.arange(2, 3)))
    np.testing.assert_allclose(buffer.priorities.probabilities(), [0.125, 0.125, 0.75, 0, 0, 0])


def test_an_overwritten_item_loses_its_priority() -> None:
    buffer = replay.add(replay.init(2, EXAMPLE, exponent=1.0), batch_of(np.arange(2)))
    buffer = replay.update(buffer, jnp.array([0, 1]), jnp.array([0.01, 0.02]))
    buffer = replay.add(buffer, batch_of(np.arange(2, 3)))
    np.testing.assert_allclose(buffer.priorities.probabilities(), np.array([1.0, 0.02]) / 1.02, rtol=1e-6)


def test_an_empty_batch_changes_nothing() -> None:
    buffer = replay.add(replay.init(6, EXAMPLE), batch_of(np.arange(2)))
    after = replay.add(buffer, batch_of(np.arange(0)))
    after = replay.update(after, jnp.zeros(0, jnp.int32), jnp.zeros(0, jnp.float32))
    check_equal(buffer, after)


def _life(buffer: Replay[Item], key: jax.Array, beta: jax.Array) -> tuple[Replay[Item], tuple[jax.Array, jax.Array]]:
    """Add, draw and update for some steps, as a trainer would."""

    def step(buffer: Replay[Item], key: jax.Array) -> tuple[Replay[Item], tuple[jax.Array, jax.Array]]:
        data_key, draw_key = jax.random.split(key)
        values = jax.random.randint(data_key, (3,), 0, 1000)
        pairs = jnp.stack([values, -values], axis=-1)
        buffer = replay.add(buffer, {"obs": pairs, "action": values, "next_obs": pairs})
        indices, weights = replay.sample(buffer, draw_key, 8, beta)
        errors = replay.gather(buffer, indices)["action"].astype(jnp.float32) / 1000
        return replay.update(buffer, indices, errors), (indices, weights)

    return jax.lax.scan(step, buffer, jax.random.split(key, 20))


def test_vmap_over_buffers_equals_a_loop(key: jax.Array) -> None:
    keys, betas = jax.random.split(key, 3), jnp.array([0.0, 0.4, 1.0])
    exponents = jnp.array([0.0, 0.5, 1.0])
    buffers = jax.vmap(lambda exponent: replay.init(37, EXAMPLE, exponent))(exponents)
    together = jax.jit(jax.vmap(_life))(buffers, keys, betas)
    for i in range(3):
        alone = jax.jit(_life)(replay.init(37, EXAMPLE, exponents[i]), keys[i], betas[i])
        for ours, theirs in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(ours[i], theirs, rtol=1e-6)


def test_models_share_one_ring_and_hold_their_own_priorities(key: jax.Array) -> None:
    errors = jnp.asarray(np.random.default_rng(3).uniform(0, 2, (3, 40)), jnp.float32)
    ring, slots = Ring.create(50, EXAMPLE).add(batch_of(np.arange(40)))

    @jax.jit
    @jax.vmap
    def draw(error: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return Priorities.create(50).insert(slots).update(slots, error).sample(key, 16, 0.4)

    indices, weights = draw(errors, jax.random.split(key, 3))
    items = ring.gather(indices)
    assert items["obs"].shape == (3, 16, 2)
    np.testing.assert_array_equal(items["action"], indices)
    for model in range(3):
        alone = filled(50, np.asarray(errors[model]))
        expected = _draw(alone, jax.random.split(key, 3)[model], 16, 0.4)
        np.testing.assert_array_equal(indices[model], expected[0])
        np.testing.assert_allclose(weights[model], expected[1], rtol=1e-6)


def test_exponent_beta_and_contents_are_traced_once(key: jax.Array) -> None:
    traces = []

    @jax.jit
    def run(buffer: Replay[Item], key: jax.Array, beta: jax.Array) -> Replay[Item]:
        traces.append(1)
        return _life(buffer, key, beta)[0]

    buffer = replay.init(37, EXAMPLE, 0.5)
    for beta in (0.4, 0.7, 1.0):
        buffer = run(buffer, key, jnp.float32(beta))
    run(replay.init(37, EXAMPLE, 0.0), key, jnp.float32(0))
    assert len(traces) == 1


def test_a_loop_writes_in_place(key: jax.Array) -> None:
    """A copy of the leaves or of the ring would be a temporary of at least a quarter of the buffer."""
    leaves, structure = jax.tree.flatten(replay.init(1_000_000, EXAMPLE))

    @partial(jax.jit, donate_argnums=0)
    def run(leaves: list[jax.Array], key: jax.Array) -> list[jax.Array]:
        buffer, drawn = _life(jax.tree.unflatten(structure, leaves), key, jnp.float32(0.4))
        return jax.tree.leaves((buffer, drawn))

    memory = run.lower(leaves, key).compile().memory_analysis()
    assert memory is not None
    assert memory.temp_size_in_bytes < 100_000


def test_the_same_key_draws_the_same(key: jax.Array) -> None:
    buffer = replay.add(replay.init(100, EXAMPLE), batch_of(np.arange(60)))
    first, second = replay.sample(buffer, key, 32, 0.4), replay.sample(buffer, key, 32, 0.4)
    np.testing.assert_array_equal(first[0], second[0])
    assert not np.array_equal(first[0], replay.sample(buffer, jax.random.key(1), 32, 0.4)[0])
