"""2D Minecraft: craft tools from what lies about, bridge the water, and fetch the gem."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key

from elden.factors import ACTION, Discrete, Entity, Factors, Variable
from elden.worlds import grid, minecraft_plan
from elden.worlds.base import Named, View, World, WorldOptionError, WorldState
from elden.worlds.grid import Cell, Compass, Flag, Pose, Rect, Scalar, Slot, int32
from elden.worlds.labels import Fired, Rule, RuleBook
from elden.worlds.minecraft_plan import Land, Stock
from elden.worlds.rooms import AGENT, AXES, GoTo, Profile, number, pick_action, xy
from elden.worlds.scene import Scene, Sprite

COUNTERS = ("gem", "grass", "wood", "stone", "stick", "wood_pickaxe", "stone_pickaxe", "rope", "bridge")
RECIPES: dict[str, tuple[str, ...]] = {
    "stick": ("wood",),
    "wood_pickaxe": ("wood", "stick"),
    "stone_pickaxe": ("stone", "stick"),
    "rope": ("grass",),
    "bridge": ("wood", "rope"),
}
TOOLS = {"stone": "wood_pickaxe", "gem": "stone_pickaxe", "water": "bridge"}
"""What USE needs in the inventory."""

# y grows upwards here. Codes of `skills`: left, right, up, down; of `primitives`: down, up, left, right.
_SKILLS_COMPASS: Compass = ((-1, 0), (1, 0), (0, 1), (0, -1))
_PRIMITIVES_COMPASS: Compass = ((0, -1), (0, 1), (-1, 0), (1, 0))
_AROUND = ((-1, 0), (0, -1), (1, 0), (0, 1))
"""Left, down, right, up: the order of water around the gem and of the sides that goTo tries."""
_DENSEST = 0.36
"""Random placement with a free cell between things fills about this share of the cells before it jams."""


def kind_of(thing: str) -> str:
    """The kind of a placed thing: "wood3" is wood."""
    return thing.rstrip("0123456789")


@dataclass(frozen=True)
class Minecraft(World):
    """Grass, wood, stone, water around a gem, and a workshop. All of them one cell, all of them in the way.

    *State.* agent (x, y, dir); inventory (gem, grass, wood, stone, stick, wood_pickaxe, stone_pickaxe, rope, bridge);
    x, y of gem, water0-3, grass0.., wood0.., stone0, workshop, (0, 0) for what is gone or never was. Under `primitives`
    the inventory comes last. y grows upwards. Directions: 0 left, 1 right, 2 up, 3 down under `skills`; 0 down, 1 up,
    2 left, 3 right under `primitives`. Counters stop at the largest resource count.

    *Actions.* `skills`: use, goto_<thing>, craft_<tool>. `primitives`: down, up, left, right, use, craft_<tool>. USE
    acts on the thing in front: grass and wood are collected, stone needs a wood pickaxe, the gem a stone pickaxe, and a
    bridge is spent on water. Crafting needs the workshop in front: stick = wood; wood pickaxe = wood + stick; stone
    pickaxe = stone + stick; rope = grass; bridge = wood + rope.

    *Success.* A gem in the inventory. Stages: rope, bridge, water bridged, stick, wood pickaxe, stone pickaxe, gem.
    """

    name: ClassVar[str] = "minecraft"
    limits: ClassVar[Mapping[str, int]] = {**World.limits, "wood": 100, "grass": 100}
    max_steps: int = 100
    size: int = 10
    """Side of the square grid, boundary included."""
    profile: Profile = "skills"
    """"skills": goTo things; "primitives": single moves."""
    goto: GoTo = "teleport"
    """Where goTo lands: "teleport" (the authors' rule: the first free side in the order left, down, right, up; a
    random one at the workshop), "path" (the nearest side on foot), "teleport_random" or "teleport_first"."""
    wood: int = 5
    """How many woods are placed. The gem takes four."""
    grass: int = 2
    """How many grasses are placed. The gem takes one."""

    def _check_options(self) -> None:
        super()._check_options()
        self._check_choice("profile", self.profile, ("skills", "primitives"))
        self._check_choice("goto", self.goto, ("teleport", "path", "teleport_random", "teleport_first"))
        if self.profile != "skills" and self.goto != "teleport":
            raise WorldOptionError(f"goto={self.goto!r} given, but profile={self.profile!r} has no goTo actions")
        if self.wood < 4 or self.grass < 1:
            raise WorldOptionError(f"wood={self.wood}, grass={self.grass} given; the gem takes 4 wood and 1 grass")
        if self.size < self.smallest_size:
            raise WorldOptionError(
                f"size={self.size} is too small for minecraft with {self.wood} wood and {self.grass} grass: "
                f"random placement needs at least {self.smallest_size}"
            )

    @property
    def smallest_size(self) -> int:
        """The smallest grid on which random placement of this many things succeeds most of the time."""
        size = 6
        while _DENSEST * (size - 4) ** 2 < self.wood + self.grass + 2:
            size += 1
        return size

    @property
    def skilled(self) -> bool:
        """Whether the profile is `skills`."""
        return self.profile == "skills"

    @property
    def compass(self) -> Compass:
        """The direction codes of the profile."""
        return _SKILLS_COMPASS if self.skilled else _PRIMITIVES_COMPASS

    @property
    def most(self) -> int:
        """The largest count an inventory slot can hold."""
        return max(self.wood, self.grass)

    @cached_property
    def things(self) -> tuple[str, ...]:
        """Everything that is placed, in graph order."""
        waters = [f"water{k}" for k in range(4)]
        grass, wood = [f"grass{k}" for k in range(self.grass)], [f"wood{k}" for k in range(self.wood)]
        return ("gem", *waters, *grass, *wood, "stone0", "workshop")

    @cached_property
    def factors(self) -> Factors:
        """The agent, the inventory and the things."""
        place = (Variable("x", Discrete(self.size)), Variable("y", Discrete(self.size)))
        agent = Entity("agent", (*place, Variable("dir", Discrete(4))))
        inventory = Entity("inventory", tuple(Variable(name, Discrete(self.most + 1)) for name in COUNTERS))
        things = tuple(Entity(thing, place) for thing in self.things)
        return Factors((agent, inventory, *things) if self.skilled else (agent, *things, inventory))

    @cached_property
    def action_names(self) -> tuple[str, ...]:
        """The actions."""
        crafts = tuple(f"craft_{tool}" for tool in RECIPES)
        if self.skilled:
            return ("use", *(f"goto_{thing}" for thing in self.things), *crafts)
        return ("down", "up", "left", "right", "use", *crafts)

    @property
    def stage_names(self) -> tuple[str, ...]:
        """The stages."""
        return ("rope", "bridge", "water bridged", "stick", "wood pickaxe", "stone pickaxe", "gem")

    # Where things are.

    def pose(self, view: View) -> Pose:
        """The agent's pose."""
        return Pose(view["agent.x"], view["agent.y"], view["agent.dir"])

    def cell(self, view: View, name: str) -> Cell:
        """The cell of a thing or of the agent."""
        return Cell(view[f"{name}.x"], view[f"{name}.y"])

    def front(self, view: View) -> Cell:
        """The cell in front of the agent."""
        return grid.ahead(self.pose(view), self.compass)

    def faces(self, view: View, thing: str) -> Flag:
        """Whether the thing is in front."""
        return grid.same_cell(self.cell(view, thing), self.front(view))

    def free(self, view: View, cell: Cell) -> Flag:
        """Whether the cell is empty. Things that are gone show (0, 0), which is boundary."""
        taken = [grid.same_cell(self.cell(view, thing), cell) for thing in self.things]
        return grid.inside(cell, self.size) & ~grid.any_of(taken)

    def free_board(self, view: View) -> grid.Board:
        """All empty cells."""
        board = grid.interior_board(self.size)
        for thing in self.things:
            board = board & ~grid.cell_board(self.cell(view, thing), self.size)
        return board

    # Reset.

    def _draw(self, key: Key[Array, ""]) -> tuple[View, Flag]:
        """Gem near the bottom, water around it, then everything else with four empty cells around it."""
        gem_keys, agent_key, dir_key, *keys = jax.random.split(key, 3 + len(self.things) - 5)
        gem_x = jax.random.randint(jax.random.fold_in(gem_keys, 0), (), 1, self.size - 1, jnp.int32)
        gem_y = jax.random.randint(jax.random.fold_in(gem_keys, 1), (), 1, 3, jnp.int32)
        view: View = {"gem.x": gem_x, "gem.y": gem_y}
        for k, (dx, dy) in enumerate(_AROUND):
            wet = grid.inside(Cell(gem_x + dx, gem_y + dy), self.size)
            view[f"water{k}.x"] = jnp.where(wet, gem_x + dx, 0)
            view[f"water{k}.y"] = jnp.where(wet, gem_y + dy, 0)
        empty = grid.room_for(1, 1, [Rect(*self.cell(view, thing), 1, 1) for thing in self.things[:5]], self.size)
        good = jnp.asarray(True)
        xs, ys = grid.grid_xy(self.size)
        for thing, thing_key in zip(self.things[5:], keys, strict=True):
            alone = empty
            for shift in _AROUND:
                alone = alone & jnp.roll(empty, shift, axis=(1, 0))
            cell, found = grid.place(thing_key, alone)
            view[f"{thing}.x"], view[f"{thing}.y"] = cell.x, cell.y
            empty, good = empty & ~((xs == cell.x) & (ys == cell.y)), good & found
        agent, found = grid.place(agent_key, empty)
        facing = jax.random.randint(dir_key, (), 0, 4, jnp.int32)
        view |= {"agent.x": agent.x, "agent.y": agent.y, "agent.dir": facing}
        view |= {f"inventory.{name}": int32(0) for name in COUNTERS}
        return view, good & found

    # Step.

    def _advance(self, key: Key[Array, ""], view: View, action: Scalar) -> tuple[View, Fired]:
        moved, move_events = self._go_step(key, view, action) if self.skilled else self._move_step(view, action)
        used, use_events = self._use_step(view, action)
        crafted, craft_events = self._craft_step({**view, **used}, action)
        return {**view, **moved, **used, **crafted}, move_events | use_events | craft_events

    def sides_of(self, view: View, cell: Cell) -> list[Slot]:
        """The poses that face a cell, in the order left, down, right, up; open where empty."""
        facings = [self.compass.index((-dx, -dy)) for dx, dy in _AROUND]
        slots = grid.sides(Rect(cell.x, cell.y, 1, 1), 1, self.compass, facings)
        return [Slot(slot.pose, self.free(view, Cell(slot.pose.x, slot.pose.y))) for slot in slots]

    def _choices(self, view: View, target: Cell) -> list[Slot]:
        """The poses that goTo may choose from; a target that is gone, at (0, 0), has none."""
        slots = self.sides_of(view, target)
        if self.goto != "path":
            return slots
        return grid.nearest(self.cell(view, "agent"), slots, self.free_board(view), self.size)

    def _go_step(self, key: Key[Array, ""], view: View, action: Scalar) -> tuple[View, dict[str, Flag]]:
        """The agent after a goTo."""
        hits = {thing: action == self.action(f"goto_{thing}") for thing in self.things}
        x = y = int32(0)
        for thing, hit in hits.items():
            x, y = jnp.where(hit, view[f"{thing}.x"], x), jnp.where(hit, view[f"{thing}.y"], y)
        slots = self._choices(view, Cell(x, y))
        old = self.pose(view)
        new = grid.take(slots, self._rank(key, grid.count_open(slots), hits["workshop"]), old)
        changed = (new.x != old.x) | (new.y != old.y) | (new.dir != old.dir)
        events = {f"goto:{thing}": hit & changed for thing, hit in hits.items()}
        return {"agent.x": new.x, "agent.y": new.y, "agent.dir": new.dir}, events

    def _rank(self, key: Key[Array, ""], count: Scalar, at_workshop: Flag) -> Scalar:
        """Which of the open sides goTo takes."""
        if self.goto in ("path", "teleport_first"):
            return int32(0)
        rank = grid.random_rank(key, count)
        return rank if self.goto == "teleport_random" else jnp.where(at_workshop, rank, 0)

    def goto_poses(self, state: WorldState, target: str) -> list[tuple[int, int, int]]:
        """Host side: every open pose (x, y, dir) next to the target, in the order left, down, right, up."""
        if target not in self.things:
            raise ValueError(f"goTo knows {', '.join(self.things)}; {target!r} given")
        view = self.unpack(state.values)
        slots = self._choices(view, self.cell(view, target))
        return [(int(pose.x), int(pose.y), int(pose.dir)) for pose, is_open in slots if bool(is_open)]

    def _move_step(self, view: View, action: Scalar) -> tuple[View, dict[str, Flag]]:
        """The agent after a single move: it always turns, and steps if the cell is empty. Codes are actions here."""
        moves = action < 4
        facing = jnp.where(moves, action, view["agent.dir"])
        to = grid.ahead(Pose(view["agent.x"], view["agent.y"], facing), self.compass)
        steps = moves & self.free(view, to)
        after: View = {"agent.dir": facing}
        events = {"turned": facing != view["agent.dir"]}
        blockers = {thing: grid.same_cell(self.cell(view, thing), to) for thing in self.things}
        blockers["boundary"] = ~grid.inside(to, self.size)
        for axis, goal in zip(AXES, to, strict=True):
            after[f"agent.{axis}"] = jnp.where(steps, goal, view[f"agent.{axis}"])
            along = goal != view[f"agent.{axis}"]
            events[f"moved:{axis}"] = steps & along
            for name, here in blockers.items():
                inner = grid.inside(to, self.size) if name != "boundary" else jnp.asarray(True)
                events[f"blocked:{name}:{axis}"] = moves & here & inner & along
        return after, events

    def _use_step(self, view: View, action: Scalar) -> tuple[View, dict[str, Flag]]:
        """Things collected or bridged."""
        asked = (action == self.action("use")) & grid.inside(self.front(view), self.size)
        after: View = {f"inventory.{name}": view[f"inventory.{name}"] for name in COUNTERS}
        events = {}
        for thing in self.things[:-1]:
            kind = kind_of(thing)
            tool = TOOLS.get(kind)
            works = asked & self.faces(view, thing)
            if tool is not None:
                works = works & (view[f"inventory.{tool}"] >= 1)
            for name in xy(thing):
                after[name] = jnp.where(works, 0, view[name])
            counter = f"inventory.{'bridge' if kind == 'water' else kind}"
            change = -int32(works) if kind == "water" else int32(works)
            before = after[counter]
            after[counter] = jnp.clip(before + change, 0, self.most)
            events[f"use:{thing}"] = works
            events[f"use:{thing}:counted"] = after[counter] != before
        return after, events

    def _craft_step(self, view: View, action: Scalar) -> tuple[View, dict[str, Flag]]:
        """Tools made of what the inventory holds, in front of the workshop."""
        after = {f"inventory.{name}": view[f"inventory.{name}"] for name in COUNTERS}
        at_workshop = self.faces(view, "workshop")
        events = {}
        for tool, parts in RECIPES.items():
            makes = at_workshop & (action == self.action(f"craft_{tool}"))
            for part in parts:
                makes = makes & (view[f"inventory.{part}"] >= 1)
            for part in parts:
                after[f"inventory.{part}"] = after[f"inventory.{part}"] - int32(makes)
            before = after[f"inventory.{tool}"]
            after[f"inventory.{tool}"] = jnp.minimum(before + int32(makes), self.most)
            events[f"craft:{tool}"] = makes
            events[f"craft:{tool}:counted"] = after[f"inventory.{tool}"] != before
        return after, events

    def _goal(self, view: View) -> Flag:
        return view["inventory.gem"] >= 1

    def _stages(self, view: View, fired: Fired | None) -> list[Flag]:
        bridged = grid.any_of([fired[f"use:water{k}"] for k in range(4)]) if fired else jnp.asarray(False)
        have = {name: view[f"inventory.{name}"] >= 1 for name in COUNTERS}
        tools = ("stick", "wood_pickaxe", "stone_pickaxe", "gem")
        return [have["rope"], have["bridge"], bridged, *(have[tool] for tool in tools)]

    # Rules of the local graph.

    @cached_property
    def book(self) -> RuleBook:
        """The rules of the true local graph."""
        whole = self.labels == "fix" or self.skilled
        moves = self._goto_rules() if self.skilled else self._move_rules()
        uses = [rule for thing in self.things[:-1] for rule in self._use_rules(thing, whole)]
        crafts = [rule for tool in RECIPES for rule in self._craft_rules(tool, whole)]
        return RuleBook(self.factors, (*moves, *uses, *crafts))

    def _goto_rules(self) -> list[Rule]:
        """A teleported agent forgets where it was; on a path its old cell decides which side is nearest."""
        if self.goto == "path" and self.labels == "fix":
            return [Rule(f"goto:{t}", AGENT, (*xy(t), ACTION, "agent.x", "agent.y")) for t in self.things]
        return [Rule(f"goto:{t}", AGENT, (*xy(t), ACTION), cuts_self=True) for t in self.things]

    def _move_rules(self) -> list[Rule]:
        rules = [Rule("turned", ("agent.dir",), (ACTION,))]
        for axis in AXES:
            own = (f"agent.{axis}",)
            rules.append(Rule(f"moved:{axis}", own, (ACTION,)))
            if self.labels == "fix":
                # The boundary is there for every value of the other coordinate.
                rules.append(Rule(f"blocked:boundary:{axis}", own, (ACTION,)))
                rules += [Rule(f"blocked:{t}:{axis}", own, (ACTION, *xy("agent"), *xy(t))) for t in self.things]
        return rules

    def _use_rules(self, thing: str, whole: bool) -> list[Rule]:
        kind = kind_of(thing)
        tool = (f"inventory.{TOOLS[kind]}",) if kind in TOOLS else ()
        parents = (*AGENT, *xy(thing), ACTION, *tool)
        rules = [Rule(f"use:{thing}", xy(thing), parents)]
        if whole:
            counter = "inventory.bridge" if kind == "water" else f"inventory.{kind}"
            event = f"use:{thing}" if self.labels == "authors" else f"use:{thing}:counted"
            rules.append(Rule(event, (counter,), parents))
        return rules

    def _craft_rules(self, tool: str, whole: bool) -> list[Rule]:
        parts = tuple(f"inventory.{part}" for part in RECIPES[tool])
        parents = (*AGENT, *xy("workshop"), ACTION, *parts)
        event = f"craft:{tool}" if self.labels == "authors" else f"craft:{tool}:counted"
        rules = [Rule(event, (f"inventory.{tool}",), parents)]
        if whole:
            rules.append(Rule(f"craft:{tool}", parts, parents))
        return rules

    # Legality, reach, script.

    def _violations(self, view: View) -> dict[str, Flag]:
        agent = self.cell(view, "agent")
        broken = {"the agent stands outside the boundary": ~grid.inside(agent, self.size)}
        for k, thing in enumerate(self.things):
            cell = self.cell(view, thing)
            gone = (cell.x == 0) & (cell.y == 0)
            if thing == "workshop":
                gone = jnp.asarray(False)
            broken[f"{thing} is outside the boundary"] = ~grid.inside(cell, self.size) & ~gone
            broken[f"the agent stands in {thing}"] = grid.same_cell(cell, agent)
            for other in self.things[k + 1 :]:
                both = grid.same_cell(cell, self.cell(view, other)) & ~gone
                broken[f"{thing} and {other} share a cell"] = both
        return broken

    @property
    def _on_foot(self) -> bool:
        return not self.skilled or self.goto == "path"

    def _solvable(self, view: View) -> Flag:
        """Whether some plan works: see `minecraft_plan`."""
        kinds = tuple(kind_of(thing) for thing in self.things)
        land = Land(self._cells(view), kinds, self.cell(view, "agent"), self._on_foot, self.size)
        return minecraft_plan.solvable(land, Stock(*(view[f"inventory.{name}"] for name in Stock._fields)))

    def _cells(self, view: View) -> Cell:
        """The cells of all things, stacked."""
        xs, ys = zip(*(self.cell(view, thing) for thing in self.things), strict=True)
        return Cell(jnp.stack(xs), jnp.stack(ys))

    def _accessible(self, view: View) -> Bool[Array, " thing"]:
        """Which things the agent can reach now."""
        free = self.free_board(view)
        reach = grid.reachable(self.cell(view, "agent"), free, self.size) if self._on_foot else free
        return minecraft_plan.beside(self._cells(view), reach, self.size)

    # The script plans in codes, as those of `rooms`: an action, or "go and face the thing number k" as -1 - k.

    def _script(self, key: Key[Array, ""], view: View) -> Scalar:
        """The first missing of wood pickaxe, bridge and stone pickaxe; then water, then the gem; then anything."""
        have = {name: view[f"inventory.{name}"] >= 1 for name in COUNTERS}
        accessible = self._accessible(view)
        kinds = ("wood", "grass", "stone", "water", "gem", "workshop")
        get = {kind: self._get(view, kind, accessible) for kind in kinds}
        stick = self._make(view, have, get, "stick", "wood")
        gem_open = accessible[self.things.index("gem")]
        no_stone = ~have["wood_pickaxe"] & ~have["stone"]
        bridges = ~have["bridge"] & ~gem_open
        cases: list[tuple[Flag, Scalar | int]] = [
            (have["stone_pickaxe"] & gem_open, get["gem"]),
            (have["stone_pickaxe"] & have["bridge"], get["water"]),
            (no_stone & ~have["stick"], stick),
            (no_stone, self._make(view, have, get, "wood_pickaxe", "wood")),
            (bridges & ~have["rope"], self._make(view, have, get, "rope", "grass")),
            (bridges, self._make(view, have, get, "bridge", "wood")),
            (~have["stick"], stick),
        ]
        code = pick_action(cases, self._make(view, have, get, "stone_pickaxe", "stone"))
        return self._resolve(view, code)

    def _afterwards(self, key: Key[Array, ""], view: View, elapsed: Scalar, planned: Scalar) -> Scalar:
        """Anything (`skills`), or walk into one thing after the other (`primitives`)."""
        other = jax.random.randint(key, (), 0, self.num_actions, jnp.int32)
        if self.skilled:
            return other
        thing = (elapsed // 12 * 5 + view["workshop.x"] + 3 * view["workshop.y"]) % (len(self.things) + 1)
        # One number beyond the things: the boundary, which random moves meet soon enough.
        return jnp.where(thing < len(self.things), self._resolve(view, -1 - thing), other % 4)

    def _resolve(self, view: View, code: Scalar) -> Scalar:
        """The action for a code."""
        if self.skilled:
            return jnp.where(code < 0, self.action("goto_gem") - 1 - code, code)
        x = y = int32(0)
        for k, thing in enumerate(self.things):
            hit = code == -1 - k
            x, y = jnp.where(hit, view[f"{thing}.x"], x), jnp.where(hit, view[f"{thing}.y"], y)
        slots = self.sides_of(view, Cell(x, y))
        step = grid.walk(self.pose(view), slots, self.free_board(view), self.compass, self.size)
        return jnp.where(code < 0, step, code)

    def _make(self, view: View, have: dict[str, Flag], get: dict[str, Scalar], tool: str, part: str) -> Scalar:
        """Craft the tool, or first get the part it lacks."""
        go = get["workshop"]
        craft = jnp.where(self.faces(view, "workshop"), int32(self.action(f"craft_{tool}")), go)
        return jnp.where(have[part], craft, get[part])

    def _get(self, view: View, kind: str, accessible: Bool[Array, " thing"]) -> Scalar:
        """Get a thing of this kind; if none can be reached, any grass or wood: that may open the way."""
        code, found = self._pick_of(view, (kind,), accessible)
        soft, _ = self._pick_of(view, ("grass", "wood"), accessible)
        return jnp.where(found, code, soft)

    def _pick_of(self, view: View, kinds: tuple[str, ...], accessible: Bool[Array, " thing"]) -> tuple[Scalar, Flag]:
        """USE a thing of these kinds, or go to the one that this initial state's own order puts first.

        Also says whether one is accessible at all. The order depends on what never moves, so it holds for an episode
        and differs between initial states: in the long run every thing gets its turn.
        """
        mix = 7 * view["workshop.x"] + 11 * view["workshop.y"]
        members = [thing for thing in self.things if kind_of(thing) in kinds]
        best, code = int32(10_000), int32(-1 - self.things.index(members[0]))
        for k, thing in enumerate(members):
            index = self.things.index(thing)
            rank = (mix + 5 * k) % 17 + jnp.where(accessible[index], 0, 100)
            better = (rank < best) & (view[f"{thing}.x"] > 0)
            best, code = jnp.where(better, rank, best), jnp.where(better, -1 - index, code)
        facing = grid.any_of([self.faces(view, thing) for thing in members])
        return jnp.where(facing, int32(self.action("use")), code), best < 100

    # Pictures.

    def _scene(self, named: Named) -> Scene:
        """Turned over: y grows downwards in pictures."""
        top = self.size - 1
        sprites = []
        for thing in self.things:
            x, y = number(named, thing, "x"), number(named, thing, "y")
            if (x, y) != (0, 0):
                sprites.append(Sprite(kind_of(thing), x, top - y, label=thing[len(kind_of(thing)) :]))
        dx, dy = self.compass[number(named, "agent", "dir")]
        agent = (
            number(named, "agent", "x"),
            top - number(named, "agent", "y"),
            grid.SCREEN_COMPASS.index((dx, -dy)),
        )
        counts = tuple((name, number(named, "inventory", name)) for name in COUNTERS)
        return Scene(self.size, self.size, tuple(sprites), agent, inventory=counts)


__all__: Sequence[str] = ("COUNTERS", "RECIPES", "Minecraft", "kind_of")
