"""Pictures of dependency graphs: truth beside scores, and the graphs of an episode step by step.

Every graph is `[dst, src]`, the action being the last source: a row depends on a column. An edge is predicted where
its score is at least the threshold; it is then *found* or a *false alarm*, and a true edge that is not predicted is
*missed*.
Names are "entity.variable", or just "entity" at entity granularity; the two sides may be of different granularity.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt8
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LinearSegmentedColormap, ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch
from matplotlib.ticker import MaxNLocator

from elden.factors import ACTION
from elden.viewing import style
from elden.viewing.matrices import (
    COLORS,
    DASHES,
    FALSE_ALARM,
    FOUND,
    GLYPH,
    MARKS,
    MISSED,
    NOTHING,
    WORDS,
    Heads,
    Side,
    break_map,
    check_graphs,
    draw_matrix,
    draw_outcomes,
    heads,
    label_columns,
    label_rows,
    outcomes,
    relative_scores,
    self_edges,
)

__all__ = ["FALSE_ALARM", "FOUND", "MISSED", "NOTHING", "episode_strip", "graph_heatmap", "outcomes", "self_edges"]

_READING = "A cell says whether the row's next value depends on the column's present value, or on the action."
_CALLED = (FOUND, MISSED, FALSE_ALARM)
MAX_NODES = 20
_NODES_WIDE, _NODES_HIGH = 1.75, 1.35

_Graph: TypeAlias = Bool[np.ndarray | Array, "_dst _src"] | Float[np.ndarray | Array, "_dst _src"]
_Graphs: TypeAlias = Bool[np.ndarray | Array, "_time _dst _src"] | Float[np.ndarray | Array, "_time _dst _src"]


@style.styled
def graph_heatmap(
    truth: _Graph | _Graphs,
    scores: _Graph | _Graphs,
    threshold: float | int,
    dst_names: Sequence[str],
    src_names: Sequence[str],
    title: str,
    mask: Bool[np.ndarray, "_dst _src"] | None = None,
) -> Figure:
    """Truth, scores and their difference side by side, of one transition or on average over many.

    Of many transitions, how often each edge was predicted is compared with the truth, beside the mean scores.

    Args:
        truth: Bool `[dst, src]`: one transition. Bool `[time, dst, src]`: many, which are averaged. Float `[dst, src]`
            in [0, 1]: how often each edge was true.
        scores: Of the shape of `truth`. Where `truth` is an average, how often each edge was predicted, in [0, 1].
        threshold: An edge is predicted where its score is at least this.
        dst_names: Names of the rows.
        src_names: Names of the columns; the action, where it comes last, is set apart.
        title: Title of the figure.
        mask: True where a cell is left out, see `self_edges`; drawn grey and hatched. None leaves out nothing.

    Raises:
        ValueError: Shapes that do not fit the names or each other, or values that are not finite or out of range.
    """
    true, predicted = np.asarray(truth), np.asarray(scores)
    hidden = check_graphs(true, predicted, threshold, dst_names, src_names, mask)
    rows, columns = Side(tuple(dst_names)), Side(tuple(src_names))
    single, many = true.ndim == 2 and true.dtype == np.bool_, true.ndim == 3
    sheet = _Sheet(rows, columns, panels=4 if many else 3)
    figure, panels = sheet.figure(title)
    if single:
        _draw_single(figure, panels, sheet, true, predicted, float(threshold), hidden)
        return figure
    if many:
        _draw_mean_scores(figure, panels.pop(1), sheet, predicted.mean(0), hidden)
        true, predicted = true.mean(0), (predicted >= threshold).mean(0)
    _draw_average(figure, panels, sheet, true, predicted, float(threshold), hidden, len(truth) if many else None)
    return figure


@style.styled
def episode_strip(
    truths: Bool[np.ndarray | Array, "_time _dst _src"],
    scores: Float[np.ndarray | Array, "_time _dst _src"],
    threshold: float | int,
    dst_names: Sequence[str],
    src_names: Sequence[str],
    action_names_per_step: Sequence[str],
    pictures: Sequence[UInt8[np.ndarray, "_height _width 3"]] | None = None,
    steps: Sequence[int] | None = None,
    mask: Bool[np.ndarray, "_dst _src"] | None = None,
    title: str = "",
) -> Figure:
    """The graphs of consecutive steps: found, missed and false edges, under the action's name and the world's picture.

    Entities are drawn as nodes and arrows, variables (and more than 20 entities) as small matrices.

    Args:
        truths: The true graphs of an episode.
        scores: The scores of the same steps.
        threshold: An edge is predicted where its score is at least this.
        dst_names: Names of the rows.
        src_names: Names of the columns.
        action_names_per_step: What was done, for every step.
        pictures: The world before every step.
        steps: Which of the steps to draw, by index; None draws all.
        mask: True where an edge is left out, see `self_edges`.
        title: Title of the figure.

    Raises:
        ValueError: Lengths or shapes that do not fit, or a step that is not there.
    """
    true, values = np.asarray(truths), np.asarray(scores)
    _check_strip(true, values, action_names_per_step, pictures)
    hidden = check_graphs(true, values, threshold, dst_names, src_names, mask)
    shown = _check_steps(steps, len(true))
    rows, columns = Side(tuple(dst_names)), Side(tuple(src_names))
    as_nodes = not (rows.fine or columns.fine) and len(set(rows.names) | set(columns.names)) <= MAX_NODES
    shape = None if pictures is None else pictures[0].shape
    strip = _Strip(rows, columns, as_nodes, len(shown), 0.0 if shape is None else shape[0] / shape[1])
    own = bool((self_edges(dst_names, src_names) & ~hidden).any())
    figure = strip.figure(title or "Local dependencies, step by step", threshold, own, len(true), pictures is not None)
    results = outcomes(true, values, threshold)
    for place, step in enumerate(shown):
        if pictures is not None:
            strip.draw_picture(figure, place, pictures[step])
        strip.draw_graph(figure, place, results[step], hidden, f"{step}  {action_names_per_step[step]}")
    return figure


@dataclass(frozen=True)
class _Sheet:
    """Measures, in inches, of some matrices side by side with their labels."""

    rows: Side
    columns: Side
    panels: int = 3

    @property
    def cell(self) -> float:
        """Side of a cell."""
        return float(np.clip(min(3.7 / self.columns.extent, 4.5 / self.rows.extent), 0.112, 0.46))

    @property
    def type_pt(self) -> float:
        """Size of the labels: as large as a cell allows."""
        return float(np.clip(self.cell * 72 * 0.72, 5.5, style.LABEL_PT))

    @cached_property
    def heads(self) -> Heads:
        """How the names of the columns stand."""
        return heads(self.columns, self.cell, self.type_pt)

    def figure(self, title: str) -> tuple[Figure, list[Axes]]:
        """The figure and its empty panels, with names on rows and columns."""
        letter = self.type_pt * GLYPH / 72
        left = 0.35 + letter * (self.rows.widest_small + self.rows.widest_group) + 0.2
        wide, high = self.columns.extent * self.cell, self.rows.extent * self.cell
        pitch = max(wide + 0.4, 2.9)
        below, above = 0.95, self.heads.height_pt / 72 + 1.1
        width, height = max(left + self.panels * pitch, 7.0), below + high + above
        figure = style.new_figure(width, height)
        figure.text(0.15 / width, 1 - 0.28 / height, title, size=style.TITLE_PT, weight="bold", va="center")
        figure.text(0.15 / width, 1 - 0.52 / height, _READING, size=style.SMALL_PT, color=style.GREY, va="center")
        panels = []
        for i in range(self.panels):
            box = ((left + i * pitch) / width, below / height, wide / width, high / height)
            panels.append(figure.add_axes(box))
            panels[-1].set_yticks([])
            label_columns(panels[-1], self.columns, self.heads, self.type_pt)
        label_rows(panels[0], self.rows, self.type_pt)
        return figure, panels

    def entitle(self, axes: Axes, words: str) -> None:
        """A heading above a panel's column names."""
        axes.annotate(
            words,
            (0, 1),
            xycoords="axes fraction",
            xytext=(0, self.heads.height_pt + 10),
            textcoords="offset points",
            size=style.LABEL_PT + 1,
            weight="bold",
            va="bottom",
        )

    def colour_bar(self, figure: Figure, axes: Axes, mesh: QuadMesh, words: str, extend: str) -> Axes:
        """A bar under a panel that says what its colours mean."""
        box, (width, height) = axes.get_position(), figure.get_size_inches()
        wide = max(box.width, 2.3 / width)
        bar = figure.add_axes((box.x0, 0.5 / height, wide, 0.13 / height))
        drawn = figure.colorbar(mesh, cax=bar, orientation="horizontal", extend=extend, ticks=MaxNLocator(5))
        drawn.outline.set_edgecolor(style.RULE)
        bar.tick_params(labelsize=style.SMALL_PT, length=2)
        bar.set_xlabel(words, size=style.SMALL_PT, labelpad=3)
        return bar

    def legend(self, figure: Figure, axes: Axes, entries: Sequence[tuple[str, str, str]], hidden: bool) -> None:
        """Colours and marks of a panel and what they mean, under it: (colour, mark, words)."""
        box, height = axes.get_position(), figure.get_size_inches()[1]
        handles: list[Patch | tuple[Line2D, ...]] = [_key(color, mark) for color, mark, _ in entries]
        words = [words for *_, words in entries]
        if hidden:
            handles.append(Patch(fc=style.PALE, ec=style.RULE, hatch="////", lw=0.6))
            words.append("left out")
        _legend(figure, handles, words, (box.x0, 0.72 / height), 2)


def _key(color: str, mark: str) -> tuple[Line2D, ...]:
    """A cell for a legend."""
    square = Line2D([], [], ls="", marker="s", ms=8.5, mfc=color, mec=style.RULE, mew=0.6)
    return square, Line2D([], [], ls="", marker=mark, ms=4, mfc=style.PAPER, mec=style.PAPER, mew=1)


def _legend(
    figure: Figure,
    handles: Sequence[Patch | Line2D | tuple[Line2D, ...]],
    words: Sequence[str],
    place: tuple[float, float],
    across: int,
) -> None:
    """A legend that begins at a place, in shares of the figure's width and height."""
    # Tuples of handles are drawn over each other, which matplotlib's types do not say.
    figure.legend(  # type: ignore[call-overload]
        handles,
        words,
        loc="upper left",
        bbox_to_anchor=place,
        ncols=across,
        borderpad=0,
        borderaxespad=0,
        handlelength=1.6,
    )


def _draw_single(
    figure: Figure,
    panels: Sequence[Axes],
    sheet: _Sheet,
    truth: Bool[np.ndarray, "dst src"],
    scores: Float[np.ndarray, "dst src"],
    threshold: float,
    hidden: Bool[np.ndarray, "dst src"],
) -> None:
    rows, columns = sheet.rows, sheet.columns
    black = ListedColormap([style.PAPER, style.INK])
    draw_matrix(panels[0], rows, columns, truth.astype(float), hidden, black, Normalize(0, 1))
    sheet.entitle(panels[0], "True graph")
    edges = [(style.INK, "", f"edge: {int((truth & ~hidden).sum())}"), (style.PAPER, "", "no edge")]
    sheet.legend(figure, panels[0], edges, bool(hidden.any()))

    shown, norm, ticks, words = relative_scores(scores, threshold, hidden)
    mesh = draw_matrix(panels[1], rows, columns, shown, hidden, break_map(), norm)
    sheet.entitle(panels[1], "Scores")
    bar = sheet.colour_bar(figure, panels[1], mesh, words, "both")
    bar.set_xticks(list(ticks), list(ticks.values()))

    results = outcomes(truth, scores, threshold)
    draw_outcomes(panels[2], rows, columns, results, hidden, sheet.cell * 72 * 0.28)
    sheet.entitle(panels[2], "Found and missed")
    counts = [int(((results == outcome) & ~hidden).sum()) for outcome in range(4)]
    entries = [(COLORS[o], MARKS[o], f"{WORDS[o]}: {counts[o]}") for o in _CALLED]
    sheet.legend(figure, panels[2], entries, bool(hidden.any()))


def _draw_mean_scores(
    figure: Figure, axes: Axes, sheet: _Sheet, means: Float[np.ndarray, "dst src"], hidden: Bool[np.ndarray, "dst src"]
) -> None:
    """Mean scores in their own unit: 0, and what log-ratios have below it, is as white as no edge."""
    shown = means[~hidden]
    high = float(shown.max(initial=0))
    norm = Normalize(0, high if high > 0 else 1.0, clip=True)
    mesh = draw_matrix(axes, sheet.rows, sheet.columns, means, hidden, _share_map(), norm)
    sheet.entitle(axes, "Mean score")
    words = "score, mean over the same transitions"
    sheet.colour_bar(figure, axes, mesh, words, "min" if shown.min(initial=0) < 0 else "neither")


def _share_map() -> LinearSegmentedColormap:
    return LinearSegmentedColormap.from_list("share", [style.PAPER, style.SKY, style.BLUE, "#002B45"])


def _draw_average(
    figure: Figure,
    panels: Sequence[Axes],
    sheet: _Sheet,
    truth: Float[np.ndarray, "dst src"],
    predicted: Float[np.ndarray, "dst src"],
    threshold: float,
    hidden: Bool[np.ndarray, "dst src"],
    count: int | None,
) -> None:
    rows, columns = sheet.rows, sheet.columns
    seen = np.concatenate([truth[~hidden], predicted[~hidden], [0.01]])
    most, gap = (
        math.ceil(float(v) * 20 - 1e-6) / 20
        for v in (seen.max(), max(0.1, np.abs(predicted - truth)[~hidden].max(initial=0)))
    )
    blues = _share_map()
    signed = LinearSegmentedColormap.from_list("signed", [style.MISSED, style.PAPER, style.FALSE_ALARM])
    transitions = "transitions" if count is None else f"{count:,} transitions"
    drawn = (
        ("How often true", truth, blues, Normalize(0, most), f"share of {transitions}"),
        ("How often predicted", predicted, blues, Normalize(0, most), f"share with score ≥ {threshold:.3g}"),
        (
            "Predicted minus true",
            predicted - truth,
            signed,
            Normalize(-gap, gap),
            "← predicted too rarely   ·   predicted too often →",
        ),
    )
    for axes, (name, values, cmap, norm, words) in zip(panels, drawn, strict=True):
        mesh = draw_matrix(axes, rows, columns, values, hidden, cmap, norm)
        sheet.entitle(axes, name)
        sheet.colour_bar(figure, axes, mesh, words, "neither")


@dataclass(frozen=True)
class _Strip:
    """Measures, in inches, of many small graphs in rows."""

    rows: Side
    columns: Side
    as_nodes: bool
    count: int
    picture_aspect: float

    @property
    def cell(self) -> float:
        """Side of a cell of a small matrix."""
        return float(np.clip(2.0 / self.columns.extent, 0.068, 0.17))

    @property
    def graph_size(self) -> tuple[float, float]:
        """Width and height of one graph."""
        if not self.as_nodes:
            return self.columns.extent * self.cell, self.rows.extent * self.cell
        side = 2.3 if len(self.columns.names) <= 8 else 2.9
        return side, side * _NODES_HIGH / _NODES_WIDE

    @property
    def type_pt(self) -> float:
        """Size of the names."""
        return 7.5 if self.as_nodes else float(np.clip(self.cell * 72 * 0.8, 4.8, 7.5))

    @property
    def picture_size(self) -> tuple[float, float]:
        """Width and height of one picture; zero where there are none."""
        wide = min(self.graph_size[0], 2.3) if self.picture_aspect else 0.0
        return wide, wide * self.picture_aspect

    @cached_property
    def heads(self) -> Heads:
        """How the names of a matrix's columns stand: entities only."""
        return heads(self.columns, self.cell, self.type_pt, fine=False)

    @property
    def above(self) -> float:
        """Room between picture or caption and graph."""
        return 0.05 if self.as_nodes else 0.05 + self.heads.height_pt / 72

    @property
    def left(self) -> float:
        """Room left of the first graph for the names of its rows."""
        if self.as_nodes:
            return 0.2
        letters = self.rows.widest_group + self.rows.widest_small
        return 0.3 + self.type_pt * GLYPH / 72 * letters

    @property
    def pitch(self) -> tuple[float, float]:
        """From one step to the next, across and down."""
        wide, high = self.graph_size
        return max(wide, 1.2) + 0.25, 0.32 + self.picture_size[1] + self.above + high + 0.2

    @property
    def across(self) -> int:
        """Steps in a row."""
        return min(self.count, max(1, int((14 - self.left) / self.pitch[0])))

    def figure(self, title: str, threshold: float | int, own: bool, steps: int, pictures: bool) -> Figure:
        """The empty figure with title and legend."""
        down = math.ceil(self.count / self.across)
        width = max(self.left + self.across * self.pitch[0], 6.0)
        height = 0.75 + down * self.pitch[1]
        figure = style.new_figure(width, height)
        figure.text(0.15 / width, 1 - 0.25 / height, title, size=style.TITLE_PT, weight="bold", va="center")
        handles = [self._key(outcome) for outcome in _CALLED]
        _legend(figure, handles, [WORDS[outcome] for outcome in _CALLED], (0.15 / width, 1 - 0.47 / height), 3)
        arrows = "arrow: cause → effect" + (", rim: self-edge" if own else "")
        reads = arrows if self.as_nodes else "a row depends on a column"
        some = f"{self.count} of {steps} steps" if self.count < steps else f"{steps} steps"
        before = ", each pictured before its action" if pictures else ""
        words = f"{some}{before}; {reads}; predicted where score ≥ {threshold:.3g}"
        figure.text(3.0 / width, 1 - 0.53 / height, words, size=style.SMALL_PT, color=style.GREY, va="center")
        return figure

    def _key(self, outcome: int) -> Line2D | tuple[Line2D, ...]:
        if self.as_nodes:
            return Line2D([], [], color=COLORS[outcome], ls=DASHES[outcome], lw=1.8)
        return _key(COLORS[outcome], MARKS[outcome])

    def _axes(self, figure: Figure, place: int, drop: float, size: tuple[float, float]) -> Axes:
        """Axes of a size, `drop` under the top of the place of a step."""
        width, height = figure.get_size_inches()
        down, across = divmod(place, self.across)
        x = self.left + across * self.pitch[0] + (self.graph_size[0] - size[0]) / 2
        y = height - 0.75 - down * self.pitch[1] - drop - size[1]
        return figure.add_axes((x / width, y / height, size[0] / width, size[1] / height))

    def draw_picture(self, figure: Figure, place: int, picture: UInt8[np.ndarray, "_height _width 3"]) -> None:
        """The world, above the graph of a step."""
        axes = self._axes(figure, place, 0.27, self.picture_size)
        axes.imshow(picture)
        axes.set_axis_off()

    def draw_graph(
        self,
        figure: Figure,
        place: int,
        results: Int[np.ndarray, "dst src"],
        hidden: Bool[np.ndarray, "dst src"],
        caption: str,
    ) -> None:
        """The graph of a step, and its caption over all of it."""
        axes = self._axes(figure, place, 0.32 + self.picture_size[1] + self.above, self.graph_size)
        rise = (self.picture_size[1] + self.above + 0.16) * 72
        if self.as_nodes:
            node_graph(axes, self.rows.names, self.columns.names, results, hidden, self.type_pt)
        else:
            label_columns(axes, self.columns, self.heads, self.type_pt)
            draw_outcomes(axes, self.rows, self.columns, results, hidden, self.cell * 72 * 0.25)
            axes.set_yticks([])
            if place % self.across == 0:
                label_rows(axes, self.rows, self.type_pt)
        axes.annotate(
            caption,
            (0, 1),
            xycoords="axes fraction",
            xytext=(0, rise),
            textcoords="offset points",
            size=style.LABEL_PT,
            weight="bold",
            va="center",
        )


def node_graph(
    axes: Axes,
    dst_names: Sequence[str],
    src_names: Sequence[str],
    results: Int[np.ndarray, "dst src"],
    hidden: Bool[np.ndarray, "dst src"],
    type_pt: float,
) -> None:
    """Entities on a circle, the action on top, and an arrow for every edge; an entity's self-edge is its rim."""
    nodes = list(dict.fromkeys([*src_names[::-1][:1], *src_names[:-1], *dst_names]))
    angles = math.pi / 2 - 2 * math.pi * np.arange(len(nodes)) / len(nodes)
    spots = dict(zip(nodes, zip(np.cos(angles), np.sin(angles), strict=True), strict=True))
    rims = dict.fromkeys(nodes, style.GREY)
    for i, j in zip(*np.nonzero((results != NOTHING) & ~hidden), strict=True):
        outcome, src, dst = int(results[i, j]), src_names[j], dst_names[i]
        if src == dst:
            rims[dst] = COLORS[outcome]
            continue
        arrow = FancyArrowPatch(
            spots[src],
            spots[dst],
            arrowstyle="-|>",
            mutation_scale=9,
            connectionstyle="arc3,rad=0.13",
            shrinkA=6,
            shrinkB=6,
            color=COLORS[outcome],
            ls=DASHES[outcome],
            lw=1.6,
        )
        axes.add_patch(arrow)
    for name, (x, y) in spots.items():
        axes.plot(x, y, "s" if name == ACTION else "o", ms=7, mfc=style.PALE, mec=rims[name], mew=1.4)
        middle = abs(x) < 0.1
        side = "center" if middle else "left" if x > 0 else "right"
        rise = "center" if not middle else "bottom" if y > 0 else "top"
        axes.text(1.16 * x, 1.16 * y, name, size=type_pt, ha=side, va=rise)
    axes.set_xlim(-_NODES_WIDE, _NODES_WIDE)
    axes.set_ylim(-_NODES_HIGH, _NODES_HIGH)
    axes.set_aspect("equal")
    axes.set_axis_off()


def _check_strip(
    truths: np.ndarray, scores: np.ndarray, action_names: Sequence[str], pictures: Sequence[np.ndarray] | None
) -> None:
    if truths.ndim != 3 or scores.ndim != 3:
        raise ValueError(f"a strip needs graphs [time, dst, src]; got truths {truths.shape}, scores {scores.shape}")
    if len(action_names) != len(truths):
        raise ValueError(f"{len(truths)} steps, but {len(action_names)} names of actions; give one for each step")
    if pictures is None:
        return
    if len(pictures) != len(truths):
        raise ValueError(f"{len(truths)} steps, but {len(pictures)} pictures; give one for each step")
    if len({picture.shape for picture in pictures}) > 1:
        raise ValueError(f"pictures of several shapes: {sorted({picture.shape for picture in pictures})}")


def _check_steps(steps: Sequence[int] | None, count: int) -> list[int]:
    shown = list(range(count)) if steps is None else list(steps)
    if not shown or any(not 0 <= step < count for step in shown):
        raise ValueError(f"steps={shown} given; draw one or more of the steps 0 to {count - 1}")
    return shown
