"""The folder that a run leaves behind.

    config.json      the resolved settings
    metrics.jsonl    one object a line, with "step" and "group/name" keys; a list has a number for each run
    tb/              the same for TensorBoard, where each seed is a run of its own: tb/0, tb/1, ...
    summary.json     the results, with where they come from
    checkpoints/     trained models, and where training stopped
    media/           figures
    tables/          tables, as CSV and JSON

Files are written under another name and then moved into place, so that none is ever half there.
"""

import csv
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elden.storage.plain import differences, plain
from elden.storage.writers import TensorBoard, Writer

SUMMARY = "summary.json"
"""Name of the file with the results."""

METRICS = "metrics.jsonl"
"""Name of the file with what was logged."""

_CONFIG = "config.json"


class RunFolderError(ValueError):
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
        wanted = plain(config)
        file = path / _CONFIG
        check_same(path, config, advice)
        path.mkdir(parents=True, exist_ok=True)
        for name in ("checkpoints", "media", "tables"):
            (path / name).mkdir(exist_ok=True)
        write_json(file, wanted)
        self.writers: list[Writer] = [TensorBoard(path / "tb")]

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
        return self.path / "media"

    @property
    def tables(self) -> Path:
        """Where tables go."""
        return self.path / "tables"

    def change(self, config: Mapping[str, object]) -> None:
        """Give the run other settings; it is then not finished any more."""
        (self.path / SUMMARY).unlink(missing_ok=True)
        write_json(self.path / _CONFIG, plain(config))

    def log(self, step: int, values: Mapping[str, object]) -> None:
        """Add a line to the metrics, and give their numbers to all writers."""
        line = json.dumps(plain({"step": step, **values}), allow_nan=False)
        with (self.path / METRICS).open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")
        numbers = dict(_scalars(values))
        for writer in self.writers:
            writer.write(step, numbers)

    def metrics(self) -> Iterator[dict[str, Any]]:
        """The lines of the metrics; one that was cut off is left out."""
        file = self.path / METRICS
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            try:
                values = json.loads(line)
            except ValueError:
                continue
            if isinstance(values, dict) and "step" in values:
                yield values

    def forget_after(self, step: int) -> None:
        """Drop metrics of later steps, which a run that was killed has left: it will take these steps again."""
        lines = [json.dumps(values) + "\n" for values in self.metrics() if values["step"] <= step]
        if (self.path / METRICS).exists():
            write_text(self.path / METRICS, "".join(lines))
        for writer in self.writers:
            writer.forget_after(step)

    def forget(self, prefix: str, after: int = -1) -> None:
        """Drop lines of the metrics whose names begin so, of later steps than this: they will be logged again.

        What TensorBoard has of them stays; there the newer number of a step is drawn over the older.
        """
        lines = [*self.metrics()]
        kept = [
            values for values in lines if values["step"] <= after or not any(name.startswith(prefix) for name in values)
        ]
        if len(kept) < len(lines):
            write_text(self.path / METRICS, "".join(json.dumps(values) + "\n" for values in kept))

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
        try:
            import fcntl
        except ImportError:  # Windows
            yield
            return
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunFolderError(f"another process is writing to {self.path}; wait for it, or stop it") from None
            yield

    def read_summary(self) -> dict[str, Any]:
        """The results."""
        summary: dict[str, Any] = json.loads((self.path / SUMMARY).read_bytes())
        return summary

    def write_summary(self, summary: Mapping[str, object]) -> None:
        """Write the results."""
        write_json(self.path / SUMMARY, summary)


def _scalars(values: Mapping[str, object]) -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, Sequence) and not isinstance(value, str):
            yield from _scalars({f"{name}/{index}": each for index, each in enumerate(value)})
        elif isinstance(value, float | int) and math.isfinite(value):
            yield name, float(value)


def write_json(file: Path, value: object) -> None:
    """Write JSON; numbers that are not finite become null."""
    write_text(file, json.dumps(plain(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def write_csv(file: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows under the names of the first one's columns."""
    part = file.with_name(file.name + ".part")
    with part.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    os.replace(part, file)


def write_text(file: Path, text: str) -> None:
    """Write a file as a whole."""
    part = file.with_name(file.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, file)


def _read(file: Path) -> object:
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise OtherRunError(f"{file} cannot be read ({error}); remove the folder or choose another") from None


def read_config(path: Path) -> dict[str, Any]:
    """The settings of the run in a folder.

    Raises:
        RunFolderError: There is no run in it.
    """
    if not (path / _CONFIG).exists():
        if not path.exists():
            raise RunFolderError(f"there is no folder {path}")
        raise RunFolderError(f"{path} holds no run: it has no {_CONFIG}")
    found = _read(path / _CONFIG)
    if not isinstance(found, dict):
        raise RunFolderError(f"{path / _CONFIG} does not hold the settings of a run")
    return found


def check_same(path: Path, config: Mapping[str, object], advice: str = "") -> None:
    """Refuse a folder that holds a run with other settings than these, which may be a part of all.

    Raises:
        OtherRunError: It does.
        RunFolderError: It holds files, but no run.
    """
    if not (path / _CONFIG).exists():
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise RunFolderError(f"{path} holds something else than a run; choose a new or an empty folder")
        return
    found, wanted = _read(path / _CONFIG), plain(config)
    if isinstance(found, dict) and isinstance(wanted, dict):
        if not set(wanted) <= set(found):
            raise OtherRunError(f"{path} holds a run of another kind; choose another folder (--out)")
        found = {name: found[name] for name in wanted}
    if changed := differences(found, wanted):
        raise OtherRunError(
            f"{path} holds another run ({changed}); choose another folder (--out){advice}, or remove this one"
        )
