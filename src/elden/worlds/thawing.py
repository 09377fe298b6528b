"""Thawing: take a fish out of the fridge and thaw it in the sink."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from elden.factors import ACTION, Factors
from elden.worlds import grid
from elden.worlds.base import Named, View
from elden.worlds.grid import Flag, Rect, Scalar, int32
from elden.worlds.labels import Fired, Rule, RuleBook
from elden.worlds.rooms import AGENT, AXES, RoomWorld, number, pick_action, xy
from elden.worlds.scene import Scene

_FROZEN = 5


@dataclass(frozen=True)
class Thawing(RoomWorld):
    """A fridge, a sink and a frozen fish.

    *State.* `skills`: agent (x, y, dir), fish (x, y, frozen), sink (x, y), fridge (x, y, open). `primitives`: agent,
    fridge, sink (x, y, on), fish. Frozen is 0..5 and starts at 3 (`skills`) or 5 (`primitives`).

    *Actions.* `skills`: goto_fish, goto_fridge, goto_sink, open, close, pick_fish, drop_fish. `primitives`: left,
    right, forward, open, close, toggle, pick, drop_fish.

    *Step.* First, from the state before the action, the fish in the fridge freezes by one level and the fish in the
    sink (`primitives`: in the running sink) thaws by one; then the action is applied.

    *Success.* Frozen level 0, latched. Stages: fridge open, fish carried, fish thawed.
    """

    name: ClassVar[str] = "thawing"
    max_steps: int = 20
    smallest_size: ClassVar[int] = 8
    furniture: ClassVar[dict[str, tuple[int, int]]] = {"fridge": (2, 2), "sink": (2, 2)}
    items: ClassVar[tuple[str, ...]] = ("fish",)
    targets: ClassVar[tuple[str, ...]] = ("fish", "fridge", "sink")

    @cached_property
    def factors(self) -> Factors:
        """The observed entities."""
        agent = self._entity("agent", dir=4)
        fish = self._entity("fish", frozen=_FROZEN + 1)
        fridge = self._entity("fridge", open=2)
        if self.skilled:
            return Factors((agent, fish, self._entity("sink"), fridge))
        return Factors((agent, fridge, self._entity("sink", on=2), fish))

    @property
    def action_names(self) -> tuple[str, ...]:
        """The actions."""
        if self.skilled:
            return ("goto_fish", "goto_fridge", "goto_sink", "open", "close", "pick_fish", "drop_fish")
        return ("left", "right", "forward", "open", "close", "toggle", "pick", "drop_fish")

    @property
    def stage_names(self) -> tuple[str, ...]:
        """The stages."""
        return ("fridge open", "fish carried", "fish thawed")

    def _draw(self, key: Key[Array, ""]) -> tuple[View, Flag]:
        """Fridge with a free ring around it, sink at least one cell away from it, fish in the fridge."""
        fridge_key, sink_key, fish_key, agent_key = jax.random.split(key, 4)
        corner = jax.random.randint(fridge_key, (2,), 2, self.size - 4, jnp.int32)
        fridge = Rect(corner[0], corner[1], *self.furniture["fridge"])
        ring = Rect(fridge.x - 1, fridge.y - 1, 4, 4)
        sink, sink_fits = grid.place(sink_key, grid.room_for(2, 2, [ring], self.size))
        inside = jax.random.randint(fish_key, (2,), 0, 2, jnp.int32)
        taken = [fridge, Rect(sink.x, sink.y, *self.furniture["sink"])]
        agent, agent_fits = grid.place_agent(agent_key, taken, self.size)
        view = {
            "agent.x": agent.x,
            "agent.y": agent.y,
            "agent.dir": agent.dir,
            "fish.x": fridge.x + inside[0],
            "fish.y": fridge.y + inside[1],
            "fish.frozen": int32(3 if self.skilled else _FROZEN),
            "sink.x": sink.x,
            "sink.y": sink.y,
            "sink.on": int32(0),
            "fridge.x": fridge.x,
            "fridge.y": fridge.y,
            "fridge.open": int32(0),
        }
        return view, sink_fits & agent_fits

    def _advance(self, key: Key[Array, ""], view: View, action: Scalar) -> tuple[View, Fired]:
        frozen, level_events = self._passive(view)
        if self.skilled:
            moved, move_events = self._goto_step(key, view, action)
        else:
            moved, move_events = self._walk_step(view, action)
        doors, door_events = self._doors(view, action)
        picks, drops = self._hands(view, action)
        hands, hand_events = self._hand_step({**view, **moved}, view, picks, drops)
        after = {**view, **hands, **doors, "fish.frozen": frozen}
        events = level_events | move_events | door_events | hand_events | self._fridge_events(view, after, hand_events)
        if self.skilled:
            tried = action == self.action("drop_fish")
            events["drop_tried"] = tried
            events["drop_tried:not_carried"] = tried & ~self.carried(after, "fish")
        return after, events

    def _fridge_events(self, view: View, after: View, hands: dict[str, Flag]) -> dict[str, Flag]:
        """Picks out of the fridge and drops into it."""
        out_of, into = self.lies_on(view, "fish", "fridge"), self.lies_on(after, "fish", "fridge")
        events = {}
        for axis in AXES:
            events[f"pick:fish:{axis}:from_fridge"] = hands[f"pick:fish:{axis}"] & out_of
            events[f"drop:fish:{axis}:to_fridge"] = hands[f"drop:fish:{axis}"] & into
        return events

    def _passive(self, view: View) -> tuple[Scalar, dict[str, Flag]]:
        """Freezing and thawing."""
        cold = self.lies_on(view, "fish", "fridge")
        warm = self.lies_on(view, "fish", "sink")
        if not self.skilled:
            warm = warm & (view["sink.on"] == 1)
        level = jnp.clip(view["fish.frozen"] + int32(cold) - int32(warm), 0, _FROZEN)
        rose, fell = level > view["fish.frozen"], level < view["fish.frozen"]
        return level, {"frozen_rose": rose, "frozen_fell": fell}

    def _doors(self, view: View, action: Scalar) -> tuple[View, dict[str, Flag]]:
        """The fridge's door and the sink's switch."""
        faces = self.faces(view, "fridge")
        opens = faces & (action == self.action("open"))
        closes = faces & (action == self.action("close"))
        was_open = view["fridge.open"] == 1
        events = {"door": (opens & ~was_open) | (closes & was_open), "door_tried": opens | closes}
        after: View = {"fridge.open": jnp.where(opens, 1, jnp.where(closes, 0, view["fridge.open"]))}
        if not self.skilled:
            toggles = self.faces(view, "sink") & (action == self.action("toggle"))
            after["sink.on"] = jnp.where(toggles, 1 - view["sink.on"], view["sink.on"])
            events["toggle"] = toggles
        return after, events

    def _hands(self, view: View, action: Scalar) -> tuple[dict[str, Flag], dict[str, Flag]]:
        shut = self.lies_on(view, "fish", "fridge") & (view["fridge.open"] == 0)
        asked = action == self.action("pick_fish" if self.skilled else "pick")
        picks = {"fish": asked & self._can_pick(view, "fish") & ~shut}
        drops = {"fish": (action == self.action("drop_fish")) & self._can_drop(view, "fish")}
        return picks, drops

    def _can_drop(self, view: View, item: str) -> Flag:
        """The fridge takes nothing back under `skills`, and only when open under `primitives`."""
        refused = self.faces(view, "fridge")
        if not self.skilled:
            refused = refused & (view["fridge.open"] == 0)
        return super()._can_drop(view, item) & ~refused

    def _goal(self, view: View) -> Flag:
        return view["fish.frozen"] == 0

    def _stages(self, view: View, fired: Fired | None) -> list[Flag]:
        return [view["fridge.open"] == 1, self.carried(view, "fish"), self._goal(view)]

    def _solvable(self, view: View) -> Flag:
        """The fish thaws by itself, or can be had and brought to the sink."""
        warm = self.lies_on(view, "fish", "sink")
        thawed = (view["fish.frozen"] == 0) & ~self.lies_on(view, "fish", "fridge")
        have = self._obtainable(view)
        sink = self._reachable_sides(self._without(view, have), "sink")
        running = jnp.asarray(True) if self.skilled else view["sink.on"] == 1
        return thawed | (warm & (running | sink)) | (have["fish"] & sink)

    @cached_property
    def book(self) -> RuleBook:
        """The rules of the true local graph."""
        level = ("fish.frozen",)
        fell = (*xy("fish"), *xy("sink")) if self.skilled else (*xy("fish"), *xy("sink"), "sink.on")
        rules = [
            Rule("frozen_rose", level, (*xy("fish"), *xy("fridge"))),
            Rule("frozen_fell", level, fell),
            *(self._goto_rules() if self.skilled else self._walk_rules()),
        ]
        door = (ACTION, *AGENT, *xy("fridge"))
        authors = self.labels == "authors"
        rules.append(Rule("door_tried" if authors and self.skilled else "door", ("fridge.open",), door))
        if not self.skilled:
            rules.append(Rule("toggle", ("sink.on",), (ACTION, *AGENT, *xy("sink"))))
        rules += self._authors_hand_rules() if authors else self._fix_hand_rules()
        return RuleBook(self.factors, tuple(rules))

    def _fix_hand_rules(self) -> list[Rule]:
        """Also: the door decides whether a pick from the fridge, or a drop into it, succeeds."""
        rules = self._hand_rules("fish")
        for axis in AXES:
            children = xy("fish") if self.skilled else (f"fish.{axis}",)
            rules.append(Rule(f"pick:fish:{axis}:from_fridge", children, ("fridge.open",)))
            if not self.skilled:
                rules.append(Rule(f"drop:fish:{axis}:to_fridge", children, ("fridge.open",)))
        return rules

    def _authors_hand_rules(self) -> list[Rule]:
        pick, drop = self._hand_rules("fish")
        if self.skilled:
            return [
                pick,
                Rule("drop_tried", xy("fish"), AGENT),
                Rule("drop_tried:not_carried", xy("fish"), (ACTION,)),
            ]
        return [pick, drop, Rule("drop:fish", ("fish.frozen",), (*AGENT, ACTION))]

    def _plan(self, key: Key[Array, ""], view: View) -> Scalar:
        """Open, pick, carry to the sink, drop; then go to and fro (`skills`) or turn about (`primitives`)."""
        inside = self.lies_on(view, "fish", "fridge")
        shut = view["fridge.open"] == 0
        at_fridge, at_sink = self.faces(view, "fridge"), self.faces(view, "sink")
        holds = self.carried(view, "fish")
        go = {name: self._go_code(name) for name in self.targets}
        pick = self.action("pick_fish" if self.skilled else "pick")
        drop = self.action("drop_fish")
        cases: list[tuple[Flag, Scalar | int]] = [
            (shut & at_fridge & inside, self.action("open")),
            (inside & ~shut & self._can_pick(view, "fish"), pick),
            (inside & shut, go["fridge"]),
            (inside, go["fish"]),
        ]
        if self.skilled:
            cases += [(at_sink & holds, drop), (at_sink & ~holds, go["fridge"])]
            return pick_action(cases, go["sink"])
        warm = self.lies_on(view, "fish", "sink")
        off = view["sink.on"] == 0
        turns = jax.random.randint(key, (), 0, 3, jnp.int32)
        cases += [
            (at_sink & off & (holds | warm), self.action("toggle")),
            (at_sink & holds, drop),
            (holds | (warm & off), go["sink"]),
            (~warm, self._pick_or_go(view, "fish")),
        ]
        return pick_action(cases, turns)

    def _scene(self, named: Named) -> Scene:
        fridge = self._sprite(named, "fridge", open=number(named, "fridge", "open"))
        running = {} if self.skilled else {"on": number(named, "sink", "on")}
        frozen = number(named, "fish", "frozen")
        fish = self._sprite(named, "fish", frozen=frozen)
        status = (("frozen", f"{frozen}/{_FROZEN}"), ("door", "open" if fridge.look["open"] else "closed"))
        return self._room_scene(named, [fridge, self._sprite(named, "sink", **running)], [fish], status)
