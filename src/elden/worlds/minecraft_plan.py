"""Whether a Minecraft layout can be solved: a search over the few plans that could ever be needed.

Collecting grass and wood never hurts, so a plan first harvests all it can come to, again and again, as harvested cells
open the way. What is left to decide is in which order to fetch the stone and to bridge water (each costs wood, and each
may open the way to more), and which water to bridge. One bridge is always enough, because all water lies around the
gem. That makes ten plans, all tried at once.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from elden.worlds import grid
from elden.worlds.grid import Board, Cell, Flag, Scalar, int32


class Stock(NamedTuple):
    """The inventory, as far as plans need it."""

    grass: Scalar
    wood: Scalar
    stone: Scalar
    stick: Scalar
    wood_pickaxe: Scalar
    stone_pickaxe: Scalar
    rope: Scalar
    bridge: Scalar


class _Progress(NamedTuple):
    present: Bool[Array, " thing"]
    stock: Stock
    possible: Flag


class _Land(NamedTuple):
    """What does not change during a plan."""

    cells: Cell
    kinds: tuple[str, ...]
    start: Cell
    on_foot: bool
    size: int


def beside(cells: Cell, reach: Board, size: int) -> Bool[Array, " thing"]:
    """For every thing, whether a cell next to it is on the board; False for those that are gone."""

    def one(cell: Cell) -> Flag:
        around = [grid.contains(reach, near, size) for near in grid.neighbours(cell, grid.SCREEN_COMPASS)]
        return grid.any_of(around) & (cell.x > 0)

    return jax.vmap(one)(cells)


def _accessible(land: _Land, present: Bool[Array, " thing"]) -> Bool[Array, " thing"]:
    """Which of the things that are still there the agent can come to face."""
    boards = jax.vmap(lambda cell: grid.cell_board(cell, land.size))(land.cells)
    taken = jnp.where(present[:, None, None], boards, jnp.uint32(0))
    free = grid.interior_board(land.size) & ~jax.lax.reduce(taken, jnp.uint32(0), jax.lax.bitwise_or, (0,))
    reach = grid.reachable(land.start, free, land.size) if land.on_foot else free
    return beside(land.cells, reach, land.size) & present


def _of_kind(land: _Land, kind: str) -> Bool[np.ndarray, " thing"]:
    return np.array([name == kind for name in land.kinds])


def _harvest(land: _Land, progress: _Progress) -> _Progress:
    """Collect grass and wood until no more can be come to."""
    soft = jnp.asarray(_of_kind(land, "grass") | _of_kind(land, "wood"))

    def left(present: Bool[Array, " thing"]) -> Flag:
        return jnp.any(_accessible(land, present) & soft)

    def take(present: Bool[Array, " thing"]) -> Bool[Array, " thing"]:
        return present & ~(_accessible(land, present) & soft)

    present = jax.lax.while_loop(left, take, progress.present)
    gone = progress.present & ~present
    stock = progress.stock._replace(
        grass=progress.stock.grass + _count(gone, _of_kind(land, "grass")),
        wood=progress.stock.wood + _count(gone, _of_kind(land, "wood")),
    )
    return progress._replace(present=present, stock=stock)


def _count(flags: Bool[Array, " thing"], members: Bool[np.ndarray, " thing"]) -> Scalar:
    return jnp.sum(flags & jnp.asarray(members), dtype=jnp.int32)


def _fetch_stone(land: _Land, progress: _Progress) -> _Progress:
    """Craft a wood pickaxe if there is none, and take the stone; nothing where no stone is needed."""
    stock = progress.stock
    needed = (stock.stone_pickaxe == 0) & (stock.stone == 0)
    crafts = needed & (stock.wood_pickaxe == 0)
    accessible = _accessible(land, progress.present)
    new_stick = crafts & (stock.stick == 0)
    wood = stock.wood - int32(crafts) - int32(new_stick)
    here = accessible & jnp.asarray(_of_kind(land, "stone"))
    workshop = jnp.any(accessible & jnp.asarray(_of_kind(land, "workshop")))
    possible = ~needed | (jnp.any(here) & (~crafts | (workshop & (wood >= 0))))
    after = stock._replace(
        wood=wood,
        stick=stock.stick - int32(crafts & ~new_stick),
        stone=stock.stone + int32(needed),
        wood_pickaxe=stock.wood_pickaxe + int32(crafts),
    )
    return _Progress(progress.present & ~(here & needed), after, progress.possible & possible)


def _bridge(land: _Land, progress: _Progress, water: Int[Array, ""]) -> _Progress:
    """Craft a bridge if there is none, and bridge this water; -1 bridges nothing."""
    stock = progress.stock
    needed = water >= 0
    crafts = needed & (stock.bridge == 0)
    accessible = _accessible(land, progress.present)
    new_rope = crafts & (stock.rope == 0)
    wood, grass = stock.wood - int32(crafts), stock.grass - int32(new_rope)
    numbers = np.cumsum(_of_kind(land, "water")) - 1
    here = accessible & jnp.asarray(_of_kind(land, "water")) & (int32(numbers) == water)
    workshop = jnp.any(accessible & jnp.asarray(_of_kind(land, "workshop")))
    possible = ~needed | (jnp.any(here) & (~crafts | (workshop & (wood >= 0) & (grass >= 0))))
    after = stock._replace(
        wood=wood,
        grass=grass,
        rope=stock.rope - int32(crafts & ~new_rope),
        bridge=stock.bridge - int32(needed & ~crafts),
    )
    return _Progress(progress.present & ~here, after, progress.possible & possible)


def _finish(land: _Land, progress: _Progress) -> Flag:
    """Craft a stone pickaxe if there is none, and take the gem."""
    stock = progress.stock
    accessible = _accessible(land, progress.present)
    crafts = stock.stone_pickaxe == 0
    enough = (stock.stone >= 1) & ((stock.stick >= 1) | (stock.wood >= 1))
    workshop = jnp.any(accessible & jnp.asarray(_of_kind(land, "workshop")))
    gem = jnp.any(accessible & jnp.asarray(_of_kind(land, "gem")))
    return progress.possible & gem & (~crafts | (workshop & enough))


def solvable(cells: Cell, stock: Stock, kinds: tuple[str, ...], start: Cell, on_foot: bool, size: int) -> Flag:
    """Whether some plan fetches the gem.

    Args:
        cells: The cells of all things, (0, 0) for those that are gone.
        stock: The inventory.
        kinds: The kind of every thing.
        start: The agent's cell.
        on_foot: Whether the agent must walk; else it can face whatever has an empty neighbour.
        size: Side of the grid.
    """
    land = _Land(cells, kinds, start, on_foot, size)
    begin = _Progress(cells.x > 0, stock, jnp.asarray(True))

    def plan(stone_first: Flag, water: Int[Array, ""]) -> Flag:
        ready = _harvest(land, begin)
        early = _choose(stone_first, _fetch_stone(land, ready), _bridge(land, ready, water))
        ready = _harvest(land, early)
        late = _choose(stone_first, _bridge(land, ready, water), _fetch_stone(land, ready))
        return _finish(land, _harvest(land, late))

    orders, waters = np.meshgrid([True, False], np.arange(-1, 4), indexing="ij")
    return jnp.any(jax.vmap(plan)(jnp.asarray(orders.reshape(-1)), int32(waters.reshape(-1))))


def _choose(flag: Flag, yes: _Progress, no: _Progress) -> _Progress:
    chosen: _Progress = jax.tree.map(lambda a, b: jnp.where(flag, a, b), yes, no)
    return chosen
