"""The paper's comparison of bonuses: agents in several worlds, which learn by the same algorithm and in as many steps.

Every contender is trained by `elden train` in a process of its own, several at a time where one device can bear it.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from elden.data.folder import METRICS, SUMMARY, write_json, write_text
from elden.data.plain import plain
from elden.dynamics.runs import Deadline
from elden.provenance import provenance
from elden.studies.processes import Job, run_jobs, sharing
from elden.studies.results import slug
from elden.training.run import Training
from elden.viewing import Line, Table, bonus_curves, format_value, markdown_table, running_mean, save, stage_bars

COMPARED = ("elden", "disagreement", "curiosity", "cai", "none")
"""The bonuses that the paper compares."""

SOLVED = 0.95
"""Success over solvable layouts from which on an agent has solved a world."""

_FROM_SUMMARY = ("steps_per_s", "compile_s", "wall_s", "command", "code", "device", "date")
_MEASURED = ("success_solvable", "steps_to_solve", "stages", "env_steps", "finished")
_GIVEN = ("world", "contender", "training", "curve")
_SUCCESS, _STAGES, _STAGE = "episode/success_solvable", "episode/normalized_stage", "stage/"


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
class Agents:
    """How the agents of one contender learnt in one world.

    Attributes:
        world: The world.
        contender: Name of the contender.
        config: All settings of the training.
        summary: The training's own summary; empty where it has not come to its end.
        steps: Steps that each agent had taken at the end of each rollout.
        success: Success over solvable layouts in each rollout; NaN where no such episode ended.
        stages: Share of stages reached.
        by_stage: How often each stage was reached in the last tenth of the training.
        went_on: The steps that were taken in truth, where only a part of them is looked at.
        notes: What else is to be known of the row.
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

    @classmethod
    def read(cls, folder: Path, contender: str) -> "Agents":
        """From the folder of a training that has begun."""
        training = Training.open(folder)
        lines = list(training.folder.metrics())
        steps = np.array([line["step"] for line in lines])

        def values(name: str) -> Float[np.ndarray, "time agent"]:
            rows = [[np.nan if value is None else value for value in line[name]] for line in lines]
            return np.array(rows, float)

        last = steps > 0.9 * steps[-1]
        names = [name for name in lines[0] if name.startswith(_STAGE)]
        return cls(
            world=training.world.name,
            contender=contender,
            config=plain(training.config),  # type: ignore[arg-type]
            summary=training.folder.read_summary() if training.finished else {},
            steps=steps,
            success=values(_SUCCESS),
            stages=values(_STAGES),
            by_stage={
                stage: np.nanmean(values(f"{_STAGE}{stage}")[last], axis=0)
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
        return float(np.nanmean(self.stages[self.steps > 0.9 * self.steps[-1]]))

    @property
    def final(self) -> Float[np.ndarray, " agent"]:
        """Success over solvable layouts in the last tenth of the steps."""
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
            "training": self.config,
            "curve": {"steps": self.steps, "success_solvable": self.success, "normalized_stage": self.stages},
        }


def compare(
    worlds: Sequence[str],
    contenders: Sequence[Contender],
    out: Path,
    options: Sequence[str] = (),
    *,
    at_once: int = 1,
    deadline: Deadline = Deadline(),  # noqa: B008 (frozen)
    look: Callable[[Sequence[str]], None] | None = None,
    command: str | None = None,
) -> tuple[list[Agents], dict[str, int | None]]:
    """Train every contender in every world, and write tables and figures of all that have begun.

    Args:
        worlds: The worlds by name.
        contenders: What to compare.
        out: Folder for all of it; each training has its own in it. What is finished there is not done again.
        options: Words of `elden train` that all of them have.
        at_once: How many are trained at the same time.
        deadline: When to stop; the same call goes on.
        look: Called again and again with the names of those that are trained.
        command: Command line for the records.

    Returns:
        How those have learnt that have begun, and the exit codes of those that are not finished; None where one has no
        exit code of this call.
    """
    folders = {f"{world}-{slug(each.name)}": (world, each) for world in worlds for each in contenders}
    jobs = [
        Job(name, (sys.executable, "-m", "elden.cli", *training_words(world, each, out, options)))
        for name, (world, each) in folders.items()
        if not _finished(out / name)
    ]
    with sharing() if min(at_once, len(jobs)) > 1 else nullcontext():
        codes = run_jobs(jobs, out / "logs", at_once, deadline, look)
    left = {name: codes.get(name) for name in folders if not _finished(out / name)}
    agents = [Agents.read(out / name, each.name) for name, (_, each) in folders.items() if _begun(out / name)]
    if agents:
        report(agents, out, command)
    return agents, left


def training_words(world: str, contender: Contender, out: Path, options: Sequence[str]) -> list[str]:
    """The words of `elden` that train a contender in a world."""
    folder = out / f"{world}-{slug(contender.name)}"
    return ["train", world, *options, *contender.options, "--out", str(folder)]


def _finished(folder: Path) -> bool:
    return (folder / SUMMARY).exists()


def _begun(folder: Path) -> bool:
    file = folder / METRICS
    return file.exists() and file.stat().st_size > 0


def report(agents: Sequence[Agents], out: Path, command: str | None = None, note: str | None = None) -> list[Table]:
    """Write table.md, table.json, curves.png and stages.png; the tables, one for each world."""
    worlds = list(dict.fromkeys(each.world for each in agents))
    tables = [comparison([each for each in agents if each.world == world]) for world in worlds]
    origin = {**provenance(command), **({} if note is None else {"note": note})}
    words = (
        f"*Solved* counts agents whose success over solvable layouts was at least {SOLVED:.0%} in the last tenth of the"
        " training; *steps to solve* is the median over all agents of the steps after which the mean of their success"
        " over four rollouts first was there, those that never were counted as the slowest.\n\n"
        f"Made by `{origin['command']}`, {origin['date']}."
    )
    devices = dict.fromkeys(str(each.summary["device"]) for each in agents if each.summary)
    if devices:
        words = f"{words} Trained on {' and '.join(devices)}."
    if not all(each.whole for each in agents):
        words = f"{words} What has not come to its end is shown as far as it has."
    for each in agents:
        if each.went_on is not None:
            words = f"{words} {each.contender} went on until step {each.went_on:,}, of which only stages.png is."
    if note is not None:
        words = f"{words}\n\n{note}"
    write_text(out / "table.md", "\n\n".join([*map(markdown_table, tables), words]) + "\n")
    write_json(out / "table.json", {"kind": "exploration", "provenance": origin, "rows": [a.numbers() for a in agents]})
    lines = [Line(a.world, a.contender, a.steps, running_mean(a.success)) for a in agents]
    save(bonus_curves(lines, "Success over solvable layouts"), out / "curves.png")
    save(stage_bars({(a.world, a.contender): a.by_stage for a in agents}, "How far agents come"), out / "stages.png")
    return tables


def comparison(agents: Sequence[Agents]) -> Table:
    """The contenders in one world."""
    rows, longest = [], max(int(each.steps[-1]) for each in agents)
    for each in agents:
        final, to = each.final, each.steps_to(SOLVED)
        last = int(each.steps[-1])
        median = float(np.median(np.where(np.isfinite(to), to, np.inf)))
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
