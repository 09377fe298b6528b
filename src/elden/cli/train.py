"""`elden train` and `elden resume`: agents that explore, and what they do as they learn."""

import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from elden.bonuses import BONUSES
from elden.bonuses.registry import settings_read
from elden.cli.console import make_console
from elden.cli.detect import refusals
from elden.cli.errors import BROKEN, UsageError, check_range, out_of_memory
from elden.cli.opening import OpeningOptions, resume_line
from elden.cli.options import PresetOptions, as_options, options_of, value_of
from elden.cli.running import stopping
from elden.cli.worlds import shown_as, world_or_host_choice
from elden.graphs.base import Scheduled
from elden.graphs.registry import detector_named
from elden.hosts.worker import EnvironmentFailedError
from elden.hosts.world import HostConfig, HostWorld
from elden.names import HOST, printable
from elden.storage.folder import RunFolderError
from elden.storage.resumable import Deadline
from elden.storage.wandb_run import WandbRun, kept_project, require_wandb
from elden.training.config import MOST_STEPS, TrainingConfig
from elden.training.host import on_host
from elden.training.memory import memory_need, memory_there
from elden.training.presets import TrainingPreset, training_preset
from elden.training.run import NotFiniteError, SeedMetrics, TrainingRun
from elden.worlds.base import World

_LINE_EVERY_S = 10.0
_LONG_S = 60.0
"""A call that takes longer is worth a warning."""
_ROWS = {
    "success where solvable": "episode/success_solvable",
    "success": "episode/success",
    "stages reached": "episode/normalized_stage",
    "intrinsic reward": "bonus/mean",
    "children that count": "bonus/open",
    "dynamics loss": "dynamics/nll",
    "dynamics accuracy": "dynamics/accuracy",
    "graph density": "graph/density",
    "policy entropy": "policy/entropy",
}
"""What the live view shows, where it is there."""
_GATES = {
    "bonus.gate.level": ("information",),
    "bonus.gate.excess": ("surprise", "change"),
    "bonus.gate.noise": ("information", "surprise", "change"),
}
"""The kinds of gates that read a setting."""
_NO_FEATURES = ("bonus.change.whether.features", "bonus.dependency.whether.features", "bonus.fit.features")
"""Settings that networks without feature vectors do not read."""
_MOST_SEEDS = 10
_PLUS = training_preset("plus", "")


@dataclass(frozen=True)
class TrainOptions:
    """Options of a training run that do not change its results."""

    time_limit_s: Annotated[float | None, shown_as("SECONDS", "none")] = None
    """Stop after so many seconds and keep the state, with exit code 75; the same command, or `elden resume`, then
    continues."""
    save_every_s: float = 300.0
    """Seconds between two states that are kept, in case the process is killed. Rollouts that take longer than 30 s
    are kept one by one. Ctrl-C, or a request to terminate, keeps a state too."""
    iterations_per_call: int = 1
    """Rollouts made by one call of the compiled program, at most: a call takes no more than about a minute."""
    wandb: Annotated[str | None, shown_as("PROJECT", "none, or where the run is logged already")] = None
    """Log to this project of Weights & Biases too (pip install ".[wandb]")."""

    def __post_init__(self) -> None:
        """Check the values."""
        check_range("save-every-s", self.save_every_s, 0, 1e9)
        check_range("iterations-per-call", self.iterations_per_call, 1, 1_000_000)
        if self.time_limit_s is not None:
            check_range("time-limit-s", self.time_limit_s, 0, 1e9)

    def options(self, command_line: str) -> dict[str, Any]:
        """As `TrainingRun` takes them."""
        return {
            "iterations_per_call": self.iterations_per_call,
            "save_every_s": self.save_every_s,
            "deadline": Deadline.after(self.time_limit_s),
            "command": command_line,
        }

    def check_wandb(self, folder: Path) -> None:
        """Refuse to begin where W&B is asked for and missing."""
        if self.wandb is not None or kept_project(folder) is not None:
            require_wandb()

    def train(self, training: TrainingRun, folder: Path) -> None:
        """Train, logging where it is asked for."""
        project = self.wandb or kept_project(folder)
        if project is not None and not training.finished:
            with refusals(folder):
                training.folder.writers.append(WandbRun(training.folder, project))
        train(training, folder)


@dataclass(frozen=True)
class Train(TrainOptions, PresetOptions):
    """Train agents in a world, with the rewards of the task and of a bonus."""

    world: Annotated[World | HostConfig, tyro.conf.arg(name="", constructor_factory=world_or_host_choice)] = field(
        kw_only=True
    )
    """Which world, or whose environment."""
    preset: TrainingPreset = "plus"
    """The settings to start from: the paper's, or ours."""
    config: Annotated[TrainingConfig, tyro.conf.arg(name="")] = _PLUS
    """The settings."""
    out: Annotated[Path | None, shown_as("PATH", "runs/train/WORLD-BONUS-PRESET")] = None
    """Run folder. A training run that was stopped there continues."""

    def __post_init__(self) -> None:
        """Refuse settings that would be ignored."""
        super().__post_init__()
        bonus, name = self.config.bonus, self.config.bonus_name
        read = settings_read(name, bonus)
        for setting in self.given:
            part = setting.split(".")[1] if "." in setting else ""
            flag = f"--{setting}".replace("_", "-")
            if setting.startswith("bonus.") and part not in read:
                raise UsageError(f"{flag} given, but the bonus {name!r} does not read it")
            for reason in self._unread(setting):
                raise UsageError(f"{flag} given, but {reason} does not read it")

    def _unread(self, setting: str) -> Iterator[str]:
        """What keeps a setting, by its dotted name, from being read."""
        loop, bonus = self.config.loop, self.config.bonus
        train = bonus.ensemble.train
        if bonus.gate.kind not in _GATES.get(setting, (bonus.gate.kind,)):
            yield f"--bonus.gate.kind {bonus.gate.kind}"
        if setting == "bonus.threshold" and bonus.automatic_threshold:
            yield "--bonus.automatic-threshold"
        scheduled = isinstance(detector_named(bonus.detector), Scheduled)
        prices = ("bonus.ensemble.train.penalty_start", "bonus.ensemble.train.penalty_stop")
        unpriced = setting == "bonus.ensemble.train.penalty_of" or (setting in prices and not scheduled)
        if unpriced and train.penalty == 0:
            yield "--bonus.ensemble.train.penalty 0"
        if setting == "bonus.ensemble.schedule" and not scheduled and bonus.ensemble.anneal_from == 1:
            yield f"--bonus.detector {bonus.detector}"
        if setting.startswith("bonus.ensemble.train.anneal_") and bonus.ensemble.anneal_from < 1:
            yield f"--bonus.ensemble.anneal-from {bonus.ensemble.anneal_from}"
        if setting == "bonus.ensemble.train.weight" and train.priority == 0:
            yield "--bonus.ensemble.train.priority 0"
        if setting == "loop.intrinsic_discount" and not loop.separate_values and loop.normalise != "return":
            yield "--loop.no-separate-values"
        if setting in _NO_FEATURES and self.config.bonus_name != "composite":
            part = setting.removesuffix(".features").removeprefix("bonus.")
            if part != "fit" or self.config.bonus_name == "curiosity-critic":
                yield f"the bonus {self.config.bonus_name!r}"
        if setting == "bonus.count.excess" and self.config.bonus_name == "change-count":
            yield "the bonus 'change-count'"
        if setting == "ppo.entropy_gain" and self.config.ppo.entropy_target == 0:
            yield "--ppo.entropy-target 0"
        if setting == "ppo.entropy_target" and self.config.ppo.entropy_target > 0 and self.config.ppo.entropy == 0:
            yield "--ppo.entropy 0"
        if setting == "loop.intrinsic_weight" and self.config.bonus_name == "none":
            yield "--bonus none"

    @classmethod
    def preset_config(cls, preset: str, world: str, words: Sequence[str]) -> TrainingConfig:
        """The settings that a preset has for a world and a bonus."""
        bonus = value_of("--bonus", words)
        config = training_preset(preset, world, bonus if bonus in BONUSES else None)
        return on_host(config) if world == HOST and preset == "plus" else config

    def run(self, command_line: str) -> None:
        """Train, and say what came of it."""
        world_name = re.sub(r"[^\w-]+", "-", self.world.name)
        name = f"{world_name}-{self.config.bonus_name}-{self.preset}"
        folder = Path("runs/train") / name if self.out is None else self.out
        with refusals(folder):
            self.check_wandb(folder)
            try:
                world = HostWorld.look(self.world) if isinstance(self.world, HostConfig) else self.world
                training = TrainingRun(world, self.config, folder, **self.options(command_line))
            except RunFolderError:
                raise
            except ValueError as error:
                options = (*options_of(Train), *options_of(HostConfig))
                raise UsageError(as_options(as_options(str(error), options), options, "config.bonus.")) from None
        self.train(training, folder)


@dataclass(frozen=True)
class Resume(TrainOptions, OpeningOptions):
    """Continue a training run that was stopped or killed, from its run folder; or train a finished one for longer."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN", help_behavior_hint="(required)")] = (
        Path()
    )
    """The run folder."""
    steps: Annotated[int | None, shown_as("INT", "those that it has")] = None
    """Steps of each seed in all, more than the training has so far."""
    start_over: bool = False
    """Begin again at step 0: what the training has kept and logged is removed."""

    def __post_init__(self) -> None:
        """Check the values."""
        TrainOptions.__post_init__(self)
        OpeningOptions.__post_init__(self)
        if self.steps is not None:
            check_range("steps", self.steps, 1, MOST_STEPS)

    def run(self, command_line: str) -> None:
        """Train to the end."""
        if self.folder == Path():
            raise UsageError("elden resume needs the folder of a run, such as runs/train/carwash-influence-count-plus")
        with refusals(self.folder, ""), self.allowing(command_line):
            self.check_wandb(self.folder)
            if self.steps is not None:
                TrainingRun.extend(self.folder, self.steps, self.trust, self.step_limit_s)
            training = TrainingRun.open(
                self.folder, trust=self.trust, step_limit_s=self.step_limit_s, **self.options(command_line)
            )
            if self.start_over:
                training.start_over()
        self.train(training, self.folder)


def train(training: TrainingRun, folder: Path) -> None:
    """Train with a live view, and print the results."""
    console = make_console()
    if training.finished:
        with refusals(folder, ""):
            training.metrics()  # says where they are damaged, or were changed
        console.print(
            f"{folder} is finished; nothing is left to train ({resume_line(training)} --steps N trains longer)"
        )
    else:
        loop = training.config.loop
        if loop.iterations <= loop.warmup_iterations:
            console.print(
                f"all {loop.steps:,} steps are warm-up (--loop.warmup-steps {loop.warmup_steps}):"
                " actions are random, and no policy is learnt; --steps with more of them lets one learn"
            )
        if training.begins_episodes_anew:
            console.print(
                f"{training.world.name} cannot be put back to where it was: new episodes begin, and numbers will not"
                " be those of a training run that was never stopped"
            )
        need, there = memory_need(training.loop, training.keys), memory_there()
        if there is not None and need.state > there:
            raise UsageError(f"the device has not enough memory: {need.advice(there)}")
        try:
            stops = stopping(console, resume_line(training), lambda: training.breakable_since, training.deadline)
            with refusals(folder, ""), stops, _view(console, training):
                training.run()
        except (NotFiniteError, EnvironmentFailedError) as error:
            console.print(f"stopped: {error}")
            raise SystemExit(BROKEN) from None
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            console.print(f"stopped: the device has not enough memory; {need.advice(there)}")
            raise SystemExit(BROKEN) from None
    with refusals(folder, ""):
        summary = training.summary()
    console.print(_results(summary))
    for warning in summary.get("warnings", ()):
        console.print(f"warning: {printable(warning)}", markup=False)
    console.print(f"\n{folder}")


def _results(summary: Mapping[str, Any]) -> Table:
    """How each agent did at the end."""
    table = Table(title="last tenth of the training", box=SIMPLE_HEAD)
    for name in ("seed", "success", "of solvable initial states", "stages reached", "first success at step"):
        table.add_column(name, justify="right")
    for seed in summary["seeds"]:
        numbers = (seed["success_rate"], seed["success_rate_solvable"], seed["normalized_stage"])
        first = seed["first_success_step"]
        shown = ["–" if number is None else f"{number:.2f}" for number in numbers]
        table.add_row(str(seed["seed"]), *shown, "never" if first is None else f"{first:,}")
    return table


@contextmanager
def _view(console: Console, training: TrainingRun) -> Iterator[None]:
    """A live view on a terminal; elsewhere a line every now and then."""
    view = _Live(console, training) if console.is_terminal else _Lines(console, training)
    begun, forecast = threading.Event(), threading.Event()

    def show(done: int, total: int, metrics: SeedMetrics) -> None:
        begun.set()
        if not forecast.is_set() and (words := _forecast(training)) is not None:
            forecast.set()
            console.print(words)
        view.show(done, total, metrics)

    training.progress = show
    threading.Thread(target=_tell_that_it_takes_long, args=(console, training, begun), daemon=True).start()
    try:
        with view:
            yield
    finally:
        begun.set()


def _forecast(training: TrainingRun) -> str | None:
    """What the first call of a sitting in which agents learn says of those that follow; None where it was the last."""
    call, total = training.last_call, training.config.loop.iterations
    if call is None or call.reached == total or call.reached <= training.config.loop.warmup_iterations:
        return None
    words = (
        f"a rollout of all seeds, with what is learnt from it, took {call.each_s:.3g} s;"
        f" about {(total - call.reached) * call.each_s:,.0f} s are left"
    )
    if call.each_s < _LONG_S:
        return words
    return f"{words}. Ctrl-C and --time-limit-s wait a minute for the end of a rollout; a second Ctrl-C does not"


def _tell_that_it_takes_long(console: Console, training: TrainingRun, begun: threading.Event) -> None:
    """Say every minute what is being waited for, until the first call is over."""
    since = time.monotonic()
    while not begun.wait(_LONG_S):
        compiling = training.call_began is None
        waited = time.monotonic() - (training.call_began or since)
        what = f"{'compiling' if compiling else 'in the first call'} for {waited:,.0f} s"
        limit = "; the time limit is over" if training.deadline.over else ""
        console.print(f"{what}{limit}")


class _Pace:
    """How fast a training run goes, since the end of its first call in this sitting in which agents learn."""

    def __init__(self, training: TrainingRun) -> None:
        self.training, self.loop, self.seeds = training, training.config.loop, training.config.seeds
        self.began: tuple[float, int] | None = None

    def speed(self) -> float | None:
        """Steps of all seeds in a second; None where nothing has been measured yet."""
        now, call = time.monotonic(), self.training.last_call
        if call is None:
            return None
        if self.began is None or self.began[1] <= self.loop.warmup_iterations:
            self.began = now, call.reached
        taken = (call.reached - self.began[1]) * self.loop.steps_per_iteration * self.seeds
        return taken / (now - self.began[0]) if taken else None

    def left_s(self, done: int, speed: float) -> float:
        """Seconds until the end."""
        return (self.loop.iterations - done) * self.loop.steps_per_iteration * self.seeds / speed


class _Lines:
    """Progress as lines of text."""

    def __init__(self, console: Console, training: TrainingRun) -> None:
        self.console, self.loop, self.pace = console, training.config.loop, _Pace(training)
        self.printed_s = 0.0

    def __enter__(self) -> None:
        self.console.print("compiling, which takes a minute or so")

    def __exit__(self, *_: object) -> None:
        return

    def show(self, done: int, total: int, metrics: SeedMetrics) -> None:
        now, speed = time.monotonic(), self.pace.speed()
        if done < total and now - self.printed_s < _LINE_EVERY_S:
            return
        self.printed_s = now
        steps = self.loop.steps_per_iteration
        words = [f"{name} {mean:.3g}" for name, mean in _means(metrics).items()]
        if speed is not None:
            words = [f"{speed:,.0f} steps/s", f"{self.pace.left_s(done, speed):,.0f} s left", *words]
        self.console.print(f"step {done * steps:,} of {total * steps:,}: {', '.join(words)}")


class _Live:
    """Progress as a table that changes in place."""

    def __init__(self, console: Console, training: TrainingRun) -> None:
        self.config, self.pace = training.config, _Pace(training)
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[speed]}"))
        self.bar = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console)
        total = self.config.loop.iterations
        self.task = self.bar.add_task("compiling", total=total, speed="")
        self.live = Live(Group(self.bar), console=console, refresh_per_second=4)

    def __enter__(self) -> None:
        self.live.start()

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def show(self, done: int, total: int, metrics: SeedMetrics) -> None:
        steps, speed = self.config.loop.steps_per_iteration, self.pace.speed()
        pace = "" if speed is None else f"{speed:,.0f} steps/s"
        self.bar.update(self.task, completed=done, description=f"{done * steps:,} steps", speed=pace)
        self.live.update(Group(self.bar, self._table(metrics)))

    def _table(self, metrics: SeedMetrics) -> Table:
        table = Table(box=SIMPLE_HEAD)
        table.add_column("")
        seeds = list(self.config.all_seeds)[:_MOST_SEEDS]
        for seed in seeds:
            table.add_column(f"seed {seed}", justify="right")
        for name, metric in _ROWS.items():
            if metric in metrics:
                values = metrics[metric][: len(seeds)]
                table.add_row(name, *("–" if np.isnan(value) else f"{value:.3g}" for value in values))
        return table


def _means(metrics: SeedMetrics) -> dict[str, float]:
    """Means over seeds of what there is."""
    found = {name: metrics[metric] for name, metric in _ROWS.items() if metric in metrics}
    return {name: float(np.nanmean(values)) for name, values in found.items() if not np.isnan(values).all()}
