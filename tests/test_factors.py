"""What a state is made of: layouts, encodings, graph reduction, and the named and Gymnasium forms."""

import importlib.util
import itertools
import random
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from hypothesis import given, settings
from hypothesis import strategies as st

import elden.factors as factors_module
from elden.factors import Continuous, Discrete, Entity, Factors, Granularity, Kind, Reduction, Variable
from elden.names import shown

GRANULARITIES: tuple[Granularity, ...] = ("variable", "entity")

# Deliberately not in alphabetical order. Flat columns:
# robot.pos 0:2 | fish.x 2, fish.frozen 3 | door.open 4, door.heat 5, door.lock 6
WORLD = Factors(
    (
        Entity("robot", (Variable("pos", Continuous(2, -1.0, 1.0)),)),
        Entity("fish", (Variable("x", Discrete(3)), Variable("frozen", Discrete(2)))),
        Entity(
            "door",
            (
                Variable("open", Discrete(2)),
                Variable("heat", Continuous(low=0)),
                Variable("lock", Discrete(4)),
            ),
        ),
    )
)
OBS = np.array([0.5, -1.0, 2, 1, 0, 7.5, 3], np.float32)
DISCRETE = Factors(
    (
        Entity("z", (Variable("x", Discrete(3)), Variable("y", Discrete(2)))),
        Entity("a", (Variable("on", Discrete(2)),)),
    )
)
CONTINUOUS = Factors(
    (
        Entity("z", (Variable("pos", Continuous(2, -1, 1)), Variable("vel", Continuous(1, -0.1, 0.1)))),
        Entity("a", (Variable("t", Continuous()),)),
    )
)


def raises(message: str) -> Any:
    """`pytest.raises` of a ValueError with exactly this message."""
    return pytest.raises(ValueError, match=f"^{re.escape(message)}$")


@pytest.fixture(scope="module")
def plain() -> Any:
    """The module as users load it, without the runtime type checks that would answer first."""
    assert factors_module.__file__ is not None
    spec = importlib.util.spec_from_file_location("plain_factors", factors_module.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["plain_factors"] = module
    spec.loader.exec_module(module)
    return module


def names() -> st.SearchStrategy[str]:
    return st.text("abxyz_01", min_size=1, max_size=4)


def kinds() -> st.SearchStrategy[Kind]:
    floats = st.floats(-1000, 1000, width=32)
    bounds = st.tuples(floats, floats).map(sorted).filter(lambda pair: pair[0] < pair[1])
    edges = st.one_of(
        bounds,
        st.just([-np.inf, np.inf]),
        floats.map(lambda low: [low, np.inf]),
        floats.map(lambda high: [-np.inf, high]),
    )
    continuous = st.builds(lambda size, edge: Continuous(size, *edge), st.integers(1, 3), edges)
    return st.one_of(st.integers(1, 5).map(Discrete), continuous)


@st.composite
def worlds(draw: st.DrawFn) -> Factors:
    # beartype picks the item of a container to check with `random`, which hypothesis forbids in a strategy.
    state = random.getstate()
    entities = []
    for entity in draw(st.lists(names(), min_size=1, max_size=4, unique=True)):
        chosen = draw(st.lists(names(), min_size=1, max_size=3, unique=True))
        entities.append(Entity(entity, tuple(Variable(name, draw(kinds())) for name in chosen)))
    factors = Factors(tuple(entities))
    random.setstate(state)
    return factors


def sample_obs(factors: Factors, seed: int, batch: tuple[int, ...] = ()) -> np.ndarray:
    """Random flat observations within range."""
    rng = np.random.default_rng(seed)
    columns: list[np.ndarray] = []
    for variable in factors.variables:
        if isinstance(variable.kind, Discrete):
            columns.append(rng.integers(0, variable.kind.n, (*batch, 1)))
        else:
            low, high = max(variable.kind.low, -2000.0), min(variable.kind.high, 2000.0)
            values = rng.uniform(low, high, (*batch, variable.kind.size)).astype(np.float32)
            columns.append(np.clip(values, np.float32(low), np.float32(high)))
    return np.concatenate(columns, axis=-1).astype(factors.dtype)


class TestDescription:
    def test_names_and_indices(self) -> None:
        assert WORLD.entity_names == ("robot", "fish", "door")
        assert WORLD.variable_names == (
            "robot.pos",
            "fish.x",
            "fish.frozen",
            "door.open",
            "door.heat",
            "door.lock",
        )
        assert (WORLD.num_entities, WORLD.num_variables) == (3, 6)
        assert [variable.name for variable in WORLD.variables] == [
            "pos",
            "x",
            "frozen",
            "open",
            "heat",
            "lock",
        ]
        assert WORLD.variable_index("door.heat") == 4
        assert WORLD.entity_index("door") == 2
        assert WORLD.entity_of == (0, 1, 1, 2, 2, 2)
        assert WORLD.entity_slices == (slice(0, 1), slice(1, 3), slice(3, 6))
        assert WORLD.source_names("entity") == ("robot", "fish", "door", "action")
        assert WORLD.source_names("variable") == (*WORLD.variable_names, "action")

    def test_flat_layout(self) -> None:
        assert WORLD.width == 7
        assert WORLD.offsets == (0, 2, 3, 4, 5, 6)
        assert WORLD.flat_slice(0) == slice(0, 2)
        assert WORLD.flat_slice(4) == slice(5, 6)
        assert WORLD.dtype == np.float32
        assert DISCRETE.dtype == np.int32

    def test_encoded_layout(self) -> None:
        assert WORLD.encoded_width == 2 + 3 + 2 + 2 + 1 + 4
        assert WORLD.encoded_slice(0) == slice(0, 2)
        assert WORLD.encoded_slice(5) == slice(10, 14)
        assert WORLD.encoded_owner("variable").tolist() == [0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 5, 5, 5, 5]
        assert WORLD.encoded_owner("entity").tolist() == [0] * 2 + [1] * 5 + [2] * 7

    @given(worlds())
    def test_layouts_are_partitions(self, factors: Factors) -> None:
        for take, width in (
            (factors.flat_slice, factors.width),
            (factors.encoded_slice, factors.encoded_width),
        ):
            covered = [list(range(width))[take(i)] for i in range(factors.num_variables)]
            assert list(itertools.chain(*covered)) == list(range(width))
        for i, name in enumerate(factors.variable_names):
            assert factors.variable_index(name) == i
            assert name.split(".")[0] == factors.entity_names[factors.entity_of[i]]
            assert (factors.encoded_owner("variable")[factors.encoded_slice(i)] == i).all()
        owner = np.array(factors.entity_of)[factors.encoded_owner("variable")]
        np.testing.assert_array_equal(owner, factors.encoded_owner("entity"))

    def test_is_a_value(self) -> None:
        again = Factors(tuple(WORLD.entities))
        assert again == WORLD
        assert hash(again) == hash(WORLD)
        assert Factors(WORLD.entities[::-1]) != WORLD
        with pytest.raises(AttributeError):
            WORLD.entities = ()  # type: ignore[misc]

    def test_add_appends_entities(self) -> None:
        merged = Factors(WORLD.entities[:1]) + Factors(WORLD.entities[1:])
        assert merged == WORLD
        with raises("names of entities must differ; given more than once: 'a', 'z'"):
            DISCRETE + CONTINUOUS

    def test_str_is_an_aligned_table(self) -> None:
        assert str(WORLD).splitlines() == [
            "index  entity  variable  kind        range     columns",
            "0      robot   pos       continuous  [-1, 1]   0:2",
            "1      fish    x         discrete    0..2      2",
            "2      fish    frozen    discrete    0..1      3",
            "3      door    open      discrete    0..1      4",
            "4      door    heat      continuous  [0, inf]  5",
            "5      door    lock      discrete    0..3      6",
        ]

    def test_bounds_have_the_precision_of_observations(self) -> None:
        assert Continuous(1, 0.1, 0.3).low == 0.1
        assert Continuous(1, 1 / 3).low == 0.33333334
        assert Continuous(1, 0, 1e300) == Continuous(1, 0.0, float("inf"))
        assert isinstance(Continuous(1, 0, 1).low, float)


class TestValidation:
    @pytest.mark.parametrize("n", [0, -3, 2**24 + 1])
    def test_discrete(self, n: int) -> None:
        with raises(f"Discrete(n={n}): n must lie between 1 and 16777216"):
            Discrete(n)

    def test_continuous(self) -> None:
        with raises("Continuous(size=0): size must be at least 1"):
            Continuous(0)
        for low, high in ((1.0, 0.5), (1.0, 1.0 + 1e-12), (float("nan"), 1.0), (0.0, float("nan"))):
            with raises(f"Continuous(low={low}, high={high}): low must be below high in float32"):
                Continuous(1, low, high)

    @pytest.mark.parametrize("name", ["", "a.b"])
    def test_names(self, name: str) -> None:
        with raises(f"variable name {name!r}: a name must not be empty or contain '.'"):
            Variable(name, Discrete(2))
        with raises(f"entity name {name!r}: a name must not be empty or contain '.'"):
            Entity(name, (Variable("x", Discrete(2)),))

    def test_entities(self) -> None:
        x = Variable("x", Discrete(2))
        with raises("no entity can be called 'action': every graph has a source of that name"):
            Entity("action", (x,))
        with raises("entity 'fish' has no variables; give it at least one"):
            Entity("fish", ())
        with raises("names of variables of entity 'fish' must differ; given more than once: 'x'"):
            Entity("fish", (x, x))
        with raises("names of entities must differ; given more than once: 'fish'"):
            Factors((Entity("fish", (x,)), Entity("fish", (x,))))
        with raises("Factors needs at least one entity"):
            Factors(())

    def test_unknown_names_suggest_near_ones(self) -> None:
        with raises("unknown variable 'fish.frozn'; did you mean 'fish.frozen' or 'fish.x'?"):
            WORLD.variable_index("fish.frozn")
        with raises("unknown entity 'fsh'; did you mean 'fish'?"):
            WORLD.entity_index("fsh")
        with raises("unknown entity 'qqq'; known: robot, fish, door"):
            WORLD.entity_index("qqq")

    def test_unknown_choices(self, plain: Any) -> None:
        factors = plain.Factors((plain.Entity("a", (plain.Variable("x", plain.Discrete(2)),)),))
        message = "granularity='colour' is not one of 'variable', 'entity'"
        encoded, padded, graph = np.zeros(2), np.zeros((1, 2)), np.zeros((1, 2), bool)
        calls: list[Callable[[], object]] = [
            lambda: factors.source_names("colour"),
            lambda: factors.encoded_owner("colour"),
            lambda: factors.padding_mask("colour"),
            lambda: factors.padded(encoded, "colour"),
            lambda: factors.unpadded(padded, "colour"),
        ]
        for call in calls:
            with raises(message):
                call()
        for axis in ("dst", "src"):
            with raises(f"{axis}='colour' is not one of 'variable', 'entity'"):
                factors.reduce_graph(graph, **{axis: "colour"})
        with raises("how='mean' is not one of 'auto', 'any', 'max', 'sum'"):
            factors.reduce_graph(graph, how="mean")

    def test_wrong_shapes(self, plain: Any) -> None:
        factors = plain.Factors((plain.Entity("a", (plain.Variable("x", plain.Discrete(3)),)),))
        for name in ("one_hot", "in_range", "to_named", "to_space_sample"):
            for shape in ((4, 2), ()):
                with raises(f"a flat observation of these factors has shape [..., 1], got {shape}"):
                    getattr(factors, name)(np.zeros(shape))
        with raises("an encoded observation of these factors has shape [..., 3], got (2,)"):
            factors.padded(np.zeros(2))
        with raises("a padded observation of these factors has shape [..., 1, 3], got (3, 1)"):
            factors.unpadded(np.zeros((3, 1)))
        with raises("a graph of these factors has shape [..., 1, 2], got (2, 1)"):
            factors.reduce_graph(np.zeros((2, 1)))


class TestEncoding:
    def test_one_hot_by_hand(self) -> None:
        expected = [0.5, -1, 0, 0, 1, 0, 1, 1, 0, 7.5, 0, 0, 0, 1]
        encoded = WORLD.one_hot(OBS)
        assert encoded.dtype == jnp.float32
        assert encoded.tolist() == expected

    def test_one_hot_of_integers_and_out_of_range(self) -> None:
        encoded = DISCRETE.one_hot(jnp.array([[2, 0, 1], [3, -1, 0]], jnp.int32))
        assert encoded.tolist() == [[0, 0, 1, 1, 0, 0, 1], [0, 0, 0, 0, 0, 1, 0]]

    @settings(max_examples=10)
    @given(worlds(), st.integers(0, 99), st.sampled_from([(), (3,), (2, 3), (0,)]))
    def test_one_hot_reads_back(self, factors: Factors, seed: int, batch: tuple[int, ...]) -> None:
        obs = sample_obs(factors, seed, batch)
        encoded = np.asarray(factors.one_hot(obs))
        assert encoded.shape == (*batch, factors.encoded_width)
        for i, variable in enumerate(factors.variables):
            block, values = encoded[..., factors.encoded_slice(i)], obs[..., factors.flat_slice(i)]
            if isinstance(variable.kind, Discrete):
                np.testing.assert_array_equal(block.argmax(-1), values[..., 0])
                np.testing.assert_array_equal(block.sum(-1), 1)
            else:
                np.testing.assert_array_equal(block, values)

    def test_padded_by_hand(self) -> None:
        padded = DISCRETE.padded(DISCRETE.one_hot(np.array([1, 0, 1], np.int32)), "entity")
        assert padded.tolist() == [[0, 1, 0, 1, 0], [0, 1, 0, 0, 0]]
        assert DISCRETE.padding_mask("entity").tolist() == [[True] * 5, [True] * 2 + [False] * 3]
        padded = DISCRETE.padded(DISCRETE.one_hot(np.array([1, 0, 1], np.int32)), "variable")
        assert padded.tolist() == [[0, 1, 0], [1, 0, 0], [0, 1, 0]]
        assert DISCRETE.padding_mask("variable").tolist() == [
            [True] * 3,
            [True, True, False],
            [True, True, False],
        ]

    @settings(max_examples=10)
    @given(worlds(), st.sampled_from(GRANULARITIES), st.sampled_from([(), (3,), (2, 3)]))
    def test_padded_round_trip(self, factors: Factors, granularity: Granularity, batch: tuple[int, ...]) -> None:
        encoded = np.random.default_rng(0).normal(size=(*batch, factors.encoded_width)).astype(np.float32)
        padded = factors.padded(encoded, granularity)
        mask = factors.padding_mask(granularity)
        assert padded.shape == (*batch, *mask.shape)
        assert not np.asarray(padded)[..., ~mask].any()
        np.testing.assert_array_equal(np.asarray(padded)[..., mask], encoded)
        np.testing.assert_array_equal(factors.unpadded(padded, granularity), encoded)
        np.testing.assert_array_equal(factors.unpadded(jnp.where(mask, padded, 9.0), granularity), encoded)
        np.testing.assert_array_equal(np.nonzero(mask)[0], factors.encoded_owner(granularity))

    def test_padded_defaults_to_entities_and_keeps_dtype(self) -> None:
        encoded = np.ones(DISCRETE.encoded_width, bool)
        padded = DISCRETE.padded(encoded)
        assert padded.dtype == jnp.bool_
        np.testing.assert_array_equal(padded, DISCRETE.padding_mask())
        np.testing.assert_array_equal(DISCRETE.unpadded(padded), encoded)

    def test_gradient_reaches_every_entry(self) -> None:
        weights = jnp.arange(1.0, 11.0).reshape(2, 5)
        gradient = jax.grad(lambda encoded: jnp.sum(weights * DISCRETE.padded(encoded)))(jnp.zeros(7))
        assert gradient.tolist() == [1, 2, 3, 4, 5, 6, 7]

    def test_jit_and_vmap(self) -> None:
        obs = sample_obs(WORLD, 0, (4,))
        for method in (Factors.one_hot, Factors.in_range):
            expected = np.stack([method(WORLD, row) for row in obs])
            np.testing.assert_array_equal(method(WORLD, obs), expected)
            np.testing.assert_array_equal(jax.jit(method, static_argnums=0)(WORLD, obs), expected)
            np.testing.assert_array_equal(jax.vmap(lambda row, f=method: f(WORLD, row))(obs), expected)

    def test_equal_factors_trace_once(self) -> None:
        traces = []

        def encode(factors: Factors, obs: jax.Array) -> jax.Array:
            traces.append(factors)
            return factors.unpadded(factors.padded(factors.one_hot(obs)))

        jitted = jax.jit(encode, static_argnums=0)
        for factors in (WORLD, Factors(WORLD.entities)):
            np.testing.assert_array_equal(jitted(factors, jnp.asarray(OBS)), WORLD.one_hot(OBS))
        assert len(traces) == 1


class TestInRange:
    @settings(max_examples=10)
    @given(worlds(), st.integers(0, 99))
    def test_members(self, factors: Factors, seed: int) -> None:
        assert factors.in_range(sample_obs(factors, seed, (2, 3))).all()

    @pytest.mark.parametrize(
        ("column", "value"),
        [
            (0, 1.01),
            (1, -1.01),
            (1, np.nan),
            (2, 3),
            (2, -1),
            (2, 0.5),
            (3, np.nan),
            (5, np.inf),
            (5, -0.1),
            (6, 4),
        ],
    )
    def test_one_bad_column(self, column: int, value: float) -> None:
        obs = np.stack([OBS, OBS])
        obs[1, column] = value
        assert WORLD.in_range(obs).tolist() == [True, False]

    def test_bounds_are_inside(self) -> None:
        factors = Factors((Entity("a", (Variable("x", Continuous(2, 0.1, 0.3)), Variable("n", Discrete(3)))),))
        assert factors.in_range(np.array([0.1, 0.3, 2], np.float32))

    def test_integers_that_float32_rounds(self) -> None:
        factors = Factors((Entity("a", (Variable("x", Discrete(2**24)),)),))
        obs = np.array([[0], [2**24 - 1], [2**24], [2**24 + 1], [2**31 - 1], [-1]], np.int32)
        assert factors.in_range(obs).tolist() == [True, True, False, False, False, False]


def reduce_oracle(factors: Factors, graph: np.ndarray, dst: str, src: str, how: str) -> np.ndarray:
    """One edge at a time."""
    n = factors.num_variables
    rows = factors.entity_of if dst == "entity" else range(n)
    columns = [*(factors.entity_of if src == "entity" else range(n))]
    columns.append(max(columns) + 1)
    fill = -np.inf if how == "max" else 0
    out = np.full((*graph.shape[:-2], max(rows) + 1, max(columns) + 1), fill, graph.dtype)
    combine: Callable[[Any, Any], Any] = {"any": np.logical_or, "max": np.maximum, "sum": np.add}[how]
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            out[..., row, column] = combine(out[..., row, column], graph[..., i, j])
    return out


class TestReduceGraph:
    def test_by_hand(self) -> None:
        # sources: z.x, z.y, a.on, action
        scores = np.array([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]], np.float32)
        assert DISCRETE.reduce_graph(scores).tolist() == [[6, 7, 8], [10, 11, 12]]
        assert DISCRETE.reduce_graph(scores, how="sum").tolist() == [[14, 10, 12], [19, 11, 12]]
        assert DISCRETE.reduce_graph(scores, dst="variable").tolist() == [[2, 3, 4], [6, 7, 8], [10, 11, 12]]
        assert DISCRETE.reduce_graph(scores, src="variable").tolist() == [[5, 6, 7, 8], [9, 10, 11, 12]]
        assert DISCRETE.reduce_graph(scores, "variable", "variable").tolist() == scores.tolist()
        truth = np.zeros((3, 4), bool)
        truth[1, 3] = truth[2, 1] = True
        assert DISCRETE.reduce_graph(truth).tolist() == [[False, False, True], [True, False, False]]

    def test_max_of_negative_scores(self) -> None:
        assert DISCRETE.reduce_graph(np.full((3, 4), -2.0, np.float32)).tolist() == [[-2] * 3] * 2

    @given(
        worlds(),
        st.sampled_from(GRANULARITIES),
        st.sampled_from(GRANULARITIES),
        st.sampled_from(["any", "max", "sum"]),
        st.sampled_from([(), (2,), (2, 3)]),
    )
    def test_equals_the_loop(
        self, factors: Factors, dst: Granularity, src: Granularity, how: Reduction, batch: tuple[int, ...]
    ) -> None:
        shape = (*batch, factors.num_variables, factors.num_variables + 1)
        values = np.random.default_rng(0).integers(-9, 9, shape)
        graph = values > 5 if how == "any" else values.astype(np.float32)
        reduced = factors.reduce_graph(graph, dst, src, how)
        assert reduced.dtype == graph.dtype
        assert reduced.shape[-1] == len(factors.source_names(src))
        np.testing.assert_array_equal(reduced, reduce_oracle(factors, graph, dst, src, how))
        if how != "sum":
            np.testing.assert_array_equal(factors.reduce_graph(graph, dst, src), reduced)

    def test_jit_and_vmap(self) -> None:
        graph = np.random.default_rng(0).normal(size=(5, 6, 7)).astype(np.float32)
        expected = reduce_oracle(WORLD, graph, "entity", "entity", "max")
        np.testing.assert_array_equal(jax.jit(WORLD.reduce_graph)(graph), expected)
        np.testing.assert_array_equal(jax.vmap(WORLD.reduce_graph)(graph), expected)

    @pytest.mark.parametrize("how", ["max", "sum"])
    def test_bool_cannot_be_scored(self, how: Reduction) -> None:
        with raises(f"how={how!r} does not suit a graph of bool; use 'any', or 'auto'"):
            DISCRETE.reduce_graph(np.zeros((3, 4), bool), how=how)

    def test_scores_cannot_be_any(self) -> None:
        with raises("how='any' does not suit a graph of float32; use 'max' or 'sum', or 'auto'"):
            DISCRETE.reduce_graph(np.zeros((3, 4), np.float32), how="any")

    def test_integers_are_refused(self) -> None:
        with raises("a graph holds bool (dependencies) or float (scores), got int32"):
            DISCRETE.reduce_graph(np.zeros((3, 4), np.int32))


class TestNamed:
    NAMED: Mapping[str, Mapping[str, Any]] = {
        "robot": {"pos": [0.5, -1.0]},
        "fish": {"x": 2, "frozen": 1},
        "door": {"open": 0, "heat": 7.5, "lock": 3},
    }

    def with_value(self, entity: str, variable: str, value: object) -> dict[str, dict[str, Any]]:
        named = {name: dict(variables) for name, variables in self.NAMED.items()}
        named[entity][variable] = value
        return named

    def test_by_hand(self) -> None:
        named = WORLD.to_named(OBS)
        assert named == self.NAMED
        assert type(named["fish"]["x"]) is int
        assert type(named["door"]["heat"]) is float
        pos = named["robot"]["pos"]
        assert isinstance(pos, list)
        assert [type(component) for component in pos] == [float, float]
        obs = WORLD.from_named(named)
        assert obs.dtype == np.float32
        assert obs.tolist() == OBS.tolist()
        assert DISCRETE.from_named({"a": {"on": True}, "z": {"y": 0, "x": 2.0}}).tolist() == [2, 0, 1]
        assert DISCRETE.from_named({"a": {"on": 0}, "z": {"y": np.int64(1), "x": 0}}).dtype == np.int32

    def test_reads_like_it_was_written(self) -> None:
        named = WORLD.to_named(jnp.asarray(OBS).at[0].set(0.1))
        assert named["robot"]["pos"] == [0.1, -1.0]

    @given(worlds(), st.integers(0, 99))
    def test_round_trip(self, factors: Factors, seed: int) -> None:
        obs = sample_obs(factors, seed)
        again = factors.from_named(factors.to_named(obs))
        assert again.dtype == obs.dtype
        np.testing.assert_array_equal(again, obs)

    @settings(max_examples=300)
    @given(st.floats(width=32, allow_nan=False, allow_infinity=False))
    def test_floats_survive_as_decimals(self, value: float) -> None:
        factors = Factors((Entity("a", (Variable("x", Continuous()),)),))
        obs = np.array([value], np.float32)
        np.testing.assert_array_equal(factors.from_named(factors.to_named(obs)), obs)

    def test_bounds_are_inside(self) -> None:
        factors = Factors((Entity("a", (Variable("x", Continuous(1, 0.1, 0.3)),)),))
        for bound in (0.1, 0.3):
            assert factors.from_named({"a": {"x": bound}}).tolist() == [np.float32(bound)]

    def test_unknown_and_missing(self) -> None:
        with raises("unknown entity 'fsh'; did you mean 'fish'?"):
            WORLD.from_named({**self.NAMED, "fsh": {}})
        with raises("missing entity: 'robot', 'door'"):
            WORLD.from_named({"fish": self.NAMED["fish"]})
        with raises("unknown variable of 'fish' 'frozn'; did you mean 'frozen'?"):
            WORLD.from_named({**self.NAMED, "fish": {"frozn": 1}})
        with raises("missing variable of 'fish': 'frozen'"):
            WORLD.from_named({**self.NAMED, "fish": {"x": 1}})

    @pytest.mark.parametrize(
        ("entity", "variable", "value", "message"),
        [
            ("fish", "x", 3, "fish.x: 3 is out of range; allowed are finite values in 0..2"),
            ("fish", "x", -1, "fish.x: -1 is out of range; allowed are finite values in 0..2"),
            ("fish", "x", 0.5, "fish.x: 0.5 is not an integer; allowed are 0..2"),
            ("fish", "x", float("nan"), "fish.x: nan is not an integer; allowed are 0..2"),
            ("fish", "x", [1, 2], "fish.x: expected one number, got [1, 2]"),
            ("door", "heat", -0.5, "door.heat: -0.5 is out of range; allowed are finite values in [0, inf]"),
            ("door", "heat", 1e39, "door.heat: 1e+39 is out of range; allowed are finite values in [0, inf]"),
            (
                "robot",
                "pos",
                [0.0, 1.5],
                "robot.pos: [0.0, 1.5] is out of range; allowed are finite values in [-1, 1]",
            ),
            ("robot", "pos", 0.5, "robot.pos: expected 2 numbers, got 0.5"),
            ("robot", "pos", np.zeros((1, 2)), "robot.pos: expected 2 numbers, got array([[0., 0.]])"),
        ],
    )
    def test_bad_values(self, entity: str, variable: str, value: object, message: str) -> None:
        with raises(message):
            WORLD.from_named(self.with_value(entity, variable, value))

    def test_not_numbers_and_not_mappings(self, plain: Any) -> None:
        factors = plain.Factors((plain.Entity("a", (plain.Variable("x", plain.Discrete(3)),)),))
        with raises("a.x: expected one number, got '2'"):
            factors.from_named({"a": {"x": "2"}})
        with raises("expected a value for every variable of 'a', by name, got 2"):
            factors.from_named({"a": 2})


class TestSpace:
    def test_by_hand(self) -> None:
        space = WORLD.to_space()
        robot, fish, door = space["robot"], space["fish"], space["door"]
        assert isinstance(robot, spaces.Box)
        assert robot == spaces.Box(-1, 1, (2,), np.float32)
        assert fish == spaces.MultiDiscrete([3, 2])
        assert isinstance(door, spaces.Dict)
        assert door["open"] == spaces.Discrete(2)
        assert door["heat"] == spaces.Box(0, np.inf, (1,), np.float32)
        assert door["lock"] == spaces.Discrete(4)
        box = CONTINUOUS.to_space()["z"]
        assert isinstance(box, spaces.Box)
        np.testing.assert_array_equal(box.low, np.array([-1, -1, -0.1], np.float32))
        np.testing.assert_array_equal(box.high, np.array([1, 1, 0.1], np.float32))

    def test_order_is_kept(self) -> None:
        space = WORLD.to_space()
        assert list(space.spaces) == ["robot", "fish", "door"]
        assert list(cast("spaces.Dict", space["door"]).spaces) == ["open", "heat", "lock"]

    def test_space_names(self) -> None:
        assert CONTINUOUS.space_names == {"z": ("pos", "pos", "vel"), "a": ("t",)}
        assert WORLD.space_names == {
            "robot": ("pos", "pos"),
            "fish": ("x", "frozen"),
            "door": ("open", "heat", "lock"),
        }

    @pytest.mark.parametrize("factors", [WORLD, DISCRETE, CONTINUOUS])
    def test_round_trip_by_hand(self, factors: Factors) -> None:
        assert Factors.from_space(factors.to_space(), factors.space_names) == factors

    @given(worlds())
    def test_round_trip(self, factors: Factors) -> None:
        assert Factors.from_space(factors.to_space(), factors.space_names) == factors

    @given(worlds())
    def test_names_restore_the_order_that_gymnasium_sorts_away(self, factors: Factors) -> None:
        sorted_space = spaces.Dict(dict(factors.to_space().items()))
        assert Factors.from_space(sorted_space, factors.space_names) == factors

    def test_default_names(self) -> None:
        space = spaces.Dict(
            [
                ("light", spaces.Discrete(3)),
                ("board", spaces.MultiDiscrete([2, 5])),
                ("flags", spaces.MultiBinary(2)),
                ("arm", spaces.Box(np.array([0, -1], np.float32), np.array([1, 1], np.float32))),
                ("clock", spaces.Box(0, 9, (), np.float64)),
                ("cup", spaces.Dict({"at": spaces.Box(-2, 2, (3,)), "full": spaces.Discrete(2)})),
            ]
        )
        assert Factors.from_space(space) == Factors(
            (
                Entity("light", (Variable("0", Discrete(3)),)),
                Entity("board", (Variable("0", Discrete(2)), Variable("1", Discrete(5)))),
                Entity("flags", (Variable("0", Discrete(2)), Variable("1", Discrete(2)))),
                Entity("arm", (Variable("0", Continuous(1, 0, 1)), Variable("1", Continuous(1, -1, 1)))),
                Entity("clock", (Variable("0", Continuous(1, 0, 9)),)),
                Entity("cup", (Variable("at", Continuous(3, -2, 2)), Variable("full", Discrete(2)))),
            )
        )

    def test_order_of_entities(self) -> None:
        space = spaces.Dict([("z", spaces.Discrete(2)), ("a", spaces.Box(0, 1, (3,)))])
        assert Factors.from_space(space).entity_names == ("z", "a")
        assert Factors.from_space(space, {"a": ["pos"]}).variable_names == ("z.0", "a.pos")
        assert Factors.from_space(space, {"a": ["pos"], "z": ["on"]}).variable_names == ("a.pos", "z.on")
        assert Factors.from_space(space, {"a": ["x", "yz", "yz"]}).width == 4
        assert Factors.from_space(spaces.Dict({"z": space["z"], "a": space["a"]})).entity_names == ("a", "z")

    @pytest.mark.parametrize(
        ("space", "message"),
        [
            (
                spaces.Text(3),
                "'k' is a Text; an entity is a Discrete, MultiDiscrete, MultiBinary, Box or a Dict",
            ),
            (
                spaces.Dict({"v": spaces.Tuple([])}),
                "'k.v' is a Tuple; an entity is a Discrete, MultiDiscrete",
            ),
            (spaces.Dict({"v": spaces.Dict({})}), "'k.v' is a Dict; an entity is a Discrete, MultiDiscrete"),
            (spaces.Box(0, 255, (8, 8, 3), np.uint8), "'k' has shape (8, 8, 3); flatten it to one axis"),
            (
                spaces.MultiDiscrete(np.array([[2, 2]])),
                "'k' has shape (1, 2); flatten it to one axis, or leave it out",
            ),
            (spaces.MultiBinary([2, 2]), "'k' has shape (2, 2); flatten it to one axis, or leave it out"),
            (spaces.Dict({"v": spaces.Box(0, 1, (0,))}), "'k.v' has shape (0,); flatten it to one axis"),
            (spaces.Discrete(3, start=1), "'k' starts at 1; shift its values to start at 0"),
            (
                spaces.MultiDiscrete([2, 2], start=[0, 5]),
                "'k' starts at [0 5]; shift its values to start at 0",
            ),
            (spaces.Box(1, 1, (1,)), "'k': Continuous(low=1.0, high=1.0): low must be below high in float32"),
            (
                spaces.Dict({"v": spaces.MultiBinary(3)}),
                "'k.v' has 3 discrete components; make each a variable",
            ),
            (
                spaces.Dict({"v": spaces.Box(np.zeros(2, np.float32), np.array([1, 2], np.float32))}),
                "the components of 'k.v' differ in bounds; make each a variable of its own",
            ),
        ],
    )
    def test_refused_spaces(self, space: spaces.Space[Any], message: str) -> None:
        with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
            Factors.from_space(spaces.Dict({"k": space}))

    def test_refused_names(self) -> None:
        space = spaces.Dict({"board": spaces.MultiDiscrete([2, 5]), "cup": spaces.Dict({"at": spaces.Discrete(2)})})
        with raises("unknown entity 'bord'; did you mean 'board'?"):
            Factors.from_space(space, {"bord": ["x", "y"]})
        with raises(
            "'board' has 2 components but 1 names; give a name for each, and the same name in a row for the"
            " components of one continuous variable"
        ):
            Factors.from_space(space, {"board": ["x"]})
        with raises("'board.x' has 2 discrete components; make each a variable of its own"):
            Factors.from_space(space, {"board": ["x", "x"]})
        with raises("unknown variable of 'cup' 'in'; known: at"):
            Factors.from_space(space, {"cup": ["in"]})
        with raises("missing variable of 'cup': 'at'"):
            Factors.from_space(space, {"cup": []})
        with raises("names of variables of entity 'arm' must differ; given more than once: 'x'"):
            Factors.from_space(spaces.Dict({"arm": spaces.Box(0, 1, (3,))}), {"arm": ["x", "y", "x"]})

    def test_not_a_dict(self) -> None:
        with raises("expected a gymnasium Dict of entities, got Discrete(3); wrap it in a Dict"):
            Factors.from_space(spaces.Discrete(3))

    def test_gymnasium_is_imported_only_when_needed(self) -> None:
        # The file alone, so that what the rest of the package imports does not matter.
        code = "import runpy, sys; runpy.run_path(sys.argv[1]); sys.exit('gymnasium' in sys.modules)"
        subprocess.run([sys.executable, "-c", code, str(factors_module.__file__)], check=True, timeout=120)


class TestSpaceSample:
    def test_by_hand(self) -> None:
        sample = WORLD.to_space_sample(OBS)
        robot, fish, door = sample["robot"], sample["fish"], sample["door"]
        assert isinstance(robot, np.ndarray)
        assert robot.dtype == np.float32
        assert robot.tolist() == [0.5, -1.0]
        assert isinstance(fish, np.ndarray)
        assert fish.dtype == np.int64
        assert fish.tolist() == [2, 1]
        assert isinstance(door, dict)
        assert isinstance(door["open"], np.int64)
        assert [door[name].tolist() for name in ("open", "lock", "heat")] == [0, 3, [7.5]]
        assert list(sample) == ["robot", "fish", "door"]

    @given(worlds(), st.integers(0, 99))
    def test_single_round_trip(self, factors: Factors, seed: int) -> None:
        obs = sample_obs(factors, seed)
        sample = factors.to_space_sample(obs)
        assert factors.to_space().contains(sample)
        again = factors.from_space_sample(sample)
        assert again.dtype == factors.dtype
        np.testing.assert_array_equal(again, obs, strict=True)

    @given(worlds(), st.integers(0, 99), st.integers(1, 3))
    def test_batched_round_trip(self, factors: Factors, seed: int, count: int) -> None:
        obs = sample_obs(factors, seed, (count,))
        sample = factors.to_space_sample(obs)
        assert batch_space(factors.to_space(), count).contains(sample)
        np.testing.assert_array_equal(factors.from_space_sample(sample), obs, strict=True)
        np.testing.assert_array_equal(factors.from_space_sample(sample, (count,)), obs, strict=True)

    def test_any_number_of_batch_axes(self) -> None:
        obs = sample_obs(WORLD, 0, (2, 3))
        np.testing.assert_array_equal(WORLD.from_space_sample(WORLD.to_space_sample(obs)), obs, strict=True)

    @settings(max_examples=10)
    @given(worlds())
    def test_samples_of_the_space_are_in_range(self, factors: Factors) -> None:
        space = factors.to_space()
        space.seed(0)
        obs = factors.from_space_sample(space.sample())
        assert factors.in_range(obs)
        assert space.contains(factors.to_space_sample(obs))

    @pytest.mark.parametrize("count", [1, 3])
    def test_samples_of_a_foreign_space(self, count: int) -> None:
        space = spaces.Dict(
            [
                ("light", spaces.Discrete(3)),
                ("flags", spaces.MultiBinary(2)),
                ("cup", spaces.Dict({"a": spaces.Discrete(4), "b": spaces.Discrete(2)})),
                ("clock", spaces.Box(0, 9, (), np.float64)),
            ]
        )
        factors = Factors.from_space(space)
        sample: Any = {
            "light": 2,
            "flags": np.array([1, 0], np.int8),
            "cup": {"a": np.int64(3), "b": 0},
            "clock": 4.5,
        }
        np.testing.assert_array_equal(
            factors.from_space_sample(sample), np.array([2, 1, 0, 3, 0, 4.5], np.float32), strict=True
        )
        batched = batch_space(space, count)
        batched.seed(0)
        drawn = batched.sample()
        obs = factors.from_space_sample(drawn)
        assert obs.shape == (count, 6)
        np.testing.assert_array_equal(obs[:, 0], drawn["light"])
        np.testing.assert_array_equal(obs[:, 3], drawn["cup"]["a"])

    def test_batch_of_one_from_discrete_only(self) -> None:
        factors = Factors.from_space(spaces.Dict({"light": spaces.Discrete(3), "door": spaces.Discrete(2)}))
        sample = {"light": np.array([2]), "door": np.array([1])}
        assert factors.from_space_sample(sample).tolist() == [1, 2]
        assert factors.from_space_sample(sample, (1,)).tolist() == [[1, 2]]
        assert factors.from_space_sample({"light": 2, "door": 1}).tolist() == [1, 2]

    def test_refused_samples(self) -> None:
        sample = DISCRETE.to_space_sample(np.array([2, 1, 0], np.int32))
        with raises("unknown entity 'zz'; did you mean 'z'?"):
            DISCRETE.from_space_sample({**sample, "zz": 0})
        with raises("missing entity: 'a'"):
            DISCRETE.from_space_sample({"z": np.zeros(2, np.int64)})
        with raises("missing variable of 'z': 'y'"):
            DISCRETE.from_space_sample({**sample, "z": {"x": 1}})
        with raises("'z' is Discrete and cannot hold values of float64"):
            DISCRETE.from_space_sample({**sample, "z": np.zeros(2)})
        with raises("expected the same batch axes, then the components, got z (3,) for 2, a (1,) for 1"):
            DISCRETE.from_space_sample({**sample, "z": np.zeros(3, np.int64)})
        with raises("expected the same batch axes, then the components, got z (4, 2) for 2, a (5, 1) for 1"):
            DISCRETE.from_space_sample({"z": np.zeros((4, 2), int), "a": np.zeros((5, 1), int)})
        with raises("expected (3,) batch axes, then the components, got z (2,) for 2, a (1,) for 1"):
            DISCRETE.from_space_sample(sample, (3,))
        with raises("'door' mixes kinds, so its sample maps variables to values; got 3"):
            WORLD.from_space_sample({**WORLD.to_space_sample(OBS), "door": 3})


@pytest.mark.parametrize(
    ("dst", "src", "expected"),
    [
        ("variable", "variable", ["0111", "1011", "1101"]),
        ("entity", "entity", ["011", "101"]),
        ("variable", "entity", ["011", "011", "101"]),
        ("entity", "variable", ["0011", "1101"]),
    ],
)
def test_the_mask_of_edges_leaves_self_edges_out(dst: Granularity, src: Granularity, expected: list[str]) -> None:
    by_hand = [[letter == "1" for letter in row] for row in expected]
    assert DISCRETE.edge_mask(dst, src).tolist() == by_hand
    assert DISCRETE.reduce_graph(np.zeros((3, 4), bool), dst, src).shape == DISCRETE.edge_mask(dst, src).shape


def test_observations_outside_their_bounds_are_refused_by_name() -> None:
    factors = Factors(
        (
            Entity("arm", (Variable("reach", Continuous(2, -1.0, 3.0)), Variable("grip", Continuous(1, 0.0)))),
            Entity("lamp", (Variable("on", Discrete(2)),)),
        )
    )
    good = np.array([[-1.0, 3.0, 1e30, 1.0], [-1.0039, 3.0039, -0.0009, 0.0]], np.float32)
    assert factors.checked(good) is good
    for column, value, words in (
        (0, -1.01, r"arm\.reach is observed as -1.01; it must be a finite number in \[-1, 3\]"),
        (1, 3.01, r"arm\.reach is observed as 3.01"),
        (2, -0.1, r"arm\.grip is observed as -0.1; it must be a finite number in \[0, inf\]"),
        (2, np.inf, r"arm\.grip is observed as inf"),
        (3, 0.5, r"lamp\.on is observed as 0.5; it must be one of 0\.\.1"),
    ):
        bad = good.copy()
        bad[1, column] = value
        with pytest.raises(ValueError, match=words):
            factors.checked(bad)


def test_names_hold_no_control_characters() -> None:
    with pytest.raises(ValueError, match=r"entity name '\\x1b\[2J': a name must not contain control characters"):
        Entity("\x1b[2J", (Variable("x", Discrete(2)),))


def test_numbers_of_numpy_are_plain_numbers_in_messages() -> None:
    assert shown(np.int32(3)) == "3"
    assert shown(np.float32(0.5)) == "0.5"
    assert shown("three") == "'three'"
