"""The subcommands by name. Light: nothing of theirs is imported before it is needed."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Command(Protocol):
    """What a subcommand is: a frozen dataclass of its options, which can be run."""

    def run(self, command_line: str) -> None:
        """Do it; `command_line` is what the user typed, for the records."""


@dataclass(frozen=True)
class Entry:
    """Where a subcommand is.

    Attributes:
        module: Its module in `elden.cli`.
        cls: Its class there.
        summary: What it does, in a line.
    """

    module: str
    cls: str
    summary: str

    def load(self) -> type[Any]:
        """The class."""
        loaded: type[Any] = getattr(import_module(f"elden.cli.{self.module}"), self.cls)
        return loaded


COMMANDS: dict[str, Entry] = {
    "info": Entry("info", "Info", "Say what a world is made of: entities, variables, actions, stages, rules."),
    "play": Entry("play", "Play", "Step a world from the keyboard, with the dependencies of every step."),
    "video": Entry("video", "Video", "Record scripted episodes of a world, and summarise them."),
    "demo": Entry("demo", "Demo", "Train agents in a small chain, with the bonus and with none, and show both."),
    "train": Entry("train", "Train", "Train agents in a world on its reward and a bonus."),
    "resume": Entry("train", "Resume", "Continue a training run that was stopped, or train a finished one for longer."),
    "compare": Entry("compare", "Compare", "Train agents with several bonuses in several worlds; map and curves."),
    "evaluate": Entry("evaluate", "Evaluate", "Try the agents of a training run: success, edges, a video."),
    "collect": Entry("collect", "Collect", "Collect transitions of a world's scripted policy as a data set."),
    "detect": Entry("detect", "Detect", "Train detectors of local dependencies, and measure them on unseen episodes."),
    "reproduce": Entry("reproduce", "Reproduce", "Make a table of the paper, beside the paper's numbers."),
}
"""Every subcommand by its name. To add one: write its file, name it here, and run `python tools/option_index.py`."""
