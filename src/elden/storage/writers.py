"""Where the numbers of a run go beside its own files: TensorBoard, and whatever else takes numbers by step."""

import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from tensorboardX import SummaryWriter

_OF_A_SEED = re.compile(r"(.+/.+)/(\d+)")
_MOST_RUNS = 64
"""Each run keeps a file open and a thread. Numbers of later seeds go to the first folder, under their whole names."""


class Writer(Protocol):
    """Takes numbers of a run as they come."""

    def forget_after(self, step: int) -> None:
        """Learn, before the first numbers, that those of later steps will come again."""

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Take the numbers of a step, all of them finite."""

    def close(self) -> None:
        """Wait until everything is written."""


class TensorBoard:
    """Files that TensorBoard reads, beside those of earlier sittings.

    What has a number for each seed, `group/name/0` and so on, is a run for each of them, in a folder of that number:
    TensorBoard then draws all seeds into one chart.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._events: dict[str, SummaryWriter] = {}
        self._purge: int | None = None

    def forget_after(self, step: int) -> None:
        """Let TensorBoard leave out what earlier sittings wrote of later steps."""
        self._purge = step + 1

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Write numbers; the first ones of a run begin a file."""
        for name, number in numbers.items():
            tag, run = name, ""
            found = _OF_A_SEED.fullmatch(name)
            if found is not None and int(found[2]) < _MOST_RUNS:
                tag, run = found[1], found[2]
            self._run(run).add_scalar(tag, number, step)

    def _run(self, name: str) -> SummaryWriter:
        if name not in self._events:
            suffix = f".{uuid.uuid4().hex}"
            folder = self.path / name
            self._events[name] = SummaryWriter(str(folder), purge_step=self._purge, filename_suffix=suffix)
        return self._events[name]

    def close(self) -> None:
        """Write everything out."""
        for events in self._events.values():
            events.close()
        self._events = {}
