"""Geometry of square grids: rectangles, free cells, poses around a target, floods, uniform placement.

Everything here works on the scalars of ONE state; callers vmap. Small fixed collections (the sides of a piece of
furniture, the things that block) are Python lists that unroll at trace time: under vmap every entry is then one
long vector over environments, which XLA fuses into a few loops and which needs no gather.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, Shaped, UInt32

Scalar: TypeAlias = Int[Array, ""]
Flag: TypeAlias = Bool[Array, ""]
Board: TypeAlias = UInt32[Array, "row word"]
Compass: TypeAlias = tuple[tuple[int, int], ...]
"""The step (dx, dy) of every direction code."""

SCREEN_COMPASS: Compass = ((1, 0), (0, 1), (-1, 0), (0, -1))
"""Right, down, left, up with y growing downwards: MiniGrid's codes."""

_WORD = 32
_FEW = 512


class Cell(NamedTuple):
    """A cell of the grid."""

    x: Scalar
    y: Scalar


class Rect(NamedTuple):
    """An axis-aligned block of w x h cells, given by its cell of smallest coordinates."""

    x: Scalar
    y: Scalar
    w: int | Scalar
    h: int | Scalar


class Pose(NamedTuple):
    """A cell and a direction code."""

    x: Scalar
    y: Scalar
    dir: Scalar


class Slot(NamedTuple):
    """A pose next to a target, and whether it can be taken."""

    pose: Pose
    open: Flag


def int32(value: int | Shaped[Array | np.ndarray, "..."]) -> Int[Array, "..."]:
    """The value as an int32 array."""
    return jnp.asarray(value, jnp.int32)


def any_of(flags: Sequence[Flag]) -> Flag:
    """Whether any flag holds; False for none."""
    result = jnp.asarray(False)
    for flag in flags:
        result = result | flag
    return result


def same_cell(a: Cell, b: Cell) -> Flag:
    """Whether two cells are one."""
    return (a.x == b.x) & (a.y == b.y)


def covers(rect: Rect, cell: Cell) -> Flag:
    """Whether the cell is one of the rectangle's."""
    dx, dy = cell.x - rect.x, cell.y - rect.y
    return (dx >= 0) & (dx < rect.w) & (dy >= 0) & (dy < rect.h)


def overlap(a: Rect, b: Rect) -> Bool[Array, "..."]:
    """Whether two rectangles share a cell. Coordinates may be arrays (one answer for each)."""
    return (a.x < b.x + b.w) & (b.x < a.x + a.w) & (a.y < b.y + b.h) & (b.y < a.y + a.h)


def inside(cell: Cell, size: int) -> Flag:
    """Whether the cell is within the ring of walls."""
    return (cell.x >= 1) & (cell.x <= size - 2) & (cell.y >= 1) & (cell.y <= size - 2)


def ahead(pose: Pose, compass: Compass) -> Cell:
    """The cell in front of a pose."""
    dx = sum((int32(pose.dir == code) * step[0] for code, step in enumerate(compass)), int32(0))
    dy = sum((int32(pose.dir == code) * step[1] for code, step in enumerate(compass)), int32(0))
    return Cell(pose.x + dx, pose.y + dy)


def sides(target: Rect, longest: int, compass: Compass, facings: Sequence[int]) -> list[Slot]:
    """Every pose outside the target that shares an edge with it and faces it.

    Args:
        target: The block; its width and height may be traced.
        longest: The largest width or height the target can have.
        compass: The direction codes.
        facings: Direction codes in the wanted order of sides; within a side, y then x grows.

    Returns:
        `len(facings) * longest` slots; those beyond the target's true length are not open.
    """
    slots = []
    for facing in facings:
        dx, dy = compass[facing]
        for k in range(longest):
            along_x = dx == 0
            # Facing +x means standing left of the target, and so on.
            x = target.x + k if along_x else (target.x - 1 if dx > 0 else target.x + target.w)
            y = target.y + k if not along_x else (target.y - 1 if dy > 0 else target.y + target.h)
            real = jnp.asarray(k < (target.w if along_x else target.h))
            slots.append(Slot(Pose(int32(x), int32(y), int32(facing)), real))
    return slots


def count_open(slots: Sequence[Slot]) -> Scalar:
    """How many slots can be taken."""
    return sum((int32(slot.open) for slot in slots), int32(0))


def take(slots: Sequence[Slot], rank: Scalar, otherwise: Pose) -> Pose:
    """The pose of the open slot number `rank` (from 0, in order), or `otherwise` where there is none."""
    x, y, facing = otherwise
    seen = int32(0)
    for slot in slots:
        hit = slot.open & (seen == rank)
        x = jnp.where(hit, slot.pose.x, x)
        y = jnp.where(hit, slot.pose.y, y)
        facing = jnp.where(hit, slot.pose.dir, facing)
        seen = seen + int32(slot.open)
    return Pose(x, y, facing)


def random_rank(key: Key[Array, ""], count: Scalar) -> Scalar:
    """A uniform integer in 0..count-1 (0 where the count is 0).

    A uniform float is scaled: its 23 random bits put no probability off by more than 1.2e-7.
    """
    share = jax.random.uniform(key, (), jnp.float32)
    return jnp.minimum((share * count.astype(jnp.float32)).astype(jnp.int32), jnp.maximum(count - 1, 0))


# Boards: a set of cells as bits. Row y holds its cells in words of 32, cell x being bit x % 32 of word x // 32.


def _words(size: int) -> int:
    return (size + _WORD - 1) // _WORD


def _low_bits(count: Int[Array, "..."]) -> UInt32[Array, "..."]:
    """A word whose lowest `count` bits are set; counts outside 0..32 are clipped."""
    clipped = jnp.clip(count, 0, _WORD).astype(jnp.uint32)
    partial = (jnp.uint32(1) << jnp.minimum(clipped, jnp.uint32(_WORD - 1))) - jnp.uint32(1)
    return jnp.where(clipped >= _WORD, jnp.uint32(0xFFFFFFFF), partial)


def rect_board(rect: Rect, size: int) -> Board:
    """The cells of a rectangle."""
    start = int32(np.arange(_words(size)) * _WORD)
    span = _low_bits(rect.x + rect.w - start) & ~_low_bits(rect.x - start)
    rows = int32(np.arange(size))
    within = (rows >= rect.y) & (rows < rect.y + rect.h)
    return jnp.where(within[:, None], span[None, :], jnp.uint32(0))


def interior_board(size: int) -> Board:
    """All cells within the ring of walls."""
    return rect_board(Rect(int32(1), int32(1), size - 2, size - 2), size)


def cell_board(cell: Cell, size: int) -> Board:
    """One cell."""
    return rect_board(Rect(cell.x, cell.y, 1, 1), size)


def slots_board(slots: Sequence[Slot], size: int) -> Board:
    """The cells of the open slots."""
    board = jnp.zeros((size, _words(size)), jnp.uint32)
    for slot in slots:
        board = board | jnp.where(slot.open, cell_board(Cell(slot.pose.x, slot.pose.y), size), jnp.uint32(0))
    return board


def neighbours(cell: Cell, compass: Compass) -> list[Cell]:
    """The four cells around a cell, in the order of the direction codes."""
    return [Cell(cell.x + dx, cell.y + dy) for dx, dy in compass]


def meets(a: Board, b: Board) -> Flag:
    """Whether two boards share a cell."""
    return jnp.any((a & b) != 0)


def grow(board: Board) -> Board:
    """The board and all 4-neighbours of its cells. The ring of walls keeps rows from wrapping."""
    rows, words = board.shape
    left = board << 1
    right = board >> 1
    if words > 1:
        edge = jnp.zeros((rows, 1), jnp.uint32)
        left = left | jnp.concatenate([edge, board[:, :-1] >> (_WORD - 1)], axis=1)
        right = right | jnp.concatenate([board[:, 1:] << (_WORD - 1), edge], axis=1)
    zero = jnp.zeros((1, words), jnp.uint32)
    down = jnp.concatenate([zero, board[:-1]], axis=0)
    up = jnp.concatenate([board[1:], zero], axis=0)
    return board | left | right | down | up


def flood(start: Board, free: Board, stop: Board) -> Board:
    """Breadth-first search over free cells, one layer at a time, from all cells of `start`.

    Ends after the first layer that meets `stop`, so that the cells of `stop` in the result are exactly the nearest
    ones; or when nothing new is reached. Whole layers are a handful of bit operations on a few words a row.
    """

    def unfinished(carry: tuple[Board, Flag]) -> Flag:
        return carry[1]

    def layer(carry: tuple[Board, Flag]) -> tuple[Board, Flag]:
        reached, _ = carry
        wider = reached | (grow(reached) & free)
        return wider, jnp.any(wider != reached) & ~meets(wider, stop)

    return jax.lax.while_loop(unfinished, layer, (start, ~meets(start, stop)))[0]


def reachable(start: Cell, free: Board, size: int) -> Board:
    """Every cell that can be walked to, the start included."""
    nowhere = jnp.zeros_like(free)
    return flood(cell_board(start, size), free, nowhere)


def contains(board: Board, cell: Cell, size: int) -> Flag:
    """Whether the cell is on the board."""
    return meets(board, cell_board(cell, size))


def restrict(slots: Sequence[Slot], board: Board, size: int) -> list[Slot]:
    """The slots, open only where their cell is on the board."""
    return [Slot(slot.pose, slot.open & contains(board, Cell(slot.pose.x, slot.pose.y), size)) for slot in slots]


def nearest(start: Cell, slots: Sequence[Slot], free: Board, size: int) -> list[Slot]:
    """The slots, open only where the walk from `start` is as short as to any other."""
    reached = flood(cell_board(start, size), free, slots_board(slots, size))
    return restrict(slots, reached, size)


def walk(pose: Pose, slots: Sequence[Slot], free: Board, compass: Compass, size: int) -> Scalar:
    """The direction in which a shortest walk to an open slot goes on.

    In the cell of an open slot it is the direction of that slot; where there is no way it is the pose's own. Of
    several good directions the one straight ahead is taken, else the smallest code.
    """
    own = Cell(pose.x, pose.y)
    here = [Slot(slot.pose, slot.open & same_cell(Cell(slot.pose.x, slot.pose.y), own)) for slot in slots]
    around = [Slot(Pose(*cell, int32(code)), jnp.asarray(True)) for code, cell in enumerate(neighbours(own, compass))]
    steps = restrict(around, free, size)
    steps = restrict(steps, flood(slots_board(slots, size), free, slots_board(steps, size)), size)
    straight = any_of([step.open & (step.pose.dir == pose.dir) for step in steps])
    onward = jnp.where(straight, pose.dir, take(steps, int32(0), pose).dir)
    return take(here, int32(0), Pose(own.x, own.y, onward)).dir


# Uniform placement on masks of the grid, indexed [y, x].


def grid_xy(size: int) -> tuple[Int[Array, "row col"], Int[Array, "row col"]]:
    """The x and the y of every cell."""
    ys, xs = np.mgrid[0:size, 0:size]
    return int32(xs), int32(ys)


def choose(key: Key[Array, ""], mask: Bool[Array, " option"]) -> tuple[Scalar, Flag]:
    """A uniform choice among the allowed options, and whether there was any."""
    options = mask.shape[0]
    if options <= _FEW:
        # A product with a triangle of ones is an exact prefix sum, and on few options faster than a scan.
        upper = np.triu(np.ones((options, options), np.float32))
        ranks = jnp.dot(mask.astype(jnp.float32), upper, precision=jax.lax.Precision.HIGHEST).astype(jnp.int32)
    else:
        ranks = jnp.cumsum(mask.astype(jnp.int32))
    count = ranks[-1]
    index = jnp.sum(ranks <= random_rank(key, count), dtype=jnp.int32)
    return jnp.minimum(index, mask.shape[0] - 1), count > 0


def place(key: Key[Array, ""], mask: Bool[Array, "row col"]) -> tuple[Cell, Flag]:
    """A uniform cell among the allowed ones, and whether there was any."""
    size = mask.shape[1]
    index, found = choose(key, mask.reshape(-1))
    return Cell(index % size, index // size), found


def room_for(w: int, h: int, taken: Sequence[Rect], size: int) -> Bool[Array, "row col"]:
    """Where the first cell of a w x h block may lie: inside the walls and clear of every taken rectangle."""
    xs, ys = grid_xy(size)
    fits = (xs >= 1) & (xs + w <= size - 1) & (ys >= 1) & (ys + h <= size - 1)
    for rect in taken:
        fits = fits & ~overlap(Rect(xs, ys, w, h), rect)
    return fits


def place_agent(key: Key[Array, ""], taken: Sequence[Rect], size: int) -> tuple[Pose, Flag]:
    """A pose uniform over all (cell, direction) whose cell and front cell are both empty."""
    empty = room_for(1, 1, taken, size)
    fronts = [jnp.roll(empty, (-dy, -dx), axis=(0, 1)) for dx, dy in SCREEN_COMPASS]
    allowed = jnp.stack([empty & front for front in fronts])
    index, found = choose(key, allowed.reshape(-1))
    cells = size * size
    return Pose(index % cells % size, index % cells // size, index // cells), found
