"""Trees of parameters as one array, for optimisers on GPUs."""

from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_Tree = TypeVar("_Tree")
Joined: TypeAlias = tuple[Float[Array, "..."], ...]


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
        """The leaves, as one array if `whole`."""
        leaves = jax.tree.leaves(tree)
        return (jnp.concatenate([leaf.ravel() for leaf in leaves]),) if self.whole else tuple(leaves)

    def part(self, arrays: Joined) -> _Tree:
        """The tree again."""
        shapes, structure = jax.tree.flatten(self.like)
        leaves, start = [], 0
        for leaf in shapes if self.whole else ():
            leaves.append(jax.lax.slice(arrays[0], (start,), (start + leaf.size,)).reshape(leaf.shape))
            start += leaf.size
        tree: _Tree = jax.tree.unflatten(structure, leaves or arrays)
        return tree
