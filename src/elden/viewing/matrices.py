"""One dependency graph as a matrix: its names, its cells, the outcome of every edge."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Array, Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection, QuadMesh
from matplotlib.colors import BoundaryNorm, Colormap, LinearSegmentedColormap, ListedColormap, Normalize
from matplotlib.patches import Rectangle

from elden.factors import ACTION
from elden.viewing import style

NOTHING, FOUND, MISSED, FALSE_ALARM = range(4)
"""The outcomes of an edge."""

COLORS = (style.PAPER, style.FOUND, style.MISSED, style.FALSE_ALARM)
WORDS = ("no edge", "found", "missed", "false alarm")
DASHES = ("solid", "solid", "dashed", "dotted")
MARKS = ("", "", "o", "x")
_ACTION_GAP = 0.5
_DECADES = 2
GLYPH = 0.62  # width of a letter over the size of the type, on average and rounded up


def self_edges(dst_names: Sequence[str], src_names: Sequence[str]) -> Bool[np.ndarray, "dst src"]:
    """Where source and destination are the same variable or entity, or, of unlike granularity, belong together."""

    def same(dst: str, src: str) -> bool:
        alike = ("." in dst) == ("." in src)
        return dst == src if alike else dst.split(".")[0] == src.split(".")[0]

    return np.array([[same(dst, src) for src in src_names] for dst in dst_names], bool)


def outcomes(
    truth: Bool[np.ndarray | Array, "*batch _dst _src"],
    scores: Float[np.ndarray | Array, "*batch _dst _src"],
    threshold: float | int,
) -> Int[np.ndarray, "*batch _dst _src"]:
    """`NOTHING`, `FOUND`, `MISSED` or `FALSE_ALARM` for every edge, predicted where `score >= threshold`."""
    true, predicted = np.asarray(truth), np.asarray(scores) >= threshold
    return np.select([true & predicted, true, predicted], [FOUND, MISSED, FALSE_ALARM], NOTHING)


@dataclass(frozen=True)
class Side:
    """The cells along one side of a matrix: names in order, in groups of one entity, the action set apart."""

    names: tuple[str, ...]

    @property
    def fine(self) -> bool:
        """Whether there are variables, and not only entities."""
        return any("." in name for name in self.names)

    @property
    def apart(self) -> bool:
        """Whether the last one is the action."""
        return self.names[-1] == ACTION

    @property
    def starts(self) -> list[float]:
        """Where each cell begins."""
        places = [float(i) for i in range(len(self.names))]
        return [*places[:-1], places[-1] + _ACTION_GAP] if self.apart else places

    @property
    def extent(self) -> float:
        """Where the last cell ends."""
        return self.starts[-1] + 1

    @cached_property
    def small(self) -> list[str]:
        """The label of each cell within its entity; empty for what has no variables."""
        return [name.split(".", 1)[1] if "." in name else "" for name in self.names]

    @cached_property
    def groups(self) -> list[tuple[str, float, float]]:
        """Entity, start and end of every run of cells that belong together."""
        runs = itertools.groupby(zip(self.names, self.starts, strict=True), key=lambda pair: pair[0].split(".")[0])
        found = [(entity, [start for _, start in run]) for entity, run in runs]
        return [(entity, starts[0], starts[-1] + 1) for entity, starts in found]

    @property
    def widest_small(self) -> int:
        """Letters of the longest label within an entity."""
        return max(map(len, self.small))

    @property
    def widest_group(self) -> int:
        """Letters of the longest entity name."""
        return max(len(entity) for entity, *_ in self.groups)


@dataclass(frozen=True)
class Heads:
    """How the names over the columns stand, in points.

    Attributes:
        entity_pt: From the matrix up to the names of entities.
        height_pt: From the matrix up to the end of all names.
        level: Whether the names of entities lie level, since all are narrower than their columns.
        fine: Whether the variables are named too.
    """

    entity_pt: float
    height_pt: float
    level: bool
    fine: bool


def heads(side: Side, cell_in: float, type_pt: float, fine: bool = True) -> Heads:
    """The measures of the names over columns of this width, in type of this size."""
    letter, fine = type_pt * GLYPH, fine and side.fine
    entities = [group for group in side.groups if group[0] != ACTION] or side.groups
    level = all(len(entity) * letter < (end - start) * cell_in * 72 for entity, start, end in entities)
    offset = 3.0 + (side.widest_small * letter + 4 if fine else 0)
    tall = type_pt * 1.3 if level else max(len(entity) for entity, *_ in entities) * letter
    action = 3.0 + len(ACTION) * letter if side.apart else 0.0
    return Heads(offset, max(offset + tall, action), level, fine)


def label_columns(axes: Axes, side: Side, measures: Heads, type_pt: float) -> None:
    """Names above a matrix: variables upright, entities once over all their variables, level where they fit."""
    centres = [start + 0.5 for start in side.starts]
    axes.xaxis.tick_top()
    axes.set_xticks(centres, side.small if measures.fine else [""] * len(centres))
    axes.tick_params("x", length=0, pad=2, labelsize=type_pt, labelrotation=90)
    for entity, start, end in side.groups:
        alone = entity == ACTION
        axes.annotate(
            entity,
            ((start + end) / 2, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3 if alone else measures.entity_pt),
            textcoords="offset points",
            rotation=0 if measures.level and not alone else 90,
            ha="center",
            va="bottom",
            size=type_pt,
            weight="bold",
        )


def label_rows(axes: Axes, side: Side, type_pt: float, fine: bool = True) -> None:
    """Names left of a matrix: variables, and before them the entity, once."""
    axes.set_yticks([start + 0.5 for start in side.starts], side.small if fine else [""] * len(side.names))
    axes.tick_params("y", length=0, pad=2, labelsize=type_pt)
    offset = 3 + (side.widest_small * type_pt * GLYPH + 4 if fine and side.fine else 0)
    for entity, start, end in side.groups:
        axes.annotate(
            entity,
            (0, (start + end) / 2),
            xycoords=("axes fraction", "data"),
            xytext=(-offset, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            size=type_pt,
            weight="bold",
        )


def draw_matrix(
    axes: Axes,
    rows: Side,
    columns: Side,
    values: Float[np.ndarray, "dst src"] | Int[np.ndarray, "dst src"],
    hidden: Bool[np.ndarray, "dst src"],
    cmap: Colormap,
    norm: Normalize,
    hatched: bool = True,
) -> QuadMesh:
    """Cells in colours, lines between entities, the action's column set apart, hatching over what is left out."""
    edges = [*columns.starts, columns.extent]
    shown, left_out = values.astype(np.float64), hidden
    if columns.apart:
        # The gap before the action is a column of its own, which is left out.
        edges.insert(-2, edges[-2] - _ACTION_GAP)
        shown, left_out = np.insert(shown, -1, 0.0, axis=1), np.insert(hidden, -1, True, axis=1)
    shown = np.ma.masked_array(shown, left_out)
    mesh = axes.pcolormesh(edges, np.arange(len(values) + 1), shown, cmap=cmap, norm=norm)
    boxes = [Rectangle((columns.starts[j], i), 1, 1) for i, j in zip(*np.nonzero(hidden), strict=True)]
    axes.add_collection(PatchCollection(boxes, fc=style.PALE, ec=style.RULE, hatch="//////" if hatched else None, lw=0))
    for (_, left, right), (_, top, bottom) in itertools.product(columns.groups, rows.groups):
        axes.add_patch(
            Rectangle((left, top), right - left, bottom - top, fill=False, ec=style.GREY, lw=0.6, clip_on=False)
        )
    axes.set_xlim(0, columns.extent)
    axes.set_ylim(rows.extent, 0)
    axes.spines[:].set_visible(False)
    return mesh


def draw_outcomes(
    axes: Axes,
    rows: Side,
    columns: Side,
    results: Int[np.ndarray, "dst src"],
    hidden: Bool[np.ndarray, "dst src"],
    mark_pt: float,
) -> None:
    """A matrix in the three colours, with marks, so that it also reads without colour."""
    norm = BoundaryNorm(np.arange(5) - 0.5, 4)
    draw_matrix(axes, rows, columns, results, hidden, ListedColormap(COLORS), norm, hatched=mark_pt > 2)
    for outcome in (MISSED, FALSE_ALARM):
        i, j = np.nonzero((results == outcome) & ~hidden)
        places = np.asarray(columns.starts)[j] + 0.5
        face = style.PAPER if MARKS[outcome] == "o" else None
        axes.plot(places, i + 0.5, MARKS[outcome], ms=mark_pt, mfc=face, mec=style.PAPER, mew=max(0.5, mark_pt / 4))


def relative_scores(
    scores: Float[np.ndarray, "dst src"], threshold: float, hidden: Bool[np.ndarray, "dst src"]
) -> tuple[Float[np.ndarray, "dst src"], Normalize, dict[float, str], str]:
    """Scores about the threshold, in [-1, 1], the norm, the ticks of the bar and what it shows.

    Scores of no sign are put on a log axis, log10(score / threshold) / 2; others (log-ratios) on a linear one, where 1
    is the distance to the threshold that a score in twenty exceeds.
    """
    values = scores.astype(np.float64)
    if threshold > 0 and float(values.min()) >= 0:
        floor = threshold * 10.0 ** (-2 * _DECADES)
        shown = np.log10(np.maximum(values, floor) / threshold) / _DECADES
        ticks = {d / _DECADES: f"{10.0**d:g}×" if d else "threshold" for d in range(-_DECADES, _DECADES + 1)}
        words = f"score / threshold ({threshold:.3g}), log scale"
    else:
        away = np.abs(values - threshold)[~hidden]
        scale = float(np.quantile(away, 0.95)) if away.size and away.max() > 0 else 1.0
        scale = scale or float(away.max())
        shown = (values - threshold) / scale
        ticks = {s: f"{threshold + s * scale:.2g}" if s else "threshold" for s in (-1.0, 0.0, 1.0)}
        words = f"score, threshold {threshold:.3g}"
    # Clipped a little outside the norm, so that the ends of the bar show that there is more beyond them.
    return np.clip(shown, -1.01, 1.01), Normalize(-1, 1), ticks, words


def break_map() -> Colormap:
    """White to grey below the middle, light to dark blue from the middle on: the threshold shows as a break."""
    low = LinearSegmentedColormap.from_list("low", ["#FFFFFF", "#B9BEC3"])(np.linspace(0, 1, 128))
    high = LinearSegmentedColormap.from_list("high", ["#9AD0F0", style.BLUE, "#00304D"])(np.linspace(0, 1, 128))
    return ListedColormap(np.concatenate([low, high]))


def check_graphs(
    truth: np.ndarray,
    scores: np.ndarray,
    threshold: float | int,
    dst_names: Sequence[str],
    src_names: Sequence[str],
    mask: np.ndarray | None,
) -> Bool[np.ndarray, "dst src"]:
    """Refuse what does not fit together; gives the cells that are left out."""
    expected = (len(dst_names), len(src_names))
    if 0 in expected:
        raise ValueError(f"a graph needs names on both sides; got {expected[0]} for rows and {expected[1]} for columns")
    for what, array in (("truth", truth), ("scores", scores)):
        if array.ndim not in (2, 3) or array.shape[-2:] != expected or 0 in array.shape:
            raise ValueError(
                f"{what} has shape {array.shape}, but {expected[0]} names of rows and {expected[1]} of columns ask for"
                f" {expected}, with or without time before it"
            )
    if truth.shape != scores.shape:
        raise ValueError(f"truth has shape {truth.shape} but scores have {scores.shape}; give both for the same steps")
    if not math.isfinite(threshold):
        raise ValueError(f"the threshold is {threshold}; it must be a finite number")
    if not np.isfinite(scores).all():
        raise ValueError(f"{int((~np.isfinite(scores)).sum())} of {scores.size} scores are not finite")
    if truth.dtype != np.bool_:
        _check_rates(truth, scores)
    if mask is not None and mask.shape != expected:
        raise ValueError(f"mask has shape {mask.shape}, but the graph is {expected}")
    return np.zeros(expected, bool) if mask is None else np.asarray(mask)


def _check_rates(truth: np.ndarray, scores: np.ndarray) -> None:
    for what, array in (("truth", truth), ("scores", scores)):
        if array.ndim != 2 or not ((array >= 0) & (array <= 1)).all():
            raise ValueError(
                f"truth of {truth.dtype} is an average, so truth and scores must be shares in [0, 1] of shape [dst,"
                f" src]; {what} of shape {array.shape} lie in [{array.min():.3g}, {array.max():.3g}]. For single"
                " transitions give a bool truth"
            )
