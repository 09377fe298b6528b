"""Results as tables, for a terminal and for Markdown, and the charts that show the same numbers.

Numbers that are not there (the paper leaves some out) are simply not among the rows; tables then show a dash and charts
a gap.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import rich.console
import rich.table
from jaxtyping import Array, Bool, Float
from rich.text import Text

from elden.viewing import style

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

MISSING = "–"
_BINS = 48
_NO_MIXUP = "no mixup,\nλ = 0"
_GROUP_GAP = 2.4
_PAPER_LOOK: dict[str, str | float] = {"ls": "", "marker": "D", "ms": 5.0, "mfc": style.PAPER, "mew": 1.3}


@dataclass(frozen=True)
class Cell:
    """One number of a comparison of methods."""

    world: str
    method: str
    metric: str
    mean: float | int
    """Mean over seeds."""
    error: float | int | None = None
    """Standard error of the mean; None where it is not known."""


@dataclass(frozen=True)
class LambdaPoint:
    """One number of the study of the coefficient λ of the derivative penalty."""

    world: str
    coefficient: float | int | None
    """λ; None stands for training without mixup and without the penalty."""
    metric: str
    mean: float | int
    """Mean over seeds."""
    error: float | int | None = None
    """Standard error of the mean; None where it is not known."""


@dataclass(frozen=True)
class EdgeCount:
    """How many true edges of one type there were, and how many of them were found."""

    edge: str
    """Name of the type, such as "agent → fish"."""
    positives: int
    """True edges of this type."""
    found: int
    """Those of them that were predicted."""

    def __post_init__(self) -> None:
        """Check the counts."""
        if not 0 <= self.found <= self.positives:
            raise ValueError(f"{self.edge}: {self.found} found of {self.positives} true edges; need 0 <= found <= true")


@dataclass(frozen=True)
class Table:
    """A table of words, neutral to where it is shown. The first column names the row; the others are numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bold: frozenset[tuple[int, int]] = frozenset()
    """Cells that stand out, as (row, column)."""

    def __post_init__(self) -> None:
        """Check that every row fills every column."""
        for i, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"row {i} of {self.title!r} has {len(row)} cells, but there are {len(self.columns)} columns"
                )


def format_value(mean: float | int | None, error: float | int | None = None, digits: int = 2) -> str:
    """A number as tables print it: "0.71 ± 0.01", "0.71" without an error, a dash without a number."""
    if mean is None or math.isnan(mean):
        return MISSING
    if error is None or math.isnan(error):
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def markdown_table(table: Table) -> str:
    """The table for a Markdown page, bold cells in stars; the title is a bold line above it."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    rows = [
        [f"**{cell}**" if (i, j) in table.bold else cell for j, cell in enumerate(row)]
        for i, row in enumerate(table.rows)
    ]
    rule = line([":---", *["---:"] * (len(table.columns) - 1)])
    title = [f"**{table.title}**", ""] if table.title else []
    return "\n".join([*title, line(table.columns), rule, *map(line, rows)])


def rich_table(table: Table) -> rich.console.RenderableType:
    """The table for a terminal, under its title. The words are never read as markup."""
    shown = rich.table.Table()
    for j, column in enumerate(table.columns):
        shown.add_column(Text(column), justify="left" if j == 0 else "right")
    for i, row in enumerate(table.rows):
        shown.add_row(*(Text(cell, style="bold" if (i, j) in table.bold else "") for j, cell in enumerate(row)))
    # A title of the table itself would be broken at the width of the columns.
    return rich.console.Group(Text(f"\n{table.title}", style="italic"), shown) if table.title else shown


@style.styled
def method_bars(
    table: Sequence[Cell], paper: Sequence[Cell], metric_names: Mapping[str, str], title: str
) -> "matplotlib.figure.Figure":
    """A panel for each world: for every metric a group of bars, one per method, the paper's numbers as hollow diamonds.

    Args:
        table: Our numbers; thin lines are standard errors. What is missing leaves a gap.
        paper: The paper's numbers; those of worlds or methods that `table` does not have are left out.
        metric_names: The metrics to show, in order, and what to call them.
        title: Title of the figure.

    Raises:
        ValueError: Nothing to show, the same number twice, or one that is not finite.
    """
    ours, theirs = _lookup(table, metric_names), _lookup(paper, metric_names)
    if not ours:
        raise ValueError(f"no cells to draw for {', '.join(map(repr, metric_names))}")
    worlds, methods = _distinct(cell.world for cell in table), _distinct(cell.method for cell in table)
    pitch = max(3.0, 0.5 + 0.2 * (len(methods) + _GROUP_GAP) * len(metric_names))
    across = min(len(worlds), max(1, int(13 / pitch)))
    down = math.ceil(len(worlds) / across)
    figure = style.new_figure(max(0.4 + across * pitch, 6.5), 1.35 + 2.7 * down)
    figure.set_layout_engine("constrained", rect=(0, 0, 1, 1 - 0.42 / (1.35 + 2.7 * down)))
    panels = figure.subplots(down, across, sharey=True, squeeze=False).ravel()
    for axes, world in zip(panels, worlds, strict=False):
        _bar_panel(axes, world, methods, metric_names, ours, theirs)
    for axes in panels[len(worlds) :]:
        axes.set_visible(False)
    _headline(figure, title)
    handles = [panels[0].bar(0, 0, color=style.method_color(method)) for method in methods]
    words = list(methods)
    if any((world, method, metric) in theirs for world, method, metric in ours):
        handles += panels[0].plot([], [], **_PAPER_LOOK, mec=style.INK)
        words.append("the paper")
    handles += panels[0].plot([], [], color=style.INK, lw=1)
    words.append("± standard error")
    figure.legend(handles, words, loc="outside lower center", ncols=_legend_columns(figure, words))
    return figure


def _legend_columns(figure: "matplotlib.figure.Figure", words: Sequence[str]) -> int:
    """How many entries of a legend go side by side without being cut off."""
    entry = 0.55 + max(map(len, words)) * style.LABEL_PT * _LETTER / 72
    return max(1, min(len(words), 5, int(figure.get_size_inches()[0] / entry)))


def _bar_panel(
    axes: "matplotlib.axes.Axes",
    world: str,
    methods: Sequence[str],
    metric_names: Mapping[str, str],
    ours: Mapping[tuple[str, str, str], Cell],
    theirs: Mapping[tuple[str, str, str], Cell],
) -> None:
    span = len(methods) + _GROUP_GAP
    for k, metric in enumerate(metric_names):
        for m, method in enumerate(methods):
            place, color = k * span + m, style.method_color(method)
            if cell := ours.get((world, method, metric)):
                axes.bar(place, cell.mean, 0.86, color=color)
                axes.errorbar(place, cell.mean, cell.error or 0, color=style.INK, lw=1, capsize=0)
                axes.text(
                    place,
                    0.015,
                    f"{cell.mean:.2f}",
                    rotation=90,
                    ha="center",
                    va="bottom",
                    size=style.SMALL_PT - 0.5,
                    color=style.text_color(color),
                )
            if cell := theirs.get((world, method, metric)):
                axes.plot(place, cell.mean, **_PAPER_LOOK, mec=style.INK, zorder=4)  # type: ignore[arg-type]
        if metric.endswith("auc"):
            ends = (k * span - 0.6, k * span + len(methods) - 0.45)
            axes.plot((ends[0], ends[1] + 1.2), (0.5, 0.5), color=style.INK, lw=0.8, ls=(0, (2, 2)))
            axes.text(ends[1], 0.51, "chance", size=6, ha="left", va="bottom", color=style.INK)
    axes.set_xticks([k * span + (len(methods) - 1) / 2 for k in range(len(metric_names))], metric_names.values())
    axes.tick_params("x", length=0, labelsize=style.LABEL_PT)
    axes.set_xlim(-0.9, len(metric_names) * span - _GROUP_GAP + 0.6)
    axes.set_ylim(0, 1.04 * max([1.0, *(float(cell.mean) for cell in (*ours.values(), *theirs.values()))]))
    axes.grid(axis="y")
    axes.set_title(world, weight="bold")


@style.styled
def lambda_curve(
    points: Sequence[LambdaPoint], paper: Sequence[LambdaPoint], metric_names: Mapping[str, str], title: str
) -> "matplotlib.figure.Figure":
    """A panel for each metric: the metric against λ, a line per world, the paper's numbers as hollow markers.

    λ runs on a log axis; λ = 0, and no mixup at all, stand apart to the left of it.

    Args:
        points: Our numbers; thin lines are standard errors.
        paper: The paper's numbers; those of worlds that `points` does not have are left out.
        metric_names: The metrics to show, in order, and what to call them.
        title: Title of the figure.

    Raises:
        ValueError: Nothing to show, a negative λ, or a number that is not finite.
    """
    _check_points([*points, *paper])
    worlds = _distinct(point.world for point in points)
    shown = [point for point in (*points, *paper) if point.world in worlds and point.metric in metric_names]
    if not any(point.metric in metric_names for point in points):
        raise ValueError(f"no points to draw for {', '.join(map(repr, metric_names))}")
    places = _lambda_places({point.coefficient for point in shown})
    figure = style.new_figure(0.5 + 4.6 * len(metric_names), 4.1)
    figure.set_layout_engine("constrained", rect=(0, 0, 1, 0.9))
    panels = figure.subplots(1, len(metric_names), squeeze=False).ravel()
    for axes, metric in zip(panels, metric_names, strict=True):
        for world in worlds:
            _curve(axes, [p for p in points if (p.world, p.metric) == (world, metric)], places, hollow=False)
            _curve(axes, [p for p in paper if (p.world, p.metric) == (world, metric)], places, hollow=True)
        _lambda_axis(axes, places)
        axes.set_title(metric_names[metric], weight="bold")
    _headline(figure, title)
    looks = [style.world_look(world) for world in worlds]
    handles = [panels[0].plot([], [], color=color, marker=mark, lw=1.6)[0] for color, mark in looks]
    words = list(worlds)
    if any(point.world in worlds for point in paper):
        handles += panels[0].plot([], [], **_PAPER_LOOK | {"marker": "o"}, mec=style.INK)
        words.append("the paper (hollow)")
    handles += panels[0].plot([], [], color=style.INK, lw=1)
    words.append("± standard error")
    figure.legend(handles, words, loc="outside lower center", ncols=len(words))
    return figure


def _lambda_places(coefficients: Collection[float | int | None]) -> dict[float | int | None, float]:
    """Where each λ stands: log10 λ, and left of the least of them 0 and no mixup."""
    places: dict[float | int | None, float] = {c: math.log10(c) for c in coefficients if c is not None and c > 0}
    least = min(places.values(), default=0.0)
    if 0 in coefficients:
        places[0] = least - 1.4
    if None in coefficients:
        places[None] = least - 2.6
    return places


def _curve(
    axes: "matplotlib.axes.Axes",
    points: Sequence[LambdaPoint],
    places: Mapping[float | int | None, float],
    hollow: bool,
) -> None:
    """One world's numbers; only those with a positive λ are joined, the others being no limits of them."""
    if not points:
        return
    color, marker = style.world_look(points[0].world)
    ordered = sorted(points, key=lambda point: places[point.coefficient])
    for point in ordered:
        place = places[point.coefficient] + (0.12 if hollow else 0)
        face = style.PAPER if hollow else color
        axes.errorbar(place, point.mean, point.error or 0, color=color, lw=1, zorder=3)
        axes.plot(place, point.mean, marker, mfc=face, mec=color, mew=1.3, ms=6, zorder=4)
    line = [(places[p.coefficient], p.mean) for p in ordered if p.coefficient]
    if line and not hollow:
        axes.plot(*zip(*line, strict=True), color=color, lw=1.6)


def _lambda_axis(axes: "matplotlib.axes.Axes", places: Mapping[float | int | None, float]) -> None:
    ordered = sorted(places, key=lambda coefficient: places[coefficient])
    words = [_NO_MIXUP if c is None else "0" if c == 0 else _power(float(c)) for c in ordered]
    axes.set_xticks([places[c] for c in ordered], words)
    positive = [places[c] for c in ordered if c]
    if positive and len(positive) < len(places):
        axes.axvline(positive[0] - 0.7, color=style.RULE, lw=0.8, ls=(0, (3, 3)))
    axes.set_xlim(min(places.values()) - 0.55, max(places.values()) + 0.45)
    axes.set_xlabel("λ, weight of the derivative penalty")
    axes.grid(axis="y")


def _power(value: float) -> str:
    exponent = round(math.log10(value))
    return f"$10^{{{exponent}}}$" if math.isclose(value, 10.0**exponent) else f"{value:g}"


@style.styled
def edge_breakdown(rows: Sequence[EdgeCount], title: str, note: str = "") -> "matplotlib.figure.Figure":
    """Bars per type of edge: how many were true and which part of them was found, most frequent first.

    The left panel counts; the right one shows the found share of each type, since rare types are too short to read on
    the left. A note, such as the threshold, stands in small letters under the title.
    """
    if not rows:
        raise ValueError("no types of edges to draw; got an empty sequence")
    ordered = sorted(rows, key=lambda row: (-row.positives, row.edge))
    head = 0.35 + (0.22 if note else 0.0)
    height = 1.0 + head + 0.26 * len(ordered)
    figure = style.new_figure(9.0, height)
    figure.set_layout_engine("constrained", rect=(0, 0, 1, 1 - head / height))
    if note:
        below = figure.text(0.12 / 9.0, 1 - 0.46 / height, note, size=style.SMALL_PT, color=style.GREY, va="center")
        below.set_in_layout(False)
    counts, shares = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    places = np.arange(len(ordered))
    look = {"height": 0.7, "ec": style.FOUND, "lw": 0.9}
    counts.barh(places, [row.positives for row in ordered], fc=style.PAPER, label="true edges", **look)
    counts.barh(places, [row.found for row in ordered], fc=style.FOUND, label="found", **look)
    parts = [row.found / row.positives if row.positives else 0.0 for row in ordered]
    shares.barh(places, [float(row.positives > 0) for row in ordered], fc=style.PALE, height=0.7)
    shares.barh(places, parts, fc=style.FOUND, height=0.7)
    for place, row, part in zip(places, ordered, parts, strict=True):
        words = f"{part:.0%}  ({row.found:,} of {row.positives:,})" if row.positives else "never true"
        shares.text(1.03, place, words, size=style.SMALL_PT, va="center")
    counts.set_yticks(places, [row.edge for row in ordered])
    counts.set_ylim(len(ordered) - 0.4, -0.6)
    counts.tick_params("y", length=0)
    shares.tick_params("y", length=0)
    counts.set_xlabel("number of true edges")
    counts.grid(axis="x")
    counts.legend(loc="lower right")
    shares.set_xlabel("share found")
    shares.set_xlim(0, 1.65)
    shares.set_xticks([0, 0.5, 1], ["0 %", "50 %", "100 %"])
    _headline(figure, title)
    return figure


@style.styled
def score_histogram(
    scores: Float[np.ndarray | Array, "..."],
    truth: Bool[np.ndarray | Array, "..."],
    threshold_auto: float | int,
    threshold_best: float | int,
    title: str,
) -> "matplotlib.figure.Figure":
    """How scores of true edges and of the others are spread over log10(score), with both thresholds.

    Each of the two is a share of its own number, since true edges are few. Scores of 0 and below stand in a bar of
    their own on the left.

    Args:
        scores: Scores of any shape; leave out here what the metrics leave out.
        truth: Which of them are true edges.
        threshold_auto: The threshold found without labels.
        threshold_best: The threshold of the best F1.
        title: Title of the figure.

    Raises:
        ValueError: Shapes that differ, no scores, or values that are not finite.
    """
    values, true = np.asarray(scores).astype(np.float64), np.asarray(truth)
    _check_scores(values, true, {"threshold_auto": threshold_auto, "threshold_best": threshold_best})
    figure = style.new_figure(8.0, 3.9)
    figure.set_layout_engine("constrained", rect=(0, 0, 1, 0.92))
    axes = figure.subplots()
    thresholds = {"automatic threshold": float(threshold_auto), "threshold of the best F1": float(threshold_best)}
    edges = _log_bins([*values[values > 0].tolist(), *(t for t in thresholds.values() if t > 0)])
    step = float(edges[1] - edges[0])
    for name, which, color in (("true edges", true, style.FOUND), ("no edges", ~true, style.GREY)):
        _spread(axes, values[which], edges, f"{name} ({int(which.sum()):,})", color)
    for (name, threshold), dash in zip(thresholds.items(), ("-", "--"), strict=True):
        place = math.log10(threshold) if threshold > 0 else float(edges[0]) - 2 * step
        axes.axvline(place, color=style.VERMILLION, ls=dash, lw=1.4, label=f"{name}: {threshold:.3g}")
    _score_axis(axes, edges, bool((values <= 0).any()) or min(thresholds.values()) <= 0)
    axes.set_ylabel("share of each kind")
    axes.grid(axis="y")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    _headline(figure, title)
    return figure


def _log_bins(values: Sequence[float]) -> Float[np.ndarray, " edge"]:
    """Edges of bins of log10 that hold all values, from half a decade to half a decade."""
    logs = np.log10(values) if values else np.zeros(1)
    low, high = math.floor(float(logs.min()) * 2) / 2, math.ceil(float(logs.max()) * 2) / 2
    return np.linspace(low, max(high, low + 0.5), _BINS + 1)


def _score_axis(axes: "matplotlib.axes.Axes", edges: Float[np.ndarray, " edge"], below: bool) -> None:
    """Powers of ten under the bins, and left of them a place for what is not above 0."""
    low, high, step = float(edges[0]), float(edges[-1]), float(edges[1] - edges[0])
    whole = [float(e) for e in range(math.ceil(low), math.floor(high) + 1)]
    # Never more than a dozen of them, lest they run into each other.
    ticks = whole[:: math.ceil(len(whole) / 12)] if len(whole) > 1 else [low, high]
    words = [f"$10^{{{e:g}}}$" for e in ticks]
    axes.set_xticks([low - 2 * step, *ticks] if below else ticks, ["≤ 0", *words] if below else words)
    axes.set_xlim(low - 3.5 * step if below else low, high)
    axes.set_xlabel("score (log scale); an edge is predicted right of the threshold")


def _spread(
    axes: "matplotlib.axes.Axes",
    values: Float[np.ndarray, " score"],
    edges: Float[np.ndarray, " edge"],
    name: str,
    color: str,
) -> None:
    """Shares of values per bin of log10, and of those without a logarithm in a bar left of the bins."""
    total = max(1, values.size)
    shares = np.histogram(np.log10(values[values > 0]), edges)[0] / total
    axes.stairs(shares, edges, fill=True, color=color, alpha=0.35)
    axes.stairs(shares, edges, color=color, lw=1.4, label=name)
    step = edges[1] - edges[0]
    none = float((values <= 0).sum()) / total
    if none:
        axes.bar(edges[0] - 2 * step, none, 1.6 * step, color=color, alpha=0.35, ec=color)


_LETTER = 0.66  # width of a bold letter over its size, on average


def _headline(figure: "matplotlib.figure.Figure", title: str) -> None:
    """A title at the top left, in smaller letters where the figure is too narrow for it."""
    width, height = figure.get_size_inches()
    fitting = 72 * (width - 0.24) / (_LETTER * max(len(title), 1))
    size = min(style.TITLE_PT, fitting)
    text = figure.text(0.12 / width, 1 - 0.22 / height, title, size=size, weight="bold", va="center")
    text.set_in_layout(False)


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _lookup(cells: Sequence[Cell], metric_names: Mapping[str, str]) -> dict[tuple[str, str, str], Cell]:
    """Cells by world, method and metric; only those of the metrics to show."""
    found: dict[tuple[str, str, str], Cell] = {}
    for cell in cells:
        place = (cell.world, cell.method, cell.metric)
        if place in found:
            raise ValueError(f"two cells for world, method, metric = {place}; give each number once")
        if not math.isfinite(cell.mean):
            raise ValueError(f"the mean of {place} is {cell.mean}; leave out the cell where there is no number")
        found[place] = cell
    return {place: cell for place, cell in found.items() if cell.metric in metric_names}


def _check_points(points: Sequence[LambdaPoint]) -> None:
    for point in points:
        if point.coefficient is not None and not 0 <= point.coefficient < math.inf:
            raise ValueError(f"{point.world}: λ = {point.coefficient}; it must be 0 or more, or None for no mixup")
        if not math.isfinite(point.mean):
            raise ValueError(
                f"{point.world}, λ = {point.coefficient}: the mean is {point.mean}; leave out the point instead"
            )


def _check_scores(values: np.ndarray, truth: np.ndarray, thresholds: Mapping[str, float | int]) -> None:
    if values.shape != truth.shape:
        raise ValueError(f"scores have shape {values.shape} but truth has {truth.shape}; they must be the same")
    if not values.size:
        raise ValueError("no scores to draw; got an empty array")
    if not np.isfinite(values).all():
        raise ValueError(f"{int((~np.isfinite(values)).sum())} of {values.size} scores are not finite")
    for name, threshold in thresholds.items():
        if not math.isfinite(threshold):
            raise ValueError(f"{name} is {threshold}; it must be a finite number")
