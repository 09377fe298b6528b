"""How a training went: one line for each agent, and their mean."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from elden.viewing import style

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

_WINDOWS = 40
"""A line is smoothed over about one part in so many of what there is to draw."""
_MOST_NAMES = 8


@dataclass(frozen=True)
class Curve:
    """One number over a training run."""

    title: str
    """What it is."""
    unit: str
    """What its axis says."""
    values: Float[np.ndarray, "time agent"]
    """A number for each agent; NaN where there is none."""
    share: bool = False
    """Whether it lies between 0 and 1."""


@style.styled
def learning_curves(
    steps: Sequence[int], curves: Sequence[Curve], title: str, names: Sequence[str]
) -> "matplotlib.figure.Figure":
    """A panel for each curve: thin lines for the agents, a thick one for their mean.

    Args:
        steps: Steps that each agent had taken.
        curves: What to draw; those without any number are left out.
        title: Title of the figure.
        names: What to call the agents.

    Raises:
        ValueError: Nothing to draw, or lengths that do not fit.
    """
    shown = [curve for curve in curves if np.isfinite(curve.values).any()]
    if not shown:
        raise ValueError("no numbers to draw learning curves of")
    for curve in shown:
        if curve.values.shape != (len(steps), len(names)):
            raise ValueError(f"{curve.title!r} has shape {curve.values.shape}; expected is {(len(steps), len(names))}")
    across = min(2, len(shown))
    down = -(-len(shown) // across)
    figure = style.new_figure(0.4 + 4.6 * across, 1.0 + 2.7 * down)
    width, height = figure.get_size_inches()
    figure.set_layout_engine("constrained", rect=(0, 0, 1, 1 - 0.62 / height), hspace=0.06, wspace=0.05)
    panels = figure.subplots(down, across, squeeze=False).ravel()
    window = max(1, len(steps) // _WINDOWS)
    for axes, curve in zip(panels, shown, strict=False):
        _draw(axes, np.asarray(steps, float), curve, window)
    for axes in panels[len(shown) :]:
        axes.set_axis_off()
    agents = f"{len(names)} agents" if len(names) > 1 else "1 agent"
    lines = "; thin: each agent, thick: their mean" if len(names) > 1 else ""
    smooth = f"; running means over {window} rollouts" if window > 1 else ""
    figure.text(0.12 / width, 1 - 0.22 / height, title, size=style.TITLE_PT, weight="bold", va="center")
    which = ", ".join(names) if len(names) <= _MOST_NAMES else f"{names[0]} to {names[-1]}"
    words = f"{agents} ({which}){lines}{smooth}"
    figure.text(0.12 / width, 1 - 0.45 / height, words, size=style.SMALL_PT, color=style.GREY, va="center")
    return figure


def _draw(axes: "matplotlib.axes.Axes", steps: Float[np.ndarray, " time"], curve: Curve, window: int) -> None:
    lines = smooth(curve.values, window)
    for line in lines.T:
        axes.plot(steps, line, color=style.SKY, lw=0.8)
    some = np.isfinite(lines).any(1)
    mean = np.nanmean(lines[some], axis=1)
    axes.plot(steps[some], mean, color=style.BLUE, lw=2.2)
    axes.annotate(
        f"{mean[-1]:.3g}",
        (steps[some][-1], mean[-1]),
        xytext=(4, 0),
        textcoords="offset points",
        color=style.BLUE,
        size=style.LABEL_PT,
        weight="bold",
        va="center",
        annotation_clip=False,
    )
    axes.set_title(curve.title, weight="bold")
    axes.set_ylabel(curve.unit)
    axes.set_xlabel("steps of each agent")
    axes.xaxis.set_major_formatter(thousands)
    axes.set_xlim(0, steps[-1] * 1.08)
    if curve.share:
        axes.set_ylim(-0.03, 1.03)
    elif np.nanmin(lines) >= 0:
        axes.set_ylim(0, None)
    axes.grid(axis="y")


def smooth(values: Float[np.ndarray, "time agent"], window: int) -> Float[np.ndarray, "time agent"]:
    """Means over each number and those before it, without what is not there."""
    known = np.isfinite(values)
    sums, counts = (np.cumsum(part, axis=0) for part in (np.where(known, values, 0.0), known.astype(float)))
    sums[window:], counts[window:] = sums[window:] - sums[:-window], counts[window:] - counts[:-window]
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def thousands(value: float, _: object) -> str:
    """Steps as an axis shows them."""
    if value >= 1e6:
        return f"{value / 1e6:g} M"
    return f"{value / 1e3:g} k" if value >= 1e3 else f"{value:g}"
