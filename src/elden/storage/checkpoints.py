"""States of something that is in training, on disk: the newest ones, each whole or not there.

A state is a tree of arrays, kept under a number that grows, which its folder and its card both name. It is written
beside the others and gets its name when it is complete; older ones are removed only then, so whatever goes wrong (a
full disk, a killed process), the last complete ones stay. A damaged one is named, and the one before it used; where all
are damaged, nothing begins again by itself.
"""

import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Shaped

from elden.storage.arrays import (
    CARD,
    DamagedDataError,
    Kind,
    other_files,
    read_arrays,
    read_card,
    remove_arrays,
    write_arrays,
)
from elden.storage.files import PART, StorageError, sync_folder
from elden.storage.plain import differences, plain

_log = logging.getLogger(__name__)
_NUMBER = re.compile(r"[0-9]{9}")
_Tree = TypeVar("_Tree")


@dataclass(frozen=True)
class Kept(Generic[_Tree]):
    """A state that was kept, its number, and what else was written with it."""

    number: int
    tree: _Tree
    card: Mapping[str, Any]


class Checkpoints:
    """The states of one training run."""

    def __init__(
        self, folder: Path, kind: Kind, identity: Mapping[str, object], *, keep: int = 2, advice: str = ""
    ) -> None:
        """Look into a folder, which need not exist.

        Args:
            folder: Where the states are.
            kind: What they are states of.
            identity: What the training is; states of another one are refused.
            keep: How many whole states stay.
            advice: How to start over, where all states are damaged; nothing says that the folder is to be removed.
        """
        self.folder, self.kind, self.keep = folder, kind, keep
        self.identity: Any = plain(identity)
        self.advice = advice or f"remove {folder} to start over"
        self.damaged: set[int] = set()

    @property
    def numbers(self) -> list[int]:
        """Numbers of the states that are there, whole or damaged, in ascending order."""
        folders = self.folder.iterdir() if self.folder.is_dir() else ()
        return sorted(int(folder.name) for folder in folders if _NUMBER.fullmatch(folder.name) and folder.is_dir())

    def save(self, number: int, tree: object, more: Mapping[str, object] | None = None) -> None:
        """Keep a state, and drop the oldest ones.

        Raises:
            OSError: It cannot be written; earlier states are as they were.
        """
        current = self._place(number)
        part = current.with_name(current.name + PART)
        remove_arrays(part, unfinished=True)
        card: Any = plain({**self.identity, **(more or {}), "number": number})
        try:
            write_arrays(part, self.kind, to_arrays(tree), card)
        except OSError:
            remove_arrays(part, unfinished=True)
            raise
        remove_arrays(current, unfinished=True)  # a damaged one
        os.replace(part, current)
        sync_folder(self.folder)
        self.damaged.discard(number)
        self._drop()

    def restore(self, like: Callable[[], _Tree]) -> Kept[_Tree] | None:
        """The newest state that is whole; None where none was ever kept.

        Args:
            like: Makes a tree of the same structure, shapes and types, once a state has been read.

        Raises:
            StorageError: A state is of another training run.
            DamagedDataError: All states are damaged.
        """
        reasons: list[str] = []
        for number in reversed(self.numbers):
            try:
                arrays, card = self._read(number)
                return Kept(number, from_arrays(arrays, like()), card)
            except DamagedDataError as error:
                _log.warning("a damaged state of training is not used: %s", error)
                self.damaged.add(number)
                reasons.append(str(error))
        if reasons:
            raise DamagedDataError(f"no state in {self.folder} is whole ({reasons[0]}); {self.advice}")
        return None

    def newest_card(self) -> Mapping[str, Any]:
        """What was written with the newest state whose card is whole; nothing where there is none."""
        for number in reversed(self.numbers):
            if self._whole(number):
                return read_card(self._place(number), self.kind)
        return {}

    def foreign(self) -> Path | None:
        """Something among the states that `clear` would leave, so that there would still be states; None if nothing."""
        for number in self.numbers:
            place = self._place(number)
            if others := other_files(place):
                return place / others[0]
            if not (place / CARD).is_file() and any(place.iterdir()):
                return place  # nothing says that its files are ours
        return None

    def clear(self) -> None:
        """Remove all states."""
        for number in self.numbers:
            remove_arrays(self._place(number))
        self._drop()
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _place(self, number: int) -> Path:
        return self.folder / f"{number:09d}"

    def _read(self, number: int) -> tuple[dict[str, Shaped[np.ndarray, "..."]], dict[str, Any]]:
        """The arrays and the card of a state of this training."""
        place = self._place(number)
        arrays, card = read_arrays(place, self.kind)
        if changed := differences({name: card.get(name) for name in self.identity}, self.identity):
            raise StorageError(f"{place} is of another training ({changed}); choose another folder or remove this one")
        if card.get("number") != number:
            raise DamagedDataError(f"{place} holds the state of number {card.get('number')}, not {number}")
        return arrays, card

    def _whole(self, number: int) -> bool:
        """Whether a state has a card; its arrays are not looked at again."""
        if number in self.damaged:
            return False
        try:
            return read_card(self._place(number), self.kind).get("number") == number
        except DamagedDataError:
            return False

    def _drop(self) -> None:
        """Remove states that are older than those that are kept, and unfinished ones."""
        whole = list(filter(self._whole, self.numbers))
        for number in self.numbers:
            if len(whole) > self.keep and number < whole[-self.keep]:
                remove_arrays(self._place(number))
        for part in self.folder.glob(f"*{PART}") if self.folder.is_dir() else ():
            if _NUMBER.fullmatch(part.name.removesuffix(PART)):
                remove_arrays(part, unfinished=True)


def to_arrays(tree: object) -> dict[str, Shaped[np.ndarray, "..."]]:
    """The leaves of a tree by names that say where they stand in it, such as `net.mix.project`."""
    return {name: np.asarray(leaf) for name, leaf in named_leaves(tree)}


def from_arrays(arrays: Mapping[str, Shaped[np.ndarray, "..."]], like: _Tree) -> _Tree:
    """The tree whose leaves `to_arrays` has named.

    Args:
        arrays: The leaves.
        like: A tree of the same structure, shapes and types; its leaves may be shapes alone.

    Raises:
        DamagedDataError: The arrays are not those of such a tree.
    """
    wanted = named_leaves(like)
    names = [name for name, _ in wanted]
    if sorted(arrays) != sorted(names):
        raise DamagedDataError(f"arrays {', '.join(sorted(arrays))} given; expected are {', '.join(sorted(names))}")
    for name, leaf in wanted:
        if arrays[name].shape != leaf.shape or arrays[name].dtype != leaf.dtype:
            raise DamagedDataError(
                f"{name} is {arrays[name].dtype} {arrays[name].shape}; expected is {leaf.dtype} {leaf.shape}"
            )
    tree: _Tree = jax.tree.unflatten(jax.tree.structure(like), [jnp.asarray(arrays[name]) for name in names])
    return tree


def named_leaves(tree: object) -> list[tuple[str, Any]]:
    """The leaves by their places; a tree that is one leaf is called `leaf`."""
    named = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        words = jax.tree_util.keystr(path, simple=True, separator=".")
        named.append((re.sub(r"[^A-Za-z0-9_]+", ".", words).strip(".") or "leaf", leaf))
    if len(dict(named)) < len(named):
        raise ValueError(f"two leaves have the same name among {', '.join(name for name, _ in named)}")
    return named
