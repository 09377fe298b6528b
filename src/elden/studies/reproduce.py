"""The paper's Tables 1 and 2: the study of detectors in several worlds, beside the paper's numbers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from elden.names import nearest_names
from elden.provenance import provenance
from elden.storage.files import write_json, write_text
from elden.storage.plain import plain
from elden.storage.resumable import Deadline
from elden.studies.config import DetectConfig, GraphGranularity, Row, in_words, method_rows
from elden.studies.detection import Progress, detect
from elden.studies.paper import METRICS, TABLE_2, paper_cells, paper_points, row_name
from elden.studies.presets import detection_preset
from elden.studies.results import Detection
from elden.studies.tables import cells_of, comparison_table, detection_tables, granularity_words, rule_cells
from elden.viewing import Cell, LambdaPoint, Table, lambda_curve, markdown_table, method_bars, save
from elden.worlds.registry import make

Name: TypeAlias = Literal["table1", "table2"]

_TITLES: Mapping[Name, str] = {
    "table1": "Table 1: detection of local dependencies",
    "table2": "Table 2: mixup and derivative penalty",
}


TABLES: Mapping[str, Name] = {name: name for name in _TITLES}
"""The tables by name."""


@dataclass(frozen=True)
class Reproduction:
    """A table of the paper, made again.

    Attributes:
        name: Which table.
        preset: With which settings.
        changes: Settings that differ from the preset's.
        detections: What was measured, a world each.
    """

    name: Name
    preset: str
    changes: Mapping[str, object]
    detections: tuple[Detection, ...]

    @property
    def settings(self) -> str:
        """The settings in words: the preset, and what differs from it; the methods are the rows."""
        changed = ", ".join(f"{name}={in_words(value)}" for name, value in self.changes.items() if name != "methods")
        return f"preset {self.preset}" + (f" with {changed}" if changed else "")

    @property
    def granularity(self) -> GraphGranularity:
        """The granularity of the table."""
        return self.detections[0].config.main_granularity

    @property
    def paper(self) -> list[Cell]:
        """The paper's numbers, under the names of our rows."""
        if self.name == "table1":
            return paper_cells()
        return [Cell(p.world, row_name(p.coefficient), p.metric, p.mean, p.error) for p in paper_points()]

    def table(self, granularity: GraphGranularity | None = None, worlds: Sequence[str] | None = None) -> Table:
        """Our numbers beside the paper's, at one granularity and in these worlds; None takes the first, and all."""
        granularity = self.granularity if granularity is None else granularity
        chosen = [one for one in self.detections if worlds is None or one.world.name in worlds]
        title = f"{_TITLES[self.name]}, {granularity_words(granularity)} ({self.settings}, mean ± standard error)"
        ours = cells_of(chosen, granularity) + rule_cells(chosen, granularity)
        return comparison_table(ours, self.paper, title)

    def points(self) -> list[LambdaPoint]:
        """The numbers of Table 2 by λ."""
        coefficients = {row_name(coefficient): coefficient for coefficient in TABLE_2}
        cells = cells_of(self.detections, self.granularity)
        return [LambdaPoint(c.world, coefficients[c.method], c.metric, c.mean, c.error) for c in cells]

    def granularities(self) -> list[GraphGranularity]:
        """Every granularity that was measured in some world, the table's own first."""
        return list(dict.fromkeys(granularity for one in self.detections for granularity in one.config.granularities))


def reproduce(
    name: str,
    preset_name: str,
    worlds: Sequence[str],
    out: Path,
    changes: Mapping[str, object] | None = None,
    *,
    models: Path | None = None,
    deadline: Deadline = Deadline(),  # noqa: B008 (frozen)
    progress: Callable[[str, str, int, int], None] | None = None,
    command: str | None = None,
    figures: bool = True,
) -> Reproduction:
    """Make a table of the paper again.

    Args:
        name: Which table.
        preset_name: With which settings.
        worlds: In which worlds, by name.
        out: Folder for the table, with a run folder for each world in it. What is already there is not done again.
        changes: Settings that differ from the preset's, by name.
        models: Where models are kept, which other studies can share; None takes the folder `models` in `out`.
        deadline: When to stop.
        progress: Told the world, and what is going on there.
        command: Command line for the records.
        figures: Whether figures are drawn.

    Raises:
        OutOfTimeError: The deadline has passed; call again to continue.
        ValueError: A world or a setting that does not exist, or a folder of another run.
    """
    if name not in TABLES:
        raise ValueError(f"no table {name!r}; {nearest_names(name, TABLES)}")
    table = TABLES[name]
    plans = []
    for world in worlds:
        made = make(world)
        config = detection_preset(preset_name, world, made.factors.continuous).changed(**(changes or {}))
        config = config if table == "table1" else config.changed(methods=("gradient",))
        plans.append((made, config, table_rows(table, config)))
    detections = tuple(
        detect(
            world,
            config,
            rows,
            folder=out / world.name,
            models=out / "models" if models is None else models,
            deadline=deadline,
            progress=_of_world(progress, world.name),
            command=command,
            figures=figures,
        )
        for world, config, rows in plans
    )
    reproduction = Reproduction(table, preset_name, changes or {}, detections)
    _write(reproduction, out, command, figures)
    return reproduction


def table_rows(name: Name, config: DetectConfig) -> tuple[Row, ...]:
    """The rows of a table: methods, or values of λ for `gradient`.

    Where the config has no mixup at all, the row without mixup would be the same as λ = 0 and is left out.
    """
    if name == "table1":
        return method_rows(config)
    rows = []
    for coefficient in TABLE_2:
        mixup = 0.0 if coefficient is None else config.train.mixup
        if coefficient is not None or config.train.mixup > 0:
            rows.append(Row(row_name(coefficient), method_rows(config)[0].detector, coefficient or 0.0, mixup))
    return tuple(rows)


def _of_world(progress: Callable[[str, str, int, int], None] | None, world: str) -> Progress | None:
    return None if progress is None else lambda what, done, total: progress(world, what, done, total)


def _write(reproduction: Reproduction, out: Path, command: str | None, figures: bool) -> None:
    """table.md, table.json and the figure."""
    origin = provenance(command)
    costs = reproduction.name == "table1"  # table 2 has one detector, and so one cost
    parts = [markdown_table(reproduction.table(granularity)) for granularity in reproduction.granularities()]
    for detection in reproduction.detections:
        parts += map(markdown_table, detection_tables(detection))
    parts.append(
        "The first tables count all edges, those from a node to itself included, as the paper does. Rows in brackets"
        " are rules that need no model, and what a detector must beat: self-edges and nothing else, and these with"
        " every edge into an entity that changed; bold is the best detector. *best F1*, and F1 in the first tables, has"
        " the threshold that suits the measured episodes best, *automatic F1* one from unlabelled training data"
        + ("; *cost* is the time for one transition over that of `gradient`.\n\n" if costs else ".\n\n")
        + f"Made by `{origin['command']}` on {origin['device']}, {origin['date']}."
    )
    write_text(out / "table.md", "\n\n".join(parts) + "\n")
    content = {
        "kind": reproduction.name,
        "preset": reproduction.preset,
        "changes": dict(reproduction.changes),
        "level": reproduction.granularity,
        "ours": {
            granularity: cells_of(reproduction.detections, granularity) for granularity in reproduction.granularities()
        },
        "paper": reproduction.paper,
        "worlds": {one.world.name: one.summary() for one in reproduction.detections},
        "configs": {one.world.name: plain(one.config) for one in reproduction.detections},
        "provenance": origin,
    }
    write_json(out / "table.json", content)
    if figures:
        _draw(reproduction, out)


def _draw(reproduction: Reproduction, out: Path) -> None:
    title = f"{_TITLES[reproduction.name]} ({granularity_words(reproduction.granularity)}, {reproduction.settings})"
    if reproduction.name == "table1":
        cells = cells_of(reproduction.detections, reproduction.granularity)
        cells += rule_cells(reproduction.detections, reproduction.granularity)
        save(method_bars(cells, reproduction.paper, METRICS, title), out / "method_bars.png")
    else:
        save(lambda_curve(reproduction.points(), paper_points(), METRICS, title), out / "lambda_curve.png")
