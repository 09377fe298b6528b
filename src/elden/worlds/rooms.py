"""What Thawing, CarWash and Empty share: furniture, items, goTo, turning and walking, picking and dropping.

Coordinates: x grows to the right, y downwards, directions are 0 right, 1 down, 2 left, 3 up. The outermost ring of
cells is wall. Furniture is a fixed block named by its top-left cell; items are one cell, block the way when they lie
somewhere, and can be carried without limit. A carried item shows the cell (0, 0) under `skills` and the agent's cell
under `primitives`: either way the variables say all there is to know.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, Num

from elden.factors import ACTION, Discrete, Entity, Variable
from elden.names import shown
from elden.worlds import grid
from elden.worlds.base import Named, View, World, WorldOptionError, WorldState
from elden.worlds.grid import Cell, Flag, Pose, Rect, Scalar, Slot, int32
from elden.worlds.labels import Rule
from elden.worlds.scene import Scene, Sprite

Profile: TypeAlias = Literal["skills", "primitives"]
GoTo: TypeAlias = Literal["teleport", "path", "teleport_random", "teleport_first"]

AGENT = ("agent.x", "agent.y", "agent.dir")
AXES = ("x", "y")
FACINGS = (0, 1, 2, 3)


def xy(entity: str) -> tuple[str, str]:
    """The two position variables of an entity."""
    return f"{entity}.x", f"{entity}.y"


@dataclass(frozen=True)
class RoomWorld(World):
    """A walled room with furniture and items."""

    size: int = 10
    """Side of the square grid, walls included."""
    profile: Profile = "skills"
    """"skills": goTo and object skills, as in the paper; "primitives": turn, forward and object actions."""
    goto: GoTo = "teleport"
    """Where goTo lands: "teleport" (the authors' rule: a random free side), "path" (the nearest side on foot),
    "teleport_random" or "teleport_first" (the first free side in a fixed order)."""

    smallest_size: ClassVar[int]
    furniture: ClassVar[dict[str, tuple[int, int]]] = {}
    """Width and height of every piece of furniture, hidden ones included."""
    items: ClassVar[tuple[str, ...]] = ()
    targets: ClassVar[tuple[str, ...]] = ()
    """What goTo can go to."""
    items_hide: ClassVar[tuple[str, ...]] = ()
    """Furniture that the authors' labels overlook when an item lies on it."""

    def _check_options(self) -> None:
        super()._check_options()
        self._check_choice("profile", self.profile, ("skills", "primitives"))
        self._check_choice("goto", self.goto, ("teleport", "path", "teleport_random", "teleport_first"))
        if not self.skilled and self.goto != "teleport":
            raise WorldOptionError(f"goto={self.goto!r} given, but profile={self.profile!r} has no goTo actions")
        if self.size < self.smallest_size:
            raise WorldOptionError(
                f"size={self.size} is too small for {self.name}: its entities need at least {self.smallest_size}"
            )

    @property
    def skilled(self) -> bool:
        """Whether the profile is `skills`."""
        return self.profile == "skills"

    @property
    def compass(self) -> grid.Compass:
        """The direction codes."""
        return grid.SCREEN_COMPASS

    # Factors.

    def _entity(self, name: str, **extra: int) -> Entity:
        """An entity with a position, and further discrete variables with their number of values."""
        sizes = {"x": self.size, "y": self.size, **extra}
        return Entity(name, tuple(Variable(variable, Discrete(n)) for variable, n in sizes.items()))

    # Where things are.

    def pose(self, view: View) -> Pose:
        """The agent's pose."""
        return Pose(view["agent.x"], view["agent.y"], view["agent.dir"])

    def front(self, view: View) -> Cell:
        """The cell in front of the agent."""
        return grid.ahead(self.pose(view), self.compass)

    def cell(self, view: View, name: str) -> Cell:
        """The cell of an item, or the top-left cell of a piece of furniture."""
        return Cell(view[f"{name}.x"], view[f"{name}.y"])

    def rect(self, view: View, name: str) -> Rect:
        """The block of a piece of furniture or an item."""
        return Rect(*self.cell(view, name), *self.furniture.get(name, (1, 1)))

    def carried(self, view: View, item: str) -> Flag:
        """Whether the agent carries the item."""
        holder = Cell(int32(0), int32(0)) if self.skilled else self.cell(view, "agent")
        return grid.same_cell(self.cell(view, item), holder)

    def taken_along(self, before: Num[Array, " value"], moved: Num[Array, " value"]) -> Num[Array, " value"]:
        """Under `primitives`, carried items go where the agent goes."""
        if self.skilled:
            return moved
        old, new = self.unpack(before), self.unpack(moved)
        for item in self.items:
            held = self.carried(old, item)
            for axis in AXES:
                new[f"{item}.{axis}"] = jnp.where(held, new[f"agent.{axis}"], new[f"{item}.{axis}"])
        return self.pack(new)

    def lies_on(self, view: View, item: str, furniture: str) -> Flag:
        """Whether the item lies on (or in) the furniture. A carried item shows a cell that no furniture covers."""
        return grid.covers(self.rect(view, furniture), self.cell(view, item))

    def faces(self, view: View, name: str) -> Flag:
        """Whether the front cell is one of the furniture's, or the item's."""
        return grid.covers(self.rect(view, name), self.front(view))

    def obstacles(self, view: View, without: Sequence[str] = ()) -> list[Rect]:
        """Everything that blocks. Carried items do no harm here: they show a cell nobody asks about."""
        return [self.rect(view, name) for name in (*self.furniture, *self.items) if name not in without]

    def free(self, view: View, cell: Cell) -> Flag:
        """Whether the agent could stand in this cell."""
        return grid.inside(cell, self.size) & ~grid.any_of([grid.covers(rect, cell) for rect in self.obstacles(view)])

    def free_board(self, view: View) -> grid.Board:
        """All free cells."""
        board = grid.interior_board(self.size)
        for rect in self.obstacles(view):
            board = board & ~grid.rect_board(rect, self.size)
        return board

    # goTo.

    def sides_of(self, view: View, target: Rect) -> list[Slot]:
        """The poses that face the target, in the order facing, y, x; open where the agent could stand.

        Under `primitives` the agent's own cell is open to it, though what it carries shows there.
        """
        longest = max((max(size) for size in self.furniture.values()), default=1)
        slots = []
        for slot in grid.sides(target, longest, self.compass, FACINGS):
            cell = Cell(slot.pose.x, slot.pose.y)
            stands = self.free(view, cell)
            if not self.skilled:
                stands = stands | grid.same_cell(cell, self.cell(view, "agent"))
            slots.append(Slot(slot.pose, slot.open & stands))
        return slots

    def _choices(self, view: View, target: Rect) -> list[Slot]:
        """The poses that goTo may choose from: all open sides, or under `path` the nearest ones."""
        slots = self.sides_of(view, target)
        if self.goto != "path":
            return slots
        return grid.nearest(self.cell(view, "agent"), slots, self.free_board(view), self.size)

    def _go(self, key: Key[Array, ""], view: View, target: Rect) -> tuple[Pose, Flag]:
        """The pose after goTo, and whether there was a candidate."""
        slots = self._choices(view, target)
        count = grid.count_open(slots)
        chance = self.goto in ("teleport", "teleport_random")
        rank = grid.random_rank(key, count) if chance else int32(0)
        return grid.take(slots, rank, self.pose(view)), count > 0

    def _goto_step(self, key: Key[Array, ""], view: View, action: Scalar) -> tuple[View, dict[str, Flag]]:
        """The agent after a goTo action, and the goTo events."""
        hits = {name: action == self.action(f"goto_{name}") for name in self.targets}
        target, chosen = self._rect_of(view, hits), grid.any_of(list(hits.values()))
        old = self.pose(view)
        new, found = self._go(key, view, target)
        moved = Pose(*(jnp.where(chosen, a, b) for a, b in zip(new, old, strict=True)))
        changed = (moved.x != old.x) | (moved.y != old.y) | (moved.dir != old.dir)
        events = {}
        for name, hit in hits.items():
            events[f"goto:{name}"] = hit & changed
            events[f"goto_found:{name}"] = hit & found
        return {"agent.x": moved.x, "agent.y": moved.y, "agent.dir": moved.dir}, events

    def goto_poses(self, state: WorldState, target: str) -> list[tuple[int, int, int]]:
        """Host side: every pose (x, y, dir) that goTo may choose from here, in the order facing, y, x."""
        if target not in self.targets:
            raise ValueError(f"goTo knows {', '.join(self.targets)}; {target!r} given")
        view = self.unpack(state.values)
        slots = self._choices(view, self.rect(view, target))
        return [(int(pose.x), int(pose.y), int(pose.dir)) for pose, is_open in slots if bool(is_open)]

    # Turning and walking.

    def _blocked_by(self, view: View, cell: Cell) -> dict[str, Flag]:
        """The one thing that counts as blocking the cell, "wall" included; all False where it is free.

        An item on furniture blocks twice over: then the furniture counts, except under the authors' labels for the
        furniture in `items_hide`.
        """
        order = [(name, grid.covers(self.rect(view, name), cell)) for name in (*self.furniture, *self.items)]
        if self.labels == "authors":
            on_top = grid.any_of([grid.covers(self.rect(view, name), cell) for name in self.items_hide])
            tops = [(item, on_top & grid.covers(self.rect(view, item), cell)) for item in self.items]
            order = [*tops, *order]
        found = ~grid.inside(cell, self.size)
        flags = {"wall": found}
        for name, here in order:
            flags[name] = flags.get(name, jnp.asarray(False)) | (here & ~found)
            found = found | here
        return flags

    def _walk_step(self, view: View, action: Scalar) -> tuple[View, dict[str, Flag]]:
        """The agent and what it carries after left, right or forward; and the events."""
        left, right = action == self.action("left"), action == self.action("right")
        facing = (view["agent.dir"] + int32(right) - int32(left)) % 4
        front = self.front(view)
        walks = action == self.action("forward")
        moves = walks & self.free(view, front)
        held = {item: self.carried(view, item) for item in self.items}
        after: View = {"agent.dir": facing}
        for axis, to in zip(AXES, front, strict=True):
            after[f"agent.{axis}"] = jnp.where(moves, to, view[f"agent.{axis}"])
            for item in self.items:
                after[f"{item}.{axis}"] = jnp.where(moves & held[item], to, view[f"{item}.{axis}"])
        return after, {"turn": left | right, **self._walk_events(view, walks, moves, held)}

    def _walk_events(self, view: View, walks: Flag, moves: Flag, held: dict[str, Flag]) -> dict[str, Flag]:
        events = {}
        blockers = self._blocked_by(view, self.front(view))
        for axis, parity in zip(AXES, (0, 1), strict=True):
            along = view["agent.dir"] % 2 == parity
            happened = {f"moved:{axis}": moves & along}
            for name, here in blockers.items():
                happened[f"blocked:{name}:{axis}"] = walks & here & along
            for event, flag in happened.items():
                events[event] = flag
                events.update({f"{event}:{item}": flag & held[item] for item in self.items})
        return events

    # Picking and dropping.

    def _can_pick(self, view: View, item: str) -> Flag:
        return ~self.carried(view, item) & grid.same_cell(self.cell(view, item), self.front(view))

    def _can_drop(self, view: View, item: str) -> Flag:
        """Whether the item is carried and the front cell is not wall. Worlds add what their furniture refuses."""
        return self.carried(view, item) & grid.inside(self.front(view), self.size)

    def _other_item_in_front(self, view: View, item: str) -> Flag:
        front = self.front(view)
        others = [other for other in self.items if other != item]
        return grid.any_of([grid.same_cell(self.cell(view, other), front) for other in others])

    def _hand_step(
        self, after: View, before: View, picks: dict[str, Flag], drops: dict[str, Flag]
    ) -> tuple[View, dict[str, Flag]]:
        """The items after the picks and drops that succeed; and the events, by axis of facing.

        `after` holds what walking has done in the same step; a step that picks or drops does not walk.
        """
        front = self.front(before)
        hand = Cell(int32(0), int32(0)) if self.skilled else self.cell(before, "agent")
        result: View = {name: after[name] for name in after if name.startswith("agent.")}
        events = {}
        for item in self.items:
            for axis, to, held in zip(AXES, front, hand, strict=True):
                name = f"{item}.{axis}"
                result[name] = jnp.where(picks[item], held, jnp.where(drops[item], to, after[name]))
            for verb, done in (("pick", picks[item]), ("drop", drops[item])):
                events[f"{verb}:{item}"] = done
                for axis, parity in zip(AXES, (0, 1), strict=True):
                    events[f"{verb}:{item}:{axis}"] = done & (before["agent.dir"] % 2 == parity)
        return result, events

    # Rules of the local graph.

    def _observed(self) -> set[str]:
        return set(self.factors.entity_names)

    def _goto_rules(self) -> list[Rule]:
        if self.labels == "authors":
            return [Rule(f"goto_found:{name}", AGENT, (ACTION,)) for name in self.targets]
        near = ("agent.x", "agent.y") if self.goto == "path" else ()
        return [Rule(f"goto:{name}", AGENT, (ACTION, *xy(name), *near)) for name in self.targets]

    def _walk_rules(self) -> list[Rule]:
        rules = [Rule("turn", ("agent.dir",), (ACTION,))]
        for axis in AXES:
            own = (f"agent.{axis}",)
            rules.append(Rule(f"moved:{axis}", own, ("agent.dir", ACTION)))
            for item in self.items:
                rules.append(
                    Rule(f"moved:{axis}:{item}", (f"{item}.{axis}",), (*AGENT, ACTION, *self._self_block(item)))
                )
            for obstacle in ("wall", *self.furniture, *self.items):
                parents = self._block_parents(obstacle)
                rules.append(Rule(f"blocked:{obstacle}:{axis}", own, parents))
                rules += [
                    Rule(
                        f"blocked:{obstacle}:{axis}:{item}",
                        (f"{item}.{axis}",),
                        (*parents, *self._self_block(item)),
                    )
                    for item in self.items
                    if item != obstacle
                ]
        return rules

    def _self_block(self, item: str) -> tuple[str, ...]:
        """Further parents of a carried item's coordinate when the agent walks."""
        return ()

    def _block_parents(self, obstacle: str) -> tuple[str, ...]:
        if obstacle == "wall":
            return ("agent.dir",) if self.labels == "fix" else AGENT
        return (*AGENT, *xy(obstacle)) if obstacle in self._observed() else AGENT

    def _hand_rules(self, item: str) -> list[Rule]:
        """Pick and drop, without what a world's furniture adds."""
        both, whole = xy(item), (ACTION, *AGENT, *xy(item))
        if self.skilled or self.labels == "authors":
            return [Rule(f"pick:{item}", both, whole), Rule(f"drop:{item}", both, whole)]
        rules = []
        for axis, other in (AXES, AXES[::-1]):
            rules.append(Rule(f"pick:{item}:{axis}", (f"{item}.{axis}",), whole))
            rules.append(Rule(f"drop:{item}:{axis}", (f"{item}.{axis}",), whole))
            rules.append(Rule(f"drop:{item}:{axis}", (f"{item}.{other}",), ("agent.dir",)))
        return rules

    # Legality and reach.

    def _violations(self, view: View) -> dict[str, Flag]:
        room = Rect(int32(1), int32(1), self.size - 2, self.size - 2)
        broken = {"the agent stands outside the walls": ~grid.covers(room, self.cell(view, "agent"))}
        names = tuple(self.furniture)
        for k, name in enumerate(names):
            rect = self.rect(view, name)
            inner = Rect(room.x, room.y, self.size - 1 - int32(rect.w), self.size - 1 - int32(rect.h))
            broken[f"the {name} reaches outside the walls"] = ~grid.covers(inner, Cell(rect.x, rect.y))
            broken[f"the agent stands in the {name}"] = grid.covers(rect, self.cell(view, "agent"))
            for other in names[k + 1 :]:
                broken[f"the {name} and the {other} share a cell"] = grid.overlap(rect, self.rect(view, other))
        for item in self.items:
            legal = grid.covers(room, self.cell(view, item)) | self.carried(view, item)
            broken[f"the {item} lies outside the walls"] = ~legal
        return broken

    def _without(self, view: View, gone: dict[str, Flag]) -> View:
        """The view with some items taken off the floor (put where they block nothing)."""
        after = dict(view)
        for item, flag in gone.items():
            for name in xy(item):
                after[name] = jnp.where(flag, int32(0), view[name])
        return after

    def _reachable_sides(self, view: View, name: str) -> Flag:
        """Whether the agent can reach the furniture or the item, by the rules of movement in force."""
        slots = self.sides_of(view, self.rect(view, name))
        if self.skilled and self.goto != "path":
            return (grid.count_open(slots) > 0) | self.faces(view, name)
        reach = grid.reachable(self.cell(view, "agent"), self.free_board(view), self.size)
        return grid.meets(reach, grid.slots_board(slots, self.size)) | self.faces(view, name)

    def _obtainable(self, view: View) -> dict[str, Flag]:
        """Which items the agent can reach and carry; taking one may clear the way to another."""
        have = {item: self.carried(view, item) for item in self.items}
        for _ in self.items:
            rest = self._without(view, have)
            have = {item: have[item] | self._reachable_sides(rest, item) for item in self.items}
        return have

    # Scripts. They plan in codes: an action, or "go and face the target number k" as -1 - k. Only the code that is
    # chosen in the end is turned into a step of a walk, so a script costs one search however many targets it weighs.

    def _plan(self, key: Key[Array, ""], view: View) -> Scalar:
        """The code of a plan that solves the world."""
        raise NotImplementedError

    def _script(self, key: Key[Array, ""], view: View) -> Scalar:
        return self._resolve(view, self._plan(key, view))

    @property
    def _landmarks(self) -> tuple[str, ...]:
        """What a script can walk to: the targets of goTo and the furniture that is none."""
        return (*self.targets, *(name for name in self.furniture if name not in self.targets))

    def _go_code(self, name: str) -> int:
        return -1 - self._landmarks.index(name)

    def _resolve(self, view: View, code: Scalar) -> Scalar:
        """The action for a code."""
        if not self.skilled:
            target = self._rect_of(view, {name: code == self._go_code(name) for name in self._landmarks})
            return jnp.where(code < 0, self._walk_to(view, target), code)
        for name in self.targets:
            code = jnp.where(code == self._go_code(name), int32(self.action(f"goto_{name}")), code)
        return code

    def _rect_of(self, view: View, hits: dict[str, Flag]) -> Rect:
        """The block of the one thing that is hit; empty where none is."""
        rect = Rect(int32(0), int32(0), int32(0), int32(0))
        for name, hit in hits.items():
            parts = zip(self.rect(view, name), rect, strict=True)
            rect = Rect(*(jnp.where(hit, new, old) for new, old in parts))
        return rect

    def _walk_to(self, view: View, target: Rect) -> Scalar:
        """A primitive action on a shortest walk to a pose that faces the target; forward where there is none."""
        slots = self.sides_of(view, target)
        wanted = grid.walk(self.pose(view), slots, self.free_board(view), self.compass, self.size)
        turn = (wanted - view["agent.dir"]) % 4
        left, right, forward = (self.action(name) for name in ("left", "right", "forward"))
        return jnp.where(turn == 0, forward, jnp.where(turn == 3, left, right)).astype(jnp.int32)

    def _afterwards(self, key: Key[Array, ""], view: View, elapsed: Scalar, planned: Scalar) -> Scalar:
        """Under `primitives`, walk into everything, with and without something in hand: see `_mischief`."""
        if self.skilled or not self.items:
            return planned
        return self._resolve(view, self._mischief(key, view, elapsed))

    def _mischief(self, key: Key[Array, ""], view: View, elapsed: Scalar) -> Scalar:
        """A code of the tour that bumps into things.

        For some steps at a time one item (or none) is to be carried and one obstacle to be met: fetch the item, put
        down what is not wanted, walk there, then step against it or drop the item on it. The choice changes with time
        and differs between initial states.
        """
        goals = (*self._landmarks, "wall")
        anchor = self.cell(view, next(iter(self.furniture)))
        turn = elapsed // 16 + 3 * anchor.x + 5 * anchor.y
        goal = turn % len(goals)
        carry = (turn // len(goals) + anchor.x) % (len(self.items) + 1)
        wanders = jax.random.randint(key, (), 0, 3, jnp.int32)
        clear = self.free(view, self.front(view))
        code = wanders
        for k, name in enumerate(goals):
            code = jnp.where(goal == k, self._bump(key, view, name), code)
        for k, item in enumerate(self.items):
            drop = self.action(f"drop_{item}")
            aims = goal == goals.index(item)
            wanted = (carry == k) & ~aims
            on_floor = ~grid.any_of([self.lies_on(view, item, name) for name in self.furniture])
            held = self.carried(view, item)
            code = jnp.where(held & ~wanted, jnp.where(clear, drop, wanders), code)
            fetches = ~held & (wanted | (aims & ~on_floor))
            code = jnp.where(fetches, self._pick_or_go(view, item), code)
        return code

    def _bump(self, key: Key[Array, ""], view: View, name: str) -> Scalar:
        """Walk to the obstacle and step against it, or drop what is in hand there."""
        forward = int32(self.action("forward"))
        if name == "wall":
            turns = jax.random.randint(key, (), 0, 4, jnp.int32)
            return jnp.where(turns == 0, int32(self.action("left")), forward)
        drops = jax.random.randint(key, (), 0, 2 * len(self.items), jnp.int32)
        act = forward
        for k, item in enumerate(self.items):
            act = jnp.where(drops == k, self.action(f"drop_{item}"), act)
        return jnp.where(self.faces(view, name), act, self._go_code(name))

    def _pick_or_go(self, view: View, item: str) -> Scalar:
        pick = self.action(f"pick_{item}" if self.skilled else "pick")
        return jnp.where(self._can_pick(view, item), int32(pick), int32(self._go_code(item)))

    # Pictures.

    def _sprite(self, named: Named, name: str, **look: int) -> Sprite:
        w, h = self.furniture.get(name, (1, 1))
        return Sprite(name, int(number(named, name, "x")), int(number(named, name, "y")), w, h, look)

    def _held_sprites(self, named: Named, sprites: Sequence[Sprite]) -> tuple[tuple[Sprite, ...], tuple[Sprite, ...]]:
        """Split item sprites into those that lie somewhere and those that are carried."""
        hand = (0, 0) if self.skilled else (number(named, "agent", "x"), number(named, "agent", "y"))
        held = tuple(sprite for sprite in sprites if (sprite.x, sprite.y) == hand)
        return tuple(sprite for sprite in sprites if sprite not in held), held

    def _room_scene(
        self,
        named: Named,
        furniture: Sequence[Sprite],
        items: Sequence[Sprite],
        status: tuple[tuple[str, str], ...] = (),
    ) -> Scene:
        lying, held = self._held_sprites(named, items)
        x, y, facing = (number(named, "agent", part) for part in ("x", "y", "dir"))
        return Scene(self.size, self.size, (*furniture, *lying), (x, y, facing), held=held, status=status)


def number(named: Named, entity: str, variable: str) -> int:
    """An integer variable of a named state."""
    value = named[entity][variable]
    if not isinstance(value, int | np.integer):
        raise TypeError(f"{entity}.{variable} is {shown(value)}, not an integer")
    return int(value)


def pick_action(cases: Sequence[tuple[Flag, Scalar | int]], default: Scalar | int) -> Int[Array, ""]:
    """The action of the first case that holds."""
    chosen = int32(default)
    for holds, action in reversed(cases):
        chosen = jnp.where(holds, int32(action), chosen)
    return chosen
