"""`elden compare`: agents with different bonuses beside each other, as the paper's learning curves have them."""

import json
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from elden.bonuses import BONUSES
from elden.cli.console import make_console
from elden.cli.detect import refusals
from elden.cli.errors import BROKEN, STOPPED, UsageError, check_range
from elden.cli.grid import Contender, WorldEntry, cells, folder_name
from elden.cli.running import stopping
from elden.cli.worlds import shown_as
from elden.names import nearest_names
from elden.storage.files import refuse_links
from elden.storage.resumable import Deadline
from elden.studies.exploration import COMPARED, compare, comparison, has_begun
from elden.studies.results import slug
from elden.training.presets import TrainingPreset
from elden.viewing import rich_table
from elden.worlds.registry import WORLDS

_LINE_EVERY_S = 10.0
_TAIL = 200_000
"""Bytes at the end of a file of metrics that hold its last whole line."""
_GRIDS = ("thawing", "carwash", "minecraft")


@dataclass(frozen=True)
class Compare:
    """Train agents with several bonuses in several worlds, and compare how they learn."""

    worlds: Annotated[tuple[str, ...], tyro.conf.arg(metavar=f"{{{','.join(WORLDS)}}} [...]")] = _GRIDS
    """In which worlds. Each may have options of `elden train` and a name for its column, in quotes: "chain --depth 6",
    "hard chain=chain --depth 8 --steps 4000000"."""
    bonuses: Annotated[tuple[str, ...], tyro.conf.arg(metavar=f"{{{','.join(BONUSES)}}} [...]")] = COMPARED
    """Which bonuses; all have the same agent, the same settings and as many steps."""
    variants: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=OPTIONS [...]")] = ()
    """More rows, each with options of `elden train` that make it differ, such as "no gate=--bonus.gate.kind none"."""
    preset: TrainingPreset = "plus"
    """The settings of all of them: the paper's, or ours."""
    seeds: int = 5
    """Agents of each."""
    seed: int = 0
    """Seed of the first."""
    steps: Annotated[int | None, shown_as("INT", "the preset's")] = None
    """Steps of each agent."""
    iterations_per_call: int = 1
    """Rollouts made by one call of the compiled program, at most: a call takes no more than about a minute."""
    jobs: int = 1
    """Training runs at the same time. On a GPU several take hardly longer than one; a CPU is busy with one."""
    time_limit_s: Annotated[float | None, shown_as("SECONDS", "none")] = None
    """Stop after so many seconds and keep what was done, with exit code 75; the same command then continues."""
    report_only: bool = False
    """Train nothing; write the tables and figures of what is there, also of training runs that have not finished. The
    worlds and bonuses are to be named as for training."""
    out: Annotated[Path | None, shown_as("PATH", "runs/compare-PRESET")] = None
    """Folder for tables and figures, with a run folder for each training run in it."""

    def __post_init__(self) -> None:
        """Check the values."""
        for name in self.bonuses:
            if name not in BONUSES:
                raise UsageError(f"--bonuses {name} given; {nearest_names(name.lower(), BONUSES)}")
        entries, contenders = self.entries, self.contenders
        if not entries or not contenders:
            raise UsageError("nothing to compare: --worlds and one of --bonuses and --variants need a name")
        for option, names in (
            ("worlds", [entry.title for entry in entries]),
            ("worlds", [entry.slug for entry in entries]),
            ("bonuses and --variants", [slug(contender.name) for contender in contenders]),
            ("worlds, --bonuses and --variants", [folder_name(one, each) for one in entries for each in contenders]),
        ):
            if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
                raise UsageError(f"--{option} name something twice: {', '.join(twice)}")
        check_range("seeds", self.seeds, 1, 1000)
        check_range("seed", self.seed, 0, 2**31 - 1)
        check_range("iterations-per-call", self.iterations_per_call, 1, 1_000_000)
        check_range("jobs", self.jobs, 1, 1000)
        for option, value in (("steps", self.steps), ("time-limit-s", self.time_limit_s)):
            if value is not None:
                check_range(option, value, 1, 1e12)

    @property
    def entries(self) -> tuple[WorldEntry, ...]:
        """The columns."""
        try:
            return tuple(map(WorldEntry.parse, self.worlds))
        except ValueError as error:
            raise UsageError(f"--worlds {error}") from None

    @property
    def contenders(self) -> tuple[Contender, ...]:
        """The rows."""
        return (*map(Contender.bonus, self.bonuses), *map(_variant, self.variants))

    @property
    def options(self) -> list[str]:
        """What all training runs are given, each option with its value."""
        words = ["--preset", self.preset, "--seeds", str(self.seeds), "--seed", str(self.seed)]
        return words if self.steps is None else [*words, "--steps", str(self.steps)]

    def run(self, command_line: str) -> None:
        """Train what is not trained yet, and print the tables."""
        console = make_console()
        out = Path("runs") / f"compare-{self.preset}" if self.out is None else self.out
        with stopping(console), refusals(out):
            if self.report_only and not out.is_dir():
                raise UsageError(f"there is no folder {out}")
            refuse_links(out)
            agents, left = compare(
                cells(self.entries, self.contenders, self.options),
                out,
                iterations_per_call=self.iterations_per_call,
                at_once=self.jobs,
                deadline=Deadline.after(0.0 if self.report_only else self.time_limit_s),
                look=_Look(console, out),
                command=command_line,
            )
        for world in dict.fromkeys(each.world for each in agents):
            console.print(rich_table(comparison([each for each in agents if each.world == world])))
        if self.report_only and not agents:
            here = ", ".join(sorted(folder.parent.name for folder in out.glob("*/metrics.jsonl"))) or "none"
            raise UsageError(
                f"--report-only given, and no training run of this comparison has begun in {out}; give the --worlds,"
                f" --bonuses and --variants of those that are there: {here}"
            )
        if self.report_only and (missing := [name for name in left if not has_begun(out / name)]):
            console.print(f"not begun: {', '.join(missing)}", markup=False)
        broken = [name for name, code in left.items() if code not in (STOPPED, None)]
        if broken:
            console.print(f"failed: {', '.join(broken)}; see {out / 'logs'}")
            raise SystemExit(BROKEN)
        if left and not self.report_only:
            console.print(
                f"the time limit is over; {len(left)} are not finished, and the same command continues with them"
            )
            raise SystemExit(STOPPED)
        for name in ("table.md", "map.md", "map.png", "curves.png", "stages.png"):
            console.print(str(out / name))


def _variant(words: str) -> Contender:
    name, equals, options = words.partition("=")
    if not name.strip() or not equals or not options.strip():
        raise UsageError(
            f'--variants {words!r} given; write a name and options, such as "no gate=--bonus.gate.kind none"'
        )
    try:
        return Contender(name.strip(), tuple(shlex.split(options)))
    except ValueError as error:
        raise UsageError(f"--variants {words!r} given; it cannot be read: {error}") from None


class _Look:
    """Every now and then a line for each training run in progress, with the end of its metrics."""

    def __init__(self, console: Console, out: Path) -> None:
        self.console, self.out = console, out
        self.printed_s, self.running = time.monotonic(), set[str]()

    def __call__(self, running: Sequence[str]) -> None:
        for name in self.running - set(running):
            self.console.print(f"{name}: ended")
        for name in running:
            if name not in self.running:
                self.console.print(f"{name}: begins")
        self.running = set(running)
        if time.monotonic() - self.printed_s >= _LINE_EVERY_S:
            self.printed_s = time.monotonic()
            for name in running:
                self.console.print(f"{name}: {_last(self.out / name / 'metrics.jsonl')}")


def _last(file: Path) -> str:
    """Where a training stands, from the last whole line of its metrics."""
    if not file.exists():
        return "compiling"
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - _TAIL))
        lines = stream.read().splitlines()
    for line in reversed(lines[-2:]):
        try:
            values = json.loads(line)
        except ValueError:
            continue  # not written to its end
        success = [value for value in values.get("episode/success_solvable", ()) if value is not None]
        mean = f", success {sum(success) / len(success):.2f}" if success else ""
        return f"step {values['step']:,}{mean}"
    return "compiling"
