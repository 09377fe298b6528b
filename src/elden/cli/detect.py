"""`elden detect`: train detectors of local dependencies, and measure them on unseen episodes."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from elden.cli.console import make_console
from elden.cli.errors import UsageError, check_range
from elden.cli.options import PresetOptions, as_options, options_of
from elden.cli.running import refusal, stopping, study_progress
from elden.cli.worlds import shown_as, world_choice
from elden.dynamics.runs import Deadline
from elden.graphs.registry import detector_named
from elden.storage.arrays import DamagedDataError
from elden.storage.folder import RunFolderError
from elden.studies.config import DetectConfig
from elden.studies.dataset import CollectConfig, Dataset, load_dataset
from elden.studies.detection import detect
from elden.studies.errors import StudyError
from elden.studies.presets import Preset, detection_preset
from elden.studies.tables import detection_tables, skipped_lines
from elden.viewing import rich_table
from elden.worlds.base import World

_QUICK = detection_preset("quick", "")


@dataclass(frozen=True)
class StudyOptions(PresetOptions):
    """Options of both studies. Of the settings only those that are `given` count: the others depend on the world."""

    preset: Preset = "quick"
    """The settings to start from: a few minutes on a laptop, or the paper's, which `--preset paper --help` shows."""
    config: tyro.conf.OmitArgPrefixes[DetectConfig] = _QUICK
    """The settings as the preset has them."""
    models: Annotated[Path | None, shown_as("PATH", "in the run folder")] = None
    """Folder where trained models are kept. Studies that share it train no model twice: tables 1 and 2, or several
    processes with different --methods on one GPU."""
    time_limit_s: Annotated[float | None, shown_as("SECONDS", "none")] = None
    """Stop training after so many seconds and keep what was done, with exit code 75; the same command then continues.
    Looked at between segments, of which at least one is trained."""
    figures: bool = True
    """Draw figures."""

    def __post_init__(self) -> None:
        """Check what needs no world."""
        if "train.weight" in self.given and self.config.train.priority == 0:
            raise UsageError(f"--weight {self.config.train.weight} given, but without --priority all weights are 1")
        if self.time_limit_s is not None:
            check_range("time-limit-s", self.time_limit_s, 0, 1e9)

    @classmethod
    def preset_config(cls, preset: str, world: str, words: Sequence[str]) -> DetectConfig:
        """The settings that a preset has for a world."""
        return detection_preset(preset, world)

    @property
    def changes(self) -> dict[str, object]:
        """The settings that were given."""
        names = [name.rsplit(".", 1)[-1] for name in self.given]
        return {name: self.config.value(name) for name in names}

    def resolved(self, world: World) -> DetectConfig:
        """The settings for a world.

        Raises:
            UsageError: A setting has a value that it cannot have.
        """
        try:
            return detection_preset(self.preset, world.name, world.factors.continuous).changed(**self.changes)
        except ValueError as error:
            raise UsageError(as_options(str(error), _OPTIONS)) from None


_OPTIONS = (*options_of(StudyOptions), *options_of(CollectConfig))


@dataclass(frozen=True)
class Detect(StudyOptions):
    """Train detectors of local dependencies in a world, and measure them on unseen episodes."""

    world: Annotated[World, tyro.conf.arg(name="", constructor_factory=world_choice)] = field(kw_only=True)
    """Which world."""
    data: Annotated[Path | None, shown_as("PATH", "collected now")] = None
    """Folder with data from `elden collect`."""
    out: Annotated[Path | None, shown_as("PATH", "runs/detect/WORLD-PRESET")] = None
    """Run folder. A run that was stopped there continues."""

    def __post_init__(self) -> None:
        """Refuse options of which one would be ignored."""
        super().__post_init__()
        for name in ("transitions", "epsilon"):
            if self.data is not None and name in self.given:
                raise UsageError(f"--{name} {self.config.value(name)} given, but with --data nothing is collected")
        if not any(detector_named(name).penalised for name in self.config.methods):
            methods = " ".join(self.config.methods)
            for name in ("penalty", "penalty_of"):
                if f"train.{name}" in self.given:
                    value = f"--{name.replace('_', '-')} {self.config.value(name)}"
                    raise UsageError(f"{value} given, but none of --methods {methods} has λ")

    def run(self, command_line: str) -> None:
        """Train, measure, and print a table."""
        console = make_console()
        config = self.resolved(self.world)
        folder = Path("runs/detect") / f"{self.world.name}-{self.preset}" if self.out is None else self.out
        with refusals(folder), study_progress(console) as tell, stopping(console):
            detection = detect(
                self.world,
                config,
                dataset=self._data(),
                folder=folder,
                models=self.models,
                deadline=Deadline.after(self.time_limit_s),
                progress=tell,
                command=command_line,
                figures=self.figures,
            )
            for table in detection_tables(detection):
                console.print(rich_table(table))
            for line in skipped_lines(detection):
                console.print(line)
            console.print(f"\n{folder}")

    def _data(self) -> Dataset | None:
        return None if self.data is None else load_dataset(self.data)


@contextmanager
def refusals(folder: Path) -> Iterator[None]:
    """Answer mistakes of the user with one line; any other error is one of the program, and shows where it is."""
    try:
        if folder.exists() and not os.access(folder, os.W_OK):
            raise UsageError(f"{folder} cannot be written to; choose another folder, or change its permissions")
        yield
    except OSError as error:
        raise refusal(error) from None
    except (StudyError, RunFolderError, DamagedDataError) as error:
        raise UsageError(as_options(str(error), _OPTIONS)) from None
