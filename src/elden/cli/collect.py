"""`elden collect`: transitions of a world's scripted policy, for models to learn from and to be measured on."""

import os
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Group
from rich.filesize import decimal
from rich.table import Table

from elden.cli.console import make_console
from elden.cli.errors import UsageError
from elden.cli.options import as_options, options_of
from elden.cli.running import refusal, stopping, study_progress
from elden.cli.worlds import describe_options, shown_as, world_choice
from elden.studies.dataset import CollectConfig, Dataset, collect
from elden.worlds.base import World
from elden.worlds.labels import event_type

_WHAT = "collecting transitions"


@dataclass(frozen=True)
class Collect(CollectConfig):
    """Collect transitions of a world's scripted policy; an interrupted collection continues where it stopped."""

    world: Annotated[World, tyro.conf.arg(name="", constructor_factory=world_choice)] = field(kw_only=True)
    """Which world."""
    out: Annotated[Path | None, shown_as("PATH", "runs/data/WORLD")] = None
    """Folder for the data."""

    @property
    def config(self) -> CollectConfig:
        """What to collect, without from where and to where."""
        return CollectConfig(**{option.name: getattr(self, option.name) for option in fields(CollectConfig)})

    def run(self, command_line: str) -> None:
        """Collect, and sum up."""
        console = make_console()
        folder = Path("runs/data") / self.world.name if self.out is None else self.out
        try:
            with study_progress(console) as tell, stopping(console):
                dataset = collect(self.world, self.config, folder, partial(tell, _WHAT), command=command_line)
        except OSError as error:
            raise refusal(error) from None
        except ValueError as error:
            raise UsageError(as_options(str(error), tuple(options_of(CollectConfig)))) from None
        console.print(_tables(self.world, dataset, folder))


def _tables(world: World, dataset: Dataset, folder: Path) -> Group:
    """What was collected, and what happened in the part that is held out."""
    return Group(_part_table(world, dataset), "", _event_table(dataset), "", f"{folder}   ({_size(folder)})")


def _part_table(world: World, dataset: Dataset) -> Table:
    made = Table(title=f"{world.name} {describe_options(world)}".strip(), title_justify="left")
    made.add_column("part")
    for head in ("transitions", "episodes", "solved"):
        made.add_column(head, justify="right")
    train, held_out = dataset.train, dataset.held_out
    for part, split, solved in (
        ("train", train, dataset.solved("train")),
        ("held out", held_out, dataset.solved("held_out")),
    ):
        made.add_row(part, f"{len(split):,}", f"{split.num_episodes:,}", f"{solved:.1%}")
    return made


def _event_table(dataset: Dataset) -> Table:
    made = Table(title="what happened in the held-out part, by type of event", title_justify="left")
    made.add_column("event")
    made.add_column("in steps", justify="right")
    made.add_column("share", justify="right")
    for kind, steps in sorted(event_counts(dataset).items(), key=lambda item: -item[1]):
        made.add_row(kind, f"{steps:,}", f"{steps / len(dataset.held_out):.2%}")
    return made


def event_counts(dataset: Dataset) -> dict[str, int]:
    """In how many held-out steps an event of each type happened."""
    events = dataset.held_out.events
    if events is None:
        raise ValueError("the held-out part has no events")
    types = [event_type(name) for name in dataset.event_names]
    columns = {kind: [i for i, other in enumerate(types) if other == kind] for kind in dict.fromkeys(types)}
    return {kind: int(events[:, which].any(axis=1).sum()) for kind, which in columns.items()}


def _size(folder: Path) -> str:
    """Size on disk."""
    return decimal(sum(os.path.getsize(file) for file in folder.iterdir() if file.is_file()))
