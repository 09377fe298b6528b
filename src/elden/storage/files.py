"""Files that are there whole or not at all, and folders in which nothing leads elsewhere.

What is written over is written beside first, synced, and then moved into place: whatever happens in between, the old
content or the new one is found. Links inside a folder of ours are refused, and never written through.
"""

import csv
import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import BinaryIO

from elden.storage.plain import plain

PART = ".part"
"""Ends the name of what is being written."""

_FULL = (errno.ENOSPC, errno.EDQUOT)
_OWN_LINKS = ("wandb",)
"""Folders that belong to others, who link in them; nothing of ours is there."""


class StorageError(ValueError):
    """What is on disk cannot be used; the message is one line that says why."""


@contextmanager
def fresh(file: Path) -> Iterator[BinaryIO]:
    """A new file to write to, which is synced at the end. An earlier one is removed, not written to: it may be a link.

    Raises:
        OSError: It cannot be written; a full disk is called that, and nothing of the file is left then.
    """
    file.unlink(missing_ok=True)
    with naming_a_full_disk(file.parent):
        try:
            with file.open("xb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
        except OSError:
            file.unlink(missing_ok=True)
            raise


@contextmanager
def naming_a_full_disk(folder: Path) -> Iterator[None]:
    """Say so where something cannot be written because the disk is full."""
    try:
        yield
    except OSError as error:
        # numpy says how many bytes were written, and no number of an error.
        if error.errno in _FULL or (error.errno is None and str(error).endswith(" written")):
            words = "the disk is full; what was kept before is whole"
            raise OSError(errno.ENOSPC, words, str(folder)) from None
        raise


def sync_folder(folder: Path) -> None:
    """Make sure that the names in a folder are on disk."""
    if os.name == "nt":  # folders cannot be opened there
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        with naming_a_full_disk(folder):
            os.fsync(opened)
    finally:
        os.close(opened)


def write_bytes(file: Path, content: bytes) -> None:
    """Write a file as a whole."""
    part = file.with_name(file.name + PART)
    with fresh(part) as stream:
        stream.write(content)
    os.replace(part, file)
    sync_folder(file.parent)


def write_text(file: Path, text: str) -> None:
    """Write a file of text as a whole."""
    write_bytes(file, text.encode())


def write_json(file: Path, value: object) -> None:
    """Write JSON; numbers that are not finite become null."""
    write_text(file, json.dumps(plain(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def write_csv(file: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows under the names of the first one's columns."""
    text = StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(file, text.getvalue())


def json_digest(value: Mapping[str, object]) -> str:
    """The SHA-256 of an object as JSON with sorted keys and without spaces, but for a "sha256" in it.

    Raises:
        ValueError: It has numbers that are not finite.
    """
    rest = {key: part for key, part in value.items() if key != "sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def read_json(file: Path) -> object:
    """What a file of JSON holds.

    Raises:
        StorageError: It cannot be read.
    """
    try:
        return json.loads(file.read_bytes())
    except OSError as error:
        raise StorageError(f"{file} cannot be read: {error.strerror or error}") from None
    except RecursionError:
        raise StorageError(f"{file} cannot be read: it is nested too deeply") from None
    except ValueError as error:
        raise StorageError(f"{file} cannot be read: {error}") from None


def refuse_links(folder: Path) -> None:
    """Refuse a folder in which something is neither a file nor a folder; the folder itself may be a link.

    Raises:
        StorageError: Something is a link, a pipe, or another thing that should not be there.
    """
    if not folder.is_dir():
        return
    for place, names, files in os.walk(folder):
        for name in (*names, *files):
            entry = Path(place, name)
            if entry.is_symlink():
                words = "is a symbolic link, which are not followed inside a folder of elden's"
                raise StorageError(f"{entry} {words}; remove it, or put there what it leads to")
            if name in files and not entry.is_file():
                raise StorageError(f"{entry} is neither a file nor a folder; remove it")
        names[:] = [name for name in names if name not in _OWN_LINKS]
