"""`World.solvable` is exact: against exhaustive search over the simulator, hand-made cases and the scripts."""

from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elden.worlds import CarWash, Minecraft, Thawing, World, WorldState
from elden.worlds.minecraft import COUNTERS, kind_of
from elden.worlds.rooms import RoomWorld

Values: TypeAlias = np.ndarray
Mask: TypeAlias = np.ndarray
XY: TypeAlias = tuple[int, int]

SCREEN = ((1, 0), (0, 1), (-1, 0), (0, -1))
CHUNK = 4096


# The simulator as a graph: all successors of many states at once.


@cache
def stepper(world: World) -> Callable[[Values], tuple[jax.Array, jax.Array]]:
    """Values [state, value] -> values and success after every action, [state, action, ...]."""
    actions = jnp.arange(world.num_actions, dtype=jnp.int32)

    def one(values: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        state, transition = world.step(jax.random.key(0), world.begin(values), action)
        return state.values, transition.success

    return jax.jit(jax.vmap(lambda values: jax.vmap(one, (None, 0))(values, actions)))


@cache
def judge(world: World, what: str) -> Callable[[Values], jax.Array]:
    """Values [state, value] -> what the world says of every state."""
    return jax.jit(jax.vmap(lambda values: getattr(world, what)(world.begin(values))))


def in_chunks(function: Callable[[Values], jax.Array], values: Values) -> Mask:
    """One compiled shape for any number of states."""
    padded = np.concatenate([values, np.repeat(values[:1], -len(values) % CHUNK, axis=0)])
    parts = [np.asarray(function(padded[k : k + CHUNK])) for k in range(0, len(padded), CHUNK)]
    return np.concatenate(parts)[: len(values)]


def solvable(world: World, values: Values) -> Mask:
    return in_chunks(judge(world, "solvable"), values)


def column(world: World, name: str) -> int:
    return world.all_factors.variable_names.index(name)


def free_cells(world: RoomWorld, values: Values) -> Mask:
    """Cells [state, y, x] inside the walls that hold neither furniture nor an item."""
    rows = np.arange(len(values))
    free = np.zeros((len(values), world.size, world.size), bool)
    free[:, 1:-1, 1:-1] = True
    for name in (*world.furniture, *world.items):
        w, h = world.furniture.get(name, (1, 1))
        x, y = values[:, column(world, f"{name}.x")], values[:, column(world, f"{name}.y")]
        for i, j in product(range(w), range(h)):
            free[rows, y + j, x + i] = False
    return free


def goto_successors(world: RoomWorld, before: Values, after: Values, target: str) -> tuple[Values, Mask]:
    """All states to which a random goTo may lead, [state, pose, value], and which of the poses can be taken.

    Written anew from the rule: a free cell that shares an edge with the target, facing it. `after` is one of them as
    the simulator drew it.
    """
    w, h = world.furniture.get(target, (1, 1))
    x, y = before[:, column(world, f"{target}.x")], before[:, column(world, f"{target}.y")]
    offsets = [(i - dx, j - dy, code) for i in range(w) for j in range(h) for code, (dx, dy) in enumerate(SCREEN)]
    offsets = [(i, j, code) for i, j, code in offsets if not (0 <= i < w and 0 <= j < h)]
    free = free_cells(world, before)
    lies = x > 0
    agent = slice(column(world, "agent.x"), column(world, "agent.dir") + 1)
    following, can = np.repeat(after[:, None], len(offsets), axis=1), []
    for k, (i, j, code) in enumerate(offsets):
        spot = np.stack([x + i, y + j, np.full_like(x, code)], axis=1)
        can.append(lies & free[np.arange(len(x)), np.clip(y + j, 0, None), np.clip(x + i, 0, None)])
        following[:, k, agent] = np.where(can[-1][:, None], spot, after[:, agent])
    possible = np.stack(can, axis=1)
    drawn = (following[:, :, agent] == after[:, None, agent]).all(-1) & possible
    stayed = (after[:, agent] == before[:, agent]).all(-1)
    assert (drawn.any(1) | (stayed & ~possible.any(1))).all(), "goTo left its candidates"
    return following, possible


def successors(world: World, values: Values) -> tuple[Values, Mask]:
    """Everything that one step can lead to, [state, way, value], and whether success is reached that way."""
    padded = np.concatenate([values, np.repeat(values[:1], CHUNK - len(values), axis=0)])
    after, success = (np.asarray(part)[: len(values)] for part in stepper(world)(padded))
    if not isinstance(world, RoomWorld) or not world.skilled or world.goto == "path":
        return after, success
    ways, flags = [after], [success]
    for target in world.targets:
        action = world.action(f"goto_{target}")
        following, _ = goto_successors(world, values, after[:, action], target)
        ways.append(following)
        flags.append(np.repeat(success[:, action, None], following.shape[1], axis=1))
    return np.concatenate(ways, axis=1), np.concatenate(flags, axis=1)


def can_succeed(world: World, starts: Values, most: int = 3_000_000) -> Mask:
    """Breadth-first search over the simulator from every start, until success or until nothing new comes up."""
    rng = np.random.default_rng(0)
    weights = rng.integers(0, 2**64, starts.shape[1] + 1, dtype=np.uint64)

    def fingerprint(owners: Values, values: Values) -> np.ndarray:
        """A random linear hash: two of a few million states agree with probability below 1e-5."""
        prints: np.ndarray = values.astype(np.uint64) @ weights[1:] + owners.astype(np.uint64) * weights[0]
        return prints

    solved = np.zeros(len(starts), bool)
    owners, frontier = np.arange(len(starts)), starts
    seen = np.sort(fingerprint(owners, frontier))
    while len(frontier):
        found_owners, found = [], []
        for k in range(0, len(frontier), CHUNK):
            ways, success = successors(world, frontier[k : k + CHUNK])
            mine = owners[k : k + CHUNK]
            solved[mine[success.any(axis=1)]] = True
            rows, row_owners = ways.reshape(-1, ways.shape[-1]), np.repeat(mine, ways.shape[1])
            _, first = np.unique(fingerprint(row_owners, rows), return_index=True)
            found.append(rows[first])
            found_owners.append(row_owners[first])
        owners, frontier = np.concatenate(found_owners), np.concatenate(found)
        prints, first = np.unique(fingerprint(owners, frontier), return_index=True)
        new = first[~np.isin(prints, seen, assume_unique=True) & ~solved[owners[first]]]
        owners, frontier = owners[new], frontier[new]
        seen = np.union1d(seen, fingerprint(owners, frontier))
        assert len(seen) < most, "too many states: choose smaller cases"
    return solved


# Thawing: every legal state of a layout.

ROOM = 8
LAYOUTS = {
    "apart": ((2, 2), (5, 5)),
    # The cells (1, 1) and (1, 2) are shut in between fridge, sink and wall.
    "pocket": ((1, 3), (2, 1)),
    # A fish in the corner cell of this fridge has no side.
    "corner": ((1, 1), (3, 1)),
}
THAWING = [Thawing(size=ROOM), Thawing(size=ROOM, goto="path"), Thawing(size=ROOM, profile="primitives")]


def how(world: World) -> str:
    profile, goto = getattr(world, "profile", ""), getattr(world, "goto", "")
    return str(goto if profile == "skills" else profile)


def thawing_states(world: Thawing, fridge: XY, sink: XY) -> Values:
    """All legal states with this furniture: agent anywhere free, fish anywhere or carried, any level, any door."""
    inner = np.arange(1, world.size - 1)
    cells = [*product(inner, inner), *([(0, 0)] if world.skilled else [])]
    switches = 1 if world.skilled else 2
    axes = (inner, inner, np.arange(4), np.arange(len(cells)), np.arange(6), np.arange(2), np.arange(switches))
    x, y, facing, spot, frozen, door, on = (part.reshape(-1) for part in np.meshgrid(*axes))
    fish = np.array(cells)[spot]
    table = {"agent.x": x, "agent.y": y, "agent.dir": facing, "fish.x": fish[:, 0], "fish.y": fish[:, 1]}
    table |= {"fish.frozen": frozen, "fridge.open": door, "sink.on": on}
    for name, (left, top) in {"fridge": fridge, "sink": sink}.items():
        table |= {f"{name}.x": np.full_like(x, left), f"{name}.y": np.full_like(x, top)}
    values = np.stack([table[name] for name in world.all_factors.variable_names], axis=1).astype(np.int32)
    return values[in_chunks(judge(world, "legal"), values)]


def can_succeed_anywhere(world: World, states: Values) -> Mask:
    """For a set of states that no action leaves, from which of them success can be reached: backward induction."""
    sizes = states.max(axis=0) + 1
    order = np.argsort(np.ravel_multi_index(tuple(states.T), tuple(sizes)))
    sorted_codes = np.ravel_multi_index(tuple(states[order].T), tuple(sizes))
    indices, wins = [], []
    for k in range(0, len(states), CHUNK):
        ways, success = successors(world, states[k : k + CHUNK])
        following = np.ravel_multi_index(tuple(np.moveaxis(ways, -1, 0)), tuple(sizes))
        place = np.minimum(np.searchsorted(sorted_codes, following), len(states) - 1)
        assert np.array_equal(sorted_codes[place], following), "a step leads to an illegal state"
        indices.append(order[place])
        wins.append(success.any(axis=1))
    graph, good = np.concatenate(indices), np.concatenate(wins)
    while True:
        better = good | good[graph].any(axis=1)
        if np.array_equal(better, good):
            return good
        good = better


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("world", THAWING, ids=how)
def test_thawing_in_every_legal_state(world: Thawing, layout: str) -> None:
    states = thawing_states(world, *LAYOUTS[layout])
    truth = can_succeed_anywhere(world, states)
    wrong = np.nonzero(solvable(world, states) != truth)[0]
    names = world.all_factors.variable_names
    assert not len(wrong), (len(wrong), dict(zip(names, states[wrong[0]].tolist(), strict=True)), truth[wrong[0]])
    assert truth.any()


# CarWash: exhaustive search from random legal states.

CARWASH = [CarWash(size=ROOM), CarWash(size=ROOM, goto="path"), CarWash(size=ROOM, profile="primitives")]


def carwash_states(world: CarWash, num_states: int, seed: int) -> Values:
    """Random legal states on random furniture: items anywhere or carried, agent in any free cell."""
    rng = np.random.default_rng(seed)
    keys = jax.random.split(jax.random.key(seed), 4 * num_states)
    values = np.array(jax.jit(jax.vmap(world.reset))(keys).values)
    count = len(values)

    def put(name: str, new: Values) -> None:
        values[:, column(world, name)] = new

    for name, most in {"agent.dir": 4, "rag.soak": 6, "rag.clean": 6, "car.stained": 2, "sink.on": 2}.items():
        put(name, rng.integers(0, most, count))
    for item in world.items:
        stays, held = rng.random(count) < 0.3, rng.random(count) < 0.2
        for axis in ("x", "y"):
            hand = np.zeros(count, int) if world.skilled else values[:, column(world, f"agent.{axis}")]
            anywhere = rng.integers(1, world.size - 1, count)
            lying = np.where(stays, values[:, column(world, f"{item}.{axis}")], anywhere)
            put(f"{item}.{axis}", np.where(held, hand, lying))
    legal = in_chunks(judge(world, "legal"), values)
    return values[legal][:num_states]


# Minecraft: exhaustive search from random legal states.

MINECRAFT = [
    Minecraft(size=9, wood=4, grass=1),
    Minecraft(size=9, wood=4, grass=1, goto="path"),
    Minecraft(size=9, wood=4, grass=1, profile="primitives"),
]
AROUND_GEM = ((-1, 0), (0, -1), (1, 0), (0, 1))


def minecraft_values(
    world: Minecraft, agent: tuple[int, int, int], stock: dict[str, int], **things: XY
) -> Values:
    """The variables of a state from what is there; what is not named is gone, or is 0."""
    table = {"agent.x": agent[0], "agent.y": agent[1], "agent.dir": agent[2]}
    table |= {f"inventory.{name}": stock.get(name, 0) for name in COUNTERS}
    for thing in world.things:
        x, y = things.get(thing, (0, 0))
        table |= {f"{thing}.x": x, f"{thing}.y": y}
    assert set(things) <= set(world.things)
    return np.array([table[name] for name in world.all_factors.variable_names], np.int32)


def crowded_state(world: Minecraft, rng: np.random.Generator, most_waters: int = 4) -> Values:
    """A few things crowded into a corner with the agent among them, so that they shut each other in."""
    spots = [(int(x), int(y)) for x, y in rng.permutation(list(product(range(1, 4), range(1, 5))))]
    gem = spots.pop()
    things = {"gem": gem}
    around = [(gem[0] + dx, gem[1] + dy) for dx, dy in AROUND_GEM]
    if rng.random() < 0.8:
        for k, cell in enumerate(around[:most_waters]):
            if min(cell) > 0 and rng.random() < 0.9:
                things[f"water{k}"] = cell
                spots = [spot for spot in spots if spot != cell]
    chances = {"grass0": 0.5, "wood0": 0.8, "wood1": 0.8, "wood2": 0.4, "stone0": 0.7, "workshop": 1.0}
    for thing, chance in chances.items():
        if spots and rng.random() < chance:
            things[thing] = spots.pop()
    agent = min(spots, key=sum, default=(6, 6))
    likely = {"wood": 0.4, "grass": 0.2, "stick": 0.3, "stone": 0.2, "wood_pickaxe": 0.4, "stone_pickaxe": 0.2}
    likely |= {"rope": 0.2, "bridge": 0.4}
    stock = {name: int(rng.integers(1, 3)) for name, chance in likely.items() if rng.random() < chance}
    return minecraft_values(world, (*agent, int(rng.integers(4))), stock, **things)
