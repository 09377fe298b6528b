"""Grid geometry against slow oracles: sets of cells in plain Python, breadth-first search with a deque."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elden.worlds import grid
from elden.worlds.grid import SCREEN_COMPASS, Board, Cell, Compass, Pose, Rect, Slot, int32

XY: TypeAlias = tuple[int, int]
Block: TypeAlias = tuple[int, int, int, int]

SKILLS_COMPASS: Compass = ((-1, 0), (1, 0), (0, 1), (0, -1))
PRIMITIVES_COMPASS: Compass = ((0, -1), (0, 1), (-1, 0), (1, 0))
COMPASSES = (SCREEN_COMPASS, SKILLS_COMPASS, PRIMITIVES_COMPASS)
SIZES = (5, 10, 32, 33, 40, 70)
"""One word a row, exactly one, one cell into the second, two words, three words."""
NUM_SLOTS = 7


def chi_square_limit(freedom: int) -> float:
    """What a chi-square statistic exceeds with probability 3e-6 (Wilson and Hilferty)."""
    spread = 2.0 / (9.0 * freedom)
    return freedom * (1.0 - spread + 4.5 * math.sqrt(spread)) ** 3


def assert_uniform(counts: np.ndarray) -> None:
    expected = counts.sum() / counts.size
    assert expected >= 5, "too few draws for this test"
    assert ((counts - expected) ** 2 / expected).sum() < chi_square_limit(counts.size - 1)


# The oracles' own world: sets of (x, y).


def to_board(cells: Iterable[XY], size: int) -> Board:
    """The board of a set of cells, bit by bit."""
    words = np.zeros((size, -(-size // 32)), np.uint32)
    for x, y in cells:
        words[y, x // 32] |= np.uint32(1 << (x % 32))
    return jnp.asarray(words)


def to_cells(board: Board, size: int) -> set[XY]:
    """The cells of a board. A bit beyond the grid shows up as a cell beyond the grid."""
    words = np.asarray(board)
    assert words.shape == (size, -(-size // 32))
    ys, xs = np.nonzero((words[:, :, None] >> np.arange(32, dtype=np.uint32) & 1).reshape(size, -1))
    return set(zip(xs.tolist(), ys.tolist(), strict=True))


def interior(size: int) -> set[XY]:
    return {(x, y) for x in range(1, size - 1) for y in range(1, size - 1)}


def block_cells(block: Block) -> set[XY]:
    x, y, w, h = block
    return {(x + i, y + j) for i in range(w) for j in range(h)}


def around(cell: XY) -> list[XY]:
    return [(cell[0] + dx, cell[1] + dy) for dx, dy in SCREEN_COMPASS]


def distances(starts: Iterable[XY], free: set[XY]) -> dict[XY, int]:
    """Length of the shortest walk over free cells from any start; the starts need not be free."""
    far = dict.fromkeys(starts, 0)
    queue = deque(far)
    while queue:
        cell = queue.popleft()
        for near in around(cell):
            if near in free and near not in far:
                far[near] = far[cell] + 1
                queue.append(near)
    return far


def maze(size: int, density: float, rng: np.random.Generator) -> set[XY]:
    """The free cells of a random obstacle grid."""
    return {cell for cell in interior(size) if rng.random() >= density}


def to_rect(block: Block) -> Rect:
    x, y, w, h = block
    return Rect(int32(x), int32(y), int32(w), int32(h))


def to_cell(cell: XY) -> Cell:
    return Cell(int32(cell[0]), int32(cell[1]))


def to_slots(cells: Sequence[XY], codes: Sequence[int], is_open: Sequence[bool]) -> list[Slot]:
    parts = zip(cells, codes, is_open, strict=True)
    return [Slot(Pose(int32(x), int32(y), int32(code)), jnp.asarray(bool(flag))) for (x, y), code, flag in parts]


# Compiled once for every size.


@cache
def compiled_rect_board(size: int) -> Callable[[Rect], Board]:
    return jax.jit(lambda rect: grid.rect_board(rect, size))


@cache
def compiled_cell_board(size: int) -> Callable[[Cell], Board]:
    return jax.jit(lambda cell: grid.cell_board(cell, size))


@cache
def compiled_reachable(size: int) -> Callable[[Cell, Board], Board]:
    return jax.jit(lambda cell, free: grid.reachable(cell, free, size))


@cache
def compiled_nearest(size: int) -> Callable[[Cell, list[Slot], Board], list[Slot]]:
    return jax.jit(lambda cell, slots, free: grid.nearest(cell, slots, free, size))


@cache
def compiled_walk(size: int, compass: Compass) -> Callable[[Pose, list[Slot], Board], jax.Array]:
    return jax.jit(lambda pose, slots, free: grid.walk(pose, slots, free, compass, size))


FLOOD = jax.jit(grid.flood)
GROW = jax.jit(grid.grow)

sizes = st.sampled_from(SIZES)
seeds = st.integers(0, 2**32 - 1)
densities = st.sampled_from([0.0, 0.2, 0.35, 0.5, 0.8])


def coordinates(size: int) -> st.SearchStrategy[int]:
    """Any coordinate, the borders between words more often than not."""
    borders = [x for x in (0, 1, 30, 31, 32, 33, 62, 63, 64, 65, size - 2, size - 1) if x < size]
    return st.one_of(st.sampled_from(borders), st.integers(0, size - 1))


# Boards.


@given(data=st.data(), size=sizes)
def test_rect_board_is_the_set_of_its_cells(data: st.DataObject, size: int) -> None:
    x, y = data.draw(coordinates(size)), data.draw(coordinates(size))
    w, h = data.draw(st.integers(0, size)), data.draw(st.integers(0, size))
    board = compiled_rect_board(size)(to_rect((x, y, w, h)))
    words = board.shape[1]
    wanted = {(i, j) for i, j in block_cells((x, y, w, h)) if i < 32 * words and j < size}
    assert to_cells(board, size) == wanted


@given(data=st.data(), size=sizes)
def test_rect_board_cuts_off_what_is_left_of_or_above_the_grid(data: st.DataObject, size: int) -> None:
    x, y = data.draw(st.integers(-5, 0)), data.draw(st.integers(-5, 0))
    w, h = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 9))
    board = compiled_rect_board(size)(to_rect((x, y, w, h)))
    wanted = {(i, j) for i, j in block_cells((x, y, w, h)) if i >= 0 and 0 <= j < size}
    assert to_cells(board, size) == wanted


@pytest.mark.parametrize("size", SIZES)
def test_cell_board_of_every_cell(size: int) -> None:
    for x in range(size):
        y = (7 * x + 3) % size
        assert to_cells(compiled_cell_board(size)(to_cell((x, y))), size) == {(x, y)}


@pytest.mark.parametrize("size", SIZES)
def test_interior_board_is_everything_but_the_outermost_ring(size: int) -> None:
    assert to_cells(grid.interior_board(size), size) == interior(size)


@given(size=sizes, seed=seeds, density=densities)
def test_grow_adds_the_four_neighbours(size: int, seed: int, density: float) -> None:
    cells = maze(size, max(density, 0.2), np.random.default_rng(seed))
    grown = cells | {near for cell in cells for near in around(cell)}
    assert to_cells(GROW(to_board(cells, size)), size) == grown


@given(size=sizes, seed=seeds)
def test_meets_and_contains(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = maze(size, 0.97, rng), maze(size, 0.97, rng)
    assert bool(grid.meets(to_board(a, size), to_board(b, size))) == bool(a & b)
    x, y = rng.integers(0, size, 2).tolist()
    assert bool(grid.contains(to_board(a, size), to_cell((x, y)), size)) == ((x, y) in a)


@given(size=sizes, seed=seeds)
def test_slots_board_holds_the_cells_of_the_open_slots(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cells = [(int(x), int(y)) for x, y in rng.integers(0, size, (NUM_SLOTS, 2))]
    flags = (rng.random(NUM_SLOTS) < 0.5).tolist()
    board = grid.slots_board(to_slots(cells, [0] * NUM_SLOTS, flags), size)
    assert to_cells(board, size) == {cell for cell, flag in zip(cells, flags, strict=True) if flag}


# Search.


@given(size=sizes, seed=seeds, density=densities)
def test_reachable_is_the_component_of_the_start(size: int, seed: int, density: float) -> None:
    rng = np.random.default_rng(seed)
    free = maze(size, density, rng)
    x, y = rng.integers(1, size - 1, 2).tolist()
    reached = compiled_reachable(size)(to_cell((x, y)), to_board(free, size))
    assert to_cells(reached, size) == set(distances([(x, y)], free))


@pytest.mark.parametrize("size", [33, 40, 70])
@pytest.mark.parametrize("backwards", [False, True])
def test_reachable_crosses_the_borders_between_words_in_both_directions(size: int, backwards: bool) -> None:
    corridor = {(x, 2) for x in range(1, size - 1)}
    start = (size - 2, 2) if backwards else (1, 2)
    assert to_cells(compiled_reachable(size)(to_cell(start), to_board(corridor, size)), size) == corridor


def test_reachable_follows_a_long_snake() -> None:
    """The longest walk there is: as many layers as there are free cells."""
    size = 40
    snake = {(x, y) for y in range(1, size - 1, 2) for x in range(1, size - 1)}
    snake |= {(size - 2 if y % 4 == 2 else 1, y) for y in range(2, size - 2, 2)}
    assert to_cells(compiled_reachable(size)(to_cell((1, 1)), to_board(snake, size)), size) == snake


@given(size=sizes, seed=seeds, density=densities, starts=st.integers(0, 4), stops=st.integers(0, 6))
def test_flood_ends_with_the_first_layer_that_meets_the_stop(
    size: int, seed: int, density: float, starts: int, stops: int
) -> None:
    rng = np.random.default_rng(seed)
    free = maze(size, density, rng)
    start = {(int(x), int(y)) for x, y in rng.integers(1, size - 1, (starts, 2))}
    stop = {(int(x), int(y)) for x, y in rng.integers(1, size - 1, (stops, 2))}
    far = distances(start, free)
    met = [far[cell] for cell in stop if cell in far]
    last = min(met) if met else math.inf
    reached = FLOOD(to_board(start, size), to_board(free, size), to_board(stop, size))
    assert to_cells(reached, size) == {cell for cell, distance in far.items() if distance <= last}


@given(size=sizes, seed=seeds, density=densities)
def test_nearest_keeps_the_slots_of_the_shortest_walk(size: int, seed: int, density: float) -> None:
    rng = np.random.default_rng(seed)
    free = maze(size, density, rng)
    x, y = rng.integers(1, size - 1, 2).tolist()
    cells = [(int(i), int(j)) for i, j in rng.integers(1, size - 1, (NUM_SLOTS, 2))]
    if rng.random() < 0.2:
        cells[3] = (x, y)
    flags = [bool(rng.random() < 0.7) and (cell in free or cell == (x, y)) for cell in cells]
    slots = to_slots(cells, rng.integers(0, 4, NUM_SLOTS).tolist(), flags)
    kept = compiled_nearest(size)(to_cell((x, y)), slots, to_board(free, size))
    far = distances([(x, y)], free)
    best = min((far[cell] for cell, flag in zip(cells, flags, strict=True) if flag and cell in far), default=-1)
    wanted = [flag and far.get(cell) == best for cell, flag in zip(cells, flags, strict=True)]
    assert [bool(slot.open) for slot in kept] == wanted
    assert [tuple(map(int, slot.pose)) for slot in kept] == [tuple(map(int, slot.pose)) for slot in slots]


def wanted_direction(
    pose: tuple[int, int, int], slots: Sequence[tuple[XY, int, bool]], free: set[XY], compass: Compass
) -> int:
    """Oracle of `walk`: the first step of a shortest walk, straight ahead where possible."""
    x, y, facing = pose
    for cell, code, flag in slots:
        if flag and cell == (x, y):
            return code
    far = distances([cell for cell, _, flag in slots if flag], free)
    steps = {code: (x + dx, y + dy) for code, (dx, dy) in enumerate(compass)}
    lengths = {code: far[cell] for code, cell in steps.items() if cell in free and cell in far}
    good = [code for code, length in lengths.items() if length == min(lengths.values())]
    return facing if not good or facing in good else min(good)


@given(size=st.sampled_from([5, 10, 40]), seed=seeds, density=densities, which=st.integers(0, 2))
@example(size=10, seed=0, density=0.0, which=0)
@settings(max_examples=30)
def test_walk_takes_a_shortest_way(size: int, seed: int, density: float, which: int) -> None:
    rng = np.random.default_rng(seed)
    compass = COMPASSES[which]
    free = maze(size, density, rng)
    x, y = rng.integers(1, size - 1, 2).tolist()
    facing = int(rng.integers(0, 4))
    cells = [(int(i), int(j)) for i, j in rng.integers(1, size - 1, (NUM_SLOTS, 2))]
    if rng.random() < 0.1:
        cells[3] = (x, y)
    codes = rng.integers(0, 4, NUM_SLOTS).tolist()
    flags = [bool(rng.random() < 0.6) and (cell in free or cell == (x, y)) for cell in cells]
    pose = Pose(int32(x), int32(y), int32(facing))
    step = compiled_walk(size, compass)(pose, to_slots(cells, codes, flags), to_board(free, size))
    slots = list(zip(cells, codes, flags, strict=True))
    assert int(step) == wanted_direction((x, y, facing), slots, free, compass)


@pytest.mark.parametrize("compass", COMPASSES)
def test_walk_followed_to_the_end_is_as_short_as_the_search_says(compass: Compass) -> None:
    size = 12
    rng = np.random.default_rng(1)
    for _ in range(10):
        free = maze(size, 0.3, rng)
        target, start = (sorted(free)[int(rng.integers(len(free)))] for _ in range(2))
        length = distances([target], free).get(start)
        if length is None:
            continue
        slots = to_slots([target] * NUM_SLOTS, [2] * NUM_SLOTS, [True] + [False] * (NUM_SLOTS - 1))
        cell, facing = start, 0
        for _ in range(length):
            pose = Pose(int32(cell[0]), int32(cell[1]), int32(facing))
            facing = int(compiled_walk(size, compass)(pose, slots, to_board(free, size)))
            cell = (cell[0] + compass[facing][0], cell[1] + compass[facing][1])
            assert cell in free
        assert cell == target


# Cells, rectangles, sides.

blocks = st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 4), st.integers(1, 4))


@given(a=blocks, b=blocks)
@settings(max_examples=60)
def test_overlap_and_covers_are_about_shared_cells(a: Block, b: Block) -> None:
    assert bool(grid.overlap(to_rect(a), to_rect(b))) == bool(block_cells(a) & block_cells(b))
    assert bool(grid.covers(to_rect(a), to_cell(b[:2]))) == (b[:2] in block_cells(a))
    assert bool(grid.same_cell(to_cell(a[:2]), to_cell(b[:2]))) == (a[:2] == b[:2])


@pytest.mark.parametrize("size", [4, 10])
def test_inside_is_the_interior(size: int) -> None:
    for x in range(-1, size + 1):
        for y in range(-1, size + 1):
            assert bool(grid.inside(to_cell((x, y)), size)) == ((x, y) in interior(size))


@pytest.mark.parametrize("compass", COMPASSES)
def test_ahead_and_neighbours_follow_the_compass(compass: Compass) -> None:
    near = [(int(cell.x), int(cell.y)) for cell in grid.neighbours(to_cell((4, 6)), compass)]
    assert near == [(4 + dx, 6 + dy) for dx, dy in compass]
    for code in range(4):
        cell = grid.ahead(Pose(int32(4), int32(6), int32(code)), compass)
        assert (int(cell.x), int(cell.y)) == near[code]


def open_poses(slots: Sequence[Slot]) -> list[tuple[int, int, int]]:
    return [(int(pose.x), int(pose.y), int(pose.dir)) for pose, is_open in slots if bool(is_open)]


@given(
    block=st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 3), st.integers(1, 3)),
    which=st.integers(0, 2),
    facings=st.permutations(range(4)),
)
def test_sides_are_all_poses_that_share_an_edge_and_face_the_target(
    block: Block, which: int, facings: list[int]
) -> None:
    compass = COMPASSES[which]
    slots = grid.sides(to_rect(block), 3, compass, facings)
    assert len(slots) == 12
    found = open_poses(slots)
    cells = block_cells(block)
    wanted = {
        (x - dx, y - dy, code)
        for x, y in cells
        for code, (dx, dy) in enumerate(compass)
        if (x - dx, y - dy) not in cells
    }
    assert len(found) == 2 * (block[2] + block[3])
    assert set(found) == wanted
    assert found == sorted(found, key=lambda pose: (facings.index(pose[2]), pose[1], pose[0]))


def test_sides_of_the_sink_in_full() -> None:
    """The order of the path rule: facing 0, 1, 2, 3, then y, then x."""
    slots = grid.sides(Rect(int32(6), int32(4), 2, 2), 3, SCREEN_COMPASS, (0, 1, 2, 3))
    right, down = [(5, 4, 0), (5, 5, 0)], [(6, 3, 1), (7, 3, 1)]
    left, up = [(8, 4, 2), (8, 5, 2)], [(6, 6, 3), (7, 6, 3)]
    assert open_poses(slots) == right + down + left + up


def test_sides_of_an_empty_target_are_never_open() -> None:
    assert open_poses(grid.sides(to_rect((0, 0, 0, 0)), 3, SCREEN_COMPASS, (0, 1, 2, 3))) == []


@given(flags=st.lists(st.booleans(), min_size=0, max_size=9))
def test_take_and_count_open(flags: list[bool]) -> None:
    slots = to_slots([(k, 2 * k) for k in range(len(flags))], [k % 4 for k in range(len(flags))], flags)
    opened = [k for k, flag in enumerate(flags) if flag]
    assert int(grid.count_open(slots)) == len(opened)
    fallback = Pose(int32(77), int32(78), int32(3))
    for rank in range(len(flags) + 1):
        pose = grid.take(slots, int32(rank), fallback)
        k = opened[rank] if rank < len(opened) else None
        assert tuple(map(int, pose)) == ((77, 78, 3) if k is None else (k, 2 * k, k % 4))


@given(size=sizes, seed=seeds)
def test_restrict_closes_slots_off_the_board(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cells = [(int(x), int(y)) for x, y in rng.integers(0, size, (NUM_SLOTS, 2))]
    flags = (rng.random(NUM_SLOTS) < 0.7).tolist()
    allowed = {cell for cell in cells if rng.random() < 0.5}
    kept = grid.restrict(to_slots(cells, [0] * NUM_SLOTS, flags), to_board(allowed, size), size)
    wanted = [flag and cell in allowed for cell, flag in zip(cells, flags, strict=True)]
    assert [bool(slot.open) for slot in kept] == wanted


def test_any_of_nothing_is_false() -> None:
    assert not bool(grid.any_of([]))
    assert bool(grid.any_of([jnp.asarray(False), jnp.asarray(True)]))


# Uniform placement.

NUM_DRAWS = 40_000


@pytest.mark.parametrize("count", [1, 2, 3, 7, 30, 100])
def test_random_rank_is_uniform(count: int) -> None:
    keys = jax.random.split(jax.random.key(count), NUM_DRAWS)
    ranks = np.asarray(jax.jit(jax.vmap(lambda key: grid.random_rank(key, int32(count))))(keys))
    counts = np.bincount(ranks, minlength=count)
    assert counts.size == count
    if count > 1:
        assert_uniform(counts)


def test_random_rank_of_nothing_is_zero(key: jax.Array) -> None:
    assert int(grid.random_rank(key, int32(0))) == 0


@pytest.mark.parametrize("num_options", [1, 6, 100])
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_choose_is_uniform_over_the_mask(num_options: int, share: float) -> None:
    rng = np.random.default_rng(num_options)
    mask = rng.random(num_options) < share
    mask[-1] = True
    keys = jax.random.split(jax.random.key(5), NUM_DRAWS)
    index, found = jax.jit(jax.vmap(grid.choose, in_axes=(0, None)))(keys, jnp.asarray(mask))
    counts = np.bincount(np.asarray(index), minlength=num_options)
    assert bool(np.asarray(found).all())
    assert counts[~mask].sum() == 0
    if mask.sum() > 1:
        assert_uniform(counts[mask])


@given(mask=st.lists(st.booleans(), min_size=12, max_size=12), seed=st.integers(0, 1000))
def test_choose_says_whether_there_was_a_choice(mask: list[bool], seed: int) -> None:
    index, found = CHOOSE(jax.random.key(seed), jnp.asarray(mask))
    assert bool(found) == any(mask)
    assert 0 <= int(index) < 12
    assert not any(mask) or mask[int(index)]


CHOOSE = jax.jit(grid.choose)


def test_place_gives_the_chosen_cell_as_x_and_y() -> None:
    mask = np.zeros((5, 5), bool)
    mask[1, 3] = True
    cell, found = grid.place(jax.random.key(0), jnp.asarray(mask))
    assert (int(cell.x), int(cell.y), bool(found)) == (3, 1, True)
    assert not bool(grid.place(jax.random.key(0), jnp.zeros((5, 5), bool))[1])


def test_place_is_uniform_over_the_mask() -> None:
    mask = np.random.default_rng(3).random((6, 6)) < 0.4
    keys = jax.random.split(jax.random.key(8), NUM_DRAWS)
    cell, _ = jax.jit(jax.vmap(grid.place, in_axes=(0, None)))(keys, jnp.asarray(mask))
    counts = np.zeros((6, 6))
    np.add.at(counts, (np.asarray(cell.y), np.asarray(cell.x)), 1)
    assert counts[~mask].sum() == 0
    assert_uniform(counts[mask])


taken_blocks = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(1, 3), st.integers(1, 3)), max_size=3
)


@given(w=st.integers(1, 3), h=st.integers(1, 3), taken=taken_blocks, size=st.sampled_from([5, 8]))
@settings(max_examples=40)
def test_room_for_allows_exactly_the_clear_places(w: int, h: int, taken: list[Block], size: int) -> None:
    room = np.asarray(grid.room_for(w, h, [to_rect(block) for block in taken], size))
    inner = interior(size)
    used: set[XY] = set().union(*(block_cells(block) for block in taken))
    for x in range(size):
        for y in range(size):
            cells = block_cells((x, y, w, h))
            assert bool(room[y, x]) == (cells <= inner and not cells & used), (x, y)


def legal_poses(taken: Sequence[Block], size: int) -> set[tuple[int, int, int]]:
    empty = interior(size) - set().union(*(block_cells(block) for block in taken))
    return {(x, y, code) for x, y in empty for code, (dx, dy) in enumerate(SCREEN_COMPASS) if (x + dx, y + dy) in empty}


@pytest.mark.parametrize(
    ("size", "taken"),
    [
        (5, []),
        (6, [(2, 2, 2, 2)]),
        (8, [(2, 2, 2, 2), (5, 4, 2, 2)]),
        (10, [(6, 5, 2, 3), (1, 1, 3, 2), (7, 2, 1, 2), (2, 6, 2, 2)]),
        # A lone empty cell in the corner: no front cell is empty, so nobody starts there.
        (6, [(2, 1, 1, 2), (1, 2, 1, 3)]),
    ],
)
def test_place_agent_is_uniform_over_poses_with_an_empty_front(size: int, taken: list[Block]) -> None:
    keys = jax.random.split(jax.random.key(9), NUM_DRAWS)
    rects = [to_rect(block) for block in taken]
    pose, found = jax.jit(jax.vmap(lambda key: grid.place_agent(key, rects, size)))(keys)
    assert bool(np.asarray(found).all())
    drawn = np.stack([np.asarray(part) for part in pose], axis=1)
    poses, counts = np.unique(drawn, axis=0, return_counts=True)
    assert {tuple(row) for row in poses.tolist()} == legal_poses(taken, size)
    assert_uniform(counts)


def test_place_agent_says_when_no_pose_is_left(key: jax.Array) -> None:
    """One empty cell is not enough: its front cell must be empty too."""
    taken = [to_rect((1, 1, 3, 2)), to_rect((1, 3, 2, 1))]
    assert not bool(grid.place_agent(key, taken, 5)[1])
