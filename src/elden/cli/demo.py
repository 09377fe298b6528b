"""`elden demo`: a world in which the bonus matters, agents with it and without, and pictures of what they learnt."""

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
from elden.studies.exploration import Agents, comparison, curves
from elden.training.config import TrainingConfig
from elden.training.evaluation import EvaluationConfig
from elden.training.presets import DEFAULT_BONUS, training_preset
from elden.training.run import TrainingRun
from elden.viewing import rich_table, save
from elden.worlds.base import World
from elden.worlds.registry import make

_SEEDS, _STEPS, _UPDATES = 3, 614_400, 24
_BONUSES = (DEFAULT_BONUS["plus"], "none")


def demo_world() -> World:
    """Five links that must be switched on in order, among things that only distract."""
    return make("chain", depth=5, noisy=1, intricate=2, max_steps=30)


@dataclass(frozen=True)
class Demo:
    """Train agents in a chain of five links, with the preset's bonus and with none, and show what they have learnt.

    It takes a few minutes on two CPU cores. The same demo makes the same numbers, so a finished one is removed and made
    again; one that was stopped continues.
    """

    seed: int = 0
    """Seed of the first agent."""
    out: Path = Path("runs/demo")
    """Folder for the figure that compares both, with a run folder for each of them in it."""

    def __post_init__(self) -> None:
        """Check the values."""
        check_range("seed", self.seed, 0, 2**31 - 1)

    def config(self, bonus: str) -> TrainingConfig:
        """The preset `plus` with fewer steps, and fewer updates of the models, which are enough here."""
        config = training_preset("plus", "chain", bonus)
        settings = replace(config.bonus, ensemble=replace(config.bonus.ensemble, updates=_UPDATES))
        loop = replace(config.loop, steps=_STEPS)
        return replace(config, bonus=settings, seeds=_SEEDS, seed=self.seed, loop=loop)

    def run(self, command_line: str) -> None:
        """Train, evaluate, and name the files to look at."""
        console, began = make_console(), time.monotonic()
        runs = self._begin(console, command_line)
        for bonus, training in runs.items():
            console.print(f"\nagents with the bonus {bonus}", style="bold")
            train(training, training.folder.path)
        console.print(f"\nwhat agents with {_BONUSES[0]} have learnt", style="bold")
        report(console, runs[_BONUSES[0]], EvaluationConfig(), command_line)
        agents = [Agents.read(training.folder.path, bonus) for bonus, training in runs.items()]
        with refusals(self.out):
            save(curves(agents), self.out / "curves.png")
        console.print(rich_table(comparison(agents)))
        console.print(f"  {self.out / 'curves.png'}   (with the bonus and without)")
        console.print(f"\nthe demo took {time.monotonic() - began:.0f} s")

    def _begin(self, console: Console, command_line: str) -> dict[str, TrainingRun]:
        """The demo's training runs by their bonus; where all of them are finished they begin again."""

        def begin(bonus: str) -> TrainingRun:
            folder = self.out / bonus
            with refusals(folder):
                return TrainingRun(demo_world(), self.config(bonus), folder, command=command_line)

        runs = {bonus: begin(bonus) for bonus in _BONUSES}
        if all(training.finished for training in runs.values()):
            console.print(f"{self.out} holds a finished demo, which is removed and made again")
            for bonus, training in runs.items():
                shutil.rmtree(training.folder.path)
                runs[bonus] = begin(bonus)
        elif any(any(training.folder.metrics()) for training in runs.values()):
            console.print(f"{self.out} holds a demo that was stopped, which continues")
        return runs
