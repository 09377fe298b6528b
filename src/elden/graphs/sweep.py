"""What the model would have predicted, had one source had another value.

A sweep replaces one source (a variable or the action) by each of a list of values, everything else staying as it is,
and reads the probability of what was observed. All values of a discrete source are tried; of a continuous one, the
values that some reference states have.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import Batch, forward, log_likelihood
from elden.dynamics.training import Model
from elden.factors import Continuous, Kind
from elden.graphs.base import Reference


@dataclass(frozen=True)
class Swaps:
    """The values that are tried, those of one source after those of the one before.

    Attributes:
        source: Source of each.
        value: Entry within the source's block (discrete) or reference state (continuous).
    """

    source: Int[np.ndarray, " swap"]
    value: Int[np.ndarray, " swap"]

    def slices(self, num_sources: int) -> list[slice]:
        """Where each source's values stand."""
        ends = np.cumsum(np.bincount(self.source, minlength=num_sources)).tolist()
        return [slice(start, stop) for start, stop in zip([0, *ends[:-1]], ends, strict=True)]


def all_swaps(layout: Layout, samples: int) -> Swaps:
    """All values of discrete sources, `samples` of continuous ones."""
    counts = [samples if isinstance(kind, Continuous) else kind.n for kind in kinds(layout)]
    source = np.repeat(np.arange(len(counts)), counts)
    return Swaps(source, np.concatenate([np.arange(count) for count in counts]))


def kinds(layout: Layout) -> tuple[Kind, ...]:
    """Kind of each source, the action being the last one."""
    return (*(variable.kind for variable in layout.factors.variables), layout.action)


def with_source(
    layout: Layout, batch: Batch, source: Int[Array, ""], other: Float[Array, "input entry #batch"]
) -> Batch:
    """The batch with one source as it is in other inputs; a continuous one also where its change is added to it."""
    inputs = jnp.where((jnp.asarray(layout.input_source) == source)[..., None], other, batch.inputs)
    row, entry, child, slot, value = layout.own_components
    current = batch.current
    if row.size:
        current = current.at[child, slot, value].set(inputs[row, entry].astype(current.dtype), unique_indices=True)
    return replace(batch, inputs=inputs, current=current)


def sweep(
    layout: Layout,
    model: Model,
    batch: Batch,
    reference: Reference,
    swaps: Swaps,
) -> Float[Array, "swap child batch"]:
    """`log p̂(s'_j | s, a with one source replaced)` for every replacement, one after the other to bound memory.

    Args:
        layout: Meaning of the arrays.
        model: One model.
        batch: Transitions.
        reference: Where values of continuous sources come from.
        swaps: What to try.
    """
    continuous = np.array([isinstance(kind, Continuous) for kind in kinds(layout)])
    first = np.array([entry for _, entry, _ in layout.source_entries], np.int32)
    entries = jnp.arange(layout.input_entries, dtype=jnp.int32)

    def one(swap: tuple[Int[Array, ""], Int[Array, ""], Int[Array, ""]]) -> Float[Array, "child batch"]:
        source, value, entry = swap
        chosen = (entries == entry).astype(batch.inputs.dtype)[None, :, None]
        if continuous.any():
            seen = jax.lax.dynamic_index_in_dim(reference.inputs, value, axis=2, keepdims=True)
            chosen = jnp.where(jnp.asarray(continuous)[source], seen.astype(chosen.dtype), chosen)
        tried = with_source(layout, batch, source, chosen)
        return log_likelihood(layout, forward(layout, model.net, tried.inputs).out, tried)

    entry = np.where(continuous[swaps.source], 0, first[swaps.source] + swaps.value)
    table = (swaps.source, np.where(continuous[swaps.source], swaps.value, 0), entry)
    columns = tuple(jnp.asarray(column, jnp.int32) for column in table)
    tried: Float[Array, "swap child batch"] = jax.lax.map(one, columns)
    return tried
