"""The look that all figures share: colours, sizes of type, and how a figure becomes a file.

Colours are those of Okabe and Ito, which people with any of the common colour blindnesses can tell apart. A method or a
world has one colour, in every figure; where colour carries meaning, a mark or a dash carries it too.
"""

import functools
import io
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from PIL import Image

from elden.storage.files import write_bytes

if TYPE_CHECKING:
    import matplotlib.figure

INK, GREY, RULE, PALE, PAPER = "#26323A", "#7C8790", "#C9CED3", "#ECEEF0", "#FFFFFF"
"""Text, second-rank text, lines, faint areas and the background."""

ORANGE, SKY, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILLION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"

FOUND, MISSED, FALSE_ALARM = BLUE, ORANGE, PURPLE
"""Of an edge: true and predicted; true and not predicted; predicted and not true."""

SELF_EDGES_ALONE = "(self-edges alone)"
"""Name of the row that has every edge from a node to itself and no other."""
ALL_INTO_CHANGED = "(all into what changed)"
"""Name of the row that has every edge into an entity that changed."""

METHOD_COLORS: Mapping[str, str] = MappingProxyType(
    {
        "gradient": BLUE,
        "pcmi": ORANGE,
        "pcmi-sampled": YELLOW,
        "attention": GREEN,
        "input-mask": SKY,
        "attention-mask": PURPLE,
        "intervention": VERMILLION,
        SELF_EDGES_ALONE: GREY,
        ALL_INTO_CHANGED: "#B9BEC2",
    }
)
_BONUS_COLORS: Mapping[str, str] = MappingProxyType(
    {"elden": BLUE, "disagreement": ORANGE, "curiosity": GREEN, "cai": PURPLE, "none": GREY}
)
_WORLD_LOOKS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "thawing": (BLUE, "o"),
        "carwash": (VERMILLION, "s"),
        "minecraft": (GREEN, "^"),
        "kitchen": (PURPLE, "D"),
        "chain": (ORANGE, "v"),
        "empty": (SKY, "P"),
    }
)
_OTHER_COLORS = ("#4D4D4D", "#8C564B", "#332288", "#117733", "#882255", "#999933")
_OTHER_MARKERS = ("X", "p", "h", "<", ">", "8")

TITLE_PT, LABEL_PT, SMALL_PT = 12.0, 9.0, 7.5
"""Sizes of type: titles, labels, and what stands beside marks."""

DPI = 130
MAX_BYTES = 500_000
_DPI_STEPS = (DPI, 110, 92, 78, 65)

_SETTINGS: Mapping[str, object] = MappingProxyType(
    {
        "font.family": "DejaVu Sans",
        "font.size": LABEL_PT,
        "axes.titlesize": LABEL_PT + 1,
        "axes.labelsize": LABEL_PT,
        "axes.titlelocation": "left",
        "axes.edgecolor": RULE,
        "axes.labelcolor": INK,
        "axes.facecolor": PAPER,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "figure.facecolor": PAPER,
        "grid.color": PALE,
        "hatch.linewidth": 0.5,
        "legend.fontsize": SMALL_PT,
        "legend.frameon": False,
        "text.color": INK,
        "xtick.color": GREY,
        "xtick.labelcolor": INK,
        "xtick.labelsize": SMALL_PT,
        "ytick.color": GREY,
        "ytick.labelcolor": INK,
        "ytick.labelsize": SMALL_PT,
    }
)

_P = ParamSpec("_P")
_T = TypeVar("_T")


def styled(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Let a function draw in the house style, whatever the user's own matplotlib settings are."""

    @functools.wraps(function)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        from matplotlib import style

        # From the defaults, since ticks and spines read many settings that are not named here.
        with style.context(["default", dict(_SETTINGS)]):
            return function(*args, **kwargs)

    return wrapper


def new_figure(width_in: float | int, height_in: float | int) -> "matplotlib.figure.Figure":
    """An empty figure of this size in inches, apart from pyplot and its global state."""
    from matplotlib.figure import Figure

    return Figure(figsize=(float(width_in), float(height_in)), dpi=DPI)


def method_color(method: str) -> str:
    """The colour of a method, the same in every figure; one that the palette does not name gets one by its name."""
    return METHOD_COLORS.get(method, _OTHER_COLORS[zlib.crc32(method.encode()) % len(_OTHER_COLORS)])


def bonus_colors(names: Sequence[str]) -> dict[str, str]:
    """A colour for each bonus or variant of one: its own, or the next that no other has."""
    left = [color for color in (VERMILLION, SKY, YELLOW, *_OTHER_COLORS) if color not in _BONUS_COLORS.values()]
    others = [name for name in names if name not in _BONUS_COLORS]
    chosen = {name: left[place % len(left)] for place, name in enumerate(others)}
    return {name: _BONUS_COLORS.get(name) or chosen[name] for name in names}


def world_look(world: str) -> tuple[str, str]:
    """The colour and the marker of a world, the same in every figure."""
    index = zlib.crc32(world.encode()) % len(_OTHER_COLORS)
    return _WORLD_LOOKS.get(world, (_OTHER_COLORS[index], _OTHER_MARKERS[index]))


def text_color(background: str) -> str:
    """Dark or light type, whichever reads better on a colour given as "#RRGGBB"."""
    red, green, blue = (int(background[i : i + 2], 16) for i in (1, 3, 5))
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else PAPER


@styled
def save(figure: "matplotlib.figure.Figure", path: str | os.PathLike[str]) -> None:
    """Write a figure as a PNG of at most `MAX_BYTES`: the same bytes every time, with no date in it.

    A picture that would be larger is written with 256 colours, and then with fewer dots an inch.

    Raises:
        ValueError: A path that does not end in ".png", or a figure too large even so.
    """
    target = Path(path)
    if target.suffix != ".png":
        raise ValueError(f"a figure is saved as .png, got {target.name!r}")
    for dpi in _DPI_STEPS:
        image = _pixels(figure, dpi)
        for candidate in (image, image.quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)):
            buffer = io.BytesIO()
            candidate.save(buffer, "PNG", optimize=True)
            if buffer.tell() <= MAX_BYTES:
                write_bytes(target, buffer.getvalue())
                return
    raise ValueError(f"{target.name} is over {MAX_BYTES} bytes even at {_DPI_STEPS[-1]} dots an inch; draw less in it")


def _pixels(figure: "matplotlib.figure.Figure", dpi: int) -> Image.Image:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return Image.open(buffer).convert("RGB")
