"""The drawings of things: one small function per kind, in units of cells.

A `Pen` is a transparent sheet of `w` x `h` cells, drawn four times too large and shrunk at the end, so that
every edge is smooth. A painter gets the pen and the thing's look (its attributes) and draws; it never knows
how many pixels a cell has. `ARTS` maps every kind to its painter, its two terminal characters and its words.

To add a kind: write a painter, and one line in `ARTS`. Attributes that a drawing does not know are not shown.

State is shown by a shape (drops, bubbles, bars, an open door), never by colour alone.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from PIL import Image, ImageColor, ImageDraw, ImageFont

from elden.worlds.scene import Real

Look = Mapping[str, int]
Point = tuple[Real, Real]
Color = str | tuple[int, int, int]
Edge = Color | None

INK = "#26323A"
WHITE = "#FFFFFF"
STEEL = "#D3DBE3"
DARK_STEEL = "#93A1AE"
BROWN = "#7A4E2B"
PLANK = "#C89A66"
BLUE = "#0072B2"
SKY = "#56B4E9"
VERMILLION = "#D55E00"
YELLOW = "#FFD23F"
GREEN = "#3E9B5F"
PURPLE = "#A64CA6"
STONE = "#9AA0A6"

FULL = 5  # the top of the scales `frozen`, `soak` and `clean`
_OVERSAMPLE = 4


@lru_cache(maxsize=64)
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Pillow's built-in font at a size in pixels."""
    return ImageFont.load_default(size=size)


def mix(first: str, second: str, share: Real) -> tuple[int, int, int]:
    """The colour that lies `share` of the way from `first` to `second`."""
    share = min(max(share, 0.0), 1.0)
    a, b = ImageColor.getrgb(first), ImageColor.getrgb(second)
    red, green, blue = (round(a[i] + share * (b[i] - a[i])) for i in range(3))
    return red, green, blue


class Pen:
    """Draws on a transparent sheet of `w` x `h` cells; every coordinate and width is in cells."""

    def __init__(self, w: int, h: int, tile: int):
        self.w = w
        self.h = h
        self._unit = tile * _OVERSAMPLE
        self._image = Image.new("RGBA", (w * self._unit, h * self._unit), (0, 0, 0, 0))
        self._draw = ImageDraw.Draw(self._image)

    def finish(self) -> Image.Image:
        """The smooth picture, at its true size."""
        return self._image.reduce(_OVERSAMPLE)

    def _points(self, points: Sequence[Point]) -> list[Point]:
        return [(x * self._unit, y * self._unit) for x, y in points]

    def _width(self, width: Real) -> int:
        return max(1, round(width * self._unit))

    def box(self, x0: Real, y0: Real, x1: Real, y1: Real, fill: Color, edge: Edge = None, radius: Real = 0.0) -> None:
        """A rectangle between two corners, with round corners if `radius` > 0."""
        corners = [x0 * self._unit, y0 * self._unit, x1 * self._unit - 1, y1 * self._unit - 1]
        self._draw.rounded_rectangle(corners, radius * self._unit, fill, edge, self._width(0.04))

    def disc(self, x: Real, y: Real, rx: Real, fill: Color, edge: Edge = None, ry: Real = 0.0) -> None:
        """A disc, or an ellipse if `ry` is given."""
        ry = ry or rx
        corners = self._points([(x - rx, y - ry), (x + rx, y + ry)])
        self._draw.ellipse(corners, fill, edge, self._width(0.04))

    def poly(self, points: Sequence[Point], fill: Color, edge: Edge = None) -> None:
        """A filled polygon."""
        self._draw.polygon(self._points(points), fill)
        if edge is not None:
            self.line([*points, points[0]], edge, 0.04)

    def line(self, points: Sequence[Point], fill: Color, width: Real) -> None:
        """A line with round ends and joints."""
        self._draw.line(self._points(points), fill, self._width(width), joint="curve")
        for x, y in points:
            self.disc(x, y, width / 2, fill)

    def arc(self, x: Real, y: Real, r: Real, start: int, end: int, fill: Color, width: Real) -> None:
        """Part of a circle, from angle `start` to `end` in degrees, clockwise from the right."""
        angles = [math.radians(angle) for angle in (*range(start, end, 10), end)]
        self.line([(x + r * math.cos(a), y + r * math.sin(a)) for a in angles], fill, width)

    def ray(self, x: Real, y: Real, angle: int, start: Real, end: Real, fill: Color, width: Real) -> None:
        """A line at an angle in degrees, from `start` to `end` cells away from a point."""
        dx, dy = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        self.line([(x + start * dx, y + start * dy), (x + end * dx, y + end * dy)], fill, width)

    def spread(self, *points: Point) -> list[Point]:
        """Points given as shares of the sheet, in cells."""
        return [(x * self.w, y * self.h) for x, y in points]

    def text(self, x: Real, y: Real, words: str, size: Real, fill: Color, halo: Color) -> None:
        """Words centred on a point, `size` cells high, with an outline of the colour `halo`."""
        place, type_, stroke = self._points([(x, y)])[0], font(self._width(size)), self._width(size * 0.16)
        self._draw.text(place, words, fill, type_, anchor="mm", stroke_width=stroke, stroke_fill=halo)


def _drop(pen: Pen, x: Real, y: Real, size: Real) -> None:
    """A drop of water, `size` cells high."""
    r = size * 0.36
    pen.poly([(x, y - size * 0.6), (x + r * 0.9, y), (x - r * 0.9, y)], BLUE)
    pen.disc(x, y + r * 0.25, r, BLUE)


def _bubbles(pen: Pen, places: Sequence[tuple[Real, Real, Real]]) -> None:
    """Soap bubbles at (x, y, radius)."""
    for x, y, r in places:
        pen.disc(x, y, r, WHITE, "#5B8DB8")


def _fridge(pen: Pen, look: Look) -> None:
    w, h = pen.w, pen.h
    split = h * 0.38
    if not look.get("open"):
        pen.box(0.08, 0.04, w - 0.08, h - 0.04, "#E6ECF1", INK, 0.14)
        pen.line([(0.1, split), (w - 0.1, split)], INK, 0.05)
        pen.line([(w - 0.3, split - 0.4), (w - 0.3, split - 0.16)], INK, 0.1)
        pen.line([(w - 0.3, split + 0.18), (w - 0.3, min(split + 0.7, h - 0.2))], INK, 0.1)
        for angle in (0, 60, 120):
            pen.ray(0.45, split / 2 + 0.02, angle, -0.2, 0.2, SKY, 0.06)
        return
    pen.box(0.16, 0.04, w - 0.06, h - 0.04, DARK_STEEL, INK, 0.1)
    pen.box(0.26, 0.14, w - 0.16, h - 0.14, "#FFF6D0")
    for row in range(1, h + 1):
        pen.line([(0.26, row - 0.1), (w - 0.16, row - 0.1)], "#B7C3CC", 0.05)
    pen.poly([(0.02, 0.14), (0.24, 0.04), (0.24, h - 0.04), (0.02, h)], "#E6ECF1", INK)
    pen.line([(0.09, h * 0.42), (0.09, h * 0.66)], INK, 0.06)


def _sink(pen: Pen, look: Look) -> None:
    w, h = pen.w, pen.h
    running = bool(look.get("on"))
    pen.box(0.04, 0.04, w - 0.04, h - 0.04, STEEL, INK, 0.12)
    pen.box(0.2, 0.42, w - 0.2, h - 0.18, SKY if running else "#AAB6C0", INK, 0.24)
    x = w / 2
    if running:
        for ring in (0.52, 0.3):
            pen.disc(x, h * 0.62, ring * w / 2, SKY, WHITE, ring * h / 3.2)
        pen.line([(x, 0.44), (x, h * 0.62)], BLUE, 0.16)
        pen.line([(x - 0.02, 0.48), (x - 0.02, h * 0.6)], "#CDEBFF", 0.04)
    else:
        pen.disc(x, h * 0.62, 0.13, "#59656F", INK)
    pen.line([(x, 0.16), (x, 0.44)], INK, 0.22)
    pen.line([(x, 0.17), (x, 0.42)], "#EDF1F4", 0.12)
    for side in (-0.34, 0.34):
        pen.disc(x + side, 0.22, 0.09, BLUE if running else VERMILLION, INK)


def _fish(pen: Pen, look: Look) -> None:
    frozen = min(max(look.get("frozen", 0), 0), FULL)
    share = frozen / FULL
    if frozen:
        pen.box(0.0, 0.06, 1.0, 0.82, mix("#EAF6FD", "#9FD8F7", share), "#2E86B5", 0.16)
        pen.line([(0.1, 0.3), (0.3, 0.13)], WHITE, 0.06)
    body = mix("#F0743E", "#6FA3C4", share)
    pen.poly([(0.66, 0.44), (0.95, 0.2), (0.88, 0.45), (0.95, 0.68)], body, INK)
    pen.poly([(0.32, 0.32), (0.48, 0.12), (0.6, 0.32)], body, INK)
    pen.disc(0.42, 0.45, 0.34, body, INK, 0.2)
    pen.arc(0.2, 0.45, 0.16, -50, 50, INK, 0.03)
    pen.disc(0.22, 0.4, 0.07, WHITE, INK)
    if "frozen" in look:
        _scale(pen, frozen, FULL, "#3BA3E0")


def _scale(pen: Pen, level: int, levels: int, fill: Color, margin: Real = 0.0) -> None:
    """A row of boxes along the bottom, the first `level` of them filled."""
    step = (pen.w - 2 * margin) / levels
    for i in range(levels):
        x = margin + i * step
        color = fill if i < level else WHITE
        pen.box(x, pen.h - margin - 0.15, x + step, pen.h - margin, color, INK)


def _car(pen: Pen, look: Look) -> None:
    w, h = pen.w, pen.h
    body = "#2E7DB5"
    top, belt, floor = h * 0.14, h * 0.42, h * 0.78
    pen.disc(w * 0.5, h * 0.93, w * 0.44, "#D9D4C8", ry=h * 0.045)
    cabin = [(w * 0.2, belt + 0.05), (w * 0.32, top), (w * 0.66, top), (w * 0.8, belt + 0.05)]
    pen.poly(cabin, body, INK)
    pen.box(w * 0.04, belt, w * 0.96, floor, body, INK, 0.22)
    pen.poly([(w * 0.22, belt), (w * 0.32, top), (w * 0.66, top), (w * 0.78, belt)], body)
    for left, right, lean in ((0.27, 0.47, 0.06), (0.51, 0.72, -0.08)):
        low_left, low_right = left * w, right * w
        high = [(low_left + max(lean, 0) * w, top + 0.12), (low_right + min(lean, 0) * w, top + 0.12)]
        pen.poly([(low_left, belt), *high, (low_right, belt)], "#D6EEFA", INK)
    pen.disc(w * 0.93, belt + 0.2, 0.09, YELLOW, INK)
    pen.line([(w * 0.49, belt + 0.16), (w * 0.56, belt + 0.16)], INK, 0.05)
    for x in (0.24, 0.76):
        pen.disc(w * x, floor, min(w, h) * 0.16, INK)
        pen.disc(w * x, floor, min(w, h) * 0.075, STEEL)
    if look.get("stained"):
        for x, y, r in ((0.4, 0.6, 0.17), (0.52, 0.64, 0.12), (0.62, 0.5, 0.15), (0.14, 0.58, 0.15)):
            for dx, dy, share in ((0, 0, 1.0), (0.9, 0.5, 0.6), (-0.8, 0.7, 0.55), (0.4, -0.9, 0.5)):
                pen.disc(x * w + dx * r, y * h + dy * r, r * share, BROWN)
    elif "stained" in look:
        for x, y, r in ((0.4, 0.56, 0.17), (0.1, 0.3, 0.15), (0.86, 0.24, 0.2)):
            _sparkle(pen, x * w, y * h, r)


def _sparkle(pen: Pen, x: Real, y: Real, r: Real) -> None:
    """A four-pointed star."""
    s = r * 0.24
    star = [(x, y - r), (x + s, y - s), (x + r, y), (x + s, y + s)]
    pen.poly([*star, (x, y + r), (x - s, y + s), (x - r, y), (x - s, y - s)], WHITE, "#7A8C99")


def _bucket(pen: Pen, look: Look) -> None:
    w, h = pen.w, pen.h
    rim, foot = h * 0.42, h * 0.94
    pen.arc(w / 2, rim, w * 0.36, 180, 360, INK, 0.06)
    pen.poly([(w * 0.1, rim), (w * 0.9, rim), (w * 0.78, foot), (w * 0.22, foot)], YELLOW, INK)
    pen.line([(w * 0.17, rim + 0.3 * h), (w * 0.83, rim + 0.3 * h)], "#C79A00", 0.06)
    pen.disc(w / 2, rim, w * 0.4, BLUE if look.get("soapy") else SKY, INK, h * 0.07)
    if look.get("soapy"):
        places = pen.spread((0.26, 0.4), (0.74, 0.4), (0.5, 0.37), (0.4, 0.2), (0.64, 0.14))
        _bubbles(pen, [(*place, r) for place, r in zip(places, (0.13, 0.14, 0.18, 0.1, 0.08), strict=True)])
    else:
        pen.line([(w * 0.34, rim), (w * 0.5, rim)], WHITE, 0.04)


def _shelf(pen: Pen, look: Look) -> None:
    w, h = pen.w, pen.h
    pen.box(0.04, 0.04, w - 0.04, h - 0.02, BROWN, INK, 0.05)
    for row in range(h):
        pen.box(0.14, row + (0.14 if row == 0 else 0.02), w - 0.14, row + 0.86, "#E9D3B4")
        pen.box(0.08, row + 0.84, w - 0.08, row + 0.98, PLANK, BROWN)


def _rag(pen: Pen, look: Look) -> None:
    soak = min(max(look.get("soak", 0), 0), FULL)
    dirt = 1 - min(max(look.get("clean", FULL), 0), FULL) / FULL
    cloth = mix("#FFF7E8", "#8B5A2B", dirt)
    outline = [(0.08, 0.18), (0.3, 0.08), (0.5, 0.16), (0.72, 0.07), (0.93, 0.18), (0.86, 0.42)]
    outline += [(0.95, 0.7), (0.7, 0.66), (0.5, 0.75), (0.28, 0.66), (0.05, 0.72), (0.14, 0.44)]
    pen.poly(outline, cloth, INK)
    stripe = mix("#009E73", "#5A3A1B", dirt)
    for x in (0.3, 0.52, 0.73):
        pen.line([(x, 0.2), (x - 0.02, 0.58)], stripe, 0.06)
    if dirt > 0:
        for x, y, r in ((0.4, 0.4, 0.1), (0.64, 0.52, 0.08), (0.66, 0.26, 0.07), (0.22, 0.56, 0.06)):
            pen.disc(x, y, r * (0.6 + dirt), BROWN)
    for i in range(soak):
        _drop(pen, 0.1 + 0.2 * i, 0.88 if i % 2 else 0.82, 0.26)


def _soap(pen: Pen, look: Look) -> None:
    pen.box(0.04, 0.4, 0.96, 0.88, "#F2A7C8", INK, 0.16)
    pen.box(0.24, 0.54, 0.76, 0.74, "#F9D3E4", "#C46A95", 0.08)
    _bubbles(pen, ((0.28, 0.3, 0.14), (0.56, 0.2, 0.18), (0.8, 0.34, 0.1)))


def _gem(pen: Pen, look: Look) -> None:
    crown = [(0.08, 0.4), (0.28, 0.16), (0.72, 0.16), (0.92, 0.4)]
    pen.poly([*crown, (0.5, 0.92)], PURPLE, INK)
    pen.poly([(0.28, 0.16), (0.72, 0.16), (0.66, 0.4), (0.34, 0.4)], "#E3A6E3")
    pen.poly([(0.34, 0.4), (0.66, 0.4), (0.5, 0.92)], "#C26DC2")
    pen.poly([(0.08, 0.4), (0.28, 0.16), (0.34, 0.4)], "#CF86CF")
    pen.line([*crown, (0.5, 0.92), crown[0]], INK, 0.05)
    pen.line([crown[0], crown[3]], INK, 0.03)


def _water(pen: Pen, look: Look) -> None:
    pen.box(0, 0, pen.w, pen.h, "#2F86C6")
    for row in range(pen.h):
        for column in range(pen.w):
            for x, y in ((0.1, 0.28), (0.32, 0.58), (0.08, 0.84)):
                wave = [(column + x + 0.06 * i, row + y + 0.06 * math.sin(i * math.pi / 2)) for i in range(9)]
                pen.line(wave, "#BFE3F7", 0.05)


def _grass(pen: Pen, look: Look) -> None:
    w, h = pen.w, pen.h
    pen.box(0.02, 0.02, w - 0.02, h - 0.02, "#D5EBCB", radius=0.08)
    for x, y in ((0.3, 0.5), (0.7, 0.44), (0.5, 0.88)):
        for lean in (-0.14, 0.0, 0.14):
            root, tip = (x * w, y * h), ((x + lean) * w, (y - 0.3 + abs(lean)) * h)
            pen.poly([(root[0] - 0.06, root[1]), tip, (root[0] + 0.06, root[1])], GREEN, "#2C7A48")


def _wood(pen: Pen, look: Look) -> None:
    for x, y in ((0.28, 0.7), (0.72, 0.7), (0.5, 0.32)):
        x, y, r = x * pen.w, y * pen.h, 0.225 * min(pen.w, pen.h)
        pen.disc(x, y, r, BROWN, INK)
        pen.disc(x, y, r * 0.74, "#E3B778")
        pen.disc(x, y, r * 0.48, "#E3B778", "#B07A3C")
        pen.disc(x, y, r * 0.14, "#B07A3C")


def _stone(pen: Pen, look: Look) -> None:
    outline = pen.spread((0.08, 0.84), (0.12, 0.5), (0.34, 0.18), (0.64, 0.14), (0.9, 0.48), (0.94, 0.84))
    pen.poly(outline, STONE, INK)
    pen.poly(pen.spread((0.34, 0.18), (0.64, 0.14), (0.58, 0.42), (0.38, 0.46)), "#C5CACE")
    pen.poly(pen.spread((0.58, 0.42), (0.64, 0.14), (0.9, 0.48), (0.94, 0.84), (0.66, 0.84)), "#7D848B")
    pen.line(pen.spread((0.28, 0.62), (0.4, 0.7), (0.36, 0.8)), "#5F666C", 0.04)


def _workshop(pen: Pen, look: Look) -> None:
    w, h = pen.w, pen.h
    for x in (0.16, 0.84):
        pen.box((x - 0.07) * w, 0.6 * h, (x + 0.07) * w, 0.95 * h, BROWN, INK)
    pen.box(0.04 * w, 0.5 * h, 0.96 * w, 0.68 * h, PLANK, INK, 0.03)
    pen.line(pen.spread((0.2, 0.44), (0.6, 0.2)), BROWN, 0.09)
    pen.poly(pen.spread((0.5, 0.08), (0.62, 0.02), (0.78, 0.3), (0.66, 0.36)), DARK_STEEL, INK)


def _goal(pen: Pen, look: Look) -> None:
    w, h = pen.w, pen.h
    pen.box(0.04, 0.04, w - 0.04, h - 0.04, "#CFEBDD", "#007A59", 0.1)
    pen.line([(0.26 * w, 0.14 * h), (0.26 * w, 0.88 * h)], INK, 0.08)
    pen.box(0.28 * w, 0.14 * h, 0.86 * w, 0.54 * h, WHITE, INK)
    for row in range(2):
        for column in range(row % 2, 4, 2):
            x, y = (0.28 + 0.145 * column) * w, (0.14 + 0.2 * row) * h
            pen.box(x, y, x + 0.145 * w, y + 0.2 * h, INK)


def _stick(pen: Pen, look: Look) -> None:
    pen.line([(0.2, 0.82), (0.8, 0.18)], INK, 0.2)
    pen.line([(0.2, 0.82), (0.8, 0.18)], PLANK, 0.12)
    pen.line([(0.52, 0.48), (0.68, 0.5)], INK, 0.1)
    pen.line([(0.53, 0.48), (0.67, 0.5)], PLANK, 0.04)


def _pickaxe(pen: Pen, look: Look, head: Color, thick: Real) -> None:
    pen.line([(0.2, 0.88), (0.66, 0.34)], INK, 0.18)
    pen.line([(0.2, 0.88), (0.66, 0.34)], BROWN, 0.1)
    pen.arc(0.36, 0.66, 0.54, -105, 12, INK, thick + 0.08)
    pen.arc(0.36, 0.66, 0.54, -103, 10, head, thick)


def _rope(pen: Pen, look: Look) -> None:
    for y in (0.7, 0.52, 0.34):
        pen.disc(0.5, y, 0.4, "#D9B36C", INK, 0.18)
    pen.disc(0.5, 0.34, 0.2, "#8A6A2E", INK, 0.08)
    pen.line([(0.86, 0.66), (0.95, 0.9)], INK, 0.12)
    pen.line([(0.86, 0.66), (0.95, 0.9)], "#D9B36C", 0.06)


def _bridge(pen: Pen, look: Look) -> None:
    w, h = pen.w, pen.h
    for i in range(4):
        x = (0.05 + 0.23 * i) * w
        pen.box(x, 0.14 * h, x + 0.21 * w, 0.86 * h, PLANK, BROWN, 0.03)
    for y in (0.22, 0.78):
        pen.line([(0.04 * w, y * h), (0.96 * w, y * h)], INK, 0.08)


def _link(pen: Pen, look: Look) -> None:
    level, levels = link_level(look)
    lit = level >= levels
    fill, edge = ("#FFF3C2", "#B58900") if lit else ("#E9ECEF", STONE)
    pen.box(0.03, 0.03, pen.w - 0.03, pen.h - 0.03, fill, edge, 0.1)
    x, y = pen.w / 2, pen.h * 0.46
    if lit:
        for angle in range(180, 361, 36):
            pen.ray(x, y, angle, 0.28, 0.36, "#E69F00", 0.06)
    pen.box(x - 0.1, y + 0.1, x + 0.1, y + 0.28, DARK_STEEL, INK, 0.03)
    pen.disc(x, y, 0.2, mix("#C3CAD0", "#FFC400", level / levels), INK)
    _scale(pen, level, levels, "#E69F00", 0.09)


def _numbers(pen: Pen, look: Look, y: Real, fill: Color, halo: Color) -> None:
    words = values(look)
    size = min(0.46, 1.2 * pen.w / max(1, len(words)))
    pen.text(pen.w / 2, y, words, size, fill, halo)


def _inert(pen: Pen, look: Look) -> None:
    w, h = pen.w, pen.h
    pen.disc(w * 0.5, h * 0.54, w * 0.44, STONE, INK, h * 0.36)
    pen.disc(w * 0.4, h * 0.36, w * 0.2, "#C5CACE", ry=h * 0.09)
    _numbers(pen, look, h * 0.56, WHITE, "#3F464C")


def _noisy(pen: Pen, look: Look) -> None:
    w, h = pen.w, pen.h
    pen.box(0.1 * w, 0.1 * h, 0.9 * w, 0.9 * h, WHITE, INK, 0.18)
    for x in (0.24, 0.76):
        for y in (0.24, 0.76):
            pen.disc(x * w, y * h, 0.07, VERMILLION)
    _numbers(pen, look, h * 0.5, INK, WHITE)


def _intricate(pen: Pen, look: Look) -> None:
    x, y, r = pen.w / 2, pen.h / 2, 0.33 * min(pen.w, pen.h)
    for angle in range(0, 360, 45):
        pen.ray(x, y, angle, 0, 1.16 * r, "#00604A", 0.18)
    pen.disc(x, y, r, "#009E73", "#00604A")
    pen.disc(x, y, r * 0.72, "#E3F5EF", "#00604A")
    _numbers(pen, look, y, INK, "#E3F5EF")


def _stove(pen: Pen, look: Look) -> None:
    w, h = pen.w, pen.h
    pen.box(0.03 * w, 0.03 * h, 0.97 * w, 0.97 * h, "#4A545C", INK, 0.2)
    pen.disc(w / 2, h / 2, 0.42 * w, "#2C3338", INK, 0.42 * h)
    for ring in (0.36, 0.26, 0.16):
        pen.disc(w / 2, h / 2, ring * w, "#E8512E" if look.get("on") else "#2C3338", "#6B757C", ring * h)
        pen.disc(w / 2, h / 2, (ring - 0.05) * w, "#2C3338", None, (ring - 0.05) * h)
    if look.get("on"):
        for x, y in ((0.13, 0.16), (0.87, 0.16), (0.13, 0.9), (0.87, 0.9)):
            flame = [(x * w, (y - 0.1) * h), ((x + 0.06) * w, y * h), (x * w, (y + 0.05) * h), ((x - 0.06) * w, y * h)]
            pen.poly(flame, YELLOW, VERMILLION)


def _switch(pen: Pen, look: Look) -> None:
    """A lever that stands up and has a lit lamp when on."""
    w, h = pen.w, pen.h
    on = bool(look.get("on"))
    pen.box(0.16 * w, 0.1 * h, 0.84 * w, 0.96 * h, WHITE, INK, 0.1)
    pen.box(0.4 * w, 0.28 * h, 0.6 * w, 0.68 * h, DARK_STEEL, INK, 0.06)
    lever = [(0.5 * w, 0.48 * h), (0.5 * w, (0.34 if on else 0.62) * h)]
    pen.line(lever, INK, 0.2 * w)
    pen.line(lever, VERMILLION if on else STEEL, 0.13 * w)
    pen.disc(0.5 * w, 0.83 * h, 0.09 * w, YELLOW if on else "#59656F", INK, 0.09 * h)


def _pot(pen: Pen, look: Look) -> None:
    """From above: a square pot of three quarters of the sheet, its handle to the right."""
    w, h = pen.w, pen.h
    pen.box(0.87 * w, 0.36 * h, 0.98 * w, 0.64 * h, BROWN, INK, 0.06)
    pen.box(0.12 * w, 0.12 * h, 0.88 * w, 0.88 * h, STEEL, INK, 0.3)
    pen.box(0.19 * w, 0.19 * h, 0.81 * w, 0.81 * h, "#A9B6C1", INK, 0.2)


def _butter(pen: Pen, look: Look) -> None:
    """A piece that shrinks on a puddle that grows."""
    w, h, share = pen.w, pen.h, min(max(look.get("melt", 0), 0), 10) / 10
    if share:
        r = 0.2 + 0.29 * share
        pen.disc(0.5 * w, 0.5 * h, r * w, "#FFE27A", "#B58900", 0.85 * r * h)
    if share < 1:
        left, top = 0.12 + 0.25 * share, 0.22 + 0.18 * share
        pen.box(left * w, top * h, (1 - left) * w, (1 - top) * h, "#FFD23F", "#8A6A00", 0.06)
        pen.line([(0.5 * w, top * h), (0.5 * w, (1 - top) * h)], "#B58900", 0.03)


def _meatball(pen: Pen, look: Look) -> None:
    """Pale when raw, brown with grill marks when done, black and smoking when spoilt; a bar tells how far it is."""
    w, h, level = pen.w, pen.h, min(max(look.get("cook", 0), 0), 10)
    spoilt = bool(look.get("overcooked"))
    body = "#1F1A17" if spoilt else mix("#E79A8B", "#7A4A28", level / 10)
    pen.disc(0.5 * w, 0.44 * h, 0.36 * w, body, INK, 0.36 * h)
    if spoilt:
        for x in (0.3, 0.5, 0.7):
            pen.line([(x * w, 0.3 * h), ((x + 0.06) * w, 0.2 * h), (x * w, 0.1 * h)], "#C9CDD1", 0.07)
        return
    if level == 10:
        for x in (0.36, 0.5, 0.64):
            pen.line([(x * w, 0.3 * h), (x * w, 0.58 * h)], INK, 0.05)
    _scale(pen, level // 2, 5, "#E69F00")


def _gripper(pen: Pen, look: Look) -> None:
    """An arm that comes from the robot's side, and two fingers around a place near the top."""
    w, h = pen.w, pen.h
    apart = 0.26 if look.get("closed") else 0.38
    for color, wider in ((INK, 0.08), ("#8795A1", 0.0)):
        pen.line([(0.5 * w, 0.62 * h), (0.5 * w, 0.9 * h)], color, 0.22 * w + wider)
        pen.line([(0.2 * w, 0.56 * h), (0.8 * w, 0.56 * h)], color, 0.16 * w + wider)
    for side in (-apart, apart):
        finger = [((0.5 + side) * w, 0.14 * h), ((0.5 + side) * w, 0.5 * h)]
        pen.line(finger, INK, 0.14 * w + 0.08)
        pen.line(finger, VERMILLION, 0.14 * w)
    pen.disc(0.5 * w, 0.87 * h, 0.1 * w, VERMILLION, INK, 0.1 * w)


def agent(pen: Pen, facing: int) -> None:
    """The agent: a round body with two eyes and a beak that points where it faces."""
    cos, sin = ((1, 0), (0, 1), (-1, 0), (0, -1))[facing]

    def turned(x: Real, y: Real) -> Point:
        return 0.5 + (x - 0.5) * cos - (y - 0.5) * sin, 0.5 + (x - 0.5) * sin + (y - 0.5) * cos

    pen.poly([turned(0.55, 0.14), turned(0.98, 0.5), turned(0.55, 0.86)], VERMILLION, INK)
    pen.disc(*turned(0.43, 0.5), 0.39, VERMILLION, INK)
    pen.poly([turned(0.6, 0.24), turned(0.92, 0.5), turned(0.6, 0.76)], VERMILLION)
    for y in (0.33, 0.67):
        pen.disc(*turned(0.54, y), 0.12, WHITE, INK)
        pen.disc(*turned(0.59, y), 0.06, INK)


def link_level(look: Look) -> tuple[int, int]:
    """The level of a link and its top level; it is lit when the two are equal."""
    levels = max(1, look.get("levels", 1))
    return min(max(look.get("level", 0), 0), levels), levels


def values(look: Look) -> str:
    """The numbers of a distractor: `value`, `value2`, ... in order."""
    return " ".join(str(look[name]) for name in sorted(look, key=lambda k: (len(k), k)) if name.startswith("value"))


def _either(name: str, yes: str, no: str, absent: str = "") -> Callable[[Look], str]:
    """Words or characters for an attribute that is on, off or absent."""
    return lambda look: (yes if look[name] else no) if name in look else absent


def _fish_words(look: Look) -> str:
    if "frozen" not in look:
        return ""
    return f"frozen {look['frozen']}/{FULL}" if look["frozen"] else "thawed"


def _rag_words(look: Look) -> str:
    words = []
    if "soak" in look:
        words.append(f"soaked {look['soak']}/{FULL}" if look["soak"] else "dry")
    if "clean" in look:
        words.append(f"clean {look['clean']}/{FULL}")
    return ", ".join(words)


def _link_words(look: Look) -> str:
    level, levels = link_level(look)
    return f"{level}/{levels}" + (" lit" if level == levels else "")


def _butter_words(look: Look) -> str:
    if "melt" not in look:
        return ""
    return "melted" if look["melt"] >= 10 else f"melted to {look['melt']}/10"


def _meatball_words(look: Look) -> str:
    if look.get("overcooked"):
        return "overcooked"
    if "cook" not in look:
        return ""
    return "cooked" if look["cook"] >= 10 else f"cooked to {look['cook']}/10"


def _with_digit(letter: str, number: int | None) -> str:
    """A letter and a number from 0 to 9; a space where there is no number, `!` where it is out of range."""
    if number is None:
        return f"{letter} "
    return f"{letter}{number}" if 0 <= number <= 9 else f"{letter}!"


def _level_glyph(letter: str, level: str, top: str = "*") -> Callable[[Look], str]:
    """A letter with a level in tenths; `top` stands for all ten."""
    return lambda look: letter + top if look.get(level) == 10 else _with_digit(letter, look.get(level))


def _meatball_glyph(look: Look) -> str:
    return "m!" if look.get("overcooked") else _level_glyph("m", "cook")(look)


def _rag_glyph(look: Look) -> str:
    return _with_digit("r" if look.get("clean", FULL) >= FULL else "R", look.get("soak"))


def _link_glyph(look: Look) -> str:
    level, levels = link_level(look)
    return "L*" if level == levels else _with_digit("L", level)


@dataclass(frozen=True)
class Art:
    """How one kind is shown."""

    paint: Callable[[Pen, Look], None]
    """Draws it."""
    glyph: str | Callable[[Look], str]
    """Its two characters in a terminal; the first is its own, the second tells its state."""
    color: int
    """Its ANSI colour, of 256."""
    scale: float = 1.0
    """The share of its cells it fills; below 1 it is an item that may lie on other things."""
    words: Callable[[Look], str] = lambda look: ""
    """Its state in words."""

    def characters(self, look: Look) -> str:
        """The two characters for a look."""
        return self.glyph if isinstance(self.glyph, str) else self.glyph(look)


ITEM = 0.66

ARTS: Mapping[str, Art] = {
    "fridge": Art(_fridge, _either("open", "ff", "FF", "FF"), 67, words=_either("open", "open", "closed")),
    "sink": Art(_sink, _either("on", "s~", "SS", "SS"), 39, words=_either("on", "running", "off")),
    "fish": Art(_fish, lambda look: _with_digit("α", look.get("frozen")), 209, ITEM, _fish_words),
    "car": Art(_car, _either("stained", "C%", "CC", "CC"), 33, words=_either("stained", "stained", "spotless")),
    "bucket": Art(_bucket, _either("soapy", "u°", "UU", "UU"), 220, words=_either("soapy", "soapy", "no soap")),
    "shelf": Art(_shelf, "HH", 137),
    "rag": Art(_rag, _rag_glyph, 36, ITEM, _rag_words),
    "soap": Art(_soap, "o ", 211, ITEM),
    "gem": Art(_gem, "◆ ", 133, 0.8),
    "water": Art(_water, "~~", 32),
    "grass": Art(_grass, '""', 71),
    "wood": Art(_wood, "W ", 179),
    "stone": Art(_stone, "^^", 246),
    "workshop": Art(_workshop, "##", 173),
    "goal": Art(_goal, "GG", 36),
    "stick": Art(_stick, "/ ", 179, ITEM),
    "wood_pickaxe": Art(partial(_pickaxe, head="#B9743A", thick=0.11), "p ", 179, ITEM),
    "stone_pickaxe": Art(partial(_pickaxe, head="#D5DADE", thick=0.16), "P ", 250, ITEM),
    "rope": Art(_rope, "& ", 180, ITEM),
    "bridge": Art(_bridge, "==", 137),
    "stove": Art(_stove, _either("on", "V~", "VV", "VV"), 202, words=_either("on", "on", "off")),
    "switch": Art(_switch, _either("on", "T1", "T0", "T "), 220, words=_either("on", "on", "off")),
    "pot": Art(_pot, "DD", 250),
    "butter": Art(_butter, _level_glyph("b", "melt"), 226, ITEM, _butter_words),
    "meatball": Art(_meatball, _meatball_glyph, 173, ITEM, _meatball_words),
    "gripper": Art(_gripper, _either("closed", "Yx", "YY", "YY"), 208, words=_either("closed", "closed", "open")),
    "link": Art(_link, _link_glyph, 220, words=_link_words),
    "inert": Art(_inert, lambda look: _with_digit("I", look.get("value")), 246, words=values),
    "noisy": Art(_noisy, lambda look: _with_digit("?", look.get("value")), 202, words=values),
    "intricate": Art(_intricate, lambda look: _with_digit("@", look.get("value")), 36, words=values),
}


def art(kind: str) -> Art:
    """The art of a kind.

    Raises:
        ValueError: no such kind.
    """
    if kind not in ARTS:
        raise ValueError(f"unknown kind {kind!r}: the known kinds are {', '.join(sorted(ARTS))}")
    return ARTS[kind]
