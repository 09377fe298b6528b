"""Prioritised replay (Schaul et al. 2016): a ring of transitions, and a sum tree of priorities beside it.

Item `i` with priority `p_i` is drawn, independently and with replacement, with

    P(i) = p_i^α / Σ_k p_k^α        and weighs        w_i = (N·P(i))^-β / max_j (N·P(j))^-β,

where the maximum is taken over the drawn batch, α is the *exponent* (0.5 in the paper; 0 is uniform) and N the number
of items. Since N and the sum cancel, `w_i = (min_j m_j / m_i)^β` with the *mass* `m_i = p_i^α`. These are the weights
of Schaul et al., for users of this buffer; dynamics models take only the slots from `sample`, and weigh them by
`(N·P(i))^-β`, without the maximum (`elden.dynamics.training.Trainer.draw`).

The masses are the leaves of a tree with fan-out 32 in plain arrays: `levels[0]` holds the leaves in rows of 32, every
entry of `levels[k + 1]` is the sum of one row of `levels[k]`, and the last level is one row. Drawing walks down,
updating walks up, and both touch `batch · 32 · levels` numbers whatever the capacity. Sums are recomputed from their
children, never incremented, so rounding errors do not pile up.

`Ring` (the data) and `Priorities` (the tree) are apart: many models can share one ring and each hold its own priorities
under `jax.vmap`. `Replay` is one of each. Everything is a pure function on frozen pytrees.

Inside a jitted loop (with the buffer donated or carried) every write happens in place, as long as nothing reads the old
buffer after it: add first, then draw, gather and update. Adding last makes XLA copy the whole ring at every step.
"""

from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, Shaped

from elden.pytree import pytree

Items = TypeVar("Items")
"""A pytree of arrays; stored with a leading axis of length `capacity`."""

FAN_OUT = 32
MIN_PRIORITY = 1e-6
"""Floor of every priority; negative, infinite and NaN ones count as this much."""
MAX_PRIORITY = 1e6
"""Ceiling of every finite priority."""
_MIN_MASS, _MAX_MASS = 1e-30, 1e30  # a tree of ten million of either still sums to an ordinary float32


@pytree("capacity")
@dataclass(frozen=True)
class Priorities:
    """A sum tree of `p_i^exponent` over `capacity` slots, of which the empty ones have mass 0.

    Attributes:
        levels: From the leaves to the top, each `[row, 32]`, padded with zeros.
        exponent: α; fixed for the life of the tree, which stores powers. An array, so that it can differ under `vmap`.
        maximum: The largest priority seen so far, at least 1: what new items get.
        size: Number of slots that are not empty.
        capacity: Number of slots.
    """

    levels: tuple[Float[Array, "*batch _ fan"], ...]
    exponent: Float[Array, "*batch"]
    maximum: Float[Array, "*batch"]
    size: Int[Array, "*batch"]
    capacity: int

    @classmethod
    def create(cls, capacity: int, exponent: float | int | Float[Array, ""] = 0.5, filled: int = 0) -> "Priorities":
        """A tree whose first `filled` slots hold items of priority 1, the others nothing."""
        if capacity < 1:
            raise ValueError(f"capacity={capacity}: must be at least 1")
        if not 0 <= filled <= capacity:
            raise ValueError(f"filled={filled}: must lie between 0 and the capacity, {capacity}")
        if isinstance(exponent, float | int) and not 0 <= exponent < float("inf"):
            raise ValueError(f"exponent={exponent}: must be finite and at least 0 (0 is uniform, the paper has 0.5)")
        leaves = jnp.arange(_rows(capacity) * FAN_OUT) < filled
        levels = [leaves.astype(jnp.float32).reshape(-1, FAN_OUT)]
        while levels[-1].shape[0] > 1:
            sums = levels[-1].sum(-1)
            padding = _rows(sums.size) * FAN_OUT - sums.size
            levels.append(jnp.pad(sums, (0, padding)).reshape(-1, FAN_OUT))
        return cls(tuple(levels), jnp.asarray(exponent, jnp.float32), jnp.float32(1), jnp.int32(filled), capacity)

    @property
    def total(self) -> Float[Array, ""]:
        """Σ p_k^α over all items."""
        return self.levels[-1].sum()

    def probabilities(self, indices: Int[Array, "*draw"] | None = None) -> Float[Array, "*draw"]:
        """P(i) of the given slots, or of all of them, which costs time in proportion to the capacity."""
        if indices is None:
            indices = jnp.arange(self.capacity)
        return self._masses(indices) / self.total

    def insert(self, slots: Int[Array, " batch"]) -> "Priorities":
        """New items stand in these slots: they get the largest priority seen so far."""
        known = self._masses(slots)
        masses = jnp.broadcast_to(self._mass_of(self.maximum), slots.shape)
        fresh = jnp.sort(jnp.where(known == 0, slots, -1))  # a slot may be given several times
        different = jnp.diff(fresh, prepend=-1) != 0
        size = self.size + jnp.sum(different & (fresh >= 0), dtype=jnp.int32)
        return replace(self._set(slots, masses, jnp.minimum(known, 0.0)), size=size)

    def update(self, indices: Int[Array, " batch"], priorities: Float[Array, " batch"]) -> "Priorities":
        """Give the items in these slots new priorities.

        Of a slot that is given several times the largest priority counts, whatever the order. Priorities are clamped
        to `[MIN_PRIORITY, MAX_PRIORITY]`, and what is not a finite number becomes `MIN_PRIORITY`. An empty slot stays
        empty.
        """
        current = self._masses(indices)
        filled = current > 0
        finite = jnp.where(jnp.isfinite(priorities), priorities, MIN_PRIORITY)
        clamped = jnp.clip(finite.astype(jnp.float32), MIN_PRIORITY, MAX_PRIORITY)
        maximum = jnp.maximum(self.maximum, jnp.max(clamped, where=filled, initial=0.0))
        # The zeros are made from what was read: a write that waits for every read of the old leaves happens in place,
        # any other makes XLA copy all of them first.
        zeros = jnp.minimum(current, 0.0)
        masses = jnp.where(filled, self._mass_of(clamped), 0.0)
        return replace(self._set(indices, masses, zeros), maximum=maximum)

    def sample(
        self, key: Key[Array, ""], batch_size: int, beta: float | int | Float[Array, ""] = 1.0
    ) -> tuple[Int[Array, " draw"], Float[Array, " draw"]]:
        """`batch_size` slots, drawn by P(i) with replacement, and their weights, of which the largest is 1.

        Every level has random bits of its own: one float32 for the whole walk could not tell ten million items
        apart. From an empty tree comes slot 0, with weight 1.
        """
        uniform = jax.random.uniform(key, (len(self.levels), batch_size))
        node = jnp.zeros(batch_size, jnp.int32)
        masses = jnp.zeros(batch_size, jnp.float32)
        for level, draw in zip(reversed(self.levels), uniform, strict=True):
            child, masses = _pick_child(level[node], draw)
            node = node * FAN_OUT + child
        masses = jnp.maximum(masses, _MIN_MASS)
        return node, (masses.min(initial=jnp.inf) / masses) ** jnp.asarray(beta, jnp.float32)

    def _mass_of(self, priorities: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        return jnp.clip(priorities**self.exponent, _MIN_MASS, _MAX_MASS)

    def _masses(self, indices: Int[Array, "*batch"]) -> Float[Array, "*batch"]:
        return self.levels[0][indices // FAN_OUT, indices % FAN_OUT]

    def _set(
        self, slots: Int[Array, " batch"], masses: Float[Array, " batch"], zeros: Float[Array, " batch"]
    ) -> "Priorities":
        row, column = slots // FAN_OUT, slots % FAN_OUT
        # Zero, then the maximum: with duplicates a plain scatter keeps whichever the device writes last.
        levels = [self.levels[0].at[row, column].set(zeros).at[row, column].max(masses)]
        for level in self.levels[1:]:
            levels.append(_sum_rows(levels[-1], level, row))
            row = row // FAN_OUT
        return replace(self, levels=tuple(levels))


@pytree()
@dataclass(frozen=True)
class Ring(Generic[Items]):
    """The last `capacity` items, in slots that are written round and round.

    Attributes:
        items: A pytree of arrays `[capacity, ...]`.
        cursor: The slot that is written next.
        size: How many slots hold an item: always the first ones.
    """

    items: Items
    cursor: Int[Array, "*batch"]
    size: Int[Array, "*batch"]

    @classmethod
    def create(cls, capacity: int, example: Items) -> "Ring[Items]":
        """An empty ring for items of the shapes and dtypes of `example`, which is ONE item."""
        if capacity < 1:
            raise ValueError(f"capacity={capacity}: must be at least 1")
        if not jax.tree.leaves(example):
            raise ValueError(f"the example item has no arrays: {example!r}")
        shapes = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, example))
        items: Items = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), shapes)
        return cls(items, jnp.int32(0), jnp.int32(0))

    @property
    def capacity(self) -> int:
        """Number of slots."""
        return int(jax.tree.leaves(self.items)[0].shape[0])

    def add(self, batch: Items) -> tuple["Ring[Items]", Int[Array, " kept"]]:
        """Write a batch, oldest item first, over the oldest slots; also returns the slots.

        Of a batch longer than the ring only its last `capacity` items are kept, in the slots where writing one by
        one would have left them.
        """
        length = _batch_length(self.items, batch)
        capacity = self.capacity
        kept = min(length, capacity)
        slots = (self.cursor + (length - kept) % capacity + jnp.arange(kept, dtype=jnp.int32)) % capacity

        def write(stored: Shaped[Array, "capacity ..."], new: Shaped[Array, "batch ..."]) -> Shaped[Array, "..."]:
            return stored.at[slots].set(new[length - kept :], unique_indices=True)

        items: Items = jax.tree.map(write, self.items, batch)
        size = jnp.minimum(self.size + kept, capacity)
        return Ring(items, (self.cursor + length % capacity) % capacity, size), slots

    def gather(self, indices: Int[Array, "*draw"]) -> Items:
        """The items in these slots."""
        items: Items = jax.tree.map(lambda leaf: leaf[indices], self.items)
        return items


@pytree()
@dataclass(frozen=True)
class Replay(Generic[Items]):
    """A ring of items and one tree of priorities over its slots."""

    ring: Ring[Items]
    priorities: Priorities


def init(capacity: int, example: Items, exponent: float | int | Float[Array, ""] = 0.5) -> Replay[Items]:
    """An empty replay buffer for items like `example`, drawn in proportion to `priority ** exponent`."""
    return Replay(Ring.create(capacity, example), Priorities.create(capacity, exponent))


def add(replay: Replay[Items], batch: Items) -> Replay[Items]:
    """Write a batch (oldest first) over the oldest items, with the largest priority seen so far (1 at the start)."""
    ring, slots = replay.ring.add(batch)
    return Replay(ring, replay.priorities.insert(slots))


def sample(
    replay: Replay[Items], key: Key[Array, ""], batch_size: int, beta: float | int | Float[Array, ""] = 1.0
) -> tuple[Int[Array, " draw"], Float[Array, " draw"]]:
    """Slots drawn by priority with replacement, and importance weights divided by their maximum over the batch."""
    return replay.priorities.sample(key, batch_size, beta)


def update(replay: Replay[Items], indices: Int[Array, " batch"], priorities: Float[Array, " batch"]) -> Replay[Items]:
    """New priorities for drawn items; see `Priorities.update`."""
    return Replay(replay.ring, replay.priorities.update(indices, priorities))


def gather(replay: Replay[Items], indices: Int[Array, "*draw"]) -> Items:
    """The items in these slots."""
    return replay.ring.gather(indices)


def _rows(size: int) -> int:
    return -(-size // FAN_OUT)


def _pick_child(
    masses: Float[Array, "draw fan"], uniform: Float[Array, " draw"]
) -> tuple[Int[Array, " draw"], Float[Array, " draw"]]:
    """For every draw one of its children, in proportion to their masses, and its mass; an empty one only if all are."""
    # A product with a triangle of ones is the fastest cumulative sum for rows this short. Full precision must be
    # asked for: the default on GPUs has ten bits.
    triangle = jnp.triu(jnp.ones((FAN_OUT, FAN_OUT), jnp.float32))
    cumulative = jnp.matmul(masses, triangle, precision=jax.lax.Precision.HIGHEST)
    # Two equal sums can differ in their last bit, so an empty child is kept out by name.
    cumulative = jnp.where(masses > 0, cumulative, -1.0)
    target = uniform * cumulative.max(-1)
    child = jnp.argmax(cumulative > target[:, None], axis=-1)
    return child.astype(jnp.int32), jnp.take_along_axis(masses, child[:, None], axis=-1)[:, 0]


def _sum_rows(
    below: Float[Array, "row fan"], level: Float[Array, "above fan"], rows: Int[Array, " batch"]
) -> Float[Array, "above fan"]:
    """The level above, with the sums of these rows of the level below recomputed."""
    num_rows = below.shape[0]
    if rows.size >= num_rows:
        sums = jnp.pad(below.sum(-1), (0, level.size - num_rows))
        return sums.reshape(level.shape)
    return level.at[rows // FAN_OUT, rows % FAN_OUT].set(below[rows].sum(-1))


def _batch_length(stored: Items, batch: Items) -> int:
    """Length of the leading axis of a batch, whose items must look like the stored ones."""
    expected, given = jax.tree.structure(stored), jax.tree.structure(batch)
    if expected != given:  # type: ignore[operator]
        raise ValueError(f"a batch for this ring has structure {expected}, got {given}")
    lengths = set()
    for (path, leaf), new in zip(jax.tree.leaves_with_path(stored), jax.tree.leaves(batch), strict=True):
        if new.ndim == 0 or new.shape[1:] != leaf.shape[1:] or new.dtype != leaf.dtype:
            wanted = f"{leaf.dtype}[{', '.join(map(str, ('batch', *leaf.shape[1:])))}]"
            raise ValueError(f"batch{jax.tree_util.keystr(path)} must be {wanted}, got {new.dtype}{list(new.shape)}")
        lengths.add(new.shape[0])
    if len(lengths) != 1:
        raise ValueError(f"all arrays of a batch must have one length, got {sorted(lengths)}")
    return int(lengths.pop())
