"""Where the numbers of a run go beside its own files: TensorBoard, and whatever else takes numbers by step."""

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from tensorboardX import SummaryWriter


class Writer(Protocol):
    """Takes numbers of a run as they come."""

    def forget_after(self, step: int) -> None:
        """Be told, before the first numbers, that those of later steps will come again."""

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Take the numbers of a step, all of them finite."""

    def close(self) -> None:
        """Wait until everything is written."""


class TensorBoard:
    """Files that TensorBoard reads, beside those of earlier sittings."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._events: SummaryWriter | None = None
        self._purge: int | None = None

    def forget_after(self, step: int) -> None:
        """Let TensorBoard leave out what earlier sittings wrote of later steps."""
        self._purge = step + 1

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Write numbers; the first ones begin a file."""
        if self._events is None:
            suffix = f".{uuid.uuid4().hex}"
            self._events = SummaryWriter(str(self.path), purge_step=self._purge, filename_suffix=suffix)
        for name, number in numbers.items():
            self._events.add_scalar(name, number, step)

    def close(self) -> None:
        """Write everything out."""
        if self._events is not None:
            self._events.close()
            self._events = None
