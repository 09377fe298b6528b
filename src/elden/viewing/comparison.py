"""Bonuses beside each other: how agents learn with each of them, and how far they come."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from elden.viewing import style
from elden.viewing.curves import smooth, thousands

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

_PANELS_ACROSS = 5
"""So many worlds stand in one row of panels; more are spread over rows of four."""
_TITLE_LETTERS = 44
_ALWAYS = ("influence-count", "none", "elden", "disagreement", "curiosity", "cai")
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)), (0, (8, 3)))


@dataclass(frozen=True)
class Line:
    """How the agents of one contender did over a training run."""

    world: str
    contender: str
    steps: Int[np.ndarray, " time"]
    values: Float[np.ndarray, "time agent"]


def running_mean(values: Float[np.ndarray, "time agent"]) -> Float[np.ndarray, "time agent"]:
    """Means over each number and the three before it."""
    return smooth(values, 4)


@style.styled
def bonus_curves(lines: Sequence[Line], title: str) -> "matplotlib.figure.Figure":
    """A panel for each world: a thin line for each agent, a thick one for the mean of a contender's agents.

    Raises:
        ValueError: Nothing to draw.
    """
    if not lines:
        raise ValueError("no agents to draw curves of")
    worlds = list(dict.fromkeys(line.world for line in lines))
    names = list(dict.fromkeys(line.contender for line in lines))
    colors = style.bonus_colors(names)
    across = len(worlds) if len(worlds) <= _PANELS_ACROSS else math.ceil(len(worlds) / math.ceil(len(worlds) / 4))
    down = math.ceil(len(worlds) / across)
    width = 0.5 + 4.2 * across
    columns, legend = _legend_shape(names, width)
    height = 0.53 + 3.2 * down + legend
    figure = style.new_figure(width, height)
    figure.set_layout_engine("constrained", rect=(0, legend / height, 1, 1 - (legend + 0.53) / height))
    panels = figure.subplots(down, across, squeeze=False)
    for axes in panels.flat[len(worlds) :]:
        axes.remove()
    for axes, world in zip(panels.flat, worlds, strict=False):
        for line in (line for line in lines if line.world == world):
            color, dash = colors[line.contender], _dash(names, line.contender)
            axes.plot(line.steps, line.values, color=color, lw=0.6, alpha=0.35)
            some = np.isfinite(line.values).any(1)
            axes.plot(line.steps[some], np.nanmean(line.values[some], axis=1), color=color, lw=2.2, ls=dash)
        axes.set_title(textwrap.fill(world, _TITLE_LETTERS, break_on_hyphens=False), weight="bold")
        axes.set_ylim(-0.03, 1.03)
        axes.set_xlim(0, None)
        axes.set_xlabel("steps of each agent")
        axes.xaxis.set_major_formatter(thousands)
        axes.grid(axis="y")
    for axes in panels[:, 0]:
        axes.set_ylabel("share of episodes")
    _head(figure, title, "thin: each agent; thick: the mean of a bonus's agents")
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=colors[name], ls=_dash(names, name), lw=2.2) for name in names]
    figure.legend(handles, names, loc="lower center", ncols=columns, handlelength=3.2)
    return figure


@style.styled
def stage_bars(
    rates: Mapping[tuple[str, str], Mapping[str, Float[np.ndarray, " agent"]]], title: str
) -> "matplotlib.figure.Figure":
    """A panel for each world: how often each stage was reached at the end, by contender, with a dot for each agent.

    Args:
        rates: For each world and contender, for each stage in its order, a rate for each agent.
        title: Title of the figure.

    Raises:
        ValueError: Nothing to draw.
    """
    if not rates:
        raise ValueError("no agents to draw stages of")
    worlds = list(dict.fromkeys(world for world, _ in rates))
    names = list(dict.fromkeys(name for _, name in rates))
    colors = style.bonus_colors(names)
    most = max(len(stages) for stages in rates.values())
    width = 1.0 + max(5.0, 0.24 * most * len(names))
    columns, legend = _legend_shape(names, width)
    height = 0.5 + legend + 2.5 * len(worlds)
    figure = style.new_figure(width, height)
    figure.set_layout_engine("constrained", rect=(0, legend / height, 1, 1 - (legend + 0.6) / height))
    panels = figure.subplots(len(worlds), 1, squeeze=False)[:, 0]
    for axes, world in zip(panels, worlds, strict=True):
        here = {name: stages for (place, name), stages in rates.items() if place == world}
        _bars(axes, here, colors)
        axes.set_title(world, weight="bold")
    _head(figure, title, "of all episodes in the last tenth of the training, solvable or not; dots: each agent")
    from matplotlib.patches import Patch

    handles = [Patch(color=colors[name]) for name in names]
    figure.legend(handles, names, loc="lower center", ncols=columns)
    return figure


def _bars(
    axes: "matplotlib.axes.Axes",
    here: Mapping[str, Mapping[str, Float[np.ndarray, " agent"]]],
    colors: Mapping[str, str],
) -> None:
    stages = list(dict.fromkeys(stage for rates in here.values() for stage in rates))
    width = 0.8 / len(colors)
    for place, name in enumerate(colors):
        for group, stage in enumerate(stages):
            if stage not in here.get(name, {}):
                continue
            x = group + (place - (len(colors) - 1) / 2) * width
            values = here[name][stage]
            if not np.isfinite(values).any():
                continue  # no episode has ended yet
            axes.bar(x, float(np.nanmean(values)), width * 0.92, color=colors[name])
            axes.plot(np.full(len(values), x), values, ls="", marker="o", ms=2.2, color=style.INK, alpha=0.5)
    axes.set_xticks(range(len(stages)), stages)
    axes.set_ylim(0, 1.03)
    axes.set_ylabel("share of episodes")
    axes.grid(axis="y")


def _legend_shape(names: Sequence[str], width: float) -> tuple[int, float]:
    """Columns of a legend of these names in a figure of this width, and the legend's height, both sizes in inches."""
    widest = 0.75 + 0.08 * max(len(name) for name in names)
    columns = max(1, min(len(names), int(width / widest)))
    return columns, 0.15 + 0.22 * math.ceil(len(names) / columns)


def _dash(names: Sequence[str], name: str) -> object:
    """A bonus of the paper's has its own in every figure; others take those that are left."""
    ordered = [*_ALWAYS, *(other for other in names if other not in _ALWAYS)]
    return _DASHES[ordered.index(name) % len(_DASHES)]


def _head(figure: "matplotlib.figure.Figure", title: str, words: str) -> None:
    width, height = figure.get_size_inches()
    figure.text(0.12 / width, 1 - 0.2 / height, title, size=style.TITLE_PT, weight="bold", va="center")
    figure.text(0.12 / width, 1 - 0.42 / height, words, size=style.SMALL_PT, color=style.GREY, va="center")
