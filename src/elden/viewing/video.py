"""An episode as a video: the world beside its local graphs, step by step."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Array, Bool, Int, UInt8
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from elden.viewing import style
from elden.viewing.graphs import MAX_NODES, node_graph
from elden.viewing.matrices import (
    COLORS,
    DASHES,
    FALSE_ALARM,
    FOUND,
    MISSED,
    NOTHING,
    Side,
    check_graphs,
    draw_outcomes,
    heads,
    label_columns,
    label_rows,
    outcomes,
    self_edges,
)

_DPI = 100
_SIDE = 460
"""Pixels from left to right of the graphs."""
_ROOM = 52
"""Pixels of title and words above and under a graph."""
_FOOT = 66
"""Pixels of the legend."""
_WORDS = {FOUND: "true, and predicted", MISSED: "true, but not predicted", FALSE_ALARM: "predicted, but not true"}


@style.styled
def graph_video(
    pictures: Sequence[UInt8[np.ndarray, "_height _width 3"]],
    truths: Bool[np.ndarray | Array, "_time _dst _src"],
    predicted: Bool[np.ndarray | Array, "_time _dst _src"] | None,
    dst_names: Sequence[str],
    src_names: Sequence[str],
    note: str = "",
) -> list[UInt8[np.ndarray, "_high _wide 3"]]:
    """Frames with the world on the left, and on the right what depended on what in the step that led there.

    Above is the true graph; under it the models' graph, where there are models, with what is found, missed and false.
    Self-edges are left out. Entities are nodes and arrows, more than 20 of them a matrix.

    Args:
        pictures: The world before the first step and after each.
        truths: The true graphs of the steps.
        predicted: The edges that models predict in the same steps.
        dst_names: Names of the rows of a graph.
        src_names: Names of its columns, the action last.
        note: How the models are read, for the line above their graph.

    Raises:
        ValueError: Numbers of pictures, steps and names that do not fit.
    """
    true = np.asarray(truths)
    seen = true if predicted is None else np.asarray(predicted)
    if len(pictures) != len(true) + 1 or len({picture.shape for picture in pictures}) > 1:
        raise ValueError(
            f"{len(pictures)} pictures of {len({picture.shape for picture in pictures})} shapes for {len(true)} steps;"
            " give one of one shape before the first step and after each"
        )
    hidden = self_edges(dst_names, src_names)
    check_graphs(true, seen.astype(float), 0.5, dst_names, src_names, hidden)
    panel = _Panel(tuple(dst_names), tuple(src_names), hidden, predicted is not None, pictures[0].shape[0], note)
    drawn: dict[bytes, UInt8[np.ndarray, "high wide 3"]] = {}
    nothing = np.zeros(hidden.shape, np.bool_)
    frames = []
    for number, picture in enumerate(pictures):
        now = (true[number - 1], seen[number - 1]) if number else (nothing, nothing)
        place = now[0].tobytes() + now[1].tobytes() + bytes([number > 0])
        if place not in drawn:
            drawn[place] = panel.draw(now[0], now[1], begun=number > 0)
        frames.append(np.concatenate([_filled(picture, panel.height), drawn[place]], axis=1))
    return frames


@dataclass(frozen=True)
class _Panel:
    """One or two graphs over each other, in pixels."""

    dst_names: tuple[str, ...]
    src_names: tuple[str, ...]
    hidden: Bool[np.ndarray, "dst src"]
    models: bool
    picture_height: int
    note: str

    @property
    def as_nodes(self) -> bool:
        """Whether graphs are nodes and arrows."""
        return len(set(self.dst_names) | set(self.src_names)) <= MAX_NODES

    @property
    def graphs(self) -> int:
        """How many there are."""
        return 1 + self.models

    @property
    def least(self) -> int:
        """The least height of a graph: many nodes need room for their names."""
        return 210 if len(self.src_names) <= 10 else 300

    @property
    def height(self) -> int:
        """That of a frame: the picture's, unless graphs need more."""
        return max(self.picture_height, self.graphs * (self.least + _ROOM) + _FOOT)

    def draw(
        self, truth: Bool[np.ndarray, "dst src"], predicted: Bool[np.ndarray, "dst src"], begun: bool
    ) -> UInt8[np.ndarray, "high wide 3"]:
        """The graphs of one step."""
        figure = Figure(figsize=(_SIDE / _DPI, self.height / _DPI), dpi=_DPI)
        canvas = FigureCanvasAgg(figure)
        true = np.where(truth, FOUND, NOTHING)
        count = int((truth & ~self.hidden).sum())
        words = f"{count} edge{'' if count == 1 else 's'}" if begun else "the episode begins"
        self._graph(figure, 0, true, "What depended on what in this step", words)
        if self.models:
            results = outcomes(truth, predicted.astype(float), 0.5)
            numbers = {outcome: int(((results == outcome) & ~self.hidden).sum()) for outcome in _WORDS}
            counts = f"{numbers[FOUND]} found, {numbers[MISSED]} missed, {numbers[FALSE_ALARM]} false"
            self._graph(figure, 1, results, "What the agent's models predict", f"{counts}{self.note}" if begun else "")
        self._legend(figure)
        canvas.draw()  # type: ignore[no-untyped-call]
        return np.array(canvas.buffer_rgba())[..., :3].copy()  # type: ignore[no-untyped-call]

    def _graph(self, figure: Figure, place: int, results: Int[np.ndarray, "dst src"], title: str, words: str) -> None:
        """A graph under its title."""
        share = (self.height - _FOOT) / self.graphs
        top = self.height - place * share
        for drop, text, size, color, weight in (
            (16, title, style.LABEL_PT + 1, style.INK, "bold"),
            (34, words, style.LABEL_PT - 0.5, style.GREY, "normal"),
        ):
            place_y = (top - drop) / self.height
            figure.text(0.03, place_y, text, size=size, color=color, weight=weight, va="center")
        box = np.array([0, top - share + 4, _SIDE, share - _ROOM]) / [_SIDE, self.height, _SIDE, self.height]
        axes = figure.add_axes((float(box[0]), float(box[1]), float(box[2]), float(box[3])))
        if self.as_nodes:
            node_graph(axes, self.dst_names, self.src_names, results, self.hidden, style.LABEL_PT - 0.5)
        else:
            self._matrix(axes, results, share - _ROOM)

    def _matrix(self, axes: Axes, results: Int[np.ndarray, "dst src"], high: float) -> None:
        """A graph of many entities as small squares."""
        rows, columns = Side(self.dst_names), Side(self.src_names)
        cell = min(0.62 * _SIDE / columns.extent, 0.72 * high / rows.extent)
        type_pt = float(np.clip(cell * 72 / _DPI * 0.8, 3.5, style.SMALL_PT))
        left, wide, tall = 0.34, cell * columns.extent / _SIDE, cell * rows.extent / high
        box = axes.get_position()
        axes.set_position((left, box.y0 + 0.02 * box.height, wide, tall * box.height))
        label_columns(axes, columns, heads(columns, cell / _DPI, type_pt), type_pt)
        label_rows(axes, rows, type_pt)
        draw_outcomes(axes, rows, columns, results, self.hidden, cell * 72 / _DPI * 0.25)

    def _legend(self, figure: Figure) -> None:
        shown = _WORDS if self.models else {FOUND: "true"}
        handles = [Line2D([], [], color=COLORS[outcome], ls=DASHES[outcome], lw=1.8) for outcome in shown]
        figure.legend(
            handles,
            list(shown.values()),
            loc="lower left",
            bbox_to_anchor=(0.02, 24 / self.height),
            ncols=2,
            borderpad=0,
            borderaxespad=0,
            handlelength=2.2,
            columnspacing=1.4,
        )
        reads = "arrow: cause → effect" if self.as_nodes else "a row depends on a column"
        words = f"{reads}; self-edges are left out"
        figure.text(0.03, 11 / self.height, words, size=style.SMALL_PT, color=style.GREY, va="center")


def _filled(picture: UInt8[np.ndarray, "high wide 3"], height: int) -> UInt8[np.ndarray, "higher wide 3"]:
    """A picture with white under it up to this height."""
    white = np.full((height - picture.shape[0], *picture.shape[1:]), 255, np.uint8)
    return np.concatenate([picture, white])
