"""`elden detect`: train detectors of local dependencies, and measure them on unseen episodes."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from elden.cli.console import make_console
from elden.cli.errors import UsageError, check_range
from elden.cli.worlds import world_choice
from elden.data import Dataset, load_dataset
from elden.dynamics.config import Precision
from elden.dynamics.runs import Deadline, OutOfTimeError
from elden.factors import Granularity
from elden.studies.config import DetectConfig, Level
from elden.studies.detection import detect
from elden.studies.presets import Preset, preset
from elden.studies.tables import detection_table
from elden.viewing import rich_table
from elden.worlds.base import World

STOPPED = 75
"""Exit code of a study whose time limit is over: try again (EX_TEMPFAIL)."""

_NO_SETTING = ("world", "table", "worlds", "preset", "data", "models", "out", "time_limit_s", "figures")


@dataclass(frozen=True)
class StudyOptions:
    """Options of both studies; what is not given is as the preset has it."""

    preset: Preset = "quick"
    """The settings to start from: a few minutes on a laptop, or the paper's."""
    methods: tuple[str, ...] | None = None
    """Detectors to compare, such as --methods gradient pcmi; all of them where none is named."""
    seeds: int | None = None
    """Independent models of each kind."""
    members: int | None = None
    """Members of an ensemble; their scores are averaged."""
    updates: int | None = None
    """Updates of each model. The penalty's rise keeps its place within them."""
    batch_size: int | None = None
    """Transitions in one update."""
    learning_rate: float | None = None
    """Step size of Adam."""
    penalty: float | None = None
    """Weight λ of the penalty on derivatives, for the methods that have it."""
    mixup: float | None = None
    """Parameter of the Beta distribution of mixup coefficients; 0 switches mixup off."""
    precision: Precision | None = None
    """Number format of activations in training."""
    children: Granularity | None = None
    """What one network predicts."""
    inputs: Granularity | None = None
    """What one input of a network is."""
    features: tuple[int, ...] | None = None
    """Widths of the layers of each input's MLP, such as --features 64 64."""
    mlp: tuple[int, ...] | None = None
    """Widths of the MLP behind each attention layer; the last one equals that of the features."""
    heads: int | None = None
    """Heads of both attention layers."""
    head_size: int | None = None
    """Length of the keys, queries and values of one head."""
    transitions: int | None = None
    """Transitions to collect where no data are given, held-out ones included."""
    eval_episodes: int | None = None
    """Held-out episodes that are measured."""
    granularity: tuple[Level, ...] | None = None
    """At which granularities to measure; the first is that of the tables and figures."""
    segment: int | None = None
    """Updates between two returns to the host."""
    chunk: int | None = None
    """Transitions that are scored at a time."""
    models: Path | None = None
    """Folder where trained models are kept, under the run folder if none is given. Studies that share it train no model
    twice: tables 1 and 2, or several processes with different --methods on one GPU."""
    time_limit_s: float | None = None
    """Stop training after so many seconds and keep what was done, with exit code 75; the same command then goes on."""
    figures: bool = True
    """Draw figures."""

    def __post_init__(self) -> None:
        """Check what needs no world."""
        if self.time_limit_s is not None:
            check_range("time-limit-s", self.time_limit_s, 0, 1e9)

    @property
    def changes(self) -> dict[str, object]:
        """The settings that were given."""
        given = {option.name: getattr(self, option.name) for option in fields(self) if option.name not in _NO_SETTING}
        return {name: value for name, value in given.items() if value is not None}

    def config(self, world: str) -> DetectConfig:
        """The resolved settings for a world.

        Raises:
            UsageError: A setting has a value that it cannot have.
        """
        try:
            return preset(self.preset, world).changed(**self.changes)
        except ValueError as error:
            raise UsageError(str(error)) from None


@dataclass(frozen=True)
class Detect(StudyOptions):
    """Train detectors of local dependencies in a world, and measure them on unseen episodes."""

    world: Annotated[World, tyro.conf.arg(name="", constructor_factory=world_choice)] = field(kw_only=True)
    """Which world."""
    data: Path | None = None
    """Folder with data from `elden collect`; where none is given they are collected anew."""
    out: Path | None = None
    """Run folder; runs/detect/WORLD where none is given. A run that was stopped there goes on."""

    def run(self, command_line: str) -> None:
        """Train, measure, and print a table."""
        console = make_console()
        config = self.config(self.world.name)
        folder = Path("runs/detect") / self.world.name if self.out is None else self.out
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
            for level in config.granularity:
                console.print(rich_table(detection_table(detection, level)))
            console.print(f"\n{folder}")

    def _data(self) -> Dataset | None:
        return None if self.data is None else load_dataset(self.data)


@contextmanager
def refusals(folder: Path) -> Iterator[None]:
    """Answer mistakes of the user with one line."""
    if folder.exists() and not os.access(folder, os.W_OK):
        raise UsageError(f"--out {folder} cannot be written to")
    try:
        yield
    except OSError as error:
        raise UsageError(f"--out {folder} cannot be written to: {error.strerror}") from None
    except UsageError:
        raise
    except ValueError as error:
        raise UsageError(str(error)) from None


@contextmanager
def stopping(console: Console) -> Iterator[None]:
    """Say what to do when the time limit is over, and end with an exit code of its own."""
    try:
        yield
    except OutOfTimeError as stop:
        console.print(f"{stop}; what was done is kept, and the same command goes on from there")
        raise SystemExit(STOPPED) from None


@contextmanager
def study_progress(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each thing that is being done, or a line where there is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, *times, console=console, disable=not console.is_terminal) as bar:
        tasks = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
                if not console.is_terminal:
                    console.print(what)
            bar.update(tasks[what], completed=done, total=total)

        yield tell
