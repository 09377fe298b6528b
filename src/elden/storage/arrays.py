"""A folder of arrays and the card that vouches for them: the one format of everything that is kept. No pickle.

    folder/NAME.DIGEST.npy ...  one file for each array; DIGEST begins its checksum
    folder/card.json            {"kind", "version", "arrays": {NAME: {"dtype", "shape", "sha256"}}, "card", "sha256"}

Every file is written under another name, synced, and then moved into place, the card last of all; what an earlier card
vouched for is removed only after that. So a folder holds the old arrays or the new ones, whether the process is killed,
the disk is full or the power fails. The card's own sha256 is that of the rest of it, as JSON with sorted keys and
without spaces. Checksums find damage; they are no protection against somebody who means harm, but nothing that a
file says is ever executed, no name in it can lead out of its folder, and links are not followed.

Syncing costs little: a training's state of 117 arrays and 60 MB takes a quarter longer to write (`benchmarks/sync.py`),
once every five minutes.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Shaped

from elden.storage.files import PART, StorageError, fresh, json_digest, read_json, sync_folder, write_text

Kind: TypeAlias = Literal["agents", "models", "bonus", "transitions"]
"""What arrays are: agents in training; dynamics models, trained or in training; an intrinsic reward; transitions."""

VERSIONS: Mapping[Kind, int] = {"agents": 10, "models": 3, "bonus": 3, "transitions": 1}
"""Raised when arrays of a kind mean something else than before, or the same settings and seed no longer give them."""

CARD = "card.json"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_OURS = re.compile(rf"({_NAME.pattern})\.(npy{PART}|[0-9a-f]{{8}}\.npy)|{CARD}({PART})?")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_KINDS = "biufc"


class DamagedDataError(StorageError):
    """A folder of arrays is not as it was written."""


def write_arrays(
    folder: Path, kind: Kind, arrays: Mapping[str, Shaped[np.ndarray, "..."]], card: Mapping[str, object]
) -> None:
    """Write arrays and their card; what `read_arrays` gives back is equal bit for bit.

    Args:
        folder: Made where it does not exist. It may hold an earlier, even unfinished, writing of the same kind, which
            is replaced; other files in it are refused.
        kind: What they are.
        arrays: By name: letters, digits, "_", "." and "-". Bools and numbers of the numpy kind only.
        card: Anything that JSON can hold. Tuples come back as lists.

    Raises:
        ValueError: A name, an array, the card or the folder is not as above.
        OSError: They cannot be written; the earlier ones are whole.
    """
    for name, array in arrays.items():
        _check_name(name)
        if array.dtype.kind not in _KINDS:
            raise ValueError(f"array {name!r} is of dtype {array.dtype}; only bools and numbers can be stored")
    content: dict[str, object] = {"kind": kind, "version": VERSIONS[kind], "card": plain_json(card)}
    check_free(folder, kind)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        content["arrays"] = {name: _write_array(folder, name, array) for name, array in arrays.items()}
        content["sha256"] = json_digest(content)
        sync_folder(folder)
        write_text(folder / CARD, json.dumps(content, indent=1, allow_nan=False) + "\n")
    finally:
        _tidy(folder)


def read_arrays(folder: Path, kind: Kind) -> tuple[dict[str, Shaped[np.ndarray, "..."]], dict[str, object]]:
    """The arrays and the card that `write_arrays` was given.

    Subfolders are not looked at.

    Raises:
        DamagedDataError: A file is missing, unreadable or changed, there is a file that was not written here, or
            kind or version are others.
    """
    content = _read_content(folder, kind)
    if extra := other_files(folder):
        raise DamagedDataError(f"{folder} holds files that its {CARD} does not know: {', '.join(extra)}")
    entries = content["arrays"]
    return {name: _read_array(_file(folder, name, entry), entry) for name, entry in entries.items()}, content["card"]


def read_card(folder: Path, kind: Kind) -> dict[str, object]:
    """The card that `write_arrays` was given; the arrays are not looked at.

    Raises:
        DamagedDataError: The card is missing, unreadable or changed, or its kind or version are others.
    """
    card: dict[str, object] = _read_content(folder, kind)["card"]
    return card


def remove_arrays(folder: Path, unfinished: bool = False) -> None:
    """Remove what `write_arrays` has written, and the folder if nothing else is in it.

    The card goes last: a folder without one is left as it is, since nothing says that its files are ours.

    Args:
        folder: The folder; links and folders that do not exist are left as they are.
        unfinished: Whether a writing may have been broken off before it had a card.
    """
    if not folder.is_dir() or folder.is_symlink():
        return
    if not unfinished and not (folder / CARD).is_file() and any(folder.iterdir()):
        return
    for file in list(folder.iterdir()):
        if file.name != CARD and _OURS.fullmatch(file.name) and (file.is_symlink() or not file.is_dir()):
            file.unlink(missing_ok=True)
    (folder / CARD).unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def remove_damaged(folder: Path, kind: Kind) -> None:
    """Remove arrays whose card is damaged or missing, in a folder of ours in which they can be made again."""
    try:
        read_card(folder, kind)
    except DamagedDataError:
        remove_arrays(folder, unfinished=True)


def check_free(folder: Path, kind: Kind) -> None:
    """Refuse a folder in which arrays of this kind could not be written.

    Raises:
        StorageError: It is no folder, or it holds other files.
    """
    if folder.exists() and not folder.is_dir():
        raise StorageError(f"{folder} is not a folder")
    if folder.is_dir() and (extra := other_files(folder)):
        raise StorageError(f"{folder} holds other files ({', '.join(extra[:3])}); choose a new or an empty folder")
    if (folder / CARD).exists():
        try:
            _read_content(folder, kind)
        except DamagedDataError as error:
            raise StorageError(f"{error}; choose a new or an empty folder") from None


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


def _file(folder: Path, name: str, entry: Mapping[str, object]) -> Path:
    return folder / f"{name}.{str(entry.get('sha256'))[:8]}.npy"


def other_files(folder: Path) -> list[str]:
    """Files whose names are not of the kind that is written here."""
    with os.scandir(folder) as entries:
        files = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
    return sorted(name for name in files if not _OURS.fullmatch(name))


def _tidy(folder: Path) -> None:
    """Remove what interrupted or earlier writings have left: files with names of ours that no card vouches for."""
    entries: Mapping[str, Any] = {}
    if (folder / CARD).exists():
        content: Any = read_json(folder / CARD)
        entries = content["arrays"]
    known = {CARD, *(_file(folder, name, entry).name for name, entry in entries.items())}
    for file in list(folder.iterdir()):
        if _OURS.fullmatch(file.name) and file.name not in known and (file.is_symlink() or not file.is_dir()):
            file.unlink(missing_ok=True)


def _write_array(folder: Path, name: str, array: Shaped[np.ndarray, "..."]) -> dict[str, object]:
    """Write one array, and give its entry in the card."""
    part = folder / f"{name}.npy{PART}"
    with fresh(part) as stream:
        np.save(stream, array, allow_pickle=False)
    entry: dict[str, object] = {"dtype": array.dtype.str, "shape": list(array.shape), "sha256": _file_digest(part)}
    os.replace(part, _file(folder, name, entry))
    return entry


def _file_digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _read_content(folder: Path, kind: Kind) -> dict[str, Any]:
    """The whole of a card file, once it is known to be as it was written."""
    file = folder / CARD
    if not _is_file(file):
        raise DamagedDataError(f"{folder} has no {CARD}: nothing is stored there, or its writing was interrupted")
    try:
        content = read_json(file)
    except StorageError as error:
        raise DamagedDataError(str(error)) from None
    if not isinstance(content, dict) or "version" not in content:
        raise DamagedDataError(f"{file} is not a card of stored arrays")
    if "kind" not in content:
        raise DamagedDataError(f"{file} was written by an earlier version of elden, which cannot be read here")
    if content["kind"] != kind:
        raise DamagedDataError(f"{folder} holds {content['kind']!r}, not {kind!r}")
    if content["version"] != VERSIONS[kind]:
        raise DamagedDataError(
            f"{file} is of version {content['version']!r}; version {VERSIONS[kind]} can be read here"
        )
    try:
        whole = content.get("sha256") == json_digest(content)
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
    for name, entry in content["arrays"].items():
        if not _SHA256.fullmatch(str(entry.get("sha256"))):
            raise DamagedDataError(f"{file} has no checksum of {name!r}")
        try:
            _check_name(name)
        except ValueError as error:
            raise DamagedDataError(f"{file}: {error}") from None


def _is_file(file: Path) -> bool:
    return file.is_file() and not file.is_symlink()


def _read_array(file: Path, entry: Mapping[str, object]) -> Shaped[np.ndarray, "..."]:
    if not _is_file(file):
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
