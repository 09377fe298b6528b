"""Values as JSON holds them, and what differs between two of them."""

import math
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

_MOST_DIFFERENCES = 4

T = TypeVar("T")


def plain(value: object) -> object:
    """The value as JSON can hold it: dataclasses as objects, tuples as lists, what is not finite as null."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(f"{type(value).__name__} cannot be written as JSON: {value!r}")


def leaves(value: object, name: str = "") -> dict[str, object]:
    """The values of nested mappings by their dotted names."""
    if not isinstance(value, Mapping):
        return {name: value}
    return {key: leaf for part in value for key, leaf in leaves(value[part], f"{name}.{part}".strip(".")).items()}


def differences(found: object, wanted: object) -> str:
    """What differs between two plain values, in words, the first few of it; empty where nothing does."""
    old, new = leaves(found), leaves(wanted)
    names = [name for name in {**new, **old} if old.get(name) != new.get(name)]
    words = [f"{name} was {old.get(name)!r}, now {new.get(name)!r}" for name in names[:_MOST_DIFFERENCES]]
    more = len(names) - len(words)
    return "; ".join([*words, f"and {more} more"] if more > 0 else words)


def from_plain(cls: type[T], value: object, name: str = "") -> T:
    """A dataclass from what `plain` has made of it: nested dataclasses, tuples and plain values.

    Raises:
        ValueError: Names are missing or unknown, or a value is not allowed.
    """
    where = name or cls.__name__
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} is {value!r}; an object is expected")
    hints, known = get_type_hints(cls), {field.name for field in fields(cls)}  # type: ignore[arg-type]
    if known != set(value):
        raise ValueError(f"{where} has {', '.join(sorted(value))}; expected are {', '.join(sorted(known))}")
    parts: dict[str, object] = {}
    for part, given in value.items():
        kind = hints[part]
        if isinstance(kind, type) and is_dataclass(kind):
            parts[part] = from_plain(kind, given, f"{name}.{part}".strip("."))
        else:
            parts[part] = tuple(given) if isinstance(given, list) else given
            if not _fits(kind, parts[part]):
                raise ValueError(f"{f'{name}.{part}'.strip('.')} is {given!r}; expected is {_in_words(kind)}")
    return cls(**parts)


def _fits(kind: Any, value: object) -> bool:
    """Whether a value is of a kind: a plain type, some literals, a tuple of a kind, or one of several of these."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _fits(parts[0], value)
    if origin is Literal:
        return value in parts
    if origin in (Union, UnionType):
        return any(_fits(part, value) for part in parts)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(parts[0], part) for part in value)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is kind


def _in_words(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", "")
