"""Where things stand in the networks' arrays, against the encodings of `elden.factors`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import random_actions, reset_many, world_of
from dynamics_cases import DISCRETE, GRANULARITIES, MIXED, layout_of, random_action, random_obs
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Array, Num

from elden.dynamics.config import NetworkConfig, TrainConfig
from elden.dynamics.layout import Layout
from elden.factors import Continuous, Discrete, Factors, Granularity, Kind

SIZE = 7


def expected_inputs(
    factors: Factors, action: Kind, inputs: Granularity, obs: Num[Array, "batch width"], acts: Num[Array, "..."]
) -> np.ndarray:
    """`[input, entry, batch]` out of what `Factors` says of states, and the action after them."""
    rows = np.asarray(factors.padded(factors.one_hot(obs), inputs))
    if isinstance(action, Discrete):
        last = np.asarray(jax.nn.one_hot(acts, action.n))
    else:
        last = np.asarray(acts).reshape(obs.shape[0], action.size)
    width = max(rows.shape[-1], last.shape[-1])
    both = np.zeros((obs.shape[0], rows.shape[1] + 1, width), np.float32)
    both[:, :-1, : rows.shape[-1]] = rows
    both[:, -1, : last.shape[-1]] = last
    return both.transpose(1, 2, 0)


def expected_target(factors: Factors, children: Granularity, obs: Num[Array, "batch width"]) -> np.ndarray:
    """`[child, slot, value, batch]`: the padded rows of variables, dealt out to children."""
    rows = np.asarray(factors.padded(factors.one_hot(obs), "variable"))
    if children == "variable":
        return rows[:, :, None].transpose(1, 2, 3, 0)
    slots = max(part.stop - part.start for part in factors.entity_slices)
    target = np.zeros((factors.num_entities, slots, rows.shape[-1], rows.shape[0]), np.float32)
    for entity, part in enumerate(factors.entity_slices):
        target[entity, : part.stop - part.start] = rows[:, part].transpose(1, 2, 0)
    return target


@pytest.mark.parametrize(("children", "inputs"), [("variable", "entity"), ("entity", "variable")])
@pytest.mark.parametrize("case", ["thawing", "carwash", "chain-continuous"])
def test_worlds_are_encoded_as_their_factors_say(case: str, inputs: Granularity, children: Granularity) -> None:
    world = world_of(case)
    layout = layout_of(world.factors, children, inputs, action=Discrete(world.num_actions))
    obs = jax.vmap(world.observe)(reset_many(world)(jax.random.key(1)))
    actions = random_actions(world, jax.random.key(2))
    expected = expected_inputs(world.factors, layout.action, inputs, obs, actions)
    np.testing.assert_array_equal(jax.jit(layout.encode)(obs, actions), expected)
    np.testing.assert_array_equal(jax.jit(layout.target)(obs), expected_target(world.factors, children, obs))
    assert (layout.num_inputs, layout.input_entries) == expected.shape[:2]


@pytest.mark.parametrize("action", [Discrete(20), Continuous(3)])
@pytest.mark.parametrize(("children", "inputs"), [("variable", "entity"), ("entity", "variable")])
def test_mixed_kinds_are_encoded_as_their_factors_say(inputs: Granularity, children: Granularity, action: Kind) -> None:
    layout = layout_of(MIXED, children, inputs, action=action)
    rng = np.random.default_rng(0)
    obs, actions = random_obs(MIXED, rng, SIZE), random_action(action, rng, SIZE)
    expected = expected_inputs(MIXED, action, inputs, obs, actions)
    np.testing.assert_array_equal(jax.jit(layout.encode)(obs, actions), expected)
    np.testing.assert_array_equal(jax.jit(layout.target)(obs), expected_target(MIXED, children, obs))


@pytest.mark.parametrize("factors", [MIXED, DISCRETE])
@pytest.mark.parametrize("inputs", GRANULARITIES)
@given(data=st.data())
def test_a_value_out_of_range_leaves_its_own_block_zero_and_no_other(
    factors: Factors, inputs: Granularity, data: st.DataObject
) -> None:
    layout = layout_of(factors, inputs=inputs)
    kinds = [variable.kind for variable in factors.variables]
    chosen = data.draw(st.sampled_from([i for i, kind in enumerate(kinds) if isinstance(kind, Discrete)]))
    kind = kinds[chosen]
    assert isinstance(kind, Discrete)
    value = data.draw(st.one_of(st.integers(-30, -1), st.integers(kind.n, kind.n + 30)))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    obs, actions = np.array(random_obs(factors, rng, 1)), random_action(layout.action, rng, 1)
    before = np.array(layout.encode(jnp.asarray(obs), actions))
    obs[0, factors.offsets[chosen]] = value
    after = np.array(layout.encode(jnp.asarray(obs), actions))
    own = layout.input_source == chosen
    assert before[own].sum() == 1
    assert not after[own].any()
    np.testing.assert_array_equal(after[~own], before[~own])


@pytest.mark.parametrize("inputs", GRANULARITIES)
def test_every_entry_knows_its_source(inputs: Granularity) -> None:
    layout = layout_of(MIXED, inputs=inputs, action=Continuous(2))
    kinds = [*(variable.kind for variable in MIXED.variables), layout.action]
    for source, (row, first, size) in enumerate(layout.source_entries):
        assert size == kinds[source].encoded_size
        own = np.zeros_like(layout.input_source, dtype=bool)
        own[row, first : first + size] = True
        np.testing.assert_array_equal(layout.input_source == source, own)
        assert (layout.input_continuous[own] == isinstance(kinds[source], Continuous)).all()
    padding = layout.input_source < 0
    assert padding.any()
    assert not layout.input_continuous[padding].any()


def test_masks_of_targets_by_hand() -> None:
    layout = layout_of(MIXED, "entity")
    # ball: place (2 components) and held (3 values); lamp: on; wind: force and from.
    assert layout.slot_mask.tolist() == [[True, True], [True, False], [True, True]]
    assert layout.discrete.tolist() == [[False, True], [True, False], [False, True]]
    assert layout.target_mask.sum(-1).tolist() == [[2, 3], [2, 0], [1, 4]]
    assert layout.num_entries == 4
    assert layout.names("entity") == ("ball", "lamp", "wind")


def test_each_child_asks_with_its_own_input_by_hand() -> None:
    by_entity = layout_of(MIXED, "variable", "entity").query
    assert np.argmax(by_entity, axis=1).tolist() == [0, 0, 1, 2, 2]
    by_variable = layout_of(MIXED, "entity", "variable").query
    assert np.argmax(by_variable, axis=1).tolist() == [0, 2, 3]
    assert (by_entity.sum(1) == 1).all()
    assert (by_variable.sum(1) == 1).all()


@pytest.mark.parametrize(("obs", "action"), [((4, 5), (4,)), ((4, 6), (4, 2))])
def test_arrays_of_other_shapes_are_refused(obs: tuple[int, ...], action: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected \[batch, 6\] and \[batch\] or \[batch, 1\]"):
        layout_of(MIXED).encode(jnp.zeros(obs), jnp.zeros(action, jnp.int32))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"features": ()}, "at least one width"),
        ({"mlp": (8, 0)}, "at least one width"),
        ({"heads": 0}, "both must be 1 or more"),
        ({"features": (8, 16), "mlp": (8, 8)}, "residual connections"),
    ],
)
def test_impossible_networks_are_refused(bad: dict[str, int | tuple[int, ...]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NetworkConfig(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"batch_size": 0}, "at least 1"),
        ({"clip": 0.0}, "above 0"),
        ({"learning_rate": float("nan")}, "above 0"),
        ({"priority": -0.5}, "0 or more"),
        ({"penalty_start": 5, "penalty_stop": 4}, "not end before it starts"),
    ],
)
def test_impossible_trainings_are_refused(bad: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainConfig(**bad)  # type: ignore[arg-type]


def test_equal_layouts_are_one_static_argument() -> None:
    first, second = (Layout(MIXED, Discrete(3), NetworkConfig()) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
