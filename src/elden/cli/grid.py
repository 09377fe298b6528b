"""The grid of `elden compare`: columns and rows in the words of `elden train`, and the cells that they make."""

import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from elden.cli.arguments import parse
from elden.cli.errors import UsageError
from elden.cli.train import Train
from elden.names import nearest_names
from elden.studies.exploration import Cell
from elden.studies.results import slug
from elden.worlds.base import World
from elden.worlds.registry import WORLDS

_NO_SETTINGS = {
    "--out": "each training run has its own folder in the --out of the comparison",
    "--time-limit-s": "the comparison as a whole has a --time-limit-s",
    "--iterations-per-call": "the comparison as a whole has an --iterations-per-call",
    "--save-every-s": "states are kept every five minutes",
    "--wandb": "elden train logs there",
}
_NOT_OF_A_WORLD = {
    **_NO_SETTINGS,
    "--bonus": "bonuses are the rows of the comparison (--bonuses, --variants)",
    "--help": "see elden train --help",
    "-h": "see elden train --help",
}
_LONGEST_SLUG = 120


@dataclass(frozen=True)
class Contender:
    """A row of the comparison.

    Attributes:
        name: What to call it.
        options: Words of `elden train` that make it differ from the others.
    """

    name: str
    options: tuple[str, ...]

    @classmethod
    def bonus(cls, name: str) -> "Contender":
        """A bonus under its own name."""
        return cls(name, ("--bonus", name))


@dataclass(frozen=True)
class WorldEntry:
    """A column of the comparison: a world with options.

    Attributes:
        title: What to call it in tables and figures.
        world: Name of the world.
        options: Words of `elden train` after the world: its own options, and settings that differ from the common ones.
    """

    title: str
    world: str
    options: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "WorldEntry":
        """From `WORLD OPTIONS` or `NAME=WORLD OPTIONS`, such as "hard chain=chain --depth 8 --levels 3".

        Raises:
            ValueError: There is no such world, or an option is not for a world of a comparison.
        """
        name, equals, rest = text.partition("=")
        named = bool(equals) and not any(word.startswith("-") for word in name.split())
        try:
            words = shlex.split(rest if named else text)
        except ValueError as error:
            raise ValueError(f"{text!r} given; it cannot be read: {error}") from None
        if not words or (named and not name.strip()):
            raise ValueError(f'{text!r} given; write a world with options, such as "hard chain=chain --depth 8"')
        world, *options = words
        if world not in WORLDS:
            raise ValueError(f"{text} given; {nearest_names(world.lower(), WORLDS)}")
        for flag in map(_flag, options):
            if flag in _NOT_OF_A_WORLD:
                raise ValueError(f"{text!r} given; {flag} is no option of a world here: {_NOT_OF_A_WORLD[flag]}")
        return cls(name.strip() if named else " ".join(words), world, tuple(options))

    @property
    def slug(self) -> str:
        """World and options as a file name, without the title: a column that is renamed keeps its training runs."""
        whole = slug(" ".join(word.removeprefix("--") for word in (self.world, *self.options)))
        if len(whole) <= _LONGEST_SLUG:
            return whole
        return f"{whole[:_LONGEST_SLUG]}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"


def _flag(word: str) -> str:
    """The option that a word is; the word itself where it is none."""
    return word.split("=", 1)[0].replace("_", "-") if word.startswith("-") else word


def folder_name(entry: WorldEntry, contender: Contender) -> str:
    """Name of the run folder of a cell of the grid."""
    return f"{entry.slug}-{slug(contender.name)}"


def training_words(entry: WorldEntry, contender: Contender, options: Sequence[str] = ()) -> list[str]:
    """The words of `elden` that train a contender in a world.

    Args:
        entry: The world with its options.
        contender: The contender with its options.
        options: Common options, each followed by its value. Those that the world or the contender gives are left out.

    Raises:
        UsageError: The world and the contender both give the same option.
    """
    own = {_flag(word) for word in entry.options if word.startswith("--")}
    others = {_flag(word) for word in contender.options if word.startswith("--")}
    if both := sorted(own & others):
        raise UsageError(f"{both[0]} is given both by the world and by the row; give it once")
    pairs = zip(options[::2], options[1::2], strict=True)
    common = [word for pair in pairs if _flag(pair[0]) not in own | others for word in pair]
    return ["train", entry.world, *common, *entry.options, *contender.options]


def cells(entries: Sequence[WorldEntry], contenders: Sequence[Contender], options: Sequence[str] = ()) -> list[Cell]:
    """All cells of a grid, column by column.

    Raises:
        UsageError: A world or a row has an option that `elden train` refuses, or that is no setting of a training run;
            the message says which.
    """
    found = []
    for entry in entries:
        for contender in contenders:
            try:
                for flag in map(_flag, (*entry.options, *contender.options)):
                    if flag in _NO_SETTINGS:
                        raise UsageError(f"{flag} is no option of a world or a row: {_NO_SETTINGS[flag]}")
                command = parse(training_words(entry, contender, options))
            except ValueError as error:  # also a UsageError
                raise UsageError(f"{contender.name} in {entry.title}: {error}") from None
            assert isinstance(command, Train)
            assert isinstance(command.world, World)
            name = folder_name(entry, contender)
            found.append(Cell(entry.title, contender.name, command.world, command.config, name))
    return found
