"""Our own detector: what the model would have predicted, had one source had another value."""

import math
from collections.abc import Callable, Sequence
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
from elden.graphs.sweep import kinds, with_source
from elden.graphs.thresholds import Rule

_DEVIATION = 1 / 16
_NEVER_SEEN = -1.0
"""In the place of a change (which is 0 or more) that a value made which never occurred."""


@dataclass(frozen=True)
class Intervention:
    """Mean change of the predicted distribution over other values of `s_i`, where the child's entity changed at all.

        score_ij = moved_j · mean_v TV( p̂(s'_j | s, a),  p̂(s'_j | s with s_i = v, a) )

    Only values v that occurred count: of others a model knows nothing. A source that never had another value scores 0.

    TV is the total variation distance: the whole distribution counts, not only the probability of what happened, so
    chance (a landing place drawn at random) hides nothing. The mean over values, rather than the largest change, tells
    a cause from a mere possibility: when something happens, most other values would have prevented it; when nothing
    does, only few would have brought it about. `moved_j` is 1 where any variable of the child's entity changed: what
    stays as it was needs no cause but itself, so there the child's own edge scores 1 and all others 0.

    A continuous variable's predictions are compared as normal distributions whose deviation is a sixteenth of a typical
    change of it, so that predictions a quarter of such a change apart differ by 0.95.
    """

    name: ClassVar[str] = "intervention"
    penalised: ClassVar[bool] = False
    threshold_rule: ClassVar[Rule] = "otsu"

    samples: int = 8
    """Other values tried of each source: spread over a discrete one's, and over those that a continuous one has had."""
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
        base = predicted(layout, model, batch)
        changes = try_values(
            layout,
            batch,
            reference,
            self.samples,
            lambda tried: jnp.where(
                _occurs(tried, batch, reference),
                total_variation(layout, base, predicted(layout, model, tried), reference),
                _NEVER_SEEN,
            ),
        )
        scores = sum_up(changes, _mean_of_seen)
        if not self.gate:
            return scores
        change = moved(layout, batch, reference).T[..., None]
        return scores * change + own_edges(layout) * (1.0 - change)


def try_values(
    layout: Layout,
    batch: Batch,
    reference: Reference,
    samples: int,
    change: Callable[[Batch], Float[Array, "child batch"]],
) -> list[Float[Array, "_trial child batch"]]:
    """What `change` says of the batch with other values of one source, for every source.

    Args:
        layout: Meaning of the arrays.
        batch: Transitions.
        reference: Where values of continuous sources come from.
        samples: How many other values are tried, at most.
        change: From a batch in which a source has another value to how much that changes each child.
    """
    examples = min(samples, reference.inputs.shape[-1])
    source, order, place = trials(layout, samples, examples)
    example = far_apart(layout, reference, examples)[source, place]
    table = (jnp.asarray(source, jnp.int32), jnp.asarray(order, jnp.int32), example)
    # One after the other, to bound memory.
    changes = jax.lax.map(lambda trial: change(replaced(layout, batch, reference, *trial)), table)
    ends = np.cumsum(np.bincount(source, minlength=layout.num_sources))
    return jnp.split(changes, ends[:-1].tolist())


def sum_up(
    changes: Sequence[Float[Array, "_trial child batch"]], reduce: Callable[..., Float[Array, "child batch"]]
) -> Float[Array, "batch child src"]:
    """The changes that each source's values made, reduced to one number; 0 for a source that has no other value."""
    parts = [reduce(part, axis=0) if part.shape[0] else jnp.zeros(part.shape[1:]) for part in changes]
    return jnp.transpose(jnp.stack(parts), (2, 1, 0))


def trials(
    layout: Layout, samples: int, examples: int
) -> tuple[Int[np.ndarray, " trial"], Int[np.ndarray, "trial entry"], Int[np.ndarray, " trial"]]:
    """Source of each trial, where each entry of its input comes from, and its place among those of its source."""
    source, order, place = [], [], []
    for index, (kind, (_, first, size)) in enumerate(zip(kinds(layout), layout.source_entries, strict=True)):
        count = min(samples, kind.n - 1 if isinstance(kind, Discrete) else examples)
        for trial in range(count):
            entries = np.arange(layout.input_entries)
            if isinstance(kind, Discrete):
                shift = 1 + (trial * (kind.n - 1)) // count
                entries[first : first + size] = first + (np.arange(size) - shift) % size
            source.append(index)
            order.append(entries)
            place.append(trial)
    table = np.array(order, np.int32).reshape(len(source), layout.input_entries)
    return np.array(source, np.int32), table, np.array(place, np.int32)


def far_apart(layout: Layout, reference: Reference, number: int) -> Int[Array, "src trial"]:
    """Examples whose values of each source lie far apart: each is the one farthest from those before it.

    They cover what occurred, as the values of a discrete source do. Were they drawn as they come, a pot that stands on
    the stove most of the time would mostly be tried there, and would seem to make no difference.
    """
    inputs = reference.inputs.astype(jnp.float32)

    def of(source: Int[Array, ""]) -> Int[Array, " trial"]:
        values = jnp.where((jnp.asarray(layout.input_source) == source)[..., None], inputs, 0.0)

        def pick(nearest: Float[Array, " example"], _: None) -> tuple[Float[Array, " example"], Int[Array, ""]]:
            chosen = jnp.argmax(nearest).astype(jnp.int32)
            apart = jnp.sum((values - values[..., chosen][..., None]) ** 2, axis=(0, 1))
            return jnp.minimum(nearest, apart), chosen

        return jax.lax.scan(pick, jnp.full(inputs.shape[-1], jnp.inf), None, length=number)[1]

    return jax.vmap(of)(jnp.arange(layout.num_sources, dtype=jnp.int32))


def predicted(layout: Layout, model: Model, batch: Batch) -> Float[Array, "child slot value batch"]:
    """Logarithms of the probabilities of discrete variables, means of continuous ones."""
    out = forward(layout, model.net, batch.inputs, final=True).out
    if not layout.discrete.any():
        return batch.current + out
    return jnp.where(layout.discrete[..., None, None], log_probabilities(layout, out), batch.current + out)


def total_variation(
    layout: Layout,
    one: Float[Array, "child slot value batch"],
    other: Float[Array, "child slot value batch"],
    reference: Reference,
) -> Float[Array, "child batch"]:
    """Total variation between two predictions; of a child with many variables, the largest of theirs."""
    distance = jnp.zeros((*one.shape[:2], one.shape[-1]))
    if layout.discrete.any():
        apart = 0.5 * jnp.sum(jnp.abs(jnp.exp(one) - jnp.exp(other)), axis=2)
        distance = jnp.where(layout.discrete[..., None], apart, distance)
    continuous = layout.slot_mask & ~layout.discrete
    if continuous.any():
        # Of two normal distributions whose means are |Δ| apart: erf(|Δ| / (2√2 σ)).
        deviation = _DEVIATION * reference.step[..., None]
        apart = jax.lax.erf(_length(layout, one - other) / (2 * math.sqrt(2) * deviation))
        distance = jnp.where(continuous[..., None], apart, distance)
    return jnp.max(distance, axis=1)


def replaced(
    layout: Layout,
    batch: Batch,
    reference: Reference,
    source: Int[Array, ""],
    order: Int[Array, " entry"],
    example: Int[Array, ""],
) -> Batch:
    """The batch with another value of one source: a one-hot block turned round, or an example's components."""
    other = jnp.take(batch.inputs, order, axis=1)
    if layout.input_continuous.any():
        value = jax.lax.dynamic_index_in_dim(reference.inputs, example, axis=2, keepdims=True)
        other = jnp.where(layout.input_continuous[..., None], value, other)
    return with_source(layout, batch, source, other)


def _occurs(tried: Batch, batch: Batch, reference: Reference) -> Bool[Array, " batch"]:
    """Whether the value that takes the place of a source's own has ever been seen."""
    unseen = jnp.where(reference.seen[..., None], 0.0, tried.inputs - batch.inputs)
    return jnp.max(unseen, axis=(0, 1)) <= 0.0


def _mean_of_seen(changes: Float[Array, "trial child batch"], axis: int) -> Float[Array, "child batch"]:
    seen = changes > _NEVER_SEEN
    number = jnp.sum(seen, axis=axis, dtype=changes.dtype)
    return jnp.sum(jnp.where(seen, changes, 0.0), axis=axis) / jnp.maximum(number, 1.0)


def own_edges(layout: Layout) -> Float[np.ndarray, "dst src"]:
    """1 from a variable to itself, or to the child that it is a part of; 0 elsewhere."""
    own = np.zeros((layout.num_children, layout.num_sources), np.float32)
    for variable, (child, _) in enumerate(layout.child_of):
        own[child, variable] = 1.0
    return own


def moved(layout: Layout, batch: Batch, reference: Reference) -> Float[Array, "child batch"]:
    """1 where any variable of a child's entity changed in this step, 0 elsewhere."""
    length = _length(layout, batch.target - batch.current)
    slots = length > jnp.where(layout.discrete, 0.0, reference.still)[..., None]
    children = jnp.any(slots, axis=1).astype(jnp.float32)
    if layout.network.children == "entity":
        return children
    groups = [children[part] for part in layout.factors.entity_slices]
    return jnp.concatenate([jnp.broadcast_to(jnp.max(group, axis=0), group.shape) for group in groups])


def _length(layout: Layout, difference: Float[Array, "child slot value batch"]) -> Float[Array, "child slot batch"]:
    return jnp.sqrt(jnp.sum(jnp.where(layout.target_mask[..., None], difference, 0.0) ** 2, axis=2))
