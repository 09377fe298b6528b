"""`elden demo`: from nothing to agents that solve a world, with pictures of what they learnt."""

import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from elden.cli.console import make_console
from elden.cli.detect import refusals
from elden.cli.errors import check_range
from elden.cli.evaluate import report
from elden.cli.train import train
from elden.training.config import TrainingConfig
from elden.training.evaluation import EvaluationConfig
from elden.training.presets import training_preset
from elden.training.run import Training
from elden.worlds.registry import make

_WORLD, _SEEDS, _STEPS = "thawing", 3, 76_800


@dataclass(frozen=True)
class Demo:
    """Train agents with ELDEN's bonus on thawing, and show what they have learnt: a few minutes on two CPU cores.

    The same demo makes the same numbers, so a finished one is removed and made anew; one that was stopped goes on.
    """

    seed: int = 0
    """Seed of the first agent."""
    out: Path = Path("runs/demo/thawing")
    """Run folder."""

    def __post_init__(self) -> None:
        """Check the values."""
        check_range("seed", self.seed, 0, 2**31 - 1)

    @property
    def config(self) -> TrainingConfig:
        """The preset `plus` with fewer steps, which are enough here."""
        config = training_preset("plus", _WORLD)
        return replace(config, seeds=_SEEDS, seed=self.seed, loop=replace(config.loop, steps=_STEPS))

    def run(self, command_line: str) -> None:
        """Train, evaluate, and name the files to look at."""
        console, began = make_console(), time.monotonic()
        training = self._begin(console, command_line)
        train(training, self.out)
        report(console, training, EvaluationConfig(automatic_threshold=True), command_line)
        console.print(f"\nthe demo took {time.monotonic() - began:.0f} s")

    def _begin(self, console: Console, command_line: str) -> Training:
        """The demo's training; one that is finished is begun anew."""

        def begin() -> Training:
            return Training(make(_WORLD), self.config, self.out, command=command_line)

        with refusals(self.out):
            training = begin()
            if training.finished:
                console.print(f"{self.out} holds a finished demo, which is removed and made anew")
                shutil.rmtree(self.out)
                training = begin()
            elif any(training.folder.metrics()):
                console.print(f"{self.out} holds a demo that was stopped, which goes on")
        return training
