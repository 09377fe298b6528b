"""The detector `intervention`: the values that it tries, its scores against plain loops, and what it finds."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import some_slow
from dynamics_cases import (
    ACTION,
    DISCRETE,
    GRANULARITIES,
    MIXED,
    layout_of,
    random_transitions,
)
from jaxtyping import Array, Float
from scipy import integrate, special, stats
from sklearn.metrics import roc_auc_score

from elden.dynamics.config import NetworkConfig, TrainConfig
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import Batch, encode, forward
from elden.dynamics.network import Network, init_network
from elden.dynamics.training import Model, Trainer
from elden.factors import Continuous, Discrete, Entity, Factors, Granularity, Kind, Variable
from elden.graphs.base import Reference, changed
from elden.graphs.gradient import Gradient
from elden.graphs.intervention import (
    Intervention,
    far_apart,
    from_examples,
    replaced,
    sum_up,
    total_variation,
    trials,
    try_values,
)
from elden.graphs.pcmi_sampled import PcmiSampled
from elden.transitions import Transitions

CONTINUOUS = Factors(
    (
        Entity("ball", (Variable("place", Continuous(2, -3, 3)), Variable("speed", Continuous(1, -1, 1)))),
        Entity("wind", (Variable("force", Continuous(1, -1, 1)),)),
    )
)
WALLED = Factors((*DISCRETE.entities, Entity("wall", (Variable("there", Discrete(1)),))))
"""With a variable that has one value only."""
WORLDS: dict[str, tuple[Factors, Kind]] = {
    "discrete": (WALLED, ACTION),
    "mixed": (MIXED, ACTION),
    "continuous": (CONTINUOUS, Continuous(2, -1, 1)),
}
SAMPLES = 2
"""Fewer than the other values of key.place and wind.from, so that it matters which of them are tried."""
SEEN = 5

Plain: TypeAlias = tuple[np.ndarray, np.ndarray]
"""A state and an action, both flat."""


def world_layout(world: str, children: Granularity = "variable", inputs: Granularity = "entity") -> Layout:
    factors, action = WORLDS[world]
    network = NetworkConfig(children, inputs, features=(8,), heads=1, head_size=4, mlp=(8,))
    return Layout(factors, action, network)


def some_transitions(layout: Layout) -> Transitions:
    """Nothing moves in the first, the first entity's last variable in the second, everything may in the others."""
    data = random_transitions(layout, 4)
    obs, next_obs = np.array(data.obs), np.array(data.next_obs)
    only = layout.factors.flat_slice(layout.factors.entity_slices[0].stop - 1)
    next_obs[:2] = obs[:2]
    next_obs[1, only] = 1 - obs[1, only]
    return Transitions(jnp.asarray(obs), data.action, jnp.asarray(next_obs))


def seen_transitions(layout: Layout) -> Transitions:
    return random_transitions(layout, SEEN, seed=9)


@lru_cache
def compiled(function: Callable[..., object], layout: Layout) -> jax.stages.Wrapped:
    """The same function object for the same layout, so that tests share what is compiled."""
    return jax.jit(partial(function, layout))


def reference_of(layout: Layout, seen: Transitions) -> Reference:
    made: Reference = compiled(Reference.of, layout)(seen.obs, seen.action, seen.next_obs)
    return made


def batch_of(layout: Layout, data: Transitions) -> Batch:
    batch: Batch = compiled(encode, layout)(data.obs, data.action, data.next_obs)
    return batch


def some_network(layout: Layout) -> Network:
    """A network whose biases are not 0 either."""
    net, rng = jax.jit(init_network, static_argnums=1)(jax.random.key(0), layout), np.random.default_rng(0)

    def shaken(leaf: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.asarray(np.asarray(leaf) + 0.3 * rng.normal(size=leaf.shape), jnp.float32)

    shaken_net: Network = jax.tree.map(shaken, net)
    return shaken_net


def kinds_of(layout: Layout) -> list[Kind]:
    return [*(variable.kind for variable in layout.factors.variables), layout.action]


def row_of(data: Transitions, example: int) -> Plain:
    return np.array(data.obs[example]), np.array(data.action[example])


def with_source(layout: Layout, row: Plain, source: int, value: np.ndarray) -> Plain:
    """The state and the action with one source replaced."""
    obs, action = row[0].copy(), row[1].copy()
    if source == layout.factors.num_variables:
        return obs, np.asarray(value, action.dtype).reshape(action.shape)
    obs[layout.factors.flat_slice(source)] = value
    return obs, action


def value_of(layout: Layout, row: Plain, source: int) -> np.ndarray:
    if source == layout.factors.num_variables:
        return np.atleast_1d(row[1])
    return np.asarray(row[0][layout.factors.flat_slice(source)])


def encoded(layout: Layout, source: int, value: np.ndarray) -> np.ndarray:
    """A value as the network reads it: one-hot where it is discrete."""
    kind = kinds_of(layout)[source]
    return np.eye(kind.n)[int(value.item())] if isinstance(kind, Discrete) else np.atleast_1d(value).astype(np.float64)


def far_values(layout: Layout, source: int, seen: Transitions, number: int) -> list[tuple[np.ndarray, bool]]:
    """The first value that was seen, then again and again the one farthest from all before it; and which are new."""
    known = [value_of(layout, row_of(seen, example), source) for example in range(SEEN)]
    places = [encoded(layout, source, value) for value in known]
    chosen, new = [0], [True]
    while len(chosen) < min(number, SEEN):
        nearest = [min(float(((place - places[one]) ** 2).sum()) for one in chosen) for place in places]
        chosen.append(int(np.argmax(nearest)))
        new.append(max(nearest) > 0)
    return [(known[example], is_new) for example, is_new in zip(chosen, new, strict=True)]


def tried_values(layout: Layout, row: Plain, source: int, seen: Transitions, samples: int) -> list[np.ndarray]:
    """All other values of a discrete source, from the next one on; of one with too many, and of others, far ones."""
    kind = kinds_of(layout)[source]
    if not isinstance(kind, Discrete) or kind.n - 1 > samples:
        return [value for value, _ in far_values(layout, source, seen, samples)]
    now = value_of(layout, row, source)
    return [(now + 1 + trial) % kind.n for trial in range(kind.n - 1)]


def counted_values(layout: Layout, row: Plain, source: int, seen: Transitions, samples: int) -> list[np.ndarray]:
    """Those of them that occurred, are not what the source has anyway, and are tried for the first time."""
    kind = kinds_of(layout)[source]
    values = tried_values(layout, row, source, seen, samples)
    if not isinstance(kind, Discrete) or kind.n - 1 > samples:
        new = [is_new for _, is_new in far_values(layout, source, seen, samples)]
        now = value_of(layout, row, source)
        return [value for value, is_new in zip(values, new, strict=True) if is_new and (value != now).any()]
    known = [value_of(layout, row_of(seen, example), source) for example in range(SEEN)]
    return [value for value in values if any((value == one).all() for one in known)]


# The values that are tried.


@pytest.mark.parametrize("inputs", GRANULARITIES)
@pytest.mark.parametrize("world", WORLDS)
def test_one_source_takes_another_value_and_all_else_stays(world: str, inputs: Granularity) -> None:
    layout = world_layout(world, inputs=inputs)
    data, seen = some_transitions(layout), seen_transitions(layout)
    batch, reference = batch_of(layout, data), reference_of(layout, seen)
    swap, again = compiled(replaced, layout), compiled(encode, layout)
    source, order, place = trials(layout, SAMPLES, SEEN)
    drawn = from_examples(layout, SAMPLES)[source]
    example = np.asarray(far_apart(layout, reference, SEEN)[0])[source, place]
    number = 0
    for of in range(layout.num_sources):
        rows = [row_of(data, at) for at in range(4)]
        values = [tried_values(layout, row, of, seen, SAMPLES) for row in rows]
        for trial in range(len(values[0])):
            assert source[number] == of
            turned = [with_source(layout, row, of, value[trial]) for row, value in zip(rows, values, strict=True)]
            obs, action = (jnp.asarray(np.stack(part)) for part in zip(*turned, strict=True))
            got = swap(batch, reference, source[number], order[number], example[number], drawn[number])
            due = again(obs, action, data.next_obs)
            np.testing.assert_array_equal(got.inputs, due.inputs)
            np.testing.assert_array_equal(got.target, due.target)
            # What a predicted change is added to; discrete variables are predicted outright.
            continuous = ~layout.discrete[..., None, None]
            np.testing.assert_array_equal(np.where(continuous, got.current, 0), np.where(continuous, due.current, 0))
            number += 1
    assert number == len(source)


def test_samples_bound_the_number_of_trials() -> None:
    layout = layout_of(MIXED)

    def counts(samples: int, examples: int) -> list[int]:
        source, order, place = trials(layout, samples, examples)
        assert order.shape == (len(source), layout.input_entries)
        assert place.max() < examples
        return [int((source == of).sum()) for of in range(layout.num_sources)]

    # ball.place (continuous), ball.held (3 values), lamp.on (2), wind.force (continuous), wind.from (4), action (3)
    assert counts(1, 5) == [1, 1, 1, 1, 1, 1]
    assert counts(2, 5) == [2, 2, 1, 2, 2, 2]
    assert counts(8, 5) == [5, 2, 1, 5, 3, 2]
    assert counts(8, 20) == [8, 2, 1, 8, 3, 2]
    for samples in (0, -1):
        with pytest.raises(ValueError, match=f"samples={samples} given; at least 1 other value"):
            Intervention(samples=samples)


# Scores against their definition.


def plain_step(layout: Layout, seen: Transitions, variable: int) -> float:
    """A typical change of a continuous variable."""
    columns = layout.factors.flat_slice(variable)
    lengths = np.linalg.norm(np.asarray(seen.next_obs - seen.obs, np.float64)[:, columns], axis=1)
    counted = lengths[lengths > plain_still(layout, seen, variable)]
    return float(np.sqrt(np.mean(counted**2)))


def plain_still(layout: Layout, seen: Transitions, variable: int) -> float:
    """The largest change that counts as none."""
    values = np.asarray(seen.obs, np.float64)[:, layout.factors.flat_slice(variable)]
    return float(np.sqrt(((values - values.mean(axis=0)) ** 2).sum(axis=1).mean())) / 1000


def normals_apart(distance: float, spread: float) -> float:
    return float(2 * stats.norm.cdf(distance / (2 * spread)) - 1)


def plain_distance(layout: Layout, child: int, one: np.ndarray, other: np.ndarray, seen: Transitions) -> float:
    """Total variation between two predictions `[child, slot, value]`, the largest over a child's variables."""
    found = []
    for index, (variable, (owner, slot)) in enumerate(zip(layout.factors.variables, layout.child_of, strict=True)):
        if owner != child:
            continue
        p, q = (out[child, slot, : variable.kind.encoded_size].astype(np.float64) for out in (one, other))
        if isinstance(variable.kind, Discrete):
            found.append(float(np.abs(special.softmax(p) - special.softmax(q)).sum() / 2))
        else:
            found.append(normals_apart(float(np.linalg.norm(p - q)), plain_step(layout, seen, index) / 16))
    return max(found)


def plain_moved(layout: Layout, child: int, before: np.ndarray, after: np.ndarray, seen: Transitions) -> bool:
    """Whether any variable of a child's entity moved."""
    entity = child if layout.network.children == "entity" else layout.factors.entity_of[child]
    found = []
    for index in range(*layout.factors.entity_slices[entity].indices(layout.factors.num_variables)):
        columns = layout.factors.flat_slice(index)
        change = float(np.linalg.norm(after[columns].astype(np.float64) - before[columns].astype(np.float64)))
        discrete = isinstance(layout.factors.variables[index].kind, Discrete)
        found.append(change > (0 if discrete else plain_still(layout, seen, index)))
    return any(found)


def plain_own(layout: Layout) -> Float[np.ndarray, "dst src"]:
    """The edges that what stays as it was has: those of its own variables."""
    own = np.zeros((layout.num_children, layout.num_sources))
    for variable, entity in enumerate(layout.factors.entity_of):
        own[entity if layout.network.children == "entity" else variable, variable] = 1
    return own


def plain_scores(
    layout: Layout, net: Network, data: Transitions, seen: Transitions
) -> Float[np.ndarray, "batch dst src"]:
    """The detector's formula without the gate, for one example, source, value and child after the other."""

    @jax.jit
    def of_arrays(obs: Array, action: Array) -> Float[Array, "child slot value"]:
        return forward(layout, net, encode(layout, obs, action, obs).inputs).out[..., 0]

    def predicted(row: Plain) -> np.ndarray:
        """Logits of discrete variables, and of continuous ones the value with the change added."""
        out = np.array(of_arrays(jnp.asarray(row[0])[None], jnp.asarray(row[1])[None]))
        for index, (variable, place) in enumerate(zip(layout.factors.variables, layout.child_of, strict=True)):
            if not isinstance(variable.kind, Discrete):
                out[place][: variable.kind.size] += row[0][layout.factors.flat_slice(index)]
        return out

    scores = np.zeros((len(data.obs), layout.num_children, layout.num_sources))
    for example, source in np.ndindex(len(data.obs), layout.num_sources):
        row = row_of(data, example)
        base, values = predicted(row), counted_values(layout, row, source, seen, SAMPLES)
        for value in values:
            other = predicted(with_source(layout, row, source, value))
            for child in range(layout.num_children):
                scores[example, child, source] += plain_distance(layout, child, base, other, seen) / len(values)
    return scores


@pytest.mark.parametrize("children", GRANULARITIES)
@pytest.mark.parametrize("world", some_slow(WORLDS, set(WORLDS) - {"mixed"}))
def test_scores_are_mean_changes_of_the_prediction(world: str, children: Granularity) -> None:
    layout = world_layout(world, children, "variable" if children == "entity" else "entity")
    data, seen, net = some_transitions(layout), seen_transitions(layout), some_network(layout)

    @jax.jit
    def both(batch: Batch, reference: Reference) -> list[Float[Array, "batch dst src"]]:
        detectors = (Intervention(samples=SAMPLES, gate=gate) for gate in (False, True))
        return [detector.scores(layout, Model(net, {}), batch, reference) for detector in detectors]

    free, gated = both(batch_of(layout, data), reference_of(layout, seen))
    expected = plain_scores(layout, net, data, seen)
    assert free.shape == gated.shape == (4, layout.num_children, layout.num_sources)
    np.testing.assert_allclose(free, expected, rtol=2e-3, atol=2e-6)
    assert np.any(free[0])
    own = plain_own(layout)
    np.testing.assert_array_equal(gated[0], own)
    for example, (before, after) in enumerate(zip(np.asarray(data.obs), np.asarray(data.next_obs), strict=True)):
        for child in range(layout.num_children):
            change = plain_moved(layout, child, before, after, seen)
            due = change * expected[example, child] + (1 - change) * own[child]
            np.testing.assert_allclose(gated[example, child], due, rtol=2e-3, atol=2e-6)


@pytest.mark.parametrize(("difference", "spread"), [(0.0, 1.0), (0.3, 1.0), (1.0, 0.5), (-2.5, 0.7), (40.0, 2.0)])
def test_continuous_predictions_are_apart_as_far_as_normal_distributions(difference: float, spread: float) -> None:
    layout = Layout(Factors((Entity("ball", (Variable("x", Continuous(1)),)),)), ACTION, NetworkConfig())
    one = jnp.zeros((1, 1, 1, 1))
    inputs, still = jnp.zeros((layout.num_inputs, layout.input_entries, 1)), jnp.zeros((1, 1))
    reference = Reference(inputs, still, jnp.full((1, 1), 16 * spread), inputs[..., 0] > 0)
    got = total_variation(layout, one, one + difference, reference)

    def gap(x: float) -> float:
        return float(abs(stats.norm.pdf(x, 0, spread) - stats.norm.pdf(x, difference, spread)) / 2)

    ends = sorted((0.0, difference))
    bounds = ends[0] - 10 * spread, ends[1] + 10 * spread
    expected, _ = integrate.quad(gap, *bounds, points=[*ends, difference / 2], limit=200)
    np.testing.assert_allclose(got, [[expected]], rtol=1e-4, atol=1e-6)


def test_discrete_predictions_are_apart_by_the_probability_that_must_move() -> None:
    layout = layout_of(Factors((Entity("dial", (Variable("at", Discrete(3)),)),)))
    one, other = (jnp.log(jnp.array(p))[None, None, :, None] for p in ([0.5, 0.3, 0.2], [0.1, 0.3, 0.6]))
    reference = reference_of(layout, seen_transitions(layout))
    np.testing.assert_allclose(total_variation(layout, one, other, reference), [[0.4]], rtol=1e-5)


# What moved.


def test_values_that_never_occurred_say_nothing() -> None:
    """A door that was never open is no cause, whatever an untrained model makes of open doors."""
    layout = world_layout("discrete", inputs="variable")
    data, seen, net = some_transitions(layout), seen_transitions(layout), some_network(layout)
    detector = Intervention(samples=SAMPLES, gate=False)
    read = jax.jit(lambda reference: detector.scores(layout, Model(net, {}), batch_of(layout, data), reference))
    for source in range(layout.num_sources - 1):
        columns = layout.factors.flat_slice(source)
        still = Transitions(seen.obs.at[:, columns].set(data.obs[0, columns]), seen.action, seen.next_obs)
        scores = np.asarray(read(reference_of(layout, still)))
        assert not scores[0, :, source].any()
        others = np.delete(np.arange(layout.num_sources), source)
        np.testing.assert_allclose(scores[0][:, others], np.asarray(read(reference_of(layout, seen)))[0][:, others])


def test_values_are_spread_over_what_occurred_however_often_it_did() -> None:
    """A pot that stands on the stove in 97 of 100 examples is tried where else it was, before anywhere twice."""
    factors = Factors(tuple(Entity(name, (Variable("place", Continuous(2)),)) for name in ("pot", "ball")))
    layout = Layout(factors, ACTION, NetworkConfig())
    rng = np.random.default_rng(0)
    places = np.full((100, 2), 0.4) + rng.normal(0, 0.001, (100, 2))
    places[[13, 57, 88]] = [[-0.5, 0.0], [0.0, 0.6], [0.4, -0.3]]
    obs = np.concatenate([places, rng.uniform(-1, 1, (100, 2))], axis=1).astype(np.float32)
    reference = reference_of(layout, Transitions(jnp.asarray(obs), jnp.zeros(100, jnp.int32), jnp.asarray(obs)))
    picks, new, least = (np.asarray(part) for part in far_apart(layout, reference, 4))
    assert picks.shape == new.shape == (layout.num_sources, 4)
    assert new[:2].all()
    np.testing.assert_allclose(least[0], ((places[13] - places[0]) ** 2).sum() * 1e-6, rtol=1e-4)
    assert set(picks[0]) == {0, 13, 57, 88}
    assert len(set(picks[1])) == 4
    assert set(picks[1]) != set(picks[0])


@pytest.mark.parametrize("kind", [Continuous(1), Discrete(2), Discrete(20)], ids=["continuous", "few", "many"])
@pytest.mark.parametrize("first", [0, 1])
def test_a_cause_with_two_values_is_tried_at_the_other_one_alone(kind: Kind, first: int) -> None:
    """However often each occurred, whichever came first, and however many values there might be."""
    entities = (Entity("dial", (Variable("at", kind),)), Entity("lamp", (Variable("on", Discrete(2)),)))
    layout = Layout(Factors(entities), ACTION, NetworkConfig())
    rng = np.random.default_rng(0)
    at = np.where(rng.random(50) < 0.9, first, 1 - first)
    at[0] = first
    obs = np.stack([at, rng.integers(0, 2, 50)], axis=1).astype(np.float32)
    data = Transitions(jnp.asarray(obs), jnp.zeros(50, jnp.int32), jnp.asarray(np.stack([at, at], axis=1), jnp.float32))
    batch, reference = batch_of(layout, data), reference_of(layout, data)
    entry = int(np.argmax(layout.input_source[0] == 0))

    def lamp(tried: Batch) -> Float[Array, "child batch"]:
        """How much a lamp that copies the dial changes."""
        now, then = (each.inputs[0, entry + (0 if isinstance(kind, Continuous) else 1)] for each in (batch, tried))
        return jnp.stack([jnp.zeros_like(now), (now != then).astype(now.dtype)])

    scores = np.asarray(jax.jit(lambda: sum_up(*try_values(layout, batch, reference, 8, lamp)))())
    np.testing.assert_array_equal(scores[:, 1, 0], 1.0)
    np.testing.assert_array_equal(scores[:, 1, 1:], 0.0)


@pytest.mark.parametrize("children", GRANULARITIES)
@pytest.mark.parametrize("world", WORLDS)
def test_an_entity_moved_where_any_of_its_variables_did(world: str, children: Granularity) -> None:
    layout = world_layout(world, children, "variable" if children == "entity" else "entity")
    data, seen = some_transitions(layout), seen_transitions(layout)
    got = np.asarray(jax.jit(partial(changed, layout))(batch_of(layout, data), reference_of(layout, seen))).T
    before, after = np.asarray(data.obs), np.asarray(data.next_obs)
    for child, example in np.ndindex(*got.shape):
        assert got[child, example] == plain_moved(layout, child, before[example], after[example], seen)
    assert not got[:, 0].any()
    # In the second transition nothing but the first entity's last variable moved, which counts for all of the entity.
    mine = 1 if children == "entity" else layout.factors.entity_slices[0].stop
    assert (got[:mine, 1] > 0).all()
    assert not got[mine:, 1].any()


def test_what_hardly_moves_has_a_yardstick_too() -> None:
    """A jitter counts as no change, what never changed is measured by its deviation, and what never varies by 1."""
    factors = Factors((Entity("cup", tuple(Variable(name, Continuous(1)) for name in ("lid", "x", "shake"))),))
    layout = Layout(factors, ACTION, NetworkConfig())
    rng = np.random.default_rng(0)
    x, shake = rng.normal(0, 2, 500), rng.normal(0, 1, 500)
    after = shake + np.where(np.arange(500) % 5 == 0, 0.3, 1e-5)
    obs, next_obs = (np.stack([np.full(500, 7.0), x, last], 1).astype(np.float32) for last in (shake, after))
    data = Transitions(jnp.asarray(obs), jnp.zeros(500, jnp.int32), jnp.asarray(next_obs))
    few = jax.jit(partial(Reference.of, layout, examples=3))
    reference: Reference = few(data.obs, data.action, data.next_obs)
    assert reference.inputs.shape[-1] == 3
    np.testing.assert_allclose(reference.step[:, 0], [1.0, x.std(), 0.3], rtol=1e-3)
    change = np.asarray(compiled(changed, layout)(batch_of(layout, data), reference))
    np.testing.assert_array_equal(change.T, np.broadcast_to(np.arange(500) % 5 == 0, (3, 500)))


@pytest.mark.slow
def test_the_own_past_of_a_continuous_variable_counts() -> None:
    """Of a perfect model of x' = x + 1 every detector that tries values, or takes derivatives, finds x ← x."""
    factors = Factors(tuple(Entity(name, (Variable("x", Continuous(1)),)) for name in ("one", "two")))
    layout = Layout(factors, ACTION, NetworkConfig(features=(4,), heads=1, head_size=2, mlp=(4,)))
    net = jax.tree.map(jnp.zeros_like, some_network(layout))
    net = replace(net, head=replace(net.head, bias=jnp.ones_like(net.head.bias)))
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(6, 2)).astype(np.float32)
    data = Transitions(jnp.asarray(obs), jnp.zeros(6, jnp.int32), jnp.asarray(obs + 1.3))
    batch, reference = batch_of(layout, data), reference_of(layout, data)
    np.testing.assert_allclose(forward(layout, net, batch.inputs).out, 1.0)
    own = np.eye(2, 3, dtype=bool)
    gradient = Gradient().scores(layout, Model(net, {}), batch, reference)
    np.testing.assert_allclose(gradient, np.broadcast_to(0.3 * own, (6, 2, 3)), rtol=1e-5, atol=1e-7)
    for detector in (PcmiSampled(), Intervention(gate=False)):
        scores = np.asarray(detector.scores(layout, Model(net, {}), batch, reference))
        assert (np.abs(scores[:, own]).max(axis=0) > 0.05).all(), detector
        np.testing.assert_allclose(scores[:, ~own], 0.0, atol=1e-6)


# A world whose dependencies are switched on and off.

SWITCHED = Factors(
    (
        Entity("switch", (Variable("on", Discrete(2)),)),
        Entity("box", (Variable("value", Discrete(3)),)),
        Entity("dial", (Variable("value", Discrete(3)),)),
    )
)
SWITCH, BOX, DIAL, DO = range(4)


def switched_world(size: int, seed: int) -> Transitions:
    """The switch becomes what the action says; the box copies the dial where the switch is on; the dial stays."""
    rng = np.random.default_rng(seed)
    on, value, dial, action = (rng.integers(0, n, size) for n in (2, 3, 3, 2))
    after = [action, np.where(on == 1, dial, value), dial]
    obs, next_obs = (jnp.asarray(np.stack(x, -1), jnp.int32) for x in ([on, value, dial], after))
    return Transitions(obs, jnp.asarray(action, jnp.int32), next_obs)


@lru_cache
def trained() -> tuple[Layout, Model]:
    network = NetworkConfig(features=(16,), heads=2, head_size=4, mlp=(16,))
    layout = Layout(SWITCHED, Discrete(2), network)
    trainer = Trainer(layout, TrainConfig(learning_rate=2e-2, mixup=0.5), members=4)
    train = partial(trainer.train, num_updates=500, derivatives=False)
    state = jax.jit(trainer.init)(jax.random.key(0))
    state, _ = jax.jit(train)(state, trainer.settings(), switched_world(2048, 0), jax.random.key(1))
    return layout, state.model


def switched_scores(detector: Intervention, data: Transitions) -> Float[np.ndarray, "time dst src"]:
    """Means over the members, as in every study."""
    layout, models = trained()
    batch, reference = batch_of(layout, data), reference_of(layout, switched_world(32, 7))

    @jax.jit
    def scores(models: Model) -> Float[Array, "time dst src"]:
        return jnp.mean(jax.vmap(lambda model: detector.scores(layout, model, batch, reference))(models), axis=0)

    return np.asarray(scores(models))


@pytest.mark.slow
def test_without_the_gate_it_switches_exactly_with_the_switch() -> None:
    data = switched_world(256, 1)
    scores, on = switched_scores(Intervention(gate=False), data), np.asarray(data.obs[:, SWITCH]) == 1
    truth = np.zeros(scores.shape, bool)
    truth[:, SWITCH, DO] = truth[:, DIAL, DIAL] = True
    truth[:, BOX, BOX], truth[:, BOX, DIAL] = ~on, on
    kept = np.ones(truth.shape[1:], bool)
    kept[BOX, SWITCH] = False  # which matters only where the box and the dial differ
    assert roc_auc_score(truth[:, kept].ravel(), scores[:, kept].ravel()) > 0.99
    assert scores[on, BOX, DIAL].min() > scores[~on, BOX, DIAL].max()


def test_with_the_gate_it_finds_the_causes_of_what_happened() -> None:
    """A box that changed has the dial and the switch as causes, a switch that changed the action, the others their own
    past."""
    data = switched_world(256, 1)
    scores = switched_scores(Intervention(), data)
    changed = np.asarray(data.obs != data.next_obs)
    truth = np.zeros(scores.shape, bool)
    truth[:, SWITCH, DO] = changed[:, SWITCH]
    truth[:, BOX, DIAL] = truth[:, BOX, SWITCH] = changed[:, BOX]
    own = np.eye(3, 4, dtype=bool)
    kept = ~own
    assert roc_auc_score(truth[:, kept].ravel(), scores[:, kept].ravel()) > 0.99
    assert np.median(scores[truth]) > 0.8
    np.testing.assert_array_equal(scores[~changed], np.broadcast_to(own, scores.shape)[~changed])
