"""Pictures of worlds: a scene in, pixels or terminal text out.

A world says what is where as a `Scene`; nothing here knows any world's rules. `draw` makes an image, `text` a
terminal picture and `write_gif` a video of several images. The image is the grid and, under it, a panel: what
the agent holds, status pairs, the inventory and free caption lines.

The shape of an image depends only on the tile size, the scene's `width` and `height`, whether it has an
inventory, and its numbers of status pairs and of caption lines. So the frames of one episode can be stacked.
"""

import io
import os
import textwrap
import unicodedata
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt8
from PIL import Image, ImageDraw

from elden.storage.files import write_bytes
from elden.viewing import sprites
from elden.viewing.sprites import Pen
from elden.worlds.scene import Real, Scene, Sprite

ARROWS = "▶▼◀▲"
"""The agent in a terminal, by facing: right, down, left, up."""

_MIN_TILE = 16
_MIN_TEXT_WIDTH = 60
_FLOOR, _GRID_LINE = "#F6F3EC", "#E3DED3"
_WALL, _WALL_LINE = "#4D586A", "#3B4453"
_SPELLED = str.maketrans({"→": "->", "←": "<-", "×": "x", "—": "-", "–": "-", "≥": ">=", "≤": "<="})
_PAPER, _RULE, _INK, _GREY = "#FFFFFF", "#D9D5CB", "#26323A", "#7C8790"


def _check(scene: Scene) -> None:
    """Raises ValueError for an unknown kind, or for a thing that is not inside the scene."""
    for kind in [s.kind for s in (*scene.sprites, *scene.held)] + [kind for kind, _ in scene.inventory]:
        sprites.art(kind)
    size = f"the scene has {scene.width} columns and {scene.height} rows"
    for s in scene.sprites:
        x, y = s.corner
        inside = 0 <= min(s.x, x) <= max(s.x, x) <= scene.width - s.w
        inside = inside and 0 <= min(s.y, y) <= max(s.y, y) <= scene.height - s.h
        if not inside or s.w < 1 or s.h < 1:
            raise ValueError(f"{s.kind} of {s.w} x {s.h} cells at ({x:g}, {y:g}) does not fit: {size}")
    if scene.agent is not None:
        x, y, facing = scene.agent
        if not (0 <= x < scene.width and 0 <= y < scene.height):
            raise ValueError(f"the agent is at ({x}, {y}): {size}")
        if facing not in range(4):
            raise ValueError(f"the agent's facing is {facing}; use 0 right, 1 down, 2 left or 3 up")


def _is_item(kind: str) -> bool:
    return sprites.art(kind).scale < 1


def _name(sprite: Sprite) -> str:
    """The sprite in words: `rag (dry, clean 5/5)`."""
    state = sprites.art(sprite.kind).words(sprite.look)
    name = sprite.kind.replace("_", " ")
    return f"{name} ({state})" if state else name


@lru_cache(maxsize=1024)
def _sprite_image(kind: str, look: tuple[tuple[str, int], ...], w: int, h: int, tile: int) -> Image.Image:
    pen = Pen(w, h, tile)
    sprites.art(kind).paint(pen, dict(look))
    return pen.finish()


def _image(sprite: Sprite, w: int, h: int, tile: int) -> Image.Image:
    """The drawing of a sprite on `w` x `h` cells of `tile` pixels."""
    return _sprite_image(sprite.kind, tuple(sorted(sprite.look.items())), w, h, tile)


@lru_cache(maxsize=64)
def _agent_image(facing: int, tile: int) -> Image.Image:
    pen = Pen(1, 1, tile)
    sprites.agent(pen, facing)
    return pen.finish()


@lru_cache(maxsize=64)
def _badge_image(tile: int) -> Image.Image:
    """The white disc under a held thing."""
    pen = Pen(1, 1, tile)
    pen.disc(0.5, 0.5, 0.49, "#FFFFFF", _INK)
    return pen.finish()


@lru_cache(maxsize=64)
def _label_image(label: str, tile: int, cells: int) -> Image.Image:
    """A label on a light chip, made smaller and then cut to stay within `cells` cells."""
    size = max(8, round(tile * 0.27))
    room = cells * tile - 4
    label = _printable(label)
    while size > 7 and sprites.font(size).getlength(label) > room:
        size -= 1
    words = _fit(label, size, room)
    width = round(sprites.font(size).getlength(words)) + 4
    chip = Image.new("RGBA", (width, size + 3), (255, 255, 255, 0))
    pencil = ImageDraw.Draw(chip)
    pencil.rounded_rectangle((0, 0, width - 1, size + 2), 3, (255, 255, 255, 225))
    pencil.text((width / 2, (size + 3) / 2), words, _INK, sprites.font(size), anchor="mm")
    return chip


def _tiles(width: int, height: int, tile: int, fill: str, line: str) -> Image.Image:
    tiles = Image.new("RGB", (width * tile, height * tile), fill)
    pencil = ImageDraw.Draw(tiles)
    for x in range(width):
        pencil.line((x * tile, 0, x * tile, height * tile), line)
    for y in range(height):
        pencil.line((0, y * tile, width * tile, y * tile), line)
    return tiles


@lru_cache(maxsize=64)
def _ground(width: int, height: int, tile: int, walls: bool) -> Image.Image:
    """The floor, its grid lines and the border wall."""
    if not walls:
        return _tiles(width, height, tile, _FLOOR, _GRID_LINE)
    ground = _tiles(width, height, tile, _WALL, _WALL_LINE)
    if min(width, height) > 2:
        ground.paste(_tiles(width - 2, height - 2, tile, _FLOOR, _GRID_LINE), (tile, tile))
    return ground


def _paste(image: Image.Image, top: Image.Image, x: Real, y: Real) -> None:
    image.paste(top, (round(x), round(y)), top)


def _draw_grid(scene: Scene, tile: int) -> Image.Image:
    image = _ground(scene.width, scene.height, tile, scene.walls).copy()
    crowd = Counter((s.x, s.y) for s in scene.sprites if _is_item(s.kind))
    drawn: Counter[tuple[int, int]] = Counter()
    for s in scene.sprites:
        if _is_item(s.kind):
            place = (s.x, s.y)
            _draw_item(image, s, tile, drawn[place], crowd[place])
            drawn[place] += 1
        else:
            _paste(image, _image(s, s.w, s.h, tile), s.corner[0] * tile, s.corner[1] * tile)
    for s in scene.sprites:
        if s.label:
            _paste(image, _label_image(s.label, tile, s.w), s.corner[0] * tile + 2, s.corner[1] * tile + 2)
    if scene.agent is not None:
        _draw_agent(image, scene.agent, scene.held, tile)
    return image


def _draw_item(image: Image.Image, item: Sprite, tile: int, order: int, crowd: int) -> None:
    """An item in the middle of its cells; when several share a cell they lie along its diagonal."""
    side = round(min(item.w, item.h) * tile * sprites.art(item.kind).scale)
    shift = 0.0 if crowd == 1 else 0.34 * tile * (order / (crowd - 1) - 0.5)
    x = (item.corner[0] + item.w / 2) * tile - side / 2
    y = (item.corner[1] + item.h / 2) * tile - side / 2
    _paste(image, _image(item, 1, 1, side), x + shift, y + shift)


def _draw_agent(image: Image.Image, agent: tuple[int, int, int], held: tuple[Sprite, ...], tile: int) -> None:
    x, y, facing = agent
    _paste(image, _agent_image(facing, tile), x * tile, y * tile)
    side = round(tile * 0.54)
    icon = round(side * 0.74)
    for order, thing in enumerate(held):
        left = x * tile + tile * 0.6 - order * side
        top = y * tile + tile * 0.62
        _paste(image, _badge_image(side), left, top)
        _paste(image, _icon(thing, icon), left + (side - icon) / 2, top + (side - icon) / 2)


def _icon(sprite: Sprite, side: int) -> Image.Image:
    """The drawing of a sprite in a square of `side` pixels, its proportions kept."""
    longest = max(sprite.w, sprite.h)
    small = _image(sprite, sprite.w, sprite.h, max(4, side // longest))
    if longest == 1:
        return small
    square = Image.new("RGBA", (side, side), (0, 0, 0, 0))
    square.paste(small, ((side - small.width) // 2, (side - small.height) // 2))
    return square


@lru_cache(maxsize=1024)
def _printable(words: str) -> str:
    """Words in the letters of the built-in font, which is little more than ASCII."""
    words = words.translate(_SPELLED)
    kept = (c for c in unicodedata.normalize("NFKD", words) if not unicodedata.combining(c))
    return "".join(c if c.isascii() or c in "…·°" else "?" for c in kept).replace("...", "…")


@lru_cache(maxsize=4096)
def _fit(words: str, size: int, room: Real) -> str:
    """The words, cut with an ellipsis if they are wider than `room` pixels."""
    words = _printable(words)
    type_ = sprites.font(size)
    if type_.getlength(words) <= room:
        return words
    kept = bisect_right(range(1, len(words)), room, key=lambda end: type_.getlength(words[:end] + "…"))
    return words[:kept].rstrip() + "…"


def _wrap(line: str, size: int, room: Real, rows: int) -> list[str]:
    """A line in at most `rows` rows; what does not fit is cut with an ellipsis."""
    type_ = sprites.font(size)
    words = _printable(line).split()
    wrapped: list[str] = []
    while words and len(wrapped) < rows - 1:
        count = 1
        while count < len(words) and type_.getlength(" ".join(words[: count + 1])) <= room:
            count += 1
        wrapped.append(_fit(" ".join(words[:count]), size, room))
        words = words[count:]
    return [*wrapped, _fit(" ".join(words), size, room)] if words else wrapped


def _caption_rows(caption: tuple[str, ...], size: int, room: Real, rows: int) -> list[str]:
    """The caption in at most `rows` rows: each line keeps one, and long lines share what is left."""
    wrapped: list[str] = []
    lines = [line for line in caption if line.strip()]
    for i, line in enumerate(lines):
        wrapped += _wrap(line, size, room, rows - len(wrapped) - (len(lines) - 1 - i))
    return wrapped


class _Panel(NamedTuple):
    """The measures of the panel, in pixels; `columns` are those of the status pairs."""

    width: int
    height: int
    size: int
    pad: int
    line: int
    strip: int
    columns: int
    status_rows: int
    caption_rows: int


def _panel(scene: Scene, tile: int) -> _Panel:
    size = max(11, round(tile * 0.34))
    pad, line = size // 2, round(size * 1.5)
    width = max(scene.width * tile, 14 * size)
    columns = max(1, width // (8 * size))
    status_rows = -(-len(scene.status) // columns)
    strip = round(size * 4.4) if scene.inventory else 0
    caption_rows = len(scene.caption) + 1 if scene.caption else 0
    # The first line, which says what the agent holds, is always there.
    height = (1 + status_rows + caption_rows) * line + strip
    height += (2 + (strip > 0) + (caption_rows > 0)) * pad
    return _Panel(width, height, size, pad, line, strip, columns, status_rows, caption_rows)


def _draw_panel(image: Image.Image, scene: Scene, panel: _Panel, top: int) -> None:
    y = top + panel.pad
    if scene.agent is not None or scene.held:
        _draw_held(image, scene.held, panel, y)
        y += panel.line
    else:
        y += panel.line // 2
    _draw_status(image, scene.status, panel, y)
    y = top + panel.pad + (1 + panel.status_rows) * panel.line
    if panel.strip:
        _draw_inventory(image, scene.inventory, panel, y)
        y += panel.strip + panel.pad
    if panel.caption_rows:
        ImageDraw.Draw(image).line((panel.pad, y, panel.width - panel.pad, y), _RULE)
        y += panel.pad
    room = panel.width - 2 * panel.pad
    for row in _caption_rows(scene.caption, panel.size, room, panel.caption_rows):
        _write(image, panel.pad, y, row, panel.size, _INK, room)
        y += panel.line


def _write(image: Image.Image, x: Real, y: Real, words: str, size: int, color: str, room: Real) -> Real:
    """Writes words, cut to `room` pixels, and returns how wide they are."""
    words = _fit(words, size, room)
    ImageDraw.Draw(image).text((x, y), words, color, sprites.font(size))
    return sprites.font(size).getlength(words)


def _draw_status(image: Image.Image, status: tuple[tuple[str, str], ...], panel: _Panel, top: Real) -> None:
    """Grey labels and their dark values, in columns."""
    step = (panel.width - 2 * panel.pad) / panel.columns
    room = step - panel.pad
    for i, (label, value) in enumerate(status):
        x = panel.pad + (i % panel.columns) * step
        y = top + (i // panel.columns) * panel.line
        used = _write(image, x, y, f"{label} ", panel.size, _GREY, room)
        if room - used > panel.size:
            _write(image, x + used, y, value, panel.size, _INK, room - used)


def _draw_held(image: Image.Image, held: tuple[Sprite, ...], panel: _Panel, y: Real) -> None:
    x = panel.pad + _write(image, panel.pad, y, "holding: ", panel.size, _GREY, panel.width)
    side = round(panel.size * 1.4)
    for thing in held:
        _paste(image, _icon(thing, side), x, y - 1)
        x += side + panel.pad
    words = ", ".join(_name(thing) for thing in held) or "nothing"
    _write(image, x, y, words, panel.size, _INK if held else _GREY, panel.width - panel.pad - x)


def _draw_inventory(image: Image.Image, inventory: tuple[tuple[str, int], ...], panel: _Panel, y: Real) -> None:
    """A row of icons with their counts; the slots shrink until all of them fit."""
    pencil = ImageDraw.Draw(image)
    step = min(panel.strip * 0.8, (panel.width - 2 * panel.pad) / len(inventory))
    side = max(4, round(step * 0.72))
    for i, (kind, count) in enumerate(inventory):
        x = panel.pad + i * step
        box = (x + 1, y, x + step - 2, y + panel.strip - 1)
        pencil.rounded_rectangle(box, 4, "#F3F1EB" if count else "#FAFAF8", _RULE)
        icon = _icon(Sprite(kind, 0, 0), side) if count else _faded(kind, side)
        _paste(image, icon, x + (step - side) / 2, y + (panel.strip - panel.line - side) / 2 + 1)
        middle = (x + step / 2, y + panel.strip - panel.line * 0.55)
        words = _fit(str(count), panel.size, step)
        pencil.text(middle, words, _INK if count else "#B4BABF", sprites.font(panel.size), anchor="mm")


@lru_cache(maxsize=256)
def _faded(kind: str, side: int) -> Image.Image:
    """The icon of a kind of which there is none: grey and pale."""
    icon = _sprite_image(kind, (), 1, 1, side)
    pale = icon.convert("LA").convert("RGBA")
    pale.putalpha(icon.getchannel("A").point(lambda alpha: alpha * 0.3))
    return pale


def draw(scene: Scene, tile: int = 40) -> UInt8[np.ndarray, "height width 3"]:
    """The scene as an image.

    Args:
        scene: what to draw.
        tile: pixels a cell, at least 16.

    Raises:
        ValueError: an unknown kind, a thing outside the scene, or too small a tile.
    """
    if tile < _MIN_TILE:
        raise ValueError(f"tile is {tile} pixels; use at least {_MIN_TILE}, or the drawings are not readable")
    _check(scene)
    panel = _panel(scene, tile)
    grid = _draw_grid(scene, tile)
    image = Image.new("RGB", (panel.width, grid.height + panel.height), _PAPER)
    image.paste(grid, ((panel.width - grid.width) // 2, 0))
    _draw_panel(image, scene, panel, grid.height)
    return np.array(image)


def captioned(
    photo: UInt8[np.ndarray, "height width 3"], scene: Scene, tile: int = 40
) -> UInt8[np.ndarray, "higher width 3"]:
    """A picture that was taken, not drawn, with the words of a scene under it as `draw` writes them."""
    high, wide = photo.shape[:2]
    words = replace(scene, width=wide // tile, height=high // tile, sprites=(), agent=None, held=(), inventory=())
    panel = _panel(words, tile)
    image = Image.new("RGB", (wide, high + panel.height), _PAPER)
    image.paste(Image.fromarray(photo), (0, 0))
    _draw_panel(image, words, panel._replace(width=wide), high)
    return np.array(image)


def _paint(words: str, color: int | None) -> str:
    """Words in an ANSI colour of 256, or as they are."""
    return words if color is None else f"\x1b[38;5;{color}m{words}\x1b[0m"


def _characters(sprite: Sprite) -> str:
    """The two characters of a sprite; where the second is free it is the end of the label."""
    characters = sprites.art(sprite.kind).characters(sprite.look)
    return characters[0] + sprite.label[-1] if sprite.label and characters[1] == " " else characters


def _cell(stack: list[Sprite], arrow: str, color: bool) -> str:
    """Two characters for what lies in a cell, from the bottom up; the agent comes first."""

    def paint(words: str, sprite: Sprite) -> str:
        return _paint(words, sprites.art(sprite.kind).color if color else None)

    room = 1 if arrow else 2
    if len(stack) > room:
        stack = [s for s in stack if _is_item(s.kind)] or stack[-1:]
    if arrow:
        below = paint(_characters(stack[-1])[0], stack[-1]) if stack else " "
        return _paint(arrow, 208 if color else None) + below
    if not stack:
        return _paint("· ", 240 if color else None)
    if len(stack) == 1:
        return paint(_characters(stack[0]), stack[0])
    first = paint(_characters(stack[0])[0], stack[0])
    return first + (paint(_characters(stack[1])[0], stack[1]) if len(stack) == 2 else "+")


def _rows(scene: Scene, color: bool) -> list[str]:
    stacks: dict[tuple[int, int], list[Sprite]] = defaultdict(list)
    for s in scene.sprites:
        for x in range(s.x, s.x + s.w):
            for y in range(s.y, s.y + s.h):
                stacks[x, y].append(s)
    rows = []
    for y in range(scene.height):
        row = ""
        for x in range(scene.width):
            arrow = ARROWS[scene.agent[2]] if scene.agent is not None and scene.agent[:2] == (x, y) else ""
            ring = x in (0, scene.width - 1) or y in (0, scene.height - 1)
            if ring and scene.walls and not arrow and not stacks[x, y]:
                row += _paint("██", 60 if color else None)
            else:
                row += _cell(stacks[x, y], arrow, color)
        rows.append(row)
    return rows


def _legend(scene: Scene, color: bool, width: int) -> list[str]:
    """What the characters mean, and the states and labels of the things they stand for."""
    entries: dict[tuple[str, str], list[str]] = {}
    for s in scene.sprites:
        art = sprites.art(s.kind)
        notes = entries.setdefault((_characters(s)[0], s.kind), [])
        note = " ".join(filter(None, (s.label, art.words(s.look))))
        if note and note not in notes:
            notes.append(note)
    legend = [] if scene.agent is None else [(ARROWS[scene.agent[2]], "agent", 208)]
    for (glyph, kind), notes in entries.items():
        words = kind.replace("_", " ") + (f" ({'; '.join(notes)})" if notes else "")
        legend.append((glyph, words, sprites.art(kind).color))
    rows, used = [""], 0
    for glyph, words, tint in legend:
        if used and used + len(words) + 5 > width:
            rows.append("")
            used = 0
        rows[-1] += ("   " if used else "") + f"{_paint(glyph, tint if color else None)} {words}"
        used += len(words) + 5
    return rows if legend else []


def text(scene: Scene, color: bool = False) -> str:
    """The scene for a terminal: two characters a cell, a legend, and the panel's lines.

    In a cell the first character is the kind and the second its state; where two things share a cell each has
    one character, the lower thing first, and `+` stands for more. The agent is an arrow.

    Args:
        scene: what to show.
        color: whether to add ANSI colours.

    Raises:
        ValueError: an unknown kind, or a thing outside the scene.
    """
    _check(scene)
    width = max(_MIN_TEXT_WIDTH, 2 * scene.width)
    lines = [*_rows(scene, color), "", *_legend(scene, color, width)]
    panel = []
    if scene.held:
        panel.append("holding: " + ", ".join(_name(s) for s in scene.held))
    if scene.inventory:
        counts = (f"{kind.replace('_', ' ')} {count}" for kind, count in scene.inventory)
        panel.append("inventory: " + ", ".join(counts))
    if scene.status:
        panel.append("  ".join(f"{label}: {value}" for label, value in scene.status))
    for line in (*panel, *scene.caption):
        lines += textwrap.wrap(line, width)
    return "\n".join(lines)


def _codes(frame: UInt8[np.ndarray, "height width 3"]) -> Int[np.ndarray, "height width"]:
    """Each pixel's colour as one number, 0xRRGGBB."""
    red, green, blue = np.moveaxis(frame.astype(np.int32), -1, 0)
    codes: np.ndarray = red << 16 | green << 8 | blue
    return codes


def _palette(
    frames: Sequence[UInt8[np.ndarray, "_ _ 3"]], size: int = 255
) -> tuple[UInt8[np.ndarray, "entry 3"], UInt8[np.ndarray, "code"]]:
    """A palette of at most `size` colours for all frames, and for each colour code its nearest entry.

    The most frequent half is kept exactly; the rest, mostly smooth edges, is merged by a median cut.
    """
    tally: Counter[int] = Counter()
    for frame in frames:
        seen, counts = np.unique(_codes(frame), return_counts=True)
        tally.update(dict(zip(seen.tolist(), counts.tolist(), strict=True)))
    codes = np.array([code for code, _ in tally.most_common()])
    colors = np.stack([codes >> 16, codes >> 8 & 255, codes & 255], axis=-1).astype(np.uint8)
    palette = colors
    if len(colors) > size:
        rare = Image.fromarray(colors[None, size // 2 :]).quantize(size - size // 2, Image.Quantize.MEDIANCUT)
        cut = np.array(rare.getpalette(), dtype=np.uint8).reshape(-1, 3)
        palette = np.concatenate([colors[: size // 2], cut])
    lookup = np.zeros(1 << 24, dtype=np.uint8)
    for code, color in zip(codes, colors.astype(np.int64), strict=True):
        lookup[code] = ((palette - color) ** 2).sum(-1).argmin()
    return palette, lookup


def write_gif(path: str | os.PathLike[str], frames: Sequence[UInt8[np.ndarray, "_ _ 3"]], fps: Real = 4.0) -> None:
    """Writes frames as a GIF that plays in a loop.

    All frames share one palette and none is dithered, so what does not move does not flicker. A frame equal
    to the one before it is stored as a longer stay of that one.

    Args:
        path: the file to write.
        frames: images of one shape, at least one.
        fps: frames a second, above 0 and at most 50 (viewers slow faster videos down).

    Raises:
        ValueError: no frames, frames of several shapes, or a frame rate out of range.
    """
    if not 0 < fps <= 50:
        raise ValueError(f"fps is {fps}; a GIF plays at more than 0 and at most 50 frames a second")
    if len(frames) == 0:
        raise ValueError("a GIF needs at least one frame; got none")
    for i, frame in enumerate(frames):
        if frame.shape != frames[0].shape:
            raise ValueError(
                f"frame {i} has shape {frame.shape} but frame 0 has {frames[0].shape}: draw all of them with "
                "one tile size and with equally many status pairs and caption lines"
            )
    palette, lookup = _palette(frames)
    images = [Image.fromarray(lookup[_codes(frame)]) for frame in frames]
    for image in images:
        image.putpalette(palette.tobytes())
    buffer = io.BytesIO()
    images[0].save(buffer, "GIF", save_all=True, append_images=images[1:], duration=round(1000 / fps), loop=0)
    write_bytes(Path(path), buffer.getvalue())
