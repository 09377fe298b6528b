"""Frozen dataclasses as pytrees that may hold anything while JAX takes them apart and puts them together.

JAX rebuilds a tree with whatever it needs as leaves: shapes, axes, placeholders. `jax.tree_util.register_dataclass`
does so through `__init__`, which refuses them where the types of fields are checked at run time. Here a tree is rebuilt
around `__init__`; whoever calls the class is checked as ever.
"""

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import TypeVar

import jax

T = TypeVar("T")


def pytree(*meta: str) -> Callable[[type[T]], type[T]]:
    """Decorator that registers a frozen dataclass: its fields are children, but for those named here."""

    def register(cls: type[T]) -> type[T]:
        names = [field.name for field in fields(cls) if field.name not in meta]  # type: ignore[arg-type]
        keys = [jax.tree_util.GetAttrKey(name) for name in names]

        def flatten(tree: T) -> tuple[tuple[object, ...], tuple[object, ...]]:
            return tuple(getattr(tree, name) for name in names), tuple(getattr(tree, name) for name in meta)

        def flatten_with_keys(tree: T) -> tuple[tuple[tuple[object, object], ...], tuple[object, ...]]:
            children, aux = flatten(tree)
            return tuple(zip(keys, children, strict=True)), aux

        def unflatten(aux: tuple[object, ...], children: Iterable[object]) -> T:
            tree = object.__new__(cls)
            tree.__dict__.update(zip(names, children, strict=True))
            tree.__dict__.update(zip(meta, aux, strict=True))
            return tree

        jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
        return cls

    return register
