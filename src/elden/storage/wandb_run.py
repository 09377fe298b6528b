"""A run's numbers in Weights & Biases, for those who ask for it: `pip install ".[wandb]"`.

One run there for each run folder, which keeps its project and id in wandb.json; it continues when the training does.
"""

import importlib
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elden.storage.files import read_json, write_json
from elden.storage.folder import RunFolder, RunFolderError, read_config

_FILE = "wandb.json"


def require_wandb() -> Any:
    """The package.

    Raises:
        RunFolderError: It is not installed.
    """
    try:
        return importlib.import_module("wandb")
    except ImportError:
        raise RunFolderError("W&B needs the package wandb, which is not installed: pip install '.[wandb]'") from None


def kept_project(folder: Path) -> str | None:
    """The project that the run of a folder is logged to; None where it is logged to none.

    Raises:
        RunFolderError: The file that says so cannot be read.
    """
    file = folder / _FILE
    if not file.exists():
        return None
    try:
        kept: Any = read_json(file)
        return str(kept["project"])
    except (ValueError, KeyError, TypeError):
        raise RunFolderError(f"{file} cannot be read; remove it to continue without W&B") from None


def _id(file: Path) -> str:
    kept: Any = read_json(file)
    return str(kept["id"])


class WandbRun:
    """The run of one folder, as a `Writer`. Numbers of steps that are taken again are the same, so none is removed."""

    def __init__(self, folder: RunFolder, project: str) -> None:
        """Begin a run, or continue that of the folder.

        Args:
            folder: The run folder.
            project: The project.

        Raises:
            RunFolderError: The package is missing or cannot begin a run, or the folder's run is in another project.
        """
        wandb = require_wandb()
        file, known = folder.path / _FILE, kept_project(folder.path)
        if known not in (None, project):
            raise RunFolderError(f"--wandb {project} given, but {folder.path} is logged to the project {known!r}")
        run = uuid.uuid4().hex[:8] if known is None else _id(file)
        try:
            self._run = wandb.init(
                project=project,
                id=run,
                name=folder.path.name,
                resume="allow",
                dir=str(folder.path),
                config=read_config(folder.path),
            )
        except wandb.Error as error:
            raise RunFolderError(f"W&B does not begin a run: {error}") from None
        write_json(file, {"project": project, "id": run})

    def forget_after(self, step: int) -> None:
        """Nothing: what comes again is the same."""

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Log numbers."""
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        """Send what is left."""
        self._run.finish()
