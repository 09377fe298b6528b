"""States of something that is in training, on disk: the newest ones, each whole or not there.

A state is a tree of arrays, kept under a number that grows. A state that is being written is not read before it is
complete; older ones are removed only then, so whatever goes wrong (a full disk, a killed process), the last complete
one stays. A damaged one is named, and the one before it used.
"""

import logging
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Shaped

from elden.storage.arrays import DamagedDataError, read_arrays, write_arrays
from elden.storage.plain import differences, plain

_log = logging.getLogger(__name__)
_Tree = TypeVar("_Tree")


@dataclass(frozen=True)
class Kept(Generic[_Tree]):
    """A state that was kept, its number, and what else was written with it."""

    number: int
    tree: _Tree
    card: Mapping[str, object]


class Checkpoints:
    """The states of one training run."""

    def __init__(self, folder: Path, identity: Mapping[str, object], keep: int = 2) -> None:
        """Look into a folder, which need not exist.

        Args:
            folder: Where the states are.
            identity: What the training is; states of another one are refused.
            keep: How many states stay.
        """
        self.folder, self.identity, self.keep = folder, identity, keep

    def save(self, number: int, tree: object, more: Mapping[str, object] | None = None) -> None:
        """Keep a state, and drop the oldest ones.

        Raises:
            OSError: It cannot be written; earlier states are as they were.
        """
        current = self.folder / f"{number:09d}"
        before = sorted(folder for folder in self.folder.glob("[0-9]*") if folder != current)
        try:
            write_arrays(current, to_arrays(tree), _card({**self.identity, **(more or {})}))
        except OSError:
            shutil.rmtree(current, ignore_errors=True)
            raise
        for folder in before[: max(0, len(before) - self.keep + 1)]:
            shutil.rmtree(folder)

    def restore(self, like: _Tree) -> Kept[_Tree] | None:
        """The newest state that is whole; None where there is none.

        Args:
            like: A tree of the same structure, shapes and types.

        Raises:
            ValueError: A state is of another training run.
        """
        for slot in sorted(self.folder.glob("[0-9]*"), reverse=True):
            try:
                arrays, card = read_arrays(slot)
                self._check_identity(slot, card)
                return Kept(int(slot.name), from_arrays(arrays, like), card)
            except DamagedDataError as error:
                _log.warning("a damaged state of training is not used: %s", error)
        return None

    def clear(self) -> None:
        """Remove all states."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _check_identity(self, slot: Path, card: Mapping[str, object]) -> None:
        wanted = _card(self.identity)
        if changed := differences({name: card.get(name) for name in wanted}, wanted):
            raise ValueError(f"{slot} is of another training ({changed}); choose another folder or remove this one")


def to_arrays(tree: object) -> dict[str, Shaped[np.ndarray, "..."]]:
    """The leaves of a tree by names that say where they stand in it."""
    paths = jax.tree_util.tree_leaves_with_path(tree)
    return {_name(i, path): np.asarray(leaf) for i, (path, leaf) in enumerate(paths)}


def from_arrays(arrays: Mapping[str, Shaped[np.ndarray, "..."]], like: _Tree) -> _Tree:
    """The tree whose leaves `to_arrays` has named.

    Args:
        arrays: The leaves.
        like: A tree of the same structure, shapes and types; its leaves may be shapes alone.

    Raises:
        DamagedDataError: The arrays are not those of such a tree.
    """
    paths, structure = jax.tree_util.tree_flatten_with_path(like)
    names = [_name(i, path) for i, (path, _) in enumerate(paths)]
    if sorted(arrays) != sorted(names):
        raise DamagedDataError(f"arrays {', '.join(sorted(arrays))} given; expected are {', '.join(sorted(names))}")
    for name, (_, leaf) in zip(names, paths, strict=True):
        if arrays[name].shape != leaf.shape or arrays[name].dtype != leaf.dtype:
            raise DamagedDataError(
                f"{name} is {arrays[name].dtype} {arrays[name].shape}; expected is {leaf.dtype} {leaf.shape}"
            )
    tree: _Tree = jax.tree.unflatten(structure, [jnp.asarray(arrays[name]) for name in names])
    return tree


def _name(index: int, path: tuple[object, ...]) -> str:
    words = re.sub(r"[^A-Za-z0-9_]+", ".", jax.tree_util.keystr(path)).strip(".")
    return f"{index:03d}.{words}"


def _card(content: Mapping[str, object]) -> dict[str, object]:
    card = plain(content)
    if not isinstance(card, dict):
        raise TypeError(f"a card is an object, not {card!r}")
    return card
