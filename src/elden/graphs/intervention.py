"""Our own detector: what the model would have predicted, had one source had another value."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import Batch, forward, log_probabilities
from elden.dynamics.training import Model
from elden.dynamics.variants import Plain, Variant
from elden.factors import Discrete, Granularity
from elden.graphs.base import STILL, Reference, changed
from elden.graphs.sweep import kinds, with_source
from elden.graphs.thresholds import Rule

_DEVIATION = 1 / 16

Tried: TypeAlias = Sequence[Float[Array, "_trial child batch"]]
"""How much each value that was tried changes each child, source by source."""
_Pick: TypeAlias = tuple[Int[Array, ""], Float[Array, ""]]


@dataclass(frozen=True)
class Intervention:
    """Mean change of the predicted distribution over other values of `s_i`, where the child's entity changed at all.

        score_ij = moved_j · mean_v TV( p̂(s'_j | s, a),  p̂(s'_j | s with s_i = v, a) )

    Only values v that occurred count: of others a model knows nothing. A source that never had another value scores 0.
    Where a source has too many values to try all of them, they are taken from examples that lie far apart.

    TV is the total variation distance: the whole distribution counts, not only the probability of what happened, so
    chance (a landing place drawn at random) hides nothing. The mean over values, rather than the largest change, tells
    a cause from a mere possibility: when something happens, most other values would have prevented it; when nothing
    does, only few would have brought it about. `moved_j` is 1 where any variable of the child's entity changed: what
    stays as it was needs no cause but itself, so there the child's self-edge scores 1 and all others 0.

    A continuous variable's predictions are compared as normal distributions whose deviation is a sixteenth of a typical
    change of it, so that predictions a quarter of such a change apart differ by 0.95.
    """

    name: ClassVar[str] = "intervention"
    penalised: ClassVar[bool] = False
    threshold_rule: ClassVar[Rule] = "otsu"

    samples: int = 8
    """Other values tried of each source, at most: all of a discrete one where these are no more, else examples."""
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

        def change(tried: Batch) -> Float[Array, "child batch"]:
            return total_variation(layout, base, predicted(layout, model, tried), reference)

        scores = sum_up(*try_values(layout, batch, reference, self.samples, change))
        return gated(layout, scores, batch, reference) if self.gate else scores


def gated(
    layout: Layout,
    scores: Float[Array, "batch child src"],
    batch: Batch,
    reference: Reference,
    highest: float = 1.0,
) -> Float[Array, "batch child src"]:
    """The scores where the child's entity changed; elsewhere the highest one for self-edges, and 0 for all others."""
    self_edges = ~layout.factors.edge_mask(layout.network.children, "variable")
    return jnp.where(changed(layout, batch, reference)[..., None], scores, jnp.where(self_edges, highest, 0.0))


def try_values(
    layout: Layout,
    batch: Batch,
    reference: Reference,
    samples: int,
    change: Callable[[Batch], Float[Array, "child batch"]],
) -> tuple[Tried, list[Bool[Array, "_trial batch"]]]:
    """What `change` says of the batch with other values of one source, for every source, and which of them count.

    Args:
        layout: Meaning of the arrays.
        batch: Transitions.
        reference: Which values occur, and examples of them.
        samples: How many other values are tried, at most.
        change: From a batch in which a source has another value to how much that changes each child.
    """
    examples = min(samples, reference.inputs.shape[-1])
    source, order, place = trials(layout, samples, examples)
    drawn = from_examples(layout, samples)[source]
    shape = layout.num_sources, examples
    nothing = jnp.zeros(shape, jnp.int32), jnp.zeros(shape, jnp.bool_), jnp.zeros(shape[0])
    example, new, least = far_apart(layout, reference, examples) if drawn.any() else nothing
    columns = (source, order, drawn, example[source, place], new[source, place], least[source])

    def one(trial: tuple[Array, ...]) -> tuple[Float[Array, "child batch"], Bool[Array, " batch"]]:
        source, order, drawn, example, new, least = trial
        tried = replaced(layout, batch, reference, source, order, example, drawn)
        apart = jnp.sum((tried.inputs - batch.inputs).astype(jnp.float32) ** 2, axis=(0, 1))
        return change(tried), jnp.where(drawn, new & (apart > least), _occurs(tried, batch, reference))

    # One after the other, to bound memory.
    changes, counts = jax.lax.map(one, tuple(jnp.asarray(column) for column in columns))
    ends = np.cumsum(np.bincount(source, minlength=layout.num_sources))[:-1].tolist()
    return jnp.split(changes, ends), jnp.split(counts, ends)


def sum_up(
    changes: Tried, counts: Sequence[Bool[Array, "_trial batch"]], over: Literal["mean", "max"] = "mean"
) -> Float[Array, "batch child src"]:
    """The changes that each source's values made, those that count, reduced to one number; 0 where none counts."""

    def one(
        change: Float[Array, "trial child batch"], count: Bool[Array, "trial batch"]
    ) -> Float[Array, "child batch"]:
        kept = jnp.where(count[:, None], change, 0.0)
        if over == "max":
            return jnp.max(kept, axis=0, initial=0.0)
        return jnp.sum(kept, axis=0) / jnp.maximum(jnp.sum(count, axis=0, dtype=kept.dtype), 1.0)

    parts = [one(change, count) for change, count in zip(changes, counts, strict=True)]
    return jnp.transpose(jnp.stack(parts), (2, 1, 0))


def from_examples(layout: Layout, samples: int) -> Bool[np.ndarray, " src"]:
    """Whose values are taken from examples: those of continuous sources, and of discrete ones too many to try all."""
    return np.array([not isinstance(kind, Discrete) or kind.n - 1 > samples for kind in kinds(layout)])


def trials(
    layout: Layout, samples: int, examples: int
) -> tuple[Int[np.ndarray, " trial"], Int[np.ndarray, "trial entry"], Int[np.ndarray, " trial"]]:
    """Source of each trial, where each entry of its input comes from, and its place among those of its source."""
    source, order, place = [], [], []
    many = from_examples(layout, samples)
    for index, (kind, (_, first, size)) in enumerate(zip(kinds(layout), layout.source_entries, strict=True)):
        for trial in range(min(samples, examples) if many[index] else kind.encoded_size - 1):
            entries = np.arange(layout.input_entries, dtype=np.int32)
            if isinstance(kind, Discrete):
                entries[first : first + size] = first + (np.arange(size) - 1 - trial) % size
            source.append(index)
            order.append(entries)
            place.append(trial)
    table = np.array(order, np.int32).reshape(len(source), layout.input_entries)
    return np.array(source, np.int32), table, np.array(place, np.int32)


def far_apart(
    layout: Layout, reference: Reference, number: int
) -> tuple[Int[Array, "src trial"], Bool[Array, "src trial"], Float[Array, " src"]]:
    """Examples whose values of each source lie far apart: each is the one farthest from those before it.

    They cover what occurred, as all values of a discrete source do. Were they drawn as they come, a pot that stands on
    the stove most of the time would mostly be tried there, and would seem to make no difference.

    Returns:
        The examples, which of them differ from those before them, and the squared distance up to which values are the
        same: a thousandth of the largest.
    """
    inputs = reference.inputs.astype(jnp.float32)

    def of(source: Int[Array, ""]) -> tuple[Int[Array, " trial"], Bool[Array, " trial"], Float[Array, ""]]:
        values = jnp.where((jnp.asarray(layout.input_source) == source)[..., None], inputs, 0.0)

        def apart(chosen: Int[Array, ""]) -> Float[Array, " example"]:
            return jnp.sum((values - values[..., chosen][..., None]) ** 2, axis=(0, 1))

        def pick(nearest: Float[Array, " example"], _: None) -> tuple[Float[Array, " example"], _Pick]:
            chosen = jnp.argmax(nearest).astype(jnp.int32)
            return jnp.minimum(nearest, apart(chosen)), (chosen, nearest[chosen])

        least = STILL**2 * jnp.max(apart(jnp.int32(0)))
        _, (chosen, distance) = jax.lax.scan(pick, jnp.full(inputs.shape[-1], jnp.inf), None, length=number)
        return chosen, distance > least, least

    return jax.vmap(of)(jnp.arange(layout.num_sources, dtype=jnp.int32))


def predicted(layout: Layout, model: Model, batch: Batch) -> Float[Array, "child slot value batch"]:
    """Logarithms of the probabilities of discrete variables, means of continuous ones."""
    out = forward(layout, model.net, batch.inputs).out
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
    drawn: Bool[Array, ""],
) -> Batch:
    """The batch with another value of one source: that of an example if `drawn`, else its one-hot block turned."""
    value = jax.lax.dynamic_index_in_dim(reference.inputs, example, axis=2, keepdims=True)
    other = jnp.where(drawn, value.astype(batch.inputs.dtype), jnp.take(batch.inputs, order, axis=1))
    return with_source(layout, batch, source, other)


def _occurs(tried: Batch, batch: Batch, reference: Reference) -> Bool[Array, " batch"]:
    """Whether the discrete value that takes the place of a source's own has ever been seen."""
    unseen = jnp.where(reference.seen[..., None], 0.0, tried.inputs - batch.inputs)
    return jnp.max(unseen, axis=(0, 1)) <= 0.0


def _length(layout: Layout, difference: Float[Array, "child slot value batch"]) -> Float[Array, "child slot batch"]:
    return jnp.sqrt(jnp.sum(jnp.where(layout.target_mask[..., None], difference, 0.0) ** 2, axis=2))
