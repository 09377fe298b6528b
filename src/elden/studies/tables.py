"""The numbers of a study as tables: of one world, and beside the paper's of several."""

import math
from collections.abc import Mapping, Sequence

from elden.studies.config import Level
from elden.studies.paper import METRICS
from elden.studies.results import Detection
from elden.viewing import Cell, Table, format_value

_WORDS: Mapping[Level, str] = {
    "entity": "between entities",
    "variable": "between variables",
    "variable-from-entity": "from entities to variables",
}


_MEASURES: Mapping[str, str] = {
    "roc_auc": "ROC-AUC",
    "f1": "best F1",
    "auto_f1": "automatic F1",
    "roc_auc_between": "ROC-AUC, others",
    "f1_between": "best F1, others",
    "auto_f1_between": "automatic F1, others",
}
"""Columns; *others* are the edges between different nodes."""


def detection_table(detection: Detection, level: Level | None = None) -> Table:
    """One row for each method: mean ± standard error over seeds.

    Args:
        detection: The results.
        level: At which granularity; None takes the first.
    """
    level = detection.config.level if level is None else level
    columns = ("method", *_MEASURES.values(), "cost")
    rows = []
    for result in detection.rows:
        numbers = result.statistics(level)
        rows.append(
            (
                result.row.name,
                *(format_value(*numbers[name], digits=3) for name in _MEASURES),
                f"{result.relative_cost:.2g}×",
            )
        )
    bold = {
        (place, column)
        for column, name in enumerate(_MEASURES, 1)
        for place in _best([result.statistics(level)[name][0] for result in detection.rows])
    }
    seeds, episodes = detection.config.seeds, detection.config.eval_episodes
    rates = detection.rows[0].statistics(level)
    title = (
        f"{detection.world.name}: dependencies {_WORDS[level]}, {seeds} seed(s), {episodes} unseen episodes;"
        f" {rates['positive_rate'][0]:.1%} of all edges are on, {rates['positive_rate_between'][0]:.1%} of others"
    )
    return Table(title, columns, tuple(rows), frozenset(bold))


def cells_of(detections: Sequence[Detection], level: Level | None = None) -> list[Cell]:
    """ROC-AUC and F1 of every row of every world; those that are not there are left out."""
    cells = []
    for detection in detections:
        here = detection.config.level if level is None else level
        if here not in detection.config.granularity:
            continue
        for result in detection.rows:
            numbers = result.statistics(here)
            cells += [
                Cell(detection.world.name, result.row.name, metric, mean, None if math.isnan(error) else error)
                for metric in METRICS
                for mean, error in [numbers[metric]]
                if math.isfinite(mean)
            ]
    return cells


def comparison_table(ours: Sequence[Cell], paper: Sequence[Cell], title: str) -> Table:
    """Rows down, and across for every world and metric our number and, where there is one, the paper's beside it."""
    worlds = list(dict.fromkeys(cell.world for cell in ours))
    names = list(dict.fromkeys(cell.method for cell in ours))
    mine, theirs = ({(c.world, c.method, c.metric): c for c in cells} for cells in (ours, paper))
    columns, rows, bold = ["method"], [[name] for name in names], set()
    for world in worlds:
        known = any(cell.world == world for cell in paper)
        for metric, word in METRICS.items():
            found = [mine.get((world, name, metric)) for name in names]
            best = _best([math.nan if cell is None else float(cell.mean) for cell in found], digits=2)
            bold |= {(place, len(columns)) for place in best}
            columns += [f"{world} {word}", "paper"] if known else [f"{world} {word}"]
            for name, row, cell in zip(names, rows, found, strict=True):
                row.append(_words(cell))
                if known:
                    row.append(_words(theirs.get((world, name, metric))))
    return Table(title, tuple(columns), tuple(map(tuple, rows)), frozenset(bold))


def level_words(level: Level) -> str:
    """A level in words."""
    return _WORDS[level]


def _words(cell: Cell | None) -> str:
    return format_value(None) if cell is None else format_value(cell.mean, cell.error)


def _best(values: Sequence[float], digits: int = 3) -> list[int]:
    """Where the largest values are, to the digits that are printed."""
    rounded = [round(value, digits) for value in values]
    known = [value for value in rounded if not math.isnan(value)]
    return [place for place, value in enumerate(rounded) if known and value == max(known)]
