"""Where the parts of a transition stand in the arrays of the network.

The batch is the last axis of every array. Then each weight matrix multiplies one contiguous matrix `[feature, input ·
batch]`, the few inputs that attend to each other are an outer axis, and everything that is done for each example alone
runs along contiguous memory. One transposition is left, from the inputs' own networks to those of the children.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num

from elden.dynamics.config import NetworkConfig
from elden.factors import Continuous, Discrete, Factors, Granularity, Kind

Columns: TypeAlias = Num[Array, "column batch"]


@dataclass(frozen=True)
class _Place:
    """Where one column of a flat state goes: entry `offset` (plus its value, if discrete) of a row."""

    row: int
    column: int
    offset: int
    kind: Kind


@dataclass(frozen=True)
class _Placement:
    """Columns of flat states to rows of encoded ones: a one-hot block for each discrete column."""

    places: tuple[_Place, ...]
    num_rows: int
    num_entries: int

    @cached_property
    def _slots(self) -> list[list[_Place]]:
        return [[place for place in self.places if place.row == row] for row in range(self.num_rows)]

    def _table(self, values: list[list[int]]) -> Int[np.ndarray, "row slot"]:
        """One integer for each place, rows with fewer places filled up with -1."""
        longest = max(1, *map(len, values)) if values else 1
        return np.array([row + [-1] * (longest - len(row)) for row in values], np.int32).reshape(len(values), longest)

    def __call__(self, columns: Columns) -> Float[Array, "row entry batch"]:
        """Encode; a discrete value that is out of its range leaves its block zero."""
        column = self._table([[place.column for place in row] for row in self._slots])
        offset = self._table([[place.offset for place in row] for row in self._slots])
        sizes = self._table(
            [[place.kind.n if isinstance(place.kind, Discrete) else 0 for place in row] for row in self._slots]
        )
        used, discrete = column >= 0, sizes > 0
        values = columns[np.maximum(column, 0)]
        whole = jnp.where(discrete[..., None], values, 0).astype(jnp.int32)
        amount = jnp.where(discrete[..., None], 1.0, values.astype(jnp.float32))
        inside = used[..., None] & (~discrete[..., None] | ((whole >= 0) & (whole < sizes[..., None])))
        entry = jnp.where(inside, offset[..., None] + whole, -1)[:, :, None]
        here = entry == jnp.arange(self.num_entries, dtype=jnp.int32)[:, None]
        return jnp.sum(jnp.where(here, amount[:, :, None], 0.0), axis=1)

    def owners(self, of: dict[int, int]) -> Int[np.ndarray, "row entry"]:
        """For each entry what `of` says of its column; -1 for padding."""
        owner = np.full((self.num_rows, self.num_entries), -1, np.int32)
        for place in self.places:
            size = place.kind.n if isinstance(place.kind, Discrete) else 1
            owner[place.row, place.offset : place.offset + size] = of[place.column]
        return owner


@dataclass(frozen=True)
class Layout:
    """What the network's arrays mean: made from a state's factors, the kind of action, and the network's config.

    Inputs are `[input, entry, batch]`: the encoded block of each entity (or variable), then that of the action. Targets
    are `[child, slot, value, batch]`: a child is a variable (with one slot) or an entity (with a slot for each of its
    variables); a slot holds a one-hot block or the components of a continuous variable.
    """

    factors: Factors
    action: Kind
    network: NetworkConfig

    @property
    def num_inputs(self) -> int:
        """Inputs of every network, the action included."""
        return self._num(self.network.inputs) + 1

    @property
    def num_children(self) -> int:
        """Number of networks."""
        return self._num(self.network.children)

    @property
    def num_sources(self) -> int:
        """Variables and the action."""
        return self.factors.num_variables + 1

    @cached_property
    def num_slots(self) -> int:
        """Variables of a child, at most."""
        return max(slot for _, slot in self.child_of) + 1

    @cached_property
    def num_entries(self) -> int:
        """Length of a child's slot."""
        return max(variable.kind.encoded_size for variable in self.factors.variables)

    @property
    def input_entries(self) -> int:
        """Length of an input."""
        return self._inputs.num_entries

    def _num(self, granularity: Granularity) -> int:
        return self.factors.num_variables if granularity == "variable" else self.factors.num_entities

    @cached_property
    def child_of(self) -> tuple[tuple[int, int], ...]:
        """Child and slot of each variable."""
        if self.network.children == "variable":
            return tuple((i, 0) for i in range(self.factors.num_variables))
        slices = self.factors.entity_slices
        return tuple((entity, slot) for entity, part in enumerate(slices) for slot in range(part.stop - part.start))

    @cached_property
    def input_of(self) -> tuple[int, ...]:
        """Input that holds each source: the variables, then the action."""
        variables = self.factors.entity_of if self.network.inputs == "entity" else range(self.factors.num_variables)
        return (*variables, self.num_inputs - 1)

    @cached_property
    def query(self) -> Bool[np.ndarray, "child input"]:
        """The input at which each child's prediction is read: its own entity, or its own (first) variable."""
        chosen = np.zeros((self.num_children, self.num_inputs), np.bool_)
        for variable, (child, slot) in enumerate(self.child_of):
            if slot == 0:
                chosen[child, self.input_of[variable]] = True
        return chosen

    @cached_property
    def _inputs(self) -> _Placement:
        filled = [0] * self.num_inputs
        places = []
        kinds = [*(variable.kind for variable in self.factors.variables), self.action]
        column = 0
        for row, kind in zip(self.input_of, kinds, strict=True):
            for component in range(kind.size):
                places.append(_Place(row, column, filled[row] + component, kind))
                column += 1
            filled[row] += kind.encoded_size
        return _Placement(tuple(places), self.num_inputs, max(filled))

    @cached_property
    def _targets(self) -> _Placement:
        places = []
        for index, (variable, (child, slot)) in enumerate(zip(self.factors.variables, self.child_of, strict=True)):
            start = self.factors.flat_slice(index).start
            for component in range(variable.kind.size):
                places.append(_Place(child * self.num_slots + slot, start + component, component, variable.kind))
        return _Placement(tuple(places), self.num_children * self.num_slots, self.num_entries)

    def encode(
        self, obs: Num[Array, "batch width"], action: Num[Array, "batch *components"]
    ) -> Float[Array, "input entry batch"]:
        """What the networks read."""
        return self._inputs(self._columns(obs, action))

    def _columns(self, obs: Num[Array, "batch width"], action: Num[Array, "batch *components"]) -> Columns:
        if obs.shape[-1] != self.factors.width or action.size != obs.shape[0] * self.action.size:
            raise ValueError(
                f"observations of shape {obs.shape} and actions of shape {action.shape} given; expected"
                f" [batch, {self.factors.width}] and [batch] or [batch, {self.action.size}]"
            )
        action = action.reshape(obs.shape[0], self.action.size)
        if obs.dtype != action.dtype:
            obs, action = obs.astype(jnp.float32), action.astype(jnp.float32)
        return jnp.concatenate([obs.T, action.T])

    def target(self, obs: Num[Array, "batch width"]) -> Float[Array, "child slot value batch"]:
        """What the networks predict, of a next observation; of the current one, what continuous changes add to."""
        placed = self._targets(obs.T)
        return placed.reshape(self.num_children, self.num_slots, self.num_entries, obs.shape[0])

    @cached_property
    def target_mask(self) -> Bool[np.ndarray, "child slot value"]:
        """True where a slot has an entry, False where it is padding."""
        column_of = {place.column: place.column for place in self._targets.places}
        return (self._targets.owners(column_of) >= 0).reshape(self.num_children, self.num_slots, -1)

    @cached_property
    def slot_mask(self) -> Bool[np.ndarray, "child slot"]:
        """True where a child has a variable in this slot."""
        return np.asarray(self.target_mask.any(axis=-1))

    @cached_property
    def discrete(self) -> Bool[np.ndarray, "child slot"]:
        """True where the slot's variable is discrete."""
        chosen = np.zeros((self.num_children, self.num_slots), np.bool_)
        for variable, place in zip(self.factors.variables, self.child_of, strict=True):
            chosen[place] = isinstance(variable.kind, Discrete)
        return chosen

    @cached_property
    def input_source(self) -> Int[np.ndarray, "input entry"]:
        """The source (variable, or the action as the last one) of each input entry; -1 for padding."""
        sizes = [*(variable.kind.size for variable in self.factors.variables), self.action.size]
        source_of = dict(enumerate(np.repeat(np.arange(len(sizes)), sizes).tolist()))
        return self._inputs.owners(source_of)

    @cached_property
    def source_entries(self) -> tuple[tuple[int, int, int], ...]:
        """Input, first entry and number of entries of each source."""
        rows, firsts = [], []
        for source in range(self.num_sources):
            row, entry = np.argwhere(self.input_source == source)[0]
            rows.append(int(row))
            firsts.append(int(entry))
        sizes = [int((self.input_source == source).sum()) for source in range(self.num_sources)]
        return tuple(zip(rows, firsts, sizes, strict=True))

    @cached_property
    def input_continuous(self) -> Bool[np.ndarray, "input entry"]:
        """True where an input entry is a component of a continuous source."""
        kinds = [*(variable.kind for variable in self.factors.variables), self.action]
        continuous = np.array([isinstance(kind, Continuous) for kind in kinds] + [False])
        return np.asarray(continuous[self.input_source])

    @cached_property
    def own_components(self) -> Int[np.ndarray, "5 component"]:
        """Input, entry, child, slot and value of each component of a continuous variable.

        There the state is both what a network reads and what its output is added to.
        """
        found = [
            (row, first + component, *self.child_of[variable], component)
            for variable, (row, first, size) in enumerate(self.source_entries[:-1])
            if isinstance(self.factors.variables[variable].kind, Continuous)
            for component in range(size)
        ]
        return np.array(found, np.int32).reshape(-1, 5).T

    def names(self, granularity: Granularity) -> tuple[str, ...]:
        """Names of the destinations at this granularity."""
        return self.factors.source_names(granularity)[:-1]
