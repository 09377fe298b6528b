"""Our own detector: what the model would have predicted, had one source had another value."""

import math
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import Batch, forward, log_probabilities
from elden.dynamics.training import Model
from elden.dynamics.variants import Plain, Variant
from elden.factors import Discrete, Granularity
from elden.graphs.base import Reference
from elden.graphs.sweep import kinds
from elden.graphs.thresholds import Rule

_TINY = 1e-6


@dataclass(frozen=True)
class Intervention:
    """Mean change of the predicted distribution over other values of `s_i`, where the child's entity changed at all.

        score_ij = moved_j · mean_v TV( p̂(s'_j | s, a),  p̂(s'_j | s with s_i = v, a) )

    TV is the total variation distance: the whole distribution counts, not only the probability of what happened, so
    chance (a landing place drawn at random) hides nothing. The mean over values, rather than the largest change, tells
    a cause from a mere possibility: when something happens, most other values would have prevented it; when nothing
    does, only few would have brought it about. `moved_j` is 1 where any variable of the child's entity changed: what
    stays as it was needs no cause but itself, so there the child's own edge scores 1 and all others 0.

    A continuous variable's predictions are compared as normal distributions whose deviation is the root mean square of
    its changes in the data; it moved by the same measure, between 0 and 1.
    """

    name: ClassVar[str] = "intervention"
    penalised: ClassVar[bool] = False
    threshold_rule: ClassVar[Rule] = "otsu"

    samples: int = 8
    """Other values tried of each source: spread evenly over a discrete one's, taken from the data for others."""
    gate: bool = True
    """Whether `moved_j` is a factor of the score."""

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ValueError(f"samples={self.samples} given; at least 1 other value must be tried")

    @property
    def variant(self) -> Variant:
        """The network as it is."""
        return Plain()

    def sources(self, layout: Layout) -> Granularity:
        """Variables, whatever the inputs are."""
        return "variable"

    def scores(self, layout: Layout, model: Model, batch: Batch, reference: Reference) -> Float[Array, "batch dst src"]:
        """Scores of all edges for one model."""
        source, order, example = self._trials(layout, reference.inputs.shape[-1])
        base = forward(layout, model.net, batch.inputs).out

        def one(trial: tuple[Int[Array, ""], Int[Array, " entry"], Int[Array, ""]]) -> Float[Array, "child batch"]:
            inputs = replaced(layout, batch.inputs, reference.inputs, *trial)
            return self._distance(layout, base, forward(layout, model.net, inputs).out, reference)

        # One after the other, to bound memory.
        table = tuple(jnp.asarray(column, jnp.int32) for column in (source, order, example))
        changes = jax.lax.map(one, table)
        ends = np.cumsum(np.bincount(source, minlength=layout.num_sources))
        means = [
            jnp.mean(part, axis=0) if part.shape[0] else jnp.zeros(part.shape[1:])
            for part in jnp.split(changes, ends[:-1].tolist())
        ]
        scores = jnp.transpose(jnp.stack(means), (2, 1, 0))
        if not self.gate:
            return scores
        change = moved(layout, batch, reference).T[..., None]
        return scores * change + own_edges(layout) * (1.0 - change)

    def _trials(
        self, layout: Layout, examples: int
    ) -> tuple[Int[np.ndarray, " trial"], Int[np.ndarray, "trial entry"], Int[np.ndarray, " trial"]]:
        """Source of each trial, where each entry of its input comes from, and the example for continuous sources."""
        source, order, example = [], [], []
        for index, (kind, (_, first, size)) in enumerate(zip(kinds(layout), layout.source_entries, strict=True)):
            count = min(self.samples, kind.n - 1 if isinstance(kind, Discrete) else examples)
            for trial in range(count):
                entries = np.arange(layout.input_entries)
                if isinstance(kind, Discrete):
                    shift = 1 + (trial * (kind.n - 1)) // count
                    entries[first : first + size] = first + (np.arange(size) - shift) % size
                source.append(index)
                order.append(entries)
                example.append(trial)
        table = np.array(order, np.int32).reshape(len(source), layout.input_entries)
        return np.array(source, np.int32), table, np.array(example, np.int32)

    def _distance(
        self,
        layout: Layout,
        one: Float[Array, "child slot entry batch"],
        other: Float[Array, "child slot entry batch"],
        reference: Reference,
    ) -> Float[Array, "child batch"]:
        """Total variation between two predictions; of a child with many variables, the largest of theirs."""
        distance = jnp.zeros((*one.shape[:2], one.shape[-1]))
        if layout.discrete.any():
            p, q = jnp.exp(log_probabilities(layout, one)), jnp.exp(log_probabilities(layout, other))
            distance = jnp.where(layout.discrete[..., None], 0.5 * jnp.sum(jnp.abs(p - q), axis=2), distance)
        continuous = layout.slot_mask & ~layout.discrete
        if continuous.any():
            distance = jnp.where(continuous[..., None], _between(layout, one - other, reference), distance)
        return jnp.max(distance, axis=1)


def replaced(
    layout: Layout,
    inputs: Float[Array, "input entry batch"],
    seen: Float[Array, "input entry example"],
    source: Int[Array, ""],
    order: Int[Array, " entry"],
    example: Int[Array, ""],
) -> Float[Array, "input entry batch"]:
    """The inputs with another value of one source: a one-hot block turned round, or an example's components."""
    mine: Bool[Array, "input entry 1"] = (jnp.asarray(layout.input_source) == source)[..., None]
    other = jnp.take(inputs, order, axis=1)
    if layout.input_continuous.any():
        value = jax.lax.dynamic_index_in_dim(seen, example, axis=2, keepdims=True)
        other = jnp.where(layout.input_continuous[..., None], value, other)
    return jnp.where(mine, other, inputs)


def own_edges(layout: Layout) -> Float[np.ndarray, "dst src"]:
    """1 from a variable to itself, or to the child that it is a part of; 0 elsewhere."""
    own = np.zeros((layout.num_children, layout.num_sources), np.float32)
    for variable, (child, _) in enumerate(layout.child_of):
        own[child, variable] = 1.0
    return own


def moved(layout: Layout, batch: Batch, reference: Reference) -> Float[Array, "child batch"]:
    """How far each child's entity changed in this step: 0 or 1 where its variables are discrete."""
    change = jnp.where(layout.target_mask[..., None], batch.target - batch.current, 0.0)
    jumped = jnp.any(change != 0, axis=2).astype(jnp.float32)
    slots = jnp.where(layout.discrete[..., None], jumped, _between(layout, change, reference))
    children = jnp.max(slots, axis=1)
    if layout.network.children == "entity":
        return children
    groups = [children[part] for part in layout.factors.entity_slices]
    return jnp.concatenate([jnp.broadcast_to(jnp.max(group, axis=0), group.shape) for group in groups])


def _between(
    layout: Layout, difference: Float[Array, "child slot entry batch"], reference: Reference
) -> Float[Array, "child slot batch"]:
    """Total variation between two normal distributions whose means differ by this: `erf(|Δ| / (2√2 σ))`."""
    masked = jnp.where(layout.target_mask[..., None], difference, 0.0)
    length = jnp.sqrt(jnp.sum(masked**2, axis=2))
    return jax.lax.erf(length / (2 * math.sqrt(2) * (reference.spread[..., None] + _TINY)))
