"""Whether a Minecraft state can be solved.

Collecting grass and wood never hurts, so it is done whenever possible; and whatever is removed only widens what the
agent can reach. So all that matters of a plan is *which* waters it bridges and whether it takes the stone away: 32
sets. What can be reached with a set gone, and what it has cost, does not depend on the order. A set can be reached if
one of its members could be removed last: it was within reach without it, and the materials sufficed. The gem can be had
if some set can be reached from which the gem is within reach and a stone pickaxe is held or can be made.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from elden.worlds import grid
from elden.worlds.grid import Board, Cell, Flag, Scalar, int32


class Stock(NamedTuple):
    """The inventory."""

    gem: Scalar
    grass: Scalar
    wood: Scalar
    stone: Scalar
    stick: Scalar
    wood_pickaxe: Scalar
    stone_pickaxe: Scalar
    rope: Scalar
    bridge: Scalar


class Land(NamedTuple):
    """Where things are and how the agent gets about.

    Attributes:
        cells: The cells of all things, (0, 0) for those that are gone.
        kinds: The kind of every thing.
        start: The agent's cell.
        on_foot: Whether the agent must walk; else it can face whatever has an empty neighbour.
        size: Side of the grid.
    """

    cells: Cell
    kinds: tuple[str, ...]
    start: Cell
    on_foot: bool
    size: int

    def of_kind(self, *kinds: str) -> Bool[np.ndarray, " thing"]:
        """Which things are of one of the kinds."""
        return np.array([kind in kinds for kind in self.kinds])


class _View(NamedTuple):
    """What there is with a set of things gone and all grass and wood collected.

    Attributes:
        accessible: Which of the remaining things the agent can reach.
        wood: How many woods have been collected on the way.
        grass: How many grasses.
    """

    accessible: Bool[Array, "*set thing"]
    wood: Int[Array, "*set"]
    grass: Int[Array, "*set"]


def beside(cells: Cell, reach: Board, size: int) -> Bool[Array, " thing"]:
    """For every thing, whether a cell next to it is on the board; False for those that are gone."""

    def one(cell: Cell) -> Flag:
        around = [grid.contains(reach, near, size) for near in grid.neighbours(cell, grid.SCREEN_COMPASS)]
        return grid.any_of(around) & (cell.x > 0)

    return jax.vmap(one)(cells)


def _accessible(land: Land, present: Bool[Array, " thing"]) -> Bool[Array, " thing"]:
    """Which of the things that are still there the agent can reach."""
    boards = jax.vmap(lambda cell: grid.cell_board(cell, land.size))(land.cells)
    taken = jnp.where(present[:, None, None], boards, jnp.uint32(0))
    free = grid.interior_board(land.size) & ~jax.lax.reduce(taken, jnp.uint32(0), jax.lax.bitwise_or, (0,))
    reach = grid.reachable(land.start, free, land.size) if land.on_foot else free
    return beside(land.cells, reach, land.size) & present


def _look(land: Land, present: Bool[Array, " thing"]) -> _View:
    """Collect grass and wood until no more can be reached; then look around."""
    soft = jnp.asarray(land.of_kind("grass", "wood"))

    def left(here: Bool[Array, " thing"]) -> Flag:
        return jnp.any(_accessible(land, here) & soft)

    def collect(here: Bool[Array, " thing"]) -> Bool[Array, " thing"]:
        return here & ~(_accessible(land, here) & soft)

    remaining = jax.lax.while_loop(left, collect, present)
    gone = present & ~remaining
    wood = jnp.sum(gone & jnp.asarray(land.of_kind("wood")), dtype=jnp.int32)
    grass = jnp.sum(gone & jnp.asarray(land.of_kind("grass")), dtype=jnp.int32)
    return _View(_accessible(land, remaining), wood, grass)


class _Cost(NamedTuple):
    """What removing a set of things takes, beyond what the inventory holds."""

    wood: Scalar
    grass: Scalar
    crafts: Flag


def _cost(stock: Stock, bridges: int, stone: bool, pickaxe: bool) -> _Cost:
    """The cost of some bridges, of taking the stone away, and of a stone pickaxe where none is held."""
    new_bridges = jnp.maximum(bridges - stock.bridge, 0)
    wood_pickaxe = int32(stone) * int32(stock.wood_pickaxe == 0)
    stone_pickaxe = int32(pickaxe) * int32(stock.stone_pickaxe == 0)
    sticks = jnp.maximum(wood_pickaxe + stone_pickaxe - stock.stick, 0)
    return _Cost(
        wood=new_bridges + wood_pickaxe + sticks,
        grass=jnp.maximum(new_bridges - stock.rope, 0),
        crafts=(new_bridges + wood_pickaxe + stone_pickaxe) > 0,
    )


def _affords(stock: Stock, view: _View, index: int, cost: _Cost, workshop: int) -> Flag:
    """Whether the materials at hand in a view, and its workshop, are enough."""
    enough = (stock.wood + view.wood[index] >= cost.wood) & (stock.grass + view.grass[index] >= cost.grass)
    return enough & (~cost.crafts | view.accessible[index, workshop])


def solvable(land: Land, stock: Stock) -> Flag:
    """Whether some sequence of actions leads to the gem. Exact but for counters that overflow their range."""
    hard = np.flatnonzero(land.of_kind("water", "stone"))
    stone = next(k for k, thing in enumerate(hard) if land.kinds[thing] == "stone")
    sets = np.array([[bool(code >> k & 1) for k in range(len(hard))] for code in range(2 ** len(hard))])
    removed = np.zeros((len(sets), len(land.kinds)), bool)
    removed[:, hard] = sets
    there = land.cells.x > 0
    view = jax.vmap(lambda gone: _look(land, there & ~gone))(jnp.asarray(removed))
    workshop, gem = land.kinds.index("workshop"), land.kinds.index("gem")

    reached = [jnp.asarray(True)]
    wins = [stock.gem >= 1]
    for code, members in enumerate(sets):
        bridges = int(members.sum()) - int(members[stone])
        if code > 0:
            cost = _cost(stock, bridges, bool(members[stone]), False)
            ways = []
            for k in np.flatnonzero(members):
                before = code & ~(1 << int(k))
                near = view.accessible[before, int(hard[k])]
                ways.append(reached[before] & near & _affords(stock, view, before, cost, workshop))
            reached.append(grid.any_of(ways))
        total = _cost(stock, bridges, bool(members[stone]), True)
        held = stock.stone_pickaxe >= 1
        material = held | (stock.stone + int32(bool(members[stone])) >= 1)
        can = view.accessible[code, gem] & material & _affords(stock, view, code, total, workshop)
        wins.append(reached[code] & can)
    return grid.any_of(wins)
