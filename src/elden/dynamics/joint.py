"""Trees of parameters as one array, for optimisers on GPUs."""

import math
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_Tree = TypeVar("_Tree")
Joined: TypeAlias = tuple[Float[Array, "..."], ...]

_ALIGN = 128
"""Every leaf begins at a multiple of so many numbers: GPUs read and write numbers four at a time only from there."""


@dataclass(frozen=True)
class Joint(Generic[_Tree]):
    """How the leaves of a tree of parameters are joined.

    A GPU starts a program for every leaf that an optimiser touches, which for small networks takes longer than the work
    itself; joined into one array they are a single piece of work. A CPU starts work at no cost and would only copy.

    Attributes:
        like: A tree of the same structure and shapes as those that are joined.
        whole: Whether leaves are joined at all, rather than only listed.
    """

    like: _Tree
    whole: bool

    @classmethod
    def here(cls, like: _Tree) -> "Joint[_Tree]":
        """What is best on the default device."""
        return cls(like, jax.default_backend() == "gpu")

    def join(self, tree: _Tree) -> Joined:
        """The leaves, as one array if `whole`, with zeros between them where they are not aligned."""
        leaves = jax.tree.leaves(tree)
        if not self.whole:
            return tuple(leaves)
        parts = []
        for leaf in leaves:
            parts.append(leaf.ravel())
            if gap := _aligned(leaf.size) - leaf.size:
                parts.append(jnp.zeros(gap, leaf.dtype))
        return (jnp.concatenate(parts),)

    def part(self, arrays: Joined) -> _Tree:
        """The tree again. Its derivative is `join`: that of slices would be a sum of as many arrays, each the whole."""

        @jax.custom_vjp
        def parted(arrays: Joined) -> _Tree:
            return self._part(arrays)

        parted.defvjp(lambda arrays: (self._part(arrays), None), lambda _, tree: (self.join(tree),))
        tree: _Tree = parted(arrays)
        return tree

    def _part(self, arrays: Joined) -> _Tree:
        shapes, structure = jax.tree.flatten(self.like)
        leaves, start = [], 0
        for leaf in shapes if self.whole else ():
            leaves.append(jax.lax.slice(arrays[0], (start,), (start + leaf.size,)).reshape(leaf.shape))
            start += _aligned(leaf.size)
        tree: _Tree = jax.tree.unflatten(structure, leaves or arrays)
        return tree


def _aligned(size: int) -> int:
    return math.ceil(size / _ALIGN) * _ALIGN
