"""The paper's comparison of bonuses: agents in several worlds, which learn by the same algorithm and in as many steps.

A comparison is a grid: a row for each contender (a bonus, or a variant of one) and a column for each world with its
options. Every cell is trained in a run folder of its own, so that the same call continues a grid that was stopped, also
from a copy of its folder on another machine.

Every cell is a process of its own, several at a time where one device can bear it. What it trains is in its run folder,
so the process gets no more than the folder: it is `elden resume`.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from elden.provenance import provenance
from elden.storage.files import write_json, write_text
from elden.storage.folder import METRICS, SUMMARY, RunFolder, RunFolderError, check_same, read_config
from elden.storage.plain import plain
from elden.storage.resumable import Deadline
from elden.studies.intervals import censored_median, exact_interval
from elden.studies.processes import Job, run_jobs, sharing
from elden.studies.results import slug
from elden.training.config import TrainingConfig
from elden.training.run import TrainingRun
from elden.viewing import (
    Line,
    MapCell,
    Table,
    bonus_curves,
    format_value,
    map_table,
    markdown_table,
    running_mean,
    save,
    solve_map,
    stage_bars,
)
from elden.worlds.base import World
from elden.worlds.registry import make

if TYPE_CHECKING:
    import matplotlib.figure

COMPARED = ("elden", "disagreement", "curiosity", "cai", "none")
"""The bonuses that the paper compares."""

SOLVED = 0.95
"""Success over solvable initial states from which on an agent has solved a world."""

_FROM_SUMMARY = ("steps_per_s", "compile_s", "wall_s", "command", "code", "device", "date")
_MEASURED = ("success_solvable", "steps_to_solve", "stages", "env_steps", "finished")
_GIVEN = ("world", "contender", "world_card", "training", "curve")
_MAP = "Which bonus solves which world"
_MAP_WORDS = (
    "Each cell: agents that solve the world, of all agents; the exact (Clopper–Pearson) 95 % interval of that share;"
    " the censored median of the steps to solve, which is more than the steps trained (> N) where fewer than half of"
    " the agents got there."
)
_SUCCESS, _STAGES, _STAGE = "episode/success_solvable", "episode/normalized_stage", "stage/"


@dataclass(frozen=True)
class Cell:
    """One training run of a comparison.

    Attributes:
        column: What to call its world in tables and figures.
        row: What to call its bonus there.
        world: Where agents act.
        training: How they learn.
        name: Name of its run folder; "" names it by column and row.
    """

    column: str
    row: str
    world: World
    training: TrainingConfig
    name: str = ""

    @property
    def folder(self) -> str:
        """Name of its run folder."""
        return self.name or f"{slug(self.column)}-{slug(self.row)}"

    @property
    def identity(self) -> dict[str, object]:
        """Everything that decides its results, as its folder has it."""
        return TrainingRun.identity(self.world, self.training)


@dataclass(frozen=True)
class Agents:
    """How the agents of one contender learnt in one world.

    Attributes:
        world: Title of the world with its options.
        contender: Name of the contender.
        config: All settings of the training.
        summary: The training's own summary; empty where it has not finished.
        steps: Steps that each agent had taken at the end of each rollout.
        success: Success over solvable initial states in each rollout; NaN where no such episode ended.
        stages: Share of stages reached.
        by_stage: How often each stage was reached in the last tenth of the training.
        went_on: The steps that were taken in truth, where only a part of them is looked at.
        notes: What else is to be known of the row.
        card: Name and options of the world; empty in rows of older tables.
    """

    world: str
    contender: str
    config: Mapping[str, Any]
    summary: Mapping[str, Any]
    steps: Int[np.ndarray, " time"]
    success: Float[np.ndarray, "time agent"]
    stages: Float[np.ndarray, "time agent"]
    by_stage: Mapping[str, Float[np.ndarray, " agent"]]
    went_on: int | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    card: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path, contender: str, title: str | None = None) -> "Agents":
        """From the folder of a training run that has begun; without a title the world is called by its name."""
        training = TrainingRun.open(folder)
        lines = training.metrics()
        if not lines:
            raise RunFolderError(f"{folder} has no metrics of a whole rollout yet")
        steps = np.array([line["step"] for line in lines])

        def values(name: str) -> Float[np.ndarray, "time agent"]:
            missing = [None] * training.config.seeds  # where a line was damaged, of which there was a warning
            rows = [[np.nan if value is None else value for value in line.get(name, missing)] for line in lines]
            return np.array(rows, float)

        last = steps > 0.9 * steps[-1]
        names = [name for name in lines[0] if name.startswith(_STAGE)]
        return cls(
            world=training.world.name if title is None else title,
            contender=contender,
            card=read_config(folder)["world"],
            config=plain(training.config),  # type: ignore[arg-type]
            summary=training.summary() if training.finished else {},
            steps=steps,
            success=values(_SUCCESS),
            stages=values(_STAGES),
            by_stage={
                stage: _means(values(f"{_STAGE}{stage}")[last])
                for stage in training.world.stage_names
                if f"{_STAGE}{stage}" in names
            },
        )

    @classmethod
    def load(cls, row: Mapping[str, Any]) -> "Agents":
        """From a row of a `table.json`: what `numbers` has made."""

        def values(rows: Sequence[Any]) -> Float[np.ndarray, "..."]:
            return np.array(rows, float)  # null, where there was no number, becomes NaN

        own = (*_GIVEN, *_MEASURED, *_FROM_SUMMARY, "went_on")
        summary = {name: row.get(name) for name in _FROM_SUMMARY if row.get(name) is not None}
        return cls(
            world=row["world"],
            contender=row["contender"],
            card=row.get("world_card", {}),
            config=row["training"],
            summary=summary if row["finished"] else {},
            steps=np.array(row["curve"]["steps"]),
            success=values(row["curve"]["success_solvable"]),
            stages=values(row["curve"]["normalized_stage"]),
            by_stage={stage: values(rates) for stage, rates in row["stages"].items()},
            went_on=row.get("went_on"),
            notes={name: value for name, value in row.items() if name not in own}
            | ({} if row["finished"] else summary),
        )

    def until(self, steps: int) -> "Agents":
        """The part of the training up to a step, which must have been taken.

        How often single stages were reached there is not known: these stay those of the training's end.

        Raises:
            ValueError: There is no rollout before that step.
        """
        if self.steps[-1] <= steps:
            return self
        kept = self.steps <= steps
        if not kept.any():
            raise ValueError(f"steps={steps} given, but the first rollout of {self.contender} ends at {self.steps[0]}")
        return replace(
            self,
            steps=self.steps[kept],
            success=self.success[kept],
            stages=self.stages[kept],
            went_on=self.went_on or int(self.steps[-1]),
        )

    @property
    def whole(self) -> bool:
        """Whether all steps were taken that are looked at."""
        return bool(self.summary) or self.went_on is not None

    @property
    def stages_reached(self) -> float:
        """Share of stages reached in the last tenth of the steps, over all agents."""
        late = self.stages[self.steps > 0.9 * self.steps[-1]]
        return float(_means(late.reshape(-1, 1))[0])

    @property
    def final(self) -> Float[np.ndarray, " agent"]:
        """Success over solvable initial states in the last tenth of the steps."""
        late = self.success[self.steps > 0.9 * self.steps[-1]]
        ended = np.isfinite(late).any(0)
        return np.where(ended, np.nanmean(np.where(ended, late, 0.0), axis=0), 0.0)

    def steps_to(self, level: float) -> Float[np.ndarray, " agent"]:
        """Steps after which the running mean of each agent's success first was at a level; NaN where it never was."""
        above = running_mean(self.success) >= level
        return np.where(above.any(0), self.steps[above.argmax(0)], np.nan)

    def numbers(self) -> dict[str, object]:
        """All that the table shows, and what it is made of."""
        return {
            "world": self.world,
            "contender": self.contender,
            "success_solvable": self.final,
            "steps_to_solve": self.steps_to(SOLVED),
            "stages": dict(self.by_stage),
            "env_steps": int(self.steps[-1]),
            "finished": bool(self.summary),
            **({} if self.went_on is None else {"went_on": self.went_on}),
            **{name: self.summary.get(name) for name in _FROM_SUMMARY},
            **self.notes,
            **({"world_card": self.card} if self.card else {}),
            "training": self.config,
            "curve": {"steps": self.steps, "success_solvable": self.success, "normalized_stage": self.stages},
        }


def _means(values: Float[np.ndarray, "time agent"]) -> Float[np.ndarray, " agent"]:
    """Means over time of what is known; NaN where nothing is, as in a short training in which no episode has ended."""
    known = np.isfinite(values)
    number = known.sum(0)
    return np.where(number > 0, np.where(known, values, 0.0).sum(0) / np.maximum(number, 1), np.nan)


def compare(
    cells: Sequence[Cell],
    out: Path,
    *,
    iterations_per_call: int = 1,
    at_once: int = 1,
    deadline: Deadline = Deadline(),  # noqa: B008 (frozen)
    look: Callable[[Sequence[str]], None] | None = None,
    command: str | None = None,
) -> tuple[list[Agents], dict[str, int | None]]:
    """Train every cell, and write tables and figures of all that have begun.

    Args:
        cells: What to compare, column by column.
        out: Folder for all of it; each training run has its own in it. What is finished there is not done again.
        iterations_per_call: Rollouts made by one call of a compiled program, at most.
        at_once: How many are trained at the same time.
        deadline: When to stop; the same call continues.
        look: Called again and again with the names of those that are trained.
        command: Command line for the records.

    Returns:
        How those have learnt that have begun, and the exit codes of those that are not finished; None where one has no
        exit code of this call.

    Raises:
        ValueError: Two cells have the same folder.
        RunFolderError: A folder holds another training run.
    """
    names = [cell.folder for cell in cells]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two cells have the folder {twice[0]!r}; give their columns or rows other names")
    for cell in cells:  # all, before any is made
        if type(cell.world) is not type(make(cell.world.name)):
            raise ValueError(
                f"{cell.column!r} is a world of your own; only those that elden.make knows can be compared,"
                " since each is made again in another process"
            )
        check_same(out / cell.folder, cell.identity)
    left = [cell for cell in cells if not _finished(out / cell.folder)]
    if not deadline.over:
        for cell in left:  # its folder has all that the process needs
            RunFolder(out / cell.folder, cell.identity)
    resume = (sys.executable, "-m", "elden", "resume")
    calls = ("--iterations-per-call", str(iterations_per_call))
    jobs = [Job(cell.folder, (*resume, str(out / cell.folder), *calls)) for cell in left]
    with sharing() if min(at_once, len(jobs)) > 1 else nullcontext():
        codes = run_jobs(jobs, out / "logs", at_once, deadline, look)
    agents = [Agents.read(out / cell.folder, cell.row, cell.column) for cell in cells if has_begun(out / cell.folder)]
    if agents:
        report(agents, out, command)
    return agents, {cell.folder: codes.get(cell.folder) for cell in left if not _finished(out / cell.folder)}


def _finished(folder: Path) -> bool:
    return (folder / SUMMARY).exists()


def has_begun(folder: Path) -> bool:
    """Whether a first line of metrics is there, written to its end."""
    file = folder / METRICS
    return file.exists() and b"\n" in file.read_bytes()


def report(agents: Sequence[Agents], out: Path, command: str | None = None, note: str | None = None) -> list[Table]:
    """Write table.md, table.json, map.md, map.png, curves.png and stages.png; the tables, one for each world."""
    worlds = list(dict.fromkeys(each.world for each in agents))
    tables = [comparison([each for each in agents if each.world == world]) for world in worlds]
    cells = [map_cell(each) for each in agents]
    origin = {**provenance(command), **({} if note is None else {"note": note})}
    words = _words_below(agents, f"Made by `{origin['command']}`, {origin['date']}.", note)
    write_text(out / "table.md", "\n\n".join([*map(markdown_table, tables), words]) + "\n")
    write_text(out / "map.md", "\n\n".join([markdown_table(map_table(cells, _MAP)), _MAP_WORDS, words]) + "\n")
    numbers = {"rows": [each.numbers() for each in agents], "map": [cell.numbers() for cell in cells]}
    write_json(out / "table.json", {"kind": "exploration", "provenance": origin, **numbers})
    save(solve_map(cells, _MAP, SOLVED), out / "map.png")
    save(curves(agents), out / "curves.png")
    save(stage_bars({(a.world, a.contender): a.by_stage for a in agents}, "How far agents come"), out / "stages.png")
    return tables


def curves(agents: Sequence[Agents]) -> "matplotlib.figure.Figure":
    """Learning curves of all of them, a panel for each world."""
    lines = [Line(each.world, each.contender, each.steps, running_mean(each.success)) for each in agents]
    return bonus_curves(lines, "Success over solvable initial states")


def _words_below(agents: Sequence[Agents], made: str, note: str | None) -> str:
    """What a reader of the tables must know: what the columns mean, and where the numbers are from."""
    words = (
        f"*Solved* counts agents whose success over solvable initial states was at least {SOLVED:.0%} in the last tenth"
        " of the training; *steps to solve* is the median over all agents of the steps after which the mean of their"
        " success over four rollouts first was there, those that never were counted as the slowest; it is known"
        f" where half of the agents were.\n\n{made}"
    )
    devices = dict.fromkeys(str(each.summary["device"]) for each in agents if each.summary)
    if devices:
        words = f"{words} Trained on {' and '.join(devices)}."
    if not all(each.whole for each in agents):
        words = f"{words} What has not finished is shown as far as it has."
    for each in agents:
        if each.went_on is not None:
            words = f"{words} {each.contender} went on until step {each.went_on:,}, of which only stages.png is."
    return words if note is None else f"{words}\n\n{note}"


def map_cell(agents: Agents) -> MapCell:
    """How many agents solve their world, and after how many steps."""
    solved, number = int((agents.final >= SOLVED).sum()), len(agents.final)
    return MapCell(
        agents.world,
        agents.contender,
        solved,
        number,
        exact_interval(solved, number),
        censored_median(agents.steps_to(SOLVED)),
        int(agents.steps[-1]),
        agents.whole,
    )


def comparison(agents: Sequence[Agents]) -> Table:
    """The contenders in one world."""
    rows, longest = [], max(int(each.steps[-1]) for each in agents)
    for each in agents:
        final, to = each.final, each.steps_to(SOLVED)
        last = int(each.steps[-1])
        median = censored_median(to)
        rows.append(
            (
                each.contender + (f" (until step {last:,})" if last < longest or not each.whole else ""),
                f"{int((final >= SOLVED).sum())} of {len(final)}",
                format_value(float(final.mean()), digits=2),
                format_value(float(final.min()), digits=2),
                f"{median:,.0f}" if np.isfinite(median) else "never" if each.whole else "not yet",
                format_value(each.stages_reached, digits=2),
            )
        )
    most = max(row[2] for row in rows)
    bold = frozenset((place, 2) for place, row in enumerate(rows) if row[2] == most)
    title = f"{agents[0].world}, {longest:,} steps of each agent"
    columns = ("bonus", "solved", "success, mean", "worst agent", "steps to solve", "stages reached")
    return Table(title, columns, tuple(rows), bold)
