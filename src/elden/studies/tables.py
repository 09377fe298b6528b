"""The numbers of a study as tables: of one world, and beside the paper's of several."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from elden.graphs.gradient import Gradient
from elden.studies.config import GraphGranularity
from elden.studies.paper import METRICS
from elden.studies.results import Detection
from elden.viewing import Cell, Table, format_value
from elden.viewing.style import ALL_INTO_CHANGED, SELF_EDGES_ALONE

_WORDS: Mapping[GraphGranularity, str] = {
    "entity": "between entities",
    "variable": "between variables",
    "variable-from-entity": "from entities to variables",
}


Edges: TypeAlias = Literal["all", "between"]
"""All edges, or only those between different nodes."""

EDGES: tuple[Edges, ...] = ("all", "between")

_RULES = (SELF_EDGES_ALONE, ALL_INTO_CHANGED)
_MEASURES: Mapping[str, str] = {"roc_auc": "ROC-AUC", "f1": "best F1", "auto_f1": "automatic F1"}


def detection_table(detection: Detection, granularity: GraphGranularity | None = None, edges: Edges = "all") -> Table:
    """One row for each method: mean ± standard error over seeds.

    Args:
        detection: The results.
        granularity: At which granularity; None takes the first.
        edges: Which edges count.
    """
    granularity = detection.config.main_granularity if granularity is None else granularity
    suffix = "" if edges == "all" else "_between"
    numbers = [result.statistics(granularity) for result in detection.rows]
    costs = any(not isinstance(result.row.detector, Gradient) for result in detection.rows)  # which has the unit
    rows = [
        (
            result.row.name,
            *(format_value(*known[name + suffix], digits=3) for name in _MEASURES),
            *([f"{result.relative_cost:.2g}×"] if costs else []),
        )
        for result, known in zip(detection.rows, numbers, strict=True)
    ]
    rules = {SELF_EDGES_ALONE: detection.self_edges_alone[granularity]} if edges == "all" else {}
    changed = detection.all_into_changed[granularity]
    rules[ALL_INTO_CHANGED] = changed["roc_auc" + suffix], changed["f1" + suffix]
    for rule, values in rules.items():
        auc, f1 = (format_value(value, digits=3) for value in values)
        rows.append((rule, auc, f1, f1, *([format_value(None)] if costs else [])))
    bold = {
        (place, column)
        for column, name in enumerate(_MEASURES, 1)
        for place in _best([known[name + suffix][0] for known in numbers])
    }
    seeds, episodes = detection.config.seeds, detection.config.eval_episodes
    rate = numbers[0]["positive_rate" + suffix][0]
    counted = "all edges" if edges == "all" else "self-edges left out"
    title = (
        f"{detection.world.name}, {_WORDS[granularity]}, {counted} ({rate:.1%} are on);"
        f" {detection.config.updates:,} updates, {seeds} seed{'s' if seeds > 1 else ''}, {episodes} episodes"
    )
    columns = ("method", *_MEASURES.values(), *(["cost"] if costs else []))
    return Table(title, columns, tuple(rows), frozenset(bold))


def detection_tables(detection: Detection) -> list[Table]:
    """The tables of every granularity, with all edges and with those between different nodes."""
    return [
        detection_table(detection, granularity, edges)
        for granularity in detection.config.granularities
        for edges in EDGES
    ]


def skipped_lines(detection: Detection) -> list[str]:
    """A line for each row of whose updates some were skipped, because loss or gradient was not finite."""
    return [
        f"{detection.world.name}, {result.row.name}: {sum(result.skipped):,} of"
        f" {len(result.skipped) * detection.config.updates:,} updates were not finite and were skipped"
        for result in detection.rows
        if sum(result.skipped)
    ]


def cells_of(detections: Sequence[Detection], granularity: GraphGranularity | None = None) -> list[Cell]:
    """ROC-AUC and F1 of every row of every world; those that are not there are left out."""
    cells = []
    for detection in detections:
        here = detection.config.main_granularity if granularity is None else granularity
        if here not in detection.config.granularities:
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


def rule_cells(detections: Sequence[Detection], granularity: GraphGranularity) -> list[Cell]:
    """ROC-AUC and F1 of the rules that need no model, in every world that was measured at this granularity."""
    cells = []
    for detection in detections:
        if granularity in detection.self_edges_alone:
            alone = dict(zip(METRICS, detection.self_edges_alone[granularity], strict=True))
            for rule, known in ((SELF_EDGES_ALONE, alone), (ALL_INTO_CHANGED, detection.all_into_changed[granularity])):
                cells += [Cell(detection.world.name, rule, metric, known[metric], None) for metric in METRICS]
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
            compared = [math.nan if cell is None or cell.method in _RULES else cell.mean for cell in found]
            best = _best(compared, digits=2)
            bold |= {(place, len(columns)) for place in best}
            columns += [f"{world} {word}", "paper"] if known else [f"{world} {word}"]
            for name, row, cell in zip(names, rows, found, strict=True):
                row.append(_words(cell))
                if known:
                    row.append(_words(theirs.get((world, name, metric))))
    return Table(title, tuple(columns), tuple(map(tuple, rows)), frozenset(bold))


def granularity_words(granularity: GraphGranularity) -> str:
    """A granularity in words."""
    return _WORDS[granularity]


def _words(cell: Cell | None) -> str:
    return format_value(None) if cell is None else format_value(cell.mean, cell.error)


def _best(values: Sequence[float], digits: int = 3) -> list[int]:
    """Where the largest values are, to the digits that are printed."""
    rounded = [round(value, digits) for value in values]
    known = [value for value in rounded if not math.isnan(value)]
    return [place for place, value in enumerate(rounded) if known and value == max(known)]
