"""A folder of arrays and the card that vouches for them. No pickle.

    folder/NAME.npy ...   one file for each array
    folder/card.json      {"version", "arrays": {NAME: {"dtype", "shape", "sha256"}}, "card", "sha256"}

Every file is written under another name and then moved into place, the card last of all: a folder without a card is
one whose writing was interrupted. The card's own sha256 is that of the rest of it, as JSON with sorted keys and
without spaces. Checksums find damage; they are no protection against somebody who means harm, but nothing that a
file says is ever executed, and no name in it can lead out of its folder.
"""

import hashlib
import json
import math
import operator
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from elden.factors import Continuous, Discrete, Entity, Factors, Kind, Variable

CARD = "card.json"
VERSION = 1
_PART = ".part"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_KINDS = "biufc"


class DamagedDataError(ValueError):
    """A folder of arrays is not as it was written."""


def write_arrays(folder: Path, arrays: Mapping[str, Shaped[np.ndarray, "..."]], card: Mapping[str, object]) -> None:
    """Write arrays and their card; what `read_arrays` gives back is equal bit for bit.

    Args:
        folder: Made where it does not exist. It may hold an earlier, even unfinished, writing of the same names, which
            is replaced; other files in it are refused.
        arrays: By name: letters, digits, "_", "." and "-". Bools and numbers of the numpy kind only.
        card: Anything that JSON can hold. Tuples come back as lists.

    Raises:
        ValueError: A name, an array, the card or the folder is not as above.
    """
    for name, array in arrays.items():
        _check_name(name)
        if array.dtype.kind not in _KINDS:
            raise ValueError(f"array {name!r} is of dtype {array.dtype}; only bools and numbers can be stored")
    about = plain_json(card)
    check_free(folder, arrays)
    folder.mkdir(parents=True, exist_ok=True)
    # The old card must not vouch for a mixture of old and new arrays.
    (folder / CARD).unlink(missing_ok=True)
    entries = {name: _write_array(_file(folder, name), array) for name, array in arrays.items()}
    content: dict[str, object] = {"version": VERSION, "arrays": entries, "card": about}
    content["sha256"] = _card_digest(content)
    part = folder / (CARD + _PART)
    part.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(part, folder / CARD)


def read_arrays(folder: Path) -> tuple[dict[str, Shaped[np.ndarray, "..."]], dict[str, object]]:
    """The arrays and the card that `write_arrays` was given.

    Subfolders are not looked at.

    Raises:
        DamagedDataError: A file is missing, unreadable or changed, there is a file that the card does not know, or
            the version is not known here.
    """
    content = _read_content(folder)
    entries = content["arrays"]
    if extra := _other_files(folder, entries):
        raise DamagedDataError(f"{folder} holds files that its {CARD} does not know: {', '.join(extra)}")
    return {name: _read_array(_file(folder, name), entry) for name, entry in entries.items()}, content["card"]


def read_card(folder: Path) -> dict[str, object]:
    """The card that `write_arrays` was given; the arrays are not looked at.

    Raises:
        DamagedDataError: The card is missing, unreadable or changed, or its version is not known here.
    """
    card: dict[str, object] = _read_content(folder)["card"]
    return card


def check_free(folder: Path, names: Collection[str]) -> None:
    """Refuse a folder in which arrays of these names could not be written.

    Raises:
        ValueError: It is no folder, or it holds other files.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is not a folder")
    if folder.is_dir() and (extra := _other_files(folder, names)):
        raise ValueError(f"{folder} holds other files ({', '.join(extra[:3])}); choose a new or an empty folder")


def plain_json(value: Mapping[str, object]) -> dict[str, object]:
    """The value as it will come back from JSON: tuples are lists then, and whatever JSON cannot hold is refused.

    Raises:
        ValueError: JSON cannot hold it.
    """
    try:
        plain: dict[str, object] = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"a card holds what JSON can hold: {error}") from None
    return plain


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"array name {name!r}: a name is made of letters, digits, '_', '.' and '-'")


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.npy"


def _other_files(folder: Path, names: Collection[str]) -> list[str]:
    """Files that are neither the card nor one of these arrays, nor what an interrupted writing left behind."""
    known = {CARD, *(f"{name}.npy" for name in names)}
    files = (entry.name for entry in folder.iterdir() if not entry.is_dir())
    return sorted(name for name in files if name.removesuffix(_PART) not in known)


def _write_array(file: Path, array: Shaped[np.ndarray, "..."]) -> dict[str, object]:
    """Write one array, and give its entry in the card."""
    part = file.with_name(file.name + _PART)
    with part.open("wb") as stream:
        np.save(stream, array, allow_pickle=False)
    entry: dict[str, object] = {"dtype": array.dtype.str, "shape": list(array.shape), "sha256": _file_digest(part)}
    os.replace(part, file)
    return entry


def _file_digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _card_digest(content: Mapping[str, object]) -> str:
    rest = {key: value for key, value in content.items() if key != "sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _read_content(folder: Path) -> dict[str, Any]:
    """The whole of a card file, once it is known to be as it was written."""
    file = folder / CARD
    if not file.is_file():
        raise DamagedDataError(f"{folder} has no {CARD}: nothing is stored there, or its writing was interrupted")
    try:
        content: object = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedDataError(f"{file} cannot be read: {error}") from None
    if not isinstance(content, dict) or "version" not in content:
        raise DamagedDataError(f"{file} is not a card of stored arrays")
    if content["version"] != VERSION:
        raise DamagedDataError(f"{file} is of version {content['version']!r}; version {VERSION} can be read here")
    try:
        whole = content.get("sha256") == _card_digest(content)
    except ValueError:  # NaN and the like, which are never written
        whole = False
    if not whole:
        raise DamagedDataError(f"{file} has been changed: its checksum is not that of what it says")
    _check_entries(file, content)
    return content


def _check_entries(file: Path, content: dict[str, Any]) -> None:
    """Refuse a card that is whole but was never written by `write_arrays`."""
    entries, card = content.get("arrays"), content.get("card")
    well_formed = isinstance(entries, dict) and isinstance(card, dict)
    if not well_formed or not all(isinstance(entry, dict) for entry in content["arrays"].values()):
        raise DamagedDataError(f"{file} does not say which arrays there are")
    for name in content["arrays"]:
        try:
            _check_name(name)
        except ValueError as error:
            raise DamagedDataError(f"{file}: {error}") from None


def _read_array(file: Path, entry: Mapping[str, object]) -> Shaped[np.ndarray, "..."]:
    if not file.is_file():
        raise DamagedDataError(f"{file} is missing")
    if _file_digest(file) != entry.get("sha256"):
        raise DamagedDataError(f"{file} has been changed or cut off: its checksum is not the one in {CARD}")
    try:
        array: Shaped[np.ndarray, "..."] = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DamagedDataError(f"{file} cannot be read: {error}") from None
    got = (array.dtype.str, list(array.shape))
    if got != (entry.get("dtype"), entry.get("shape")):
        raise DamagedDataError(f"{file} holds {got}, but {CARD} says {(entry.get('dtype'), entry.get('shape'))}")
    return array


def factors_to_json(factors: Factors) -> list[object]:
    """Factors as JSON can hold them; a bound that is not there is null."""
    return [
        {"name": entity.name, "variables": [{"name": v.name, **kind_to_json(v.kind)} for v in entity.variables]}
        for entity in factors.entities
    ]


def factors_from_json(data: object) -> Factors:
    """Inverse of `factors_to_json`.

    Raises:
        DamagedDataError: These are no factors.
    """
    entities: Any = data
    try:
        return Factors(
            tuple(
                Entity(entity["name"], tuple(Variable(v["name"], kind_from_json(v)) for v in entity["variables"]))
                for entity in entities
            )
        )
    except KeyError as error:
        raise DamagedDataError(f"the factors cannot be rebuilt: {error} is not given") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise DamagedDataError(f"the factors cannot be rebuilt: {error}") from None


def kind_to_json(kind: Kind) -> dict[str, object]:
    """A kind as JSON can hold it; a bound that is not there is null."""
    if isinstance(kind, Discrete):
        return {"kind": "discrete", "n": kind.n}
    low, high = (float(bound) if math.isfinite(bound) else None for bound in (kind.low, kind.high))
    return {"kind": "continuous", "size": kind.size, "low": low, "high": high}


def kind_from_json(data: Mapping[str, Any]) -> Kind:
    """Inverse of `kind_to_json`.

    Raises:
        KeyError, TypeError, ValueError: This is no kind.
    """
    if data["kind"] == "discrete":
        return Discrete(operator.index(data["n"]))
    if data["kind"] == "continuous":
        low = -math.inf if data["low"] is None else float(data["low"])
        high = math.inf if data["high"] is None else float(data["high"])
        return Continuous(operator.index(data["size"]), low, high)
    raise ValueError(f"kind {data['kind']!r} is neither 'discrete' nor 'continuous'")
