"""Which bonus solves which world: a map with a row for each bonus and a column for each world."""

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elden.viewing import style
from elden.viewing.tables import MISSING, Table

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

_COLORS = "YlGnBu"
_CELL_IN = (0.94, 0.47)
_TITLE_LETTERS = 15
_LINE_IN = 0.135
"""Height of a line of small type."""
_LETTER_IN = 0.065
_HEAD_IN, _BAR_IN = 0.72, 0.55
"""Space for the title, and for the colour bar below."""


@dataclass(frozen=True)
class MapCell:
    """The agents with one bonus in one world.

    Attributes:
        world: Title of the column.
        contender: Name of the row.
        solved: Agents that solve the world at the end of their training.
        agents: All agents.
        interval: 95 % confidence interval of the rate at which agents solve it.
        median_steps: Censored median of the steps to solve; infinite where fewer than half of the agents got there.
        steps: Steps for which each agent was trained.
        finished: Whether the training run is at its end.
    """

    world: str
    contender: str
    solved: int
    agents: int
    interval: tuple[float, float]
    median_steps: float | int
    steps: int
    finished: bool = True

    def __post_init__(self) -> None:
        """Check the counts."""
        if not 0 <= self.solved <= self.agents or self.agents < 1:
            raise ValueError(f"{self.contender} in {self.world}: {self.solved} of {self.agents} agents given")

    @property
    def rate(self) -> float:
        """Share of the agents that solve the world."""
        return self.solved / self.agents

    @property
    def words(self) -> str:
        """The cell in a table: count, interval and censored median."""
        low, high = self.interval
        known = math.isfinite(self.median_steps)
        median = f"{self.median_steps:,.0f}" if known else f"> {self.steps:,}"
        return f"{self.solved}/{self.agents} [{low:.2f}, {high:.2f}], {median}{'' if self.finished else ' …'}"

    def numbers(self) -> dict[str, object]:
        """The cell in a file of results; the median is null where it is censored, and then larger than `steps`."""
        return {
            "world": self.world,
            "contender": self.contender,
            "solved": self.solved,
            "agents": self.agents,
            "interval": list(self.interval),
            "median_steps": self.median_steps if math.isfinite(self.median_steps) else None,
            "steps": self.steps,
            "finished": self.finished,
        }


def map_table(cells: Sequence[MapCell], title: str) -> Table:
    """The map as a table of words, for Markdown and for a terminal."""
    worlds, names, found = _axes_of(cells)
    rows = [
        (name, *(found[world, name].words if (world, name) in found else MISSING for world in worlds)) for name in names
    ]
    return Table(title, ("bonus", *worlds), tuple(rows))


@style.styled
def solve_map(cells: Sequence[MapCell], title: str, solved_at: float) -> "matplotlib.figure.Figure":
    """The map as a picture: colour is the share of agents that solve a world; cells hold counts and medians.

    Args:
        cells: What is known; pairs of a bonus and a world that are not among them stay grey.
        title: Title of the figure.
        solved_at: Success from which on an agent solves a world, for the explanation below the title.

    Raises:
        ValueError: Nothing to draw.
    """
    if not cells:
        raise ValueError("no agents to draw a map of")
    worlds, names, found = _axes_of(cells)
    tops = [_column_title(world, [cell for cell in cells if cell.world == world]) for world in worlds]
    left = 0.3 + _LETTER_IN * max(map(len, names))
    columns = _LINE_IN * max(top.count("\n") + 1 for top in tops) + 0.12
    words = _explanation(cells, solved_at)
    width = max(left + _CELL_IN[0] * len(worlds) + 0.15, 6.2)
    lines = [part for line in words for part in textwrap.wrap(line, int((width - 0.2) / 0.068))]
    head = _HEAD_IN + _LINE_IN * (len(lines) - 2)
    height = head + columns + _CELL_IN[1] * len(names) + _BAR_IN
    figure = style.new_figure(width, height)
    grid = (_CELL_IN[0] * len(worlds) / width, _CELL_IN[1] * len(names) / height)
    axes = figure.add_axes((left / width, _BAR_IN / height, *grid))
    _draw_cells(axes, worlds, names, found)
    axes.set_xticks(range(len(worlds)), tops)
    axes.set_yticks(range(len(names)), names, size=style.LABEL_PT)
    figure.text(0.12 / width, 1 - 0.2 / height, title, size=style.TITLE_PT, weight="bold", va="center")
    figure.text(
        0.12 / width,
        1 - 0.36 / height,
        "\n".join(lines),
        size=style.SMALL_PT,
        color=style.INK,
        va="top",
        linespacing=1.3,
    )
    _color_bar(figure, left)
    return figure


def _draw_cells(
    axes: "matplotlib.axes.Axes",
    worlds: Sequence[str],
    names: Sequence[str],
    found: Mapping[tuple[str, str], MapCell],
) -> None:
    """A coloured rectangle with two lines of text for each cell."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex
    from matplotlib.patches import Rectangle

    for row, name in enumerate(names):
        for column, world in enumerate(worlds):
            cell = found.get((world, name))
            color = style.PALE if cell is None else to_hex(colormaps[_COLORS](cell.rate))
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fc=color, ec=style.PAPER, lw=1.5))
            if cell is None:
                continue
            ink = style.text_color(color)
            count = f"{cell.solved}/{cell.agents}{'' if cell.finished else ' …'}"
            axes.text(
                column, row - 0.17, count, ha="center", va="center", color=ink, weight="bold", size=style.LABEL_PT
            )
            axes.text(column, row + 0.23, _millions(cell.median_steps), ha="center", va="center", color=ink, size=8)
    axes.set_xlim(-0.5, len(worlds) - 0.5)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _color_bar(figure: "matplotlib.figure.Figure", left: float) -> None:
    """The scale of the colours, below the cells."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    width, height = figure.get_size_inches()
    place = figure.add_axes((left / width, 0.3 / height, 2.4 / width, 0.11 / height))
    bar = figure.colorbar(ScalarMappable(Normalize(0, 1), _COLORS), cax=place, orientation="horizontal")
    bar.set_ticks([0, 0.5, 1], labels=["0 %", "50 %", "100 %"])
    bar.outline.set_visible(False)
    figure.text(
        (left + 2.65) / width, 0.355 / height, "of the agents solve the world", size=style.SMALL_PT, va="center"
    )


def _explanation(cells: Sequence[MapCell], solved_at: float) -> list[str]:
    """What colours and numbers mean, and how many agents there are."""
    counts = sorted({cell.agents for cell in cells})
    number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    lines = [
        f"{number} agent{'' if counts[-1] == 1 else 's'} in each cell. Colour and upper number: how many of them solve"
        f" the world (success ≥ {solved_at:.0%} over solvable initial states, last tenth of the training).",
        f"Lower number: median of the steps to solve, in millions (M); {MISSING} where fewer than half of the agents"
        " got there. Below each world: steps trained.",
    ]
    if not all(cell.finished for cell in cells):
        lines.append("…: training not finished.")
    return lines


def _column_title(world: str, cells: Sequence[MapCell]) -> str:
    """Title of a column in lines of a few letters, and the steps trained."""
    return "\n".join([*_wrapped(world), f"({_millions(max(cell.steps for cell in cells))})"])


def _wrapped(title: str) -> list[str]:
    """Lines that fit above a cell: each option begins a line, and long words break at hyphens."""
    lines = [""]
    for word in title.split():
        parts = re.findall(r"-*[^-]+-?|-+", word) if len(word) > _TITLE_LETTERS else [word]
        for place, part in enumerate(parts):
            joined = lines[-1] + part if place else f"{lines[-1]} {part}".strip()
            begins = place == 0 and word.startswith("--")
            if lines[-1] and (begins or len(joined) > _TITLE_LETTERS):
                lines.append(part)
            else:
                lines[-1] = joined
    return lines


def _millions(steps: float | int) -> str:
    """Steps in millions, in about two digits; a dash for what is not finite."""
    if not math.isfinite(steps):
        return MISSING
    value = steps / 1e6
    digits = max(0, 1 - math.floor(math.log10(value))) if 0 < value < 0.1 else 2 if value < 10 else 1
    text = f"{value:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}M"


def _axes_of(cells: Sequence[MapCell]) -> tuple[list[str], list[str], dict[tuple[str, str], MapCell]]:
    """Worlds and rows in the order in which they first occur, and the cells by both."""
    found = {(cell.world, cell.contender): cell for cell in cells}
    return list(dict.fromkeys(cell.world for cell in cells)), list(dict.fromkeys(c.contender for c in cells)), found
