"""Resets follow the placement rules: supports are exact, and every draw is uniform given what was placed before."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elden.worlds import CarWash, Empty, Minecraft, Thawing, World, WorldOptionError, WorldState
from elden.worlds.minecraft import COUNTERS, kind_of

Ints: TypeAlias = np.ndarray
Mask: TypeAlias = np.ndarray

NUM_DRAWS = 20_000
FEW_DRAWS = 2_000
STEPS = ((1, 0), (0, 1), (-1, 0), (0, -1))

THAWING: list[World] = [Thawing(), Thawing(profile="primitives")]
CARWASH: list[World] = [CarWash(), CarWash(profile="primitives")]
MINECRAFT = [Minecraft(), Minecraft(profile="primitives", wood=4, grass=1)]
SMALL_AND_LARGE: list[World] = [
    Thawing(size=8),
    Thawing(size=16),
    CarWash(size=7),
    CarWash(size=16),
    Minecraft(size=9),
    Minecraft(size=16),
    Empty(size=4),
    Empty(size=16),
]


def name_of(world: World) -> str:
    return "-".join(str(getattr(world, part, "")) for part in ("name", "profile", "size", "wood"))


def chi_square_limit(freedom: int) -> float:
    """What a chi-square statistic exceeds with probability 3e-6 (Wilson and Hilferty)."""
    spread = 2.0 / (9.0 * freedom)
    return freedom * (1.0 - spread + 4.5 * math.sqrt(spread)) ** 3


def assert_uniform(counts: Ints) -> None:
    expected = counts.sum() / counts.size
    assert expected >= 5, "too few draws for this test"
    assert ((counts - expected) ** 2 / expected).sum() < chi_square_limit(counts.size - 1)


def assert_fair(valid: Mask, chosen: Ints) -> None:
    """Every draw is uniform over its own valid options.

    `valid[draw, option]` says what the rules allow in that draw. An option is expected as often as the sum of its
    chances; options differ between draws, which makes the chi-square statistic smaller than usual, never larger.
    """
    assert valid[np.arange(len(chosen)), chosen].all(), "something lies where the rules do not allow it"
    expected = (valid / valid.sum(axis=1, keepdims=True)).sum(axis=0)
    observed = np.bincount(chosen, minlength=valid.shape[1])
    assert (observed[expected > 5] > 0).mean() > 0.9, "some allowed options never come up"
    large = expected >= 5
    observed, expected = (np.append(part[large], part[~large].sum()) for part in (observed, expected))
    kept = expected > 0
    statistic = ((observed[kept] - expected[kept]) ** 2 / expected[kept]).sum()
    assert statistic < chi_square_limit(int(kept.sum()) - 1)


@dataclass(frozen=True, eq=False)
class Draws:
    """Many resets of one world."""

    states: WorldState
    columns: dict[str, Ints]

    def __getitem__(self, name: str) -> Ints:
        return self.columns[name]

    def where(self, chosen: Mask) -> "Draws":
        states: WorldState = jax.tree.map(lambda leaf: leaf[jnp.asarray(chosen)], self.states)
        return Draws(states, {name: column[chosen] for name, column in self.columns.items()})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


@cache
def draws_of(world: World, num_draws: int = NUM_DRAWS, solvable: bool | None = None, seed: int = 0) -> Draws:
    keys = jax.random.split(jax.random.key(seed), num_draws)
    states = jax.jit(jax.vmap(lambda key: world.reset(key, solvable=solvable)))(keys)
    values = np.asarray(states.values)
    return Draws(states, {name: values[:, k] for k, name in enumerate(world.all_factors.variable_names)})


@cache
def judged(world: World, what: str) -> Callable[[WorldState], jax.Array]:
    return jax.jit(jax.vmap(getattr(world, what)))


# Masks [draw, y, x].


def empty_room(num_draws: int, size: int) -> Mask:
    room = np.zeros((num_draws, size, size), bool)
    room[:, 1:-1, 1:-1] = True
    return room


def without(room: Mask, x: Ints, y: Ints, w: int = 1, h: int = 1) -> Mask:
    """The room less a block in every draw."""
    left = room.copy()
    for i in range(w):
        for j in range(h):
            left[np.arange(len(room)), y + j, x + i] = False
    return left


def top_left_cells(room: Mask, w: int, h: int) -> Mask:
    """Where the top-left cell of a block may lie: all of its cells are in the room."""
    size = room.shape[1]
    fits = np.zeros_like(room)
    fits[:, : size - h + 1, : size - w + 1] = True
    for i in range(w):
        for j in range(h):
            fits[:, : size - h + 1, : size - w + 1] &= room[:, j : size - h + 1 + j, i : size - w + 1 + i]
    return fits


def flat(cells: Mask) -> Mask:
    return cells.reshape(len(cells), -1)


def agent_poses(room: Mask) -> Mask:
    """All (direction, cell) whose cell and front cell are both empty, [draw, dir, y, x]."""
    return np.stack([room & np.roll(room, (-dy, -dx), axis=(1, 2)) for dx, dy in STEPS], axis=1)


def pose_numbers(draws: Draws, size: int) -> Ints:
    return np.asarray((draws["agent.dir"] * size + draws["agent.y"]) * size + draws["agent.x"])


def furnished(world: Thawing | CarWash, draws: Draws, names: tuple[str, ...]) -> Mask:
    room = empty_room(len(draws), world.size)
    for name in names:
        room = without(room, draws[f"{name}.x"], draws[f"{name}.y"], *world.furniture[name])
    return room


# Thawing.


def sink_cells(fridge: tuple[int, int], size: int) -> set[tuple[int, int]]:
    """Top-left cells of a sink of which no cell is within one step, diagonals included, of the fridge."""
    block = [(0, 0), (1, 0), (0, 1), (1, 1)]
    cold = [(fridge[0] + i, fridge[1] + j) for i, j in block]
    found = set()
    for x in range(1, size - 2):
        for y in range(1, size - 2):
            gaps = [max(abs(x + i - a), abs(y + j - b)) for i, j in block for a, b in cold]
            if min(gaps) > 1:
                found.add((x, y))
    return found


@pytest.mark.parametrize("world", THAWING, ids=name_of)
class TestThawing:
    def test_fridge_is_uniform_with_a_free_ring_around_it(self, world: Thawing) -> None:
        draws = draws_of(world)
        assert set(draws["fridge.x"].tolist()) == set(draws["fridge.y"].tolist()) == {2, 3, 4, 5}
        assert_uniform(np.bincount(4 * (draws["fridge.x"] - 2) + draws["fridge.y"] - 2, minlength=16))

    def test_sink_is_uniform_given_the_fridge(self, world: Thawing) -> None:
        draws = draws_of(world)
        table = np.zeros((10, 10, 10, 10), bool)
        for i in range(2, 6):
            for j in range(2, 6):
                for x, y in sink_cells((i, j), 10):
                    table[i, j, y, x] = True
        valid = table[draws["fridge.x"], draws["fridge.y"]]
        assert_fair(flat(valid), 10 * draws["sink.y"] + draws["sink.x"])

    @pytest.mark.parametrize("fridge", [(2, 2), (3, 4), (5, 3)])
    def test_sink_is_uniform_for_one_fridge(self, world: Thawing, fridge: tuple[int, int]) -> None:
        draws = draws_of(world)
        draws = draws.where((draws["fridge.x"] == fridge[0]) & (draws["fridge.y"] == fridge[1]))
        cells, counts = np.unique(np.stack([draws["sink.x"], draws["sink.y"]], 1), axis=0, return_counts=True)
        assert {(int(x), int(y)) for x, y in cells} == sink_cells(fridge, 10)
        assert_uniform(counts)

    def test_fish_is_uniform_over_the_fridge(self, world: Thawing) -> None:
        draws = draws_of(world)
        i, j = draws["fish.x"] - draws["fridge.x"], draws["fish.y"] - draws["fridge.y"]
        assert set(zip(i.tolist(), j.tolist(), strict=True)) == {(0, 0), (0, 1), (1, 0), (1, 1)}
        assert_uniform(np.bincount(2 * i + j, minlength=4))

    def test_agent_is_uniform_over_poses_with_an_empty_front(self, world: Thawing) -> None:
        draws = draws_of(world)
        poses = agent_poses(furnished(world, draws, ("fridge", "sink")))
        assert_fair(flat(poses), pose_numbers(draws, 10))

    def test_agent_is_uniform_for_one_fridge(self, world: Thawing) -> None:
        draws = draws_of(world)
        draws = draws.where((draws["fridge.x"] == 3) & (draws["fridge.y"] == 4))
        poses = agent_poses(furnished(world, draws, ("fridge", "sink")))
        assert_fair(flat(poses), pose_numbers(draws, 10))

    def test_start_values(self, world: Thawing) -> None:
        draws = draws_of(world)
        assert set(draws["fridge.open"].tolist()) == {0}
        assert set(draws["fish.frozen"].tolist()) == {3 if world.profile == "skills" else 5}
        if world.profile == "primitives":
            assert set(draws["sink.on"].tolist()) == {0}


def test_smallest_thawing_has_three_fridge_cells() -> None:
    """At (3, 3) no sink fits, and such a draw is thrown away whole: the other three stay equally likely."""
    draws = draws_of(Thawing(size=8), FEW_DRAWS)
    cells, counts = np.unique(np.stack([draws["fridge.x"], draws["fridge.y"]], 1), axis=0, return_counts=True)
    assert {(int(x), int(y)) for x, y in cells} == {(2, 2), (2, 3), (3, 2)}
    assert sink_cells((3, 3), 8) == set()
    assert_uniform(counts)


# CarWash.

ORDER = ("shelf", "car", "bucket", "sink")


@pytest.mark.parametrize("world", CARWASH, ids=name_of)
class TestCarWash:
    def test_shelf_is_uniform(self, world: CarWash) -> None:
        draws = draws_of(world)
        assert set(draws["shelf.x"].tolist()) == set(range(1, 8))
        assert set(draws["shelf.y"].tolist()) == set(range(1, 7))
        assert_uniform(np.bincount(6 * (draws["shelf.x"] - 1) + draws["shelf.y"] - 1, minlength=42))

    @pytest.mark.parametrize("place", range(4))
    def test_furniture_is_uniform_given_what_is_placed(self, world: CarWash, place: int) -> None:
        draws = draws_of(world)
        name = ORDER[place]
        valid = top_left_cells(furnished(world, draws, ORDER[:place]), *world.furniture[name])
        assert_fair(flat(valid), 10 * draws[f"{name}.y"] + draws[f"{name}.x"])

    @pytest.mark.parametrize("shelf", [(1, 1), (4, 3), (7, 6)])
    def test_car_is_uniform_for_one_shelf(self, world: CarWash, shelf: tuple[int, int]) -> None:
        draws = draws_of(world)
        draws = draws.where((draws["shelf.x"] == shelf[0]) & (draws["shelf.y"] == shelf[1]))
        (x, y) = shelf
        clear = {
            (i, j) for i in range(1, 7) for j in range(1, 8) if i + 3 <= x or x + 2 <= i or j + 2 <= y or y + 3 <= j
        }
        cells, counts = np.unique(np.stack([draws["car.x"], draws["car.y"]], 1), axis=0, return_counts=True)
        assert {(int(i), int(j)) for i, j in cells} == clear
        assert_uniform(counts)

    def test_rag_and_soap_are_a_uniform_pair_of_shelf_cells(self, world: CarWash) -> None:
        draws = draws_of(world)
        spots = []
        for item in ("rag", "soap"):
            i, j = draws[f"{item}.x"] - draws["shelf.x"], draws[f"{item}.y"] - draws["shelf.y"]
            assert ((i >= 0) & (i < 2) & (j >= 0) & (j < 3)).all()
            spots.append(2 * j + i)
        counts = np.bincount(6 * spots[0] + spots[1], minlength=36).reshape(6, 6)
        assert np.trace(counts) == 0
        assert_uniform(counts[~np.eye(6, dtype=bool)])

    def test_agent_is_uniform_over_poses_with_an_empty_front(self, world: CarWash) -> None:
        draws = draws_of(world)
        assert_fair(flat(agent_poses(furnished(world, draws, ORDER))), pose_numbers(draws, 10))

    def test_start_values(self, world: CarWash) -> None:
        draws = draws_of(world)
        wanted = {"car.stained": 1, "sink.on": 0, "rag.soak": 0, "rag.clean": 5}
        if world.profile == "primitives":
            wanted["bucket.soapy"] = 0
        assert {name: set(draws[name].tolist()) for name in wanted} == {k: {v} for k, v in wanted.items()}


# Minecraft.


def around_gem(draws: Draws, size: int) -> dict[str, tuple[Ints, Ints]]:
    """Where the rules put the water: left, down, right, up of the gem, or (0, 0) where that is boundary."""
    cells = {}
    for k, (dx, dy) in enumerate([(-1, 0), (0, -1), (1, 0), (0, 1)]):
        x, y = draws["gem.x"] + dx, draws["gem.y"] + dy
        dry = (x < 1) | (x > size - 2) | (y < 1) | (y > size - 2)
        cells[f"water{k}"] = (np.where(dry, 0, x), np.where(dry, 0, y))
    return cells


def all_around(room: Mask) -> Mask:
    """Cells of the room whose four neighbours are all in the room."""
    alone = room.copy()
    for dx, dy in STEPS:
        alone &= np.roll(room, (-dy, -dx), axis=(1, 2))
    return alone


@pytest.mark.parametrize("world", MINECRAFT, ids=name_of)
class TestMinecraft:
    def test_gem_is_uniform_over_the_two_lowest_rows(self, world: Minecraft) -> None:
        draws = draws_of(world)
        assert set(draws["gem.x"].tolist()) == set(range(1, 9))
        assert set(draws["gem.y"].tolist()) == {1, 2}
        assert_uniform(np.bincount(2 * (draws["gem.x"] - 1) + draws["gem.y"] - 1, minlength=16))

    def test_water_surrounds_the_gem(self, world: Minecraft) -> None:
        draws = draws_of(world)
        for water, (x, y) in around_gem(draws, world.size).items():
            assert np.array_equal(draws[f"{water}.x"], x)
            assert np.array_equal(draws[f"{water}.y"], y)

    def test_everything_else_is_uniform_over_cells_with_four_empty_neighbours(self, world: Minecraft) -> None:
        """In the order grass, wood, stone, workshop, each given what is placed; then the agent on any empty cell."""
        draws = draws_of(world)
        size = world.size
        room = empty_room(len(draws), size)
        for thing in world.things[:5]:
            room = without(room, draws[f"{thing}.x"], draws[f"{thing}.y"])
        kinds = [kind_of(thing) for thing in world.things[5:]]
        assert kinds == ["grass"] * world.grass + ["wood"] * world.wood + ["stone", "workshop"]
        for thing in world.things[5:]:
            x, y = draws[f"{thing}.x"], draws[f"{thing}.y"]
            assert_fair(flat(all_around(room)), size * y + x)
            room = without(room, x, y)
        assert_fair(flat(room), size * draws["agent.y"] + draws["agent.x"])

    def test_nothing_but_water_and_gem_touches_anything(self, world: Minecraft) -> None:
        """What follows from the rule for a finished layout, whatever the order was."""
        draws = draws_of(world)
        cells = np.stack([np.stack([draws[f"{t}.x"], draws[f"{t}.y"]], 1) for t in world.things], axis=1)
        late = cells[:, 5:]
        assert ((late >= 2) & (late <= world.size - 3)).all()
        gaps = np.abs(late[:, :, None] - cells[:, None]).sum(-1)
        gaps[:, np.arange(late.shape[1]), 5 + np.arange(late.shape[1])] = 99
        gone = (cells == 0).all(-1)
        assert (np.where(gone[:, None], 99, gaps) >= 2).all()

    def test_direction_is_uniform(self, world: Minecraft) -> None:
        assert_uniform(np.bincount(draws_of(world)["agent.dir"], minlength=4))

    def test_inventory_is_empty(self, world: Minecraft) -> None:
        draws = draws_of(world)
        assert all((draws[f"inventory.{name}"] == 0).all() for name in COUNTERS)


def test_direction_is_independent_of_the_cell() -> None:
    draws = draws_of(MINECRAFT[0])
    top = draws["agent.y"] >= 5
    for half in (top, ~top):
        assert_uniform(np.bincount(draws["agent.dir"][half], minlength=4))


# All worlds.

EVERY: list[World] = [*THAWING, *CARWASH, *MINECRAFT, Empty()]


@pytest.mark.parametrize("world", [*EVERY, *SMALL_AND_LARGE], ids=name_of)
def test_every_reset_is_legal_and_starts_an_episode(world: World) -> None:
    draws = draws_of(world) if world in EVERY else draws_of(world, FEW_DRAWS)
    states = draws.states
    assert bool(np.asarray(judged(world, "legal")(states)).all())
    assert not np.asarray(states.succeeded).any()
    assert not np.asarray(states.stages).any()
    assert not np.asarray(states.elapsed).any()
    assert states.stages.shape == (len(draws), world.num_stages)


def blocks_of(world: World) -> dict[str, tuple[int, int]]:
    if isinstance(world, Minecraft):
        return dict.fromkeys((*world.things, "agent"), (1, 1))
    assert isinstance(world, Thawing | CarWash | Empty)
    return {**world.furniture, "agent": (1, 1)}


@pytest.mark.parametrize("world", SMALL_AND_LARGE, ids=name_of)
def test_no_two_things_share_a_cell_at_other_sizes(world: World) -> None:
    draws = draws_of(world, FEW_DRAWS)
    size = int(world.size)  # type: ignore[attr-defined]
    counts = np.zeros((len(draws), size, size), int)
    for name, (w, h) in blocks_of(world).items():
        x, y = draws[f"{name}.x"], draws[f"{name}.y"]
        for i in range(w):
            for j in range(h):
                counts[np.arange(len(draws)), y + j, x + i] += 1
    counts[:, 0, 0] = 0  # Water that is not there.
    assert counts.max() == 1
    walls = ~empty_room(1, size)[0]
    assert counts[:, walls].max() == 0


@pytest.mark.parametrize("world", SMALL_AND_LARGE, ids=name_of)
def test_other_sizes_use_the_whole_room(world: World) -> None:
    if isinstance(world, Empty):
        return
    draws = draws_of(world, FEW_DRAWS)
    size = int(world.size)  # type: ignore[attr-defined]
    assert set(draws["agent.x"].tolist()) == set(draws["agent.y"].tolist()) == set(range(1, size - 1))


@pytest.mark.parametrize("size", [4, 10, 16])
def test_empty_always_starts_in_the_corner(size: int) -> None:
    draws = draws_of(Empty(size=size), 100)
    assert {tuple(row) for row in np.asarray(draws.states.values).tolist()} == {(1, 1, 0)}


@pytest.mark.parametrize(
    ("make", "smallest"),
    [
        (lambda size: Thawing(size=size), 8),
        (lambda size: Thawing(size=size, profile="primitives"), 8),
        (lambda size: CarWash(size=size), 7),
        (lambda size: Minecraft(size=size), 9),
        (lambda size: Minecraft(size=size, wood=4, grass=1), 9),
        (lambda size: Minecraft(size=size, wood=32, grass=2), 14),
        (lambda size: Empty(size=size), 4),
    ],
)
def test_a_room_that_is_too_small_is_refused(make: Callable[[int], World], smallest: int) -> None:
    make(smallest)
    for size in (smallest - 1, 3, 0, -5):
        with pytest.raises(WorldOptionError, match=rf"size={size} .*at least {smallest}\b"):
            make(size)


@pytest.mark.parametrize("world", [Thawing(), CarWash(), Minecraft()], ids=name_of)
def test_the_key_alone_decides_the_layout(world: World) -> None:
    keys = jax.random.split(jax.random.key(0), NUM_DRAWS)
    batch = np.asarray(draws_of(world).states.values)
    single = jax.jit(world.reset)
    for k in (0, 7, 19_999):
        assert np.array_equal(single(keys[k]).values, batch[k])
    assert len(np.unique(batch, axis=0)) > 0.9 * NUM_DRAWS


def test_reset_is_the_same_without_jit_and_in_reset_many() -> None:
    world = Thawing()
    keys = jax.random.split(jax.random.key(0), NUM_DRAWS)
    batch = np.asarray(draws_of(world).states.values)
    assert np.array_equal(world.reset(keys[3]).values, batch[3])
    many = jax.jit(world.reset_many, static_argnums=1)(jax.random.key(0), NUM_DRAWS)
    assert np.array_equal(many.values, batch)


# Solvable layouts only.

RESTRICTED = [CarWash(), pytest.param(CarWash(goto="path"), marks=pytest.mark.slow)]


def shelf_cell(draws: Draws) -> Ints:
    return np.asarray(10 * draws["shelf.x"] + draws["shelf.y"])


def item_spots(draws: Draws) -> Ints:
    """Which cells of the shelf hold the rag and the soap."""
    rag, soap = (2 * (draws[f"{t}.y"] - draws["shelf.y"]) + draws[f"{t}.x"] - draws["shelf.x"] for t in ("rag", "soap"))
    return np.asarray(6 * rag + soap)


def agent_cell(draws: Draws) -> Ints:
    return np.asarray(10 * draws["agent.x"] + draws["agent.y"])


def assert_same_distribution(first: Ints, second: Ints) -> None:
    """Two samples of the same numbers (chi-square test of homogeneity)."""
    bins = int(max(first.max(), second.max())) + 1
    table = np.stack([np.bincount(part, minlength=bins) for part in (first, second)])
    table = table[:, table.sum(0) > 20]
    expected = table.sum(1, keepdims=True) * table.sum(0, keepdims=True) / table.sum()
    assert ((table - expected) ** 2 / expected).sum() < chi_square_limit(table.shape[1] - 1)


@pytest.mark.slow
@pytest.mark.parametrize("world", RESTRICTED, ids=lambda world: world.goto)
def test_solvable_resets_are_the_others_filtered(world: CarWash) -> None:
    """Same distribution as throwing the unsolvable initial states away, and not that of all layouts."""
    # goTo plays no part in a draw, so one sample serves both rules.
    every = draws_of(CarWash())
    good = np.asarray(judged(world, "solvable")(every.states))
    assert 0.6 < good.mean() < 0.85
    restricted = draws_of(world, NUM_DRAWS // 2, True, seed=1)
    assert bool(np.asarray(judged(world, "solvable")(restricted.states)).all())
    for feature in (shelf_cell, item_spots, agent_cell):
        assert_same_distribution(feature(every.where(good)), feature(restricted))
    with pytest.raises(AssertionError):
        assert_same_distribution(shelf_cell(every), shelf_cell(restricted))


@pytest.mark.slow
def test_solvable_only_is_the_default_of_reset() -> None:
    option = CarWash(solvable_only=True)
    wanted = np.asarray(draws_of(CarWash(), NUM_DRAWS // 2, True, seed=1).states.values)
    assert np.array_equal(draws_of(option, NUM_DRAWS // 2, seed=1).states.values, wanted)
    unrestricted = np.asarray(draws_of(option, NUM_DRAWS, False).states.values)
    assert np.array_equal(unrestricted, draws_of(CarWash()).states.values)


@pytest.mark.slow
def test_a_new_episode_is_solvable_too() -> None:
    world = CarWash(solvable_only=True, max_steps=1)
    states = draws_of(world, FEW_DRAWS).states
    renewed, transition = jax.jit(world.step_many)(jax.random.key(3), states, jnp.zeros(FEW_DRAWS, jnp.int32))
    assert bool(np.asarray(transition.truncated).all())
    assert bool(np.asarray(judged(world, "solvable")(renewed)).all())
    assert not np.array_equal(renewed.values, states.values)


@pytest.mark.slow
@pytest.mark.parametrize("world", [CarWash(profile="primitives"), Minecraft(profile="primitives")], ids=name_of)
def test_solvable_layouts_on_foot(world: World) -> None:
    restricted = draws_of(world, 4000, True)
    assert bool(np.asarray(judged(world, "solvable")(restricted.states)).all())
