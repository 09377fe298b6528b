"""What a state is made of: entities in order, each with variables in order, discrete or continuous.

A `Factors` is the one description of a state that every other room reads. A state has four forms:

- *flat*, `[..., width]`: one column per component; what worlds produce and replay stores;
- *encoded*, `[..., encoded_width]`: float32, a one-hot block per discrete variable; what networks read, also
  as `[..., group, block]`, one zero-padded row per variable or entity (`padded`);
- *named*, `{"fish": {"frozen": 1}}`: what people read and write;
- *space sample*: what Gymnasium exchanges.

Everything here is frozen and hashable, so a `Factors` can be a static argument of `jax.jit`.
"""

import dataclasses
import difflib
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, Shaped

if TYPE_CHECKING:
    import gymnasium

Granularity: TypeAlias = Literal["variable", "entity"]
Reduction: TypeAlias = Literal["auto", "any", "max", "sum"]
Number: TypeAlias = int | float | np.generic
Named: TypeAlias = dict[str, dict[str, int | float | list[float]]]
NamedLike: TypeAlias = Mapping[str, Mapping[str, Number | Sequence[Number] | np.ndarray]]
Sample: TypeAlias = dict[str, np.ndarray | dict[str, np.ndarray | np.generic]]
SampleLeaf: TypeAlias = Number | np.ndarray | Array
SampleLike: TypeAlias = Mapping[str, SampleLeaf | Mapping[str, SampleLeaf]]

ACTION = "action"  # the last source of every graph, hence no name for an entity
MAX_DISCRETE = 2**24  # float32 holds every integer up to here


@dataclasses.dataclass(frozen=True)
class Discrete:
    """One of the integers `0 .. n - 1`."""

    n: int
    size: ClassVar[int] = 1
    low: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.n <= MAX_DISCRETE:
            raise ValueError(f"Discrete(n={self.n}): n must lie between 1 and {MAX_DISCRETE}")

    @property
    def high(self) -> float:
        """Highest value."""
        return float(self.n - 1)

    @property
    def encoded_size(self) -> int:
        """Length of the one-hot block."""
        return self.n

    def __str__(self) -> str:
        return f"0..{self.n - 1}"


@dataclasses.dataclass(frozen=True)
class Continuous:
    """A vector of `size` real components, all within `[low, high]`.

    Bounds are kept at the precision of observations, as the shortest decimal that names the float32: 0.1
    stays 0.1, 1/3 becomes 0.33333334.
    """

    size: int = 1
    low: float | int = -np.inf
    high: float | int = np.inf

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"Continuous(size={self.size}): size must be at least 1")
        low, high = _shortest_decimal(self.low), _shortest_decimal(self.high)
        if not low < high:
            raise ValueError(f"Continuous(low={self.low}, high={self.high}): low must be below high in float32")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @property
    def encoded_size(self) -> int:
        """Number of components, which are encoded as they are."""
        return self.size

    def __str__(self) -> str:
        return f"[{self.low:g}, {self.high:g}]"


Kind: TypeAlias = Discrete | Continuous


@dataclasses.dataclass(frozen=True)
class Variable:
    """A named value that is predicted, and can depend and be depended on, as one."""

    name: str
    kind: Kind

    def __post_init__(self) -> None:
        _check_name("variable", self.name)


@dataclasses.dataclass(frozen=True)
class Entity:
    """A named thing in the world and the variables that describe it."""

    name: str
    variables: tuple[Variable, ...]

    def __post_init__(self) -> None:
        _check_name("entity", self.name)
        if self.name == ACTION:
            raise ValueError(f"no entity can be called {ACTION!r}: every graph has a source of that name")
        if not self.variables:
            raise ValueError(f"entity {self.name!r} has no variables; give it at least one")
        _check_unique(f"variables of entity {self.name!r}", self.variable_names)

    @property
    def variable_names(self) -> tuple[str, ...]:
        """Names of the variables, without the entity's own."""
        return tuple(variable.name for variable in self.variables)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Kinds of the variables."""
        return tuple(variable.kind for variable in self.variables)

    @property
    def mixed(self) -> bool:
        """Whether it has both discrete and continuous variables."""
        return len(set(map(type, self.kinds))) > 1


@dataclasses.dataclass(frozen=True)
class Factors:
    """Entities in order; the variables of an entity are contiguous in every layout."""

    entities: tuple[Entity, ...]

    def __post_init__(self) -> None:
        if not self.entities:
            raise ValueError("Factors needs at least one entity")
        _check_unique("entities", self.entity_names)

    def __add__(self, other: "Factors") -> "Factors":
        """Entities of `self`, then those of `other`."""
        return Factors(self.entities + other.entities)

    def __str__(self) -> str:
        rows = [("index", "entity", "variable", "kind", "range", "columns")]
        for i, (name, kind) in enumerate(zip(self.variable_names, self._kinds, strict=True)):
            span = self.flat_slice(i)
            columns = str(span.start) if kind.size == 1 else f"{span.start}:{span.stop}"
            entity, variable = name.split(".")
            rows.append((str(i), entity, variable, type(kind).__name__.lower(), str(kind), columns))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)

    @functools.cached_property
    def entity_names(self) -> tuple[str, ...]:
        """Names of the entities."""
        return tuple(entity.name for entity in self.entities)

    @functools.cached_property
    def variables(self) -> tuple[Variable, ...]:
        """All variables, in graph order."""
        return tuple(variable for entity in self.entities for variable in entity.variables)

    @functools.cached_property
    def variable_names(self) -> tuple[str, ...]:
        """`"entity.variable"` for every variable, in graph order."""
        return tuple(f"{entity.name}.{name}" for entity in self.entities for name in entity.variable_names)

    @property
    def num_entities(self) -> int:
        """Number of entities."""
        return len(self.entities)

    @property
    def continuous(self) -> bool:
        """Whether no variable is discrete."""
        return all(isinstance(variable.kind, Continuous) for variable in self.variables)

    @property
    def num_variables(self) -> int:
        """Number of variables over all entities."""
        return len(self.variables)

    @functools.cached_property
    def entity_of(self) -> tuple[int, ...]:
        """Index of the entity that owns each variable."""
        return tuple(i for i, entity in enumerate(self.entities) for _ in entity.variables)

    @functools.cached_property
    def entity_slices(self) -> tuple[slice, ...]:
        """The variables of each entity."""
        return _slices(len(entity.variables) for entity in self.entities)

    def variable_index(self, name: str) -> int:
        """Graph index of the variable called `"entity.variable"`."""
        return _index("variable", name, self.variable_names)

    def entity_index(self, name: str) -> int:
        """Index of the entity called `name`."""
        return _index("entity", name, self.entity_names)

    def source_names(self, granularity: Granularity) -> tuple[str, ...]:
        """Names of a graph's sources: the variables or entities, then the action."""
        _check_choice("granularity", granularity, Granularity)
        return (*(self.entity_names if granularity == "entity" else self.variable_names), ACTION)

    @functools.cached_property
    def _kinds(self) -> tuple[Kind, ...]:
        return tuple(variable.kind for variable in self.variables)

    @functools.cached_property
    def _flat_slices(self) -> tuple[slice, ...]:
        return _slices(kind.size for kind in self._kinds)

    @functools.cached_property
    def _encoded_slices(self) -> tuple[slice, ...]:
        return _slices(kind.encoded_size for kind in self._kinds)

    @property
    def width(self) -> int:
        """Columns of a flat observation: one per discrete variable, one per continuous component."""
        return sum(kind.size for kind in self._kinds)

    @property
    def offsets(self) -> tuple[int, ...]:
        """First flat column of each variable."""
        return tuple(columns.start for columns in self._flat_slices)

    def flat_slice(self, i: int) -> slice:
        """Flat columns of variable `i`."""
        return self._flat_slices[i]

    @property
    def dtype(self) -> np.dtype[np.int32] | np.dtype[np.float32]:
        """int32 where every variable is discrete, else float32, which holds the discrete values exactly."""
        discrete = all(isinstance(kind, Discrete) for kind in self._kinds)
        return np.dtype(np.int32) if discrete else np.dtype(np.float32)

    @property
    def compact_dtype(self) -> np.dtype[np.generic]:
        """How many observations are stored: in as few bytes as hold each of them exactly."""
        sizes = [kind.n for kind in self._kinds if isinstance(kind, Discrete)]
        return np.dtype(np.min_scalar_type(max(sizes) - 1)) if len(sizes) == self.num_variables else self.dtype

    @property
    def encoded_width(self) -> int:
        """Entries of an encoded observation: `n` per discrete variable, one per continuous component."""
        return sum(kind.encoded_size for kind in self._kinds)

    def encoded_slice(self, i: int) -> slice:
        """Encoded entries of variable `i`."""
        return self._encoded_slices[i]

    def _encoded_sizes(self, granularity: Granularity) -> list[int]:
        _check_choice("granularity", granularity, Granularity)
        if granularity == "variable":
            return [kind.encoded_size for kind in self._kinds]
        return [sum(kind.encoded_size for kind in entity.kinds) for entity in self.entities]

    def encoded_owner(self, granularity: Granularity) -> Int[np.ndarray, "encoded"]:
        """Index of the variable or entity that owns each encoded entry."""
        sizes = self._encoded_sizes(granularity)
        return np.repeat(np.arange(len(sizes)), sizes)

    def one_hot(self, obs: Shaped[Array | np.ndarray, "*batch width"]) -> Float[Array, "*batch encoded"]:
        """Flat to encoded; a discrete value out of its range gives a block of zeros."""
        _check_shape("a flat observation", obs.shape, (self.width,))
        obs = jnp.asarray(obs)
        blocks = [
            jax.nn.one_hot(obs[..., columns.start].astype(jnp.int32), kind.n, dtype=jnp.float32)
            if isinstance(kind, Discrete)
            else obs[..., columns].astype(jnp.float32)
            for kind, columns in zip(self._kinds, self._flat_slices, strict=True)
        ]
        return jnp.concatenate(blocks, axis=-1)

    def in_range(self, obs: Shaped[Array | np.ndarray, "*batch width"]) -> Bool[Array, "*batch"]:
        """Whether every discrete value is one of its integers and every component is finite and in bounds."""
        _check_shape("a flat observation", obs.shape, (self.width,))
        kinds = [kind for kind in self._kinds for _ in range(kind.size)]
        low = np.array([kind.low for kind in kinds], np.float32)
        high = np.array([kind.high for kind in kinds], np.float32)
        continuous = np.array([isinstance(kind, Continuous) for kind in kinds])
        values = jnp.asarray(obs, jnp.float32)
        whole = continuous | (values == jnp.round(values))
        return jnp.all((low <= values) & (values <= high) & jnp.isfinite(values) & whole, axis=-1)

    def checked(self, obs: Shaped[np.ndarray, "*batch width"]) -> Shaped[np.ndarray, "*batch width"]:
        """The same flat observations, on the host, if they are what these factors say: finite and within bounds.

        Continuous values may pass their bounds by a thousandth of their range, as integrators do.

        Raises:
            ValueError: They are not; the message names the variable.
        """
        _check_shape("a flat observation", obs.shape, (self.width,))
        low, high, discrete = self._limits
        whole = ~discrete | (obs == np.round(obs))
        good = np.isfinite(obs) & whole & (low <= obs) & (obs <= high)
        if not good.all():
            place = tuple(np.argwhere(~good)[0])
            i = next(i for i, columns in enumerate(self._flat_slices) if place[-1] < columns.stop)
            kind = self._kinds[i]
            allowed = f"one of {kind}" if isinstance(kind, Discrete) else f"a finite number in {kind}"
            raise ValueError(f"{self.variable_names[i]} is observed as {obs[place]!s}; it must be {allowed}")
        return obs

    @functools.cached_property
    def _limits(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of each column of a flat observation: the lowest and highest value taken, and whether it is discrete."""
        kinds = [kind for kind in self._kinds for _ in range(kind.size)]
        low, high = np.array([(kind.low, kind.high) for kind in kinds], np.float64).T
        discrete = np.array([isinstance(kind, Discrete) for kind in kinds])
        bounded = np.where(np.isfinite(low) & np.isfinite(high), high - low, np.maximum(np.abs(low), np.abs(high)))
        slack = np.where(discrete, 0.0, 1e-3 * np.where(np.isfinite(bounded), bounded, 1.0))
        return low - slack, high + slack, discrete

    def padding_mask(self, granularity: Granularity = "entity") -> Bool[np.ndarray, "group block"]:
        """True where `padded` holds an encoded entry, False where it holds padding."""
        sizes = np.array(self._encoded_sizes(granularity))
        return np.arange(sizes.max()) < sizes[:, None]

    def padded(
        self, encoded: Shaped[Array | np.ndarray, "*batch encoded"], granularity: Granularity = "entity"
    ) -> Shaped[Array, "*batch group block"]:
        """One row per variable or entity: its encoded block, then zeros up to the longest block."""
        _check_shape("an encoded observation", encoded.shape, (self.encoded_width,))
        sizes = self._encoded_sizes(granularity)
        # Static slices rather than one gather: networks are differentiated through this, and the transpose of
        # a gather is a scatter.
        blocks = jnp.split(jnp.asarray(encoded), np.cumsum(sizes)[:-1], axis=-1)
        keep = [(0, 0)] * (encoded.ndim - 1)
        rows = [jnp.pad(block, [*keep, (0, max(sizes) - block.shape[-1])]) for block in blocks]
        return jnp.stack(rows, axis=-2)

    def unpadded(
        self, padded: Shaped[Array | np.ndarray, "*batch group block"], granularity: Granularity = "entity"
    ) -> Shaped[Array, "*batch encoded"]:
        """Inverse of `padded`; whatever stands in the padding is dropped."""
        sizes = self._encoded_sizes(granularity)
        _check_shape("a padded observation", padded.shape, (len(sizes), max(sizes)))
        padded = jnp.asarray(padded)
        return jnp.concatenate([padded[..., i, :size] for i, size in enumerate(sizes)], axis=-1)

    def reduce_graph(
        self,
        graph: Shaped[Array | np.ndarray, "*batch var var+1"],
        dst: Granularity = "entity",
        src: Granularity = "entity",
        how: Reduction = "auto",
    ) -> Shaped[Array, "*batch dst src"]:
        """Variable-level graph `[dst, src]` to entity level along either axis or both; the action stays last.

        An entity depends on another where any of its variables depends on any of the other's: "any" for bool
        graphs; for float scores "max", or "sum". "auto" takes "any" or "max" by dtype.
        """
        _check_choice("dst", dst, Granularity)
        _check_choice("src", src, Granularity)
        _check_shape("a graph", graph.shape, (self.num_variables, self.num_variables + 1))
        graph = jnp.asarray(graph)
        reduction = _reduction(how, graph.dtype)
        if dst == "entity":
            graph = jnp.stack([reduction(graph[..., rows, :], axis=-2) for rows in self.entity_slices], axis=-2)
        if src == "entity":
            columns = [reduction(graph[..., group], axis=-1) for group in self.entity_slices]
            graph = jnp.stack([*columns, graph[..., -1]], axis=-1)
        return graph

    def edge_mask(self, dst: Granularity, src: Granularity) -> Bool[np.ndarray, "dst src"]:
        """All edges but self-edges; the action's column always counts.

        With one axis at each granularity, the edge from an entity to one of its own variables, or from a variable to
        its own entity, is a self-edge too.
        """
        mask = np.ones((len(self.source_names(dst)) - 1, len(self.source_names(src))), np.bool_)
        if dst == src:
            mask[:, :-1] = ~np.eye(len(mask), dtype=np.bool_)
            return mask
        rows, columns = (
            np.asarray(self.entity_of) if axis == "variable" else np.arange(self.num_entities) for axis in (dst, src)
        )
        mask[:, :-1] = rows[:, None] != columns
        return mask

    def to_named(self, obs: Shaped[Array | np.ndarray, "width"]) -> Named:
        """One flat observation as `{entity: {variable: value}}`, for people and JSON."""
        _check_shape("a flat observation", obs.shape, (self.width,))
        parts = iter(np.split(np.asarray(obs), self.offsets[1:]))
        return {e.name: {v.name: _to_python(v.kind, next(parts)) for v in e.variables} for e in self.entities}

    def from_named(self, named: NamedLike) -> Shaped[np.ndarray, "width"]:
        """Inverse of `to_named`; every variable must be there, by its name and within its range."""
        _check_keys("entity", named, self.entity_names)
        for entity in self.entities:
            _check_keys(f"variable of {entity.name!r}", named[entity.name], entity.variable_names)
        values = [named[entity.name][name] for entity in self.entities for name in entity.variable_names]
        parts = map(_from_python, self.variable_names, self._kinds, values)
        return np.concatenate(list(parts)).astype(self.dtype)

    @property
    def space_names(self) -> dict[str, tuple[str, ...]]:
        """The `names` with which `from_space(factors.to_space(), names)` gives these very factors back."""
        return {
            e.name: tuple(v.name for v in e.variables for _ in range(1 if e.mixed else v.kind.size))
            for e in self.entities
        }

    def to_space(self) -> "gymnasium.spaces.Dict":
        """Gymnasium Dict: entity → MultiDiscrete, Box or, where kinds are mixed, a Dict of variables."""
        from gymnasium import spaces

        # Pairs, because Dict sorts the keys of a plain mapping.
        return spaces.Dict([(entity.name, _entity_to_space(entity)) for entity in self.entities])

    @classmethod
    def from_space(
        cls, space: "gymnasium.Space[object]", names: Mapping[str, Sequence[str]] | None = None
    ) -> "Factors":
        """Factors of a Gymnasium Dict of Discrete, MultiDiscrete, MultiBinary, Box and nested Dict.

        `names` gives, per entity, one name for each component; a name repeated in a row, or a single name for
        a whole Box, makes one variable of several components. Without names the components are numbered "0",
        "1", ...; a nested Dict names its variables itself, and `names` then only orders them.

        Entities come in the order of `names` where it lists them all, else in the order of the space.
        Gymnasium sorts the keys of a Dict made from a plain mapping, and of a batched Dict, so give `names`
        where order matters, and the `single_observation_space` of a vector environment.

        Boxes of integers are read as continuous. Values that do not start at 0, and spaces of more than one
        axis (images), are refused.
        """
        from gymnasium import spaces

        if not isinstance(space, spaces.Dict):
            raise ValueError(f"expected a gymnasium Dict of entities, got {space}; wrap it in a Dict")
        names = names or {}
        for name in names:
            _index("entity", name, list(space.spaces))
        order = names if len(names) == len(space.spaces) else space.spaces
        return cls(tuple(_entity_from_space(key, space.spaces[key], names.get(key)) for key in order))

    def to_space_sample(self, obs: Shaped[Array | np.ndarray, "*batch width"]) -> Sample:
        """Flat observations as a member of `to_space()`, or, with batch axes, of its batched form."""
        _check_shape("a flat observation", obs.shape, (self.width,))
        sample: Sample = {}
        for entity, group in zip(self.entities, self.entity_slices, strict=True):
            parts = [np.asarray(obs)[..., columns] for columns in self._flat_slices[group]]
            if entity.mixed:
                sample[entity.name] = dict(zip(entity.variable_names, map(_to_leaf, entity.kinds, parts), strict=True))
            else:
                dtype = np.int64 if isinstance(entity.kinds[0], Discrete) else np.float32
                sample[entity.name] = np.concatenate(parts, axis=-1).astype(dtype)
        return sample

    def from_space_sample(
        self, sample: SampleLike, batch: tuple[int, ...] | None = None
    ) -> Shaped[np.ndarray, "*batch width"]:
        """Inverse of `to_space_sample`, also for samples of the space that `from_space` was given.

        The batch axes are read off the shapes. Give them as `batch` for a space of nothing but Discrete,
        where a batch of one looks like a single observation.
        """
        _check_keys("entity", sample, self.entity_names)
        leaves = [leaf for entity in self.entities for leaf in _leaves(entity, sample[entity.name])]
        # Each leaf allows one or two readings; the first that all of them allow is taken.
        for shape in _batch_shapes(*leaves[0][1:]) if batch is None else [batch]:
            if all(shape in _batch_shapes(values, size) for _, values, size in leaves):
                parts = [values.reshape(*shape, size) for _, values, size in leaves]
                flat = np.concatenate(parts, axis=-1)
                cast = flat.astype(self.dtype)
                if flat.dtype.kind in "iu" and not np.array_equal(cast, flat):
                    raise ValueError(f"{flat[cast != flat].flat[0]} is too large for {self.dtype}")
                return cast
        shapes = ", ".join(f"{name} {values.shape} for {size}" for name, values, size in leaves)
        raise ValueError(
            f"expected {'the same' if batch is None else batch} batch axes, then the components, got {shapes}"
        )


def _shortest_decimal(value: Number) -> float:
    with np.errstate(over="ignore"):
        return float(str(np.float32(value)))


def _slices(sizes: Iterable[int]) -> tuple[slice, ...]:
    return tuple(itertools.starmap(slice, itertools.pairwise(itertools.accumulate(sizes, initial=0))))


def _check_name(what: str, name: str) -> None:
    if not name or "." in name:
        raise ValueError(f"{what} name {name!r}: a name must not be empty or contain '.'")
    if not name.isprintable():
        raise ValueError(f"{what} name {name!r}: a name must not contain control characters")


def _check_unique(what: str, names: Sequence[str]) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"names of {what} must differ; given more than once: {', '.join(map(repr, twice))}")


def _check_choice(argument: str, value: str, choices: object) -> None:
    if value not in get_args(choices):
        raise ValueError(f"{argument}={value!r} is not one of {', '.join(map(repr, get_args(choices)))}")


def _check_keys(what: str, given: object, known: Sequence[str]) -> None:
    if not isinstance(given, Mapping | list | tuple):
        raise ValueError(f"expected a value for every {what}, by name, got {given!r}")
    for name in given:
        _index(what, name, known)
    if missing := [name for name in known if name not in given]:
        raise ValueError(f"missing {what}: {', '.join(map(repr, missing))}")


def _check_shape(what: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if shape[-len(expected) :] != expected:
        wanted = ", ".join(map(str, expected))
        raise ValueError(f"{what} of these factors has shape [..., {wanted}], got {shape}")


def _index(what: str, name: str, known: Sequence[str]) -> int:
    if name in known:
        return known.index(name)
    near = difflib.get_close_matches(str(name), known)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"known: {', '.join(known)}"
    raise ValueError(f"unknown {what} {name!r}; {hint}")


def _reduction(how: Reduction, dtype: np.dtype[np.generic]) -> Callable[..., Array]:
    _check_choice("how", how, Reduction)
    boolean = dtype == np.bool_
    if not boolean and not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"a graph holds bool (dependencies) or float (scores), got {dtype}")
    if how != "auto" and boolean != (how == "any"):
        allowed = "'any'" if boolean else "'max' or 'sum'"
        raise ValueError(f"how={how!r} does not suit a graph of {dtype}; use {allowed}, or 'auto'")
    if boolean:
        return jnp.any
    return jnp.sum if how == "sum" else jnp.max


def _to_python(kind: Kind, values: np.ndarray) -> int | float | list[float]:
    if isinstance(kind, Discrete):
        return int(values[0])
    components = [_shortest_decimal(value) for value in values]
    return components[0] if kind.size == 1 else components


def _from_python(name: str, kind: Kind, value: Number | Sequence[Number] | np.ndarray) -> np.ndarray:
    given = np.asarray(value)
    if given.dtype.kind not in "biuf" or given.size != kind.size or given.ndim > 1:
        wanted = "one number" if kind.size == 1 else f"{kind.size} numbers"
        got = value if isinstance(value, np.generic) else repr(value)
        raise ValueError(f"{name}: expected {wanted}, got {got}")
    if isinstance(kind, Discrete) and np.any(given != np.round(given)):
        raise ValueError(f"{name}: {value} is not an integer; allowed are {kind}")
    with np.errstate(over="ignore"):
        values = given.reshape(kind.size).astype(np.float32)
    if not np.all((np.float32(kind.low) <= values) & (values <= np.float32(kind.high)) & np.isfinite(values)):
        raise ValueError(f"{name}: {value} is out of range; allowed are finite values in {kind}")
    return values


def _entity_to_space(entity: Entity) -> "gymnasium.Space[object]":
    from gymnasium import spaces

    if entity.mixed:
        return spaces.Dict([(variable.name, _variable_to_space(variable.kind)) for variable in entity.variables])
    if discrete := [kind.n for kind in entity.kinds if isinstance(kind, Discrete)]:
        return spaces.MultiDiscrete(discrete)
    bounds = [(kind.low, kind.high) for kind in entity.kinds for _ in range(kind.size)]
    low, high = np.array(bounds, np.float32).T
    return spaces.Box(low, high, dtype=np.float32)


def _variable_to_space(kind: Kind) -> "gymnasium.Space[object]":
    from gymnasium import spaces

    if isinstance(kind, Discrete):
        return spaces.Discrete(kind.n)
    return spaces.Box(kind.low, kind.high, (kind.size,), np.float32)


def _entity_from_space(key: str, space: "gymnasium.Space[object]", names: Sequence[str] | None) -> Entity:
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        order = list(space.spaces) if names is None else names
        _check_keys(f"variable of {key!r}", order, list(space.spaces))
        paths = [f"{key}.{name}" for name in order]
        kinds = [_join(p, _components(p, space.spaces[name])) for p, name in zip(paths, order, strict=True)]
        return Entity(key, tuple(map(Variable, order, kinds)))
    components = _components(key, space)
    names = [str(i) for i in range(len(components))] if names is None else names
    if len(names) == 1 and isinstance(space, spaces.Box):
        names = [names[0]] * len(components)
    if len(names) != len(components):
        raise ValueError(
            f"{key!r} has {len(components)} components but {len(names)} names; give a name for each, and the"
            " same name in a row for the components of one continuous variable"
        )
    runs = itertools.groupby(zip(names, components, strict=True), key=lambda pair: pair[0])
    joined = [(name, _join(f"{key}.{name}", [kind for _, kind in run])) for name, run in runs]
    return Entity(key, tuple(itertools.starmap(Variable, joined)))


def _components(key: str, space: "gymnasium.Space[object]") -> list[Kind]:
    """The kind of each component of a basic space."""
    from gymnasium import spaces

    if not isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Box):
        raise ValueError(
            f"{key!r} is a {type(space).__name__}; an entity is a Discrete, MultiDiscrete, MultiBinary, Box"
            " or a Dict of Discrete and Box"
        )
    shape = space.shape or ()
    if len(shape) > 1 or 0 in shape:
        raise ValueError(f"{key!r} has shape {shape}; flatten it to one axis, or leave it out of the Dict")
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) and np.any(space.start):
        raise ValueError(f"{key!r} starts at {space.start}; shift its values to start at 0")
    try:
        if isinstance(space, spaces.Box):
            low, high = (map(_shortest_decimal, bound.flatten()) for bound in (space.low, space.high))
            return [Continuous(1, *bounds) for bounds in zip(low, high, strict=True)]
        if isinstance(space, spaces.MultiBinary):
            return [Discrete(2)] * shape[0]
        return [Discrete(int(n)) for n in np.ravel(space.n if isinstance(space, spaces.Discrete) else space.nvec)]
    except ValueError as error:
        raise ValueError(f"{key!r}: {error}") from error


def _join(key: str, components: Sequence[Kind]) -> Kind:
    """The one kind of a variable with these components."""
    first = components[0]
    if len(components) == 1:
        return first
    if isinstance(first, Discrete):
        raise ValueError(f"{key!r} has {len(components)} discrete components; make each a variable of its own")
    if len(set(components)) > 1:
        raise ValueError(f"the components of {key!r} differ in bounds; make each a variable of its own")
    return Continuous(len(components), first.low, first.high)


def _to_leaf(kind: Kind, values: np.ndarray) -> np.ndarray | np.generic:
    if isinstance(kind, Continuous):
        return values.astype(np.float32)
    # [()] makes a scalar of an array without axes, and leaves others alone.
    return values[..., 0].astype(np.int64)[()]


def _leaves(entity: Entity, given: SampleLeaf | Mapping[str, SampleLeaf]) -> list[tuple[str, np.ndarray, int]]:
    if isinstance(given, Mapping):
        _check_keys(f"variable of {entity.name!r}", given, entity.variable_names)
        return [_leaf(f"{entity.name}.{v.name}", given[v.name], [v.kind]) for v in entity.variables]
    if entity.mixed:
        raise ValueError(f"{entity.name!r} mixes kinds, so its sample maps variables to values; got {given!r}")
    return [_leaf(entity.name, given, entity.kinds)]


def _leaf(name: str, given: SampleLeaf, kinds: Sequence[Kind]) -> tuple[str, np.ndarray, int]:
    """Name, values and number of components of one array in a space sample."""
    values = np.asarray(given)
    if values.dtype.kind not in ("biu" if isinstance(kinds[0], Discrete) else "biuf"):
        raise ValueError(f"{name!r} is {type(kinds[0]).__name__} and cannot hold values of {values.dtype}")
    return name, values, sum(kind.size for kind in kinds)


def _batch_shapes(values: np.ndarray, size: int) -> list[tuple[int, ...]]:
    """The batch axes `values` can be read with; a lone component may come with or without its own axis."""
    within = [values.shape[:-1]] if values.shape[-1:] == (size,) else []
    return [*within, values.shape] if size == 1 else within
