"""`elden detect`: train detectors of local dependencies, and measure them on unseen episodes."""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, get_args

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from elden.cli.collect import refusal
from elden.cli.console import make_console
from elden.cli.errors import UsageError, check_range
from elden.cli.worlds import given, world_choice
from elden.data import DamagedDataError, Dataset, load_dataset
from elden.dynamics.config import Activation, DerivativeOf, Precision
from elden.dynamics.runs import Deadline, OutOfTimeError
from elden.factors import Granularity
from elden.studies.config import DetectConfig, Level, in_words
from elden.studies.detection import detect
from elden.studies.errors import StudyError
from elden.studies.presets import Preset, preset
from elden.studies.tables import detection_tables
from elden.viewing import rich_table
from elden.worlds.base import World
from elden.worlds.registry import WORLDS

STOPPED, INTERRUPTED = 75, 130
"""Exit codes of a study whose time limit is over (EX_TEMPFAIL: try again), and of one that was interrupted."""

_LINE_EVERY_S = 30.0
_KINDS: Mapping[type, str] = {int: "INT", float: "FLOAT", str: "NAME"}
_NO_SETTING = ("world", "table", "worlds", "preset", "data", "models", "out", "time_limit_s", "figures")


def _setting(name: str, choices: object = None) -> object:
    """How a setting shows in the help: what it takes, and the value that it has in each preset."""
    values = {chosen: preset(chosen, "").value(name) for chosen in get_args(Preset)}
    own = {world: preset("paper", world).value(name) for world in WORLDS}
    first, *others = values.values()
    known = get_args(choices)
    one = f"{{{','.join(known)}}}" if known else _KINDS[type(first[0] if isinstance(first, tuple) else first)]
    shown = [f"{chosen}: {in_words(value)}" for chosen, value in values.items()]
    shown = [in_words(first)] if others == [first] else shown
    shown += [f"{world}: {in_words(value)}" for world, value in own.items() if value != values["paper"]]
    return tyro.conf.arg(
        metavar=f"{one} [...]" if isinstance(first, tuple) else one, help_behavior_hint=f"({'; '.join(shown)})"
    )


@dataclass(frozen=True)
class StudyOptions:
    """Options of both studies; what is not given is as the preset has it."""

    preset: Preset = "quick"
    """The settings to start from: a few minutes on a laptop, or the paper's."""
    methods: Annotated[tuple[str, ...] | None, _setting("methods")] = None
    """Detectors to compare, such as --methods gradient pcmi."""
    seeds: Annotated[int | None, _setting("seeds")] = None
    """Independent models of each kind."""
    seed: Annotated[int | None, _setting("seed")] = None
    """First of the seeds of models; it also decides which data are collected."""
    members: Annotated[int | None, _setting("members")] = None
    """Members of an ensemble; their scores are averaged."""
    updates: Annotated[int | None, _setting("updates")] = None
    """Updates of each model. The penalty's rise keeps its place within them."""
    batch_size: Annotated[int | None, _setting("batch_size")] = None
    """Transitions in one update."""
    learning_rate: Annotated[float | None, _setting("learning_rate")] = None
    """Step size of Adam."""
    clip: Annotated[float | None, _setting("clip")] = None
    """Largest norm of an ensemble's gradient; larger ones are scaled down to it."""
    penalty: Annotated[float | None, _setting("penalty")] = None
    """Weight λ of the penalty on derivatives, for the methods that have it."""
    penalty_start: Annotated[int | None, _setting("penalty_start")] = None
    """Update up to which λ is 0."""
    penalty_stop: Annotated[int | None, _setting("penalty_stop")] = None
    """Update from which λ has its full value; in between it rises linearly."""
    penalty_of: Annotated[DerivativeOf | None, _setting("penalty_of", DerivativeOf)] = None
    """Whose derivative is penalised: that of the probability, as the paper writes, or that of its logarithm."""
    mixup: Annotated[float | None, _setting("mixup")] = None
    """Parameter of the Beta distribution of mixup coefficients; 0 switches mixup off."""
    priority: Annotated[float | None, _setting("priority")] = None
    """Exponent of sampling by prediction error; 0 samples uniformly."""
    weight: Annotated[float | None, _setting("weight")] = None
    """Exponent of the importance weights that make up for sampling by priority; 1 makes up for all of it."""
    precision: Annotated[Precision | None, _setting("precision", Precision)] = None
    """Number format of activations in training."""
    children: Annotated[Granularity | None, _setting("children", Granularity)] = None
    """What one network predicts."""
    inputs: Annotated[Granularity | None, _setting("inputs", Granularity)] = None
    """What one input of a network is."""
    features: Annotated[tuple[int, ...] | None, _setting("features")] = None
    """Widths of the layers of each input's MLP, such as --features 64 64."""
    mlp: Annotated[tuple[int, ...] | None, _setting("mlp")] = None
    """Widths of the MLP behind each attention layer; the last one equals that of the features."""
    heads: Annotated[int | None, _setting("heads")] = None
    """Heads of both attention layers."""
    head_size: Annotated[int | None, _setting("head_size")] = None
    """Length of the keys, queries and values of one head."""
    activation: Annotated[Activation | None, _setting("activation", Activation)] = None
    """Activation function of all MLPs."""
    transitions: Annotated[int | None, _setting("transitions")] = None
    """Transitions to collect where no data are given, held-out ones included."""
    epsilon: Annotated[float | None, _setting("epsilon")] = None
    """Share of random actions in the training part of collected data; in held-out episodes it is 0.1."""
    eval_episodes: Annotated[int | None, _setting("eval_episodes")] = None
    """Held-out episodes that are measured."""
    threshold_transitions: Annotated[int | None, _setting("threshold_transitions")] = None
    """Unlabelled transitions of the training data from whose scores the automatic threshold comes."""
    reference: Annotated[int | None, _setting("reference")] = None
    """Transitions of the training data that show detectors which values continuous variables have."""
    granularity: Annotated[tuple[Level, ...] | None, _setting("granularity", Level)] = None
    """At which granularities to measure; the first is that of the tables and figures."""
    segment: Annotated[int | None, _setting("segment")] = None
    """Updates between two returns to the host, whose batches are in memory at the same time."""
    chunk: Annotated[int | None, _setting("chunk")] = None
    """Transitions that are scored at a time."""
    models: Annotated[Path | None, given("PATH", "in the run folder")] = None
    """Folder where trained models are kept. Studies that share it train no model
    twice: tables 1 and 2, or several processes with different --methods on one GPU."""
    time_limit_s: Annotated[float | None, given("SECONDS", "none")] = None
    """Stop training after so many seconds and keep what was done, with exit code 75; the same command then goes on.
    Looked at between segments, of which at least one is trained."""
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

    def config(self, world: World) -> DetectConfig:
        """The resolved settings for a world.

        Raises:
            UsageError: A setting has a value that it cannot have.
        """
        try:
            return preset(self.preset, world.name, world.factors.continuous).changed(**self.changes)
        except ValueError as error:
            raise UsageError(_as_options(str(error))) from None


def _as_options(message: str) -> str:
    """A message about settings with their names as they are typed."""
    names = "|".join(option.name for option in fields(StudyOptions) if option.name not in _NO_SETTING)
    return re.sub(rf"(?<![\w./-])({names})=", lambda found: f"--{found[1].replace('_', '-')} ", message)


@dataclass(frozen=True)
class Detect(StudyOptions):
    """Train detectors of local dependencies in a world, and measure them on unseen episodes."""

    world: Annotated[World, tyro.conf.arg(name="", constructor_factory=world_choice)] = field(kw_only=True)
    """Which world."""
    data: Annotated[Path | None, given("PATH", "collected anew")] = None
    """Folder with data from `elden collect`."""
    out: Annotated[Path | None, given("PATH", "runs/detect/WORLD-PRESET")] = None
    """Run folder. A run that was stopped there goes on."""

    def __post_init__(self) -> None:
        """Refuse options of which one would be ignored."""
        super().__post_init__()
        for name in ("transitions", "epsilon"):
            if self.data is not None and getattr(self, name) is not None:
                raise UsageError(f"--{name} {getattr(self, name)} given, but with --data nothing is collected")

    def run(self, command_line: str) -> None:
        """Train, measure, and print a table."""
        console = make_console()
        config = self.config(self.world)
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
            console.print(f"\n{folder}")

    def _data(self) -> Dataset | None:
        return None if self.data is None else load_dataset(self.data)


@contextmanager
def refusals(folder: Path) -> Iterator[None]:
    """Answer mistakes of the user with one line; any other error is one of the program, and shows where it is."""
    if folder.exists() and not os.access(folder, os.W_OK):
        raise UsageError(f"--out {folder} cannot be written to")
    try:
        yield
    except OSError as error:
        raise refusal(error) from None
    except (StudyError, DamagedDataError) as error:
        raise UsageError(_as_options(str(error))) from None


@contextmanager
def stopping(console: Console) -> Iterator[None]:
    """Say what to do when the time limit is over, and end with an exit code of its own."""
    try:
        yield
    except OutOfTimeError as stop:
        console.print(f"{stop}; what was done is kept, and the same command goes on from there")
        raise SystemExit(STOPPED) from None
    except KeyboardInterrupt:
        console.print("interrupted; the same command goes on from what was kept")
        raise SystemExit(INTERRUPTED) from None


@contextmanager
def study_progress(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each thing that is being done; without a terminal, a line at its start and every half minute."""
    if not console.is_terminal:
        yield _Lines(console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, *times, console=console) as bar:
        tasks = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield tell


class _Lines:
    """Progress as lines of text."""

    def __init__(self, console: Console) -> None:
        self.console, self.what, self.said = console, "", 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if what == self.what and now - self.said < _LINE_EVERY_S:
            return
        self.console.print(what if what != self.what else f"{what}: {done:,} of {total:,}")
        self.what, self.said = what, now
