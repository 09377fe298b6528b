"""Hand-made states and edges in a few words, for the tests that are derived from the specification.

A state is written as changes to a base layout: "agent=2,3,right fish=3,3,5 fridge.open=1 rag@hand". Edges are
written as "child child <- parent parent; ...", where "fish.xy" stands for two variables and "agent*" for all of
an entity.
"""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from elden.worlds import Transition, WorldState, make

Edges = set[tuple[str, str]]
Named = dict[str, dict[str, Any]]

L1 = "agent=4,4,0 rag=6,5,0,5 soap=6,6 sink=2,6,0 car=1,1,1 shelf=6,5"
L2 = "agent=8,1,1 fish=3,3,5 fridge=3,3,0"
V6_LAYOUT = (
    "gem=5,2 water0=4,2 water1=5,1 water2=6,2 water3=5,3 grass0=3,3 wood0=3,5 wood1=2,4 wood2=7,6 wood3=3,7 "
    "stone0=7,3 workshop=5,5 agent=6,8,down inventory=0,0,0,0,0,0,0,0,0"
)
BASES = {
    ("thawing", "skills"): f"{L2} sink=6,6",
    ("thawing", "primitives"): f"{L2} sink=6,6,0",
    ("carwash", "skills"): f"{L1} bucket=7,2",
    ("carwash", "primitives"): f"{L1} bucket=7,2,0",
    ("minecraft", "skills"): f"{V6_LAYOUT} grass1=0,0 wood4=0,0",
    ("minecraft", "primitives"): V6_LAYOUT,
    ("empty", "primitives"): "agent=1,1,0",
}
ROOM_DIRS = {"right": 0, "down": 1, "left": 2, "up": 3}
DIRS = {
    ("minecraft", "skills"): {"left": 0, "right": 1, "up": 2, "down": 3},
    ("minecraft", "primitives"): {"down": 0, "up": 1, "left": 2, "right": 3},
}
WORLD_CODES: dict[str, tuple[str, dict[str, Any]]] = {
    "TS": ("thawing", {}),
    "TP": ("thawing", {"profile": "primitives"}),
    "TS path": ("thawing", {"goto": "path"}),
    "TP authors": ("thawing", {"profile": "primitives", "labels": "authors"}),
    "CS": ("carwash", {}),
    "CP": ("carwash", {"profile": "primitives"}),
    "CS path": ("carwash", {"goto": "path"}),
    "CS 12": ("carwash", {"reserved_actions": True}),
    "CS lag 0": ("carwash", {"car_clean_lag": 0}),
    "CP lag 0": ("carwash", {"profile": "primitives", "car_clean_lag": 0}),
    "CP authors": ("carwash", {"profile": "primitives", "labels": "authors"}),
    "MS": ("minecraft", {}),
    "MP": ("minecraft", {"profile": "primitives", "wood": 4, "grass": 1}),
    "MS path": ("minecraft", {"goto": "path"}),
    "E": ("empty", {}),
    "E once": ("empty", {"pay_once": True}),
    "E stop": ("empty", {"terminate_on_success": True}),
    "E 15": ("empty", {"max_steps": 15}),
}
"""World, then S(kills) or P(rimitives), then what else is not the default."""


@cache
def world_of(code: str) -> Any:
    """The world of a code: `Any`, as goTo and profiles are not part of every world."""
    name, options = WORLD_CODES[code]
    return make(name, **options)


@cache
def compiled(code: str) -> Any:
    return jax.jit(world_of(code).step)


@cache
def compiled_many(code: str) -> Any:
    """A step of many episodes that do not start again, one action each."""
    return jax.jit(jax.vmap(world_of(code).step))


@cache
def compiled_start(code: str) -> Any:
    """The start of an episode, and whether the rules allow it."""
    world = world_of(code)

    def start(values: Any) -> tuple[WorldState, Any]:
        state = world.begin(values)
        return state, world.legal(state)

    return jax.jit(start)


def start_from(code: str, named: Named) -> WorldState:
    """`World.from_named`, which takes 0.2 s to compile its checks every time, made faster."""
    world = world_of(code)
    state, is_legal = compiled_start(code)(jnp.asarray(world.all_factors.from_named(named)))
    started: WorldState = state if is_legal else world.from_named(named)
    return started


def changed(world: Any, named: Named, text: str) -> Named:
    """The named state with the changes of a text made; "x@hand" puts x into the agent's hand."""
    after: Named = {entity: dict(variables) for entity, variables in named.items()}
    codes = DIRS.get((world.name, world.profile), ROOM_DIRS)
    entities = {entity.name: entity.variable_names for entity in world.all_factors.entities}
    for word in [word for word in text.split() if "=" in word]:
        left, right = word.split("=")
        entity, _, variable = left.partition(".")
        names = (variable,) if variable else entities[entity]
        values = [codes[value] if value in codes else int(value) for value in right.split(",")]
        after.setdefault(entity, {}).update(zip(names, values, strict=True))
    for item in [word.removesuffix("@hand") for word in text.split() if "=" not in word]:
        shown = (0, 0) if world.profile == "skills" else (after["agent"]["x"], after["agent"]["y"])
        after[item].update(x=shown[0], y=shown[1])
    return after


class Play:
    """An episode that is played by hand."""

    def __init__(self, code: str, text: str = "") -> None:
        self.code, self.world = code, world_of(code)
        base = BASES[self.world.name, self.world.profile]
        self.state = start_from(code, changed(self.world, changed(self.world, {}, base), text))

    @property
    def named(self) -> Named:
        named: Named = self.world.to_named(self.state)
        return named

    @property
    def pose(self) -> tuple[int, int, int]:
        agent = self.named["agent"]
        return agent["x"], agent["y"], agent["dir"]

    def place(self, text: str) -> "Play":
        """Change variables by hand; elapsed steps, success and stages stay."""
        built = start_from(self.code, changed(self.world, self.named, text))
        self.state = replace(self.state, values=built.values)
        return self

    def act(self, action: str, seed: int = 0) -> Transition:
        before = self.state
        index = jnp.int32(self.world.action(action))
        self.state, transition = compiled(self.code)(jax.random.key(seed), before, index)
        width = self.world.factors.width
        np.testing.assert_array_equal(transition.obs, before.values[:width])
        np.testing.assert_array_equal(transition.next_obs, self.state.values[:width])
        assert int(self.state.elapsed) == int(before.elapsed) + 1
        assert bool(transition.success) == bool(self.state.succeeded)
        taken: Transition = transition
        return taken

    def show(self, text: str) -> str:
        """The variables that a text names, as they are now: `play.show(expected) == expected`."""
        named, words = self.named, []
        for word in text.split():
            entity, _, variable = word.split("=")[0].partition(".")
            values = [named[entity][variable]] if variable else list(named[entity].values())
            words.append(f"{word.split('=')[0]}={','.join(map(str, values))}")
        return " ".join(words)

    def expect(self, text: str) -> None:
        """The variables that a text names have its values."""
        after = changed(self.world, self.named, text)
        assert self.named == after, f"expected {text}, got {self.show(text)}"


def found_edges(world: Any, transition: Transition) -> Edges:
    """The off-diagonal (child, parent) pairs of a local graph."""
    children = world.factors.variable_names
    parents = (*children, "action")
    pairs = {(children[dst], parents[src]) for dst, src in np.argwhere(np.asarray(transition.graph))}
    return {(child, parent) for child, parent in pairs if child != parent}


def lost_self_edges(world: Any, transition: Transition) -> set[str]:
    """The variables whose diagonal entry is off."""
    names = world.factors.variable_names
    return {name for name, on in zip(names, np.diagonal(np.asarray(transition.graph)), strict=True) if not on}


def _names(world: Any, terms: str) -> list[str]:
    found: list[str] = []
    for term in terms.split():
        entity, _, variable = term.partition(".")
        if term.endswith("*"):
            found += [name for name in world.factors.variable_names if name.split(".")[0] == term[:-1]]
        elif variable == "xy":
            found += [f"{entity}.x", f"{entity}.y"]
        else:
            found.append(term)
    return found


def written_edges(world: Any, text: str) -> Edges:
    """The off-diagonal (child, parent) pairs of a text such as "agent.x <- agent.dir action; ..."."""
    known = {*world.factors.variable_names, "action"}
    edges: Edges = set()
    for clause in filter(None, map(str.strip, text.split(";"))):
        children, parents = (_names(world, side) for side in clause.split("<-"))
        assert {*children, *parents} <= known, clause
        edges |= {(child, parent) for child in children for parent in parents if child != parent}
    return edges
