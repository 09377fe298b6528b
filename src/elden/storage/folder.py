"""The folder that a run leaves behind.

    config.json      the resolved settings
    metrics.jsonl    one object a line, with "step" and "group/name" keys; a list has a number for each run
    tb/              the same for TensorBoard, where each seed is a run of its own: tb/0, tb/1, ...
    summary.json     the results, with where they come from
    checkpoints/     trained models, and where training stopped
    media/           figures
    tables/          tables, as CSV and JSON

Files are written under another name and then moved into place, so that none is ever half there; metrics are added line
by line, and the last line may be cut off. Nothing in the folder may be a link. Reading a run changes nothing in it.
"""

import hashlib
import json
import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elden.storage.files import (
    PART,
    StorageError,
    json_digest,
    naming_a_full_disk,
    read_json,
    refuse_links,
    sync_folder,
    write_json,
    write_text,
)
from elden.storage.plain import differences, plain
from elden.storage.writers import TensorBoard, Writer

SUMMARY = "summary.json"
"""Name of the file with the results."""

METRICS = "metrics.jsonl"
"""Name of the file with what was logged."""

_CONFIG = "config.json"
_log = logging.getLogger(__name__)
_LOCK = ".lock"
_OF_A_NEW_RUN = {_LOCK, _CONFIG + PART}
"""What a process may leave that is killed before the settings are written."""


class RunFolderError(StorageError):
    """A folder cannot be that of the run; the message is one line that says how to mend it."""


class OtherRunError(RunFolderError):
    """A folder holds a run with other settings."""


class RunFolder:
    """A run's folder."""

    def __init__(self, path: Path, config: Mapping[str, object], advice: str = "") -> None:
        """Open the folder of a run, which is made where it does not exist.

        Args:
            path: The folder. It may hold an earlier, even unfinished, run with the same settings, which then continues.
            config: Everything that decides the results.
            advice: What else to say of another folder, where this one is refused.

        Raises:
            OtherRunError: The folder holds a run with other settings.
            RunFolderError: It holds files, but no run.
        """
        self.path = path
        self.writers: list[Writer] = [TensorBoard(path / "tb")]
        check_same(path, config, advice)
        if not (path / _CONFIG).exists():
            path.mkdir(parents=True, exist_ok=True)
            with self.locked():
                check_same(path, config, advice)  # another process may have been faster
                if not (path / _CONFIG).exists():
                    _write_object(path / _CONFIG, config)
            sync_folder(path.parent)

    @property
    def finished(self) -> bool:
        """Whether the results are there."""
        return (self.path / SUMMARY).exists()

    @property
    def checkpoints(self) -> Path:
        """Where models are kept."""
        return self.path / "checkpoints"

    @property
    def media(self) -> Path:
        """Where figures go."""
        return self._made("media")

    @property
    def tables(self) -> Path:
        """Where tables go."""
        return self._made("tables")

    def _made(self, name: str) -> Path:
        folder = self.path / name
        folder.mkdir(exist_ok=True)
        return folder

    def change(self, config: Mapping[str, object]) -> None:
        """Give the run other settings; it is then not finished any more."""
        (self.path / SUMMARY).unlink(missing_ok=True)
        _write_object(self.path / _CONFIG, config)

    def log(self, step: int, values: Mapping[str, object]) -> None:
        """Add a line to the metrics, and give their numbers to all writers."""
        line = json.dumps(plain({"step": step, **values}), allow_nan=False)
        with naming_a_full_disk(self.path), (self.path / METRICS).open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")
        numbers = dict(_scalars(values))
        for writer in self.writers:
            writer.write(step, numbers)

    def seal(self) -> dict[str, object]:
        """Make sure that all metrics are on disk; gives what `check_seal` knows them by."""
        file = self.path / METRICS
        if not file.exists():
            return {"bytes": 0, "sha256": hashlib.sha256().hexdigest()}
        with file.open("r+b") as stream:  # Windows syncs no file that is only read
            os.fsync(stream.fileno())
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return {"bytes": file.stat().st_size, "sha256": digest}

    def check_seal(self, seal: object) -> None:
        """Warn where the metrics do not begin as they were when they were sealed."""
        file = self.path / METRICS
        if isinstance(seal, Mapping) and isinstance(seal.get("bytes"), int):
            content = file.read_bytes() if file.exists() else b""
            if hashlib.sha256(content[: seal["bytes"]]).hexdigest() != seal.get("sha256"):
                _log.warning("%s has been changed or cut off since it was written", file)

    def metrics(self, seeds: int | None = None) -> list[dict[str, Any]]:
        """The lines of the metrics; a last one that was cut off is left out.

        Args:
            seeds: Of a training run, of which steps rise and every metric has as many numbers.

        Raises:
            RunFolderError: A line is damaged.
        """
        lines: list[dict[str, Any]] = []
        for number, text in enumerate(self._whole_lines(), 1):
            try:
                values = json.loads(text)
            except (ValueError, RecursionError):
                values = None
            wrong = _wrong(values, lines[-1]["step"] if lines else -1, seeds)
            if wrong is not None:
                where, advice = self.path / METRICS, "put it back from a copy, or remove the line"
                raise RunFolderError(f"{where} is damaged: line {number} {wrong}; {advice}")
            lines.append(values)
        return lines

    def _whole_lines(self) -> list[bytes]:
        file = self.path / METRICS
        return file.read_bytes().split(b"\n")[:-1] if file.exists() else []

    def _rewrite(self, lines: Sequence[Mapping[str, object]]) -> None:
        if (self.path / METRICS).exists():
            write_text(self.path / METRICS, "".join(json.dumps(values) + "\n" for values in lines))

    def begin_again(self) -> None:
        """Remove all metrics and the results."""
        for name in (SUMMARY, METRICS):
            (self.path / name).unlink(missing_ok=True)

    def forget_after(self, step: int) -> None:
        """Drop metrics of later steps, which a run that was killed has left: it will take these steps again."""
        self._rewrite([values for values in self.metrics() if values["step"] <= step])
        for writer in self.writers:
            writer.forget_after(step)

    def forget(self, prefix: str, after: int = -1) -> None:
        """Drop lines of the metrics whose names begin so, of later steps than this: they will be logged again.

        What TensorBoard has of them stays; there the newer number of a step is drawn over the older.
        """
        lines = self.metrics()
        kept = [
            values for values in lines if values["step"] <= after or not any(name.startswith(prefix) for name in values)
        ]
        if len(kept) < len(lines):
            self._rewrite(kept)

    def close(self) -> None:
        """Wait until everything is written, also by the writers."""
        for writer in self.writers:
            writer.close()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from writing here at the same time; the lock ends with the process.

        Raises:
            RunFolderError: Another one does.
        """
        refuse_links(self.path)
        try:
            import fcntl
        except ImportError:  # Windows
            self._drop_cut_line()
            yield
            return
        with (self.path / _LOCK).open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunFolderError(f"another process is writing to {self.path}; wait for it, or stop it") from None
            self._drop_cut_line()
            yield

    def _drop_cut_line(self) -> None:
        """Remove the end of the metrics that a process has not written to its end, before something is added."""
        file = self.path / METRICS
        content = file.read_bytes() if file.exists() else b""
        if not content.endswith(b"\n") and content:
            os.truncate(file, content.rfind(b"\n") + 1)

    def read_summary(self) -> dict[str, Any]:
        """The results.

        Raises:
            RunFolderError: They cannot be read.
        """
        return _read_object(self.path / SUMMARY, "remove it, and the command that trained writes it again")

    def write_summary(self, summary: Mapping[str, object]) -> None:
        """Write the results."""
        _write_object(self.path / SUMMARY, summary)


def _scalars(values: Mapping[str, object]) -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, Sequence) and not isinstance(value, str):
            yield from _scalars({f"{name}/{index}": each for index, each in enumerate(value)})
        elif isinstance(value, float | int) and math.isfinite(value):
            yield name, float(value)


def _wrong(values: object, before: int, seeds: int | None) -> str | None:
    """What keeps a line from being one of the metrics, in words."""
    if not isinstance(values, dict) or not isinstance(values.get("step"), int):
        return "is not an object of JSON with a step"
    if seeds is None:
        return None
    if values["step"] <= before:
        return f"is of step {values['step']}, after one of step {before}"
    for name, numbers in values.items():
        if name != "step" and not (
            isinstance(numbers, list)
            and len(numbers) == seeds
            and all(number is None or is_number(number) for number in numbers)
        ):
            return f"does not have {seeds} numbers of {name!r}"
    return None


def is_number(value: object) -> bool:
    """Whether this is a number as a run writes them: a float, or an integer of 64 bits."""
    return type(value) is float or (type(value) is int and abs(value) < 2**63)


def _write_object(file: Path, values: Mapping[str, object]) -> None:
    """Write an object of JSON with its own checksum."""
    settled: Any = plain(values)
    write_json(file, {**settled, "sha256": json_digest(settled)})


def _read_object(file: Path, advice: str = "put it back from a copy, or remove the folder") -> dict[str, Any]:
    try:
        found = read_json(file)
    except StorageError as error:
        raise RunFolderError(f"{error}; {advice}") from None
    if not isinstance(found, dict):
        raise RunFolderError(f"{file} does not hold an object of JSON; {advice}")
    digest = found.pop("sha256", None)
    try:
        whole = digest == json_digest(found)
    except ValueError:  # NaN and the like, which are never written
        whole = False
    if not whole:
        _log.warning("%s has been changed since it was written", file)
    return found


def read_config(path: Path) -> dict[str, Any]:
    """The settings of the run in a folder.

    Raises:
        RunFolderError: There is no run in it.
    """
    refuse_links(path)
    if not (path / _CONFIG).exists():
        if not path.exists():
            raise RunFolderError(f"there is no folder {path}")
        raise RunFolderError(f"{path} holds no run: it has no {_CONFIG}")
    return _read_object(path / _CONFIG)


def check_same(path: Path, config: Mapping[str, object], advice: str = "") -> None:
    """Refuse a folder that holds a run with other settings than these, which may be a part of all.

    Raises:
        OtherRunError: It does.
        RunFolderError: It holds files, but no run.
    """
    refuse_links(path)
    if not (path / _CONFIG).exists():
        if path.exists() and (not path.is_dir() or {entry.name for entry in path.iterdir()} - _OF_A_NEW_RUN):
            raise RunFolderError(f"{path} holds something else than a run; choose a new or an empty folder")
        return
    found, wanted = _read_object(path / _CONFIG), plain(config)
    if isinstance(wanted, dict):
        if not set(wanted) <= set(found):
            raise OtherRunError(f"{path} holds a run of another kind; choose another folder (--out)")
        found = {name: found[name] for name in wanted}
    if changed := differences(found, wanted):
        raise OtherRunError(
            f"{path} holds another run ({changed}); choose another folder (--out){advice}, or remove this one"
        )
