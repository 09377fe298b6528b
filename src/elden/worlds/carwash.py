"""CarWash: soak a rag, clean the car with it, then wash the rag with soap in the bucket."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from elden.factors import ACTION, Factors
from elden.worlds import grid
from elden.worlds.base import Named, View, WorldOptionError
from elden.worlds.grid import Flag, Rect, Scalar, int32
from elden.worlds.labels import Fired, Rule, RuleBook
from elden.worlds.rooms import AGENT, RoomWorld, number, pick_action, xy
from elden.worlds.scene import Scene

_FULL = 5

_SKILLS = (
    "goto_rag",
    "goto_soap",
    "goto_bucket",
    "pick_soap",
    "drop_soap",
    "pick_rag",
    "drop_rag",
    "toggle",
    "goto_car",
    "goto_sink",
)
_PRIMITIVES = ("left", "right", "forward", "pick", "toggle", "drop_soap", "drop_rag")


@dataclass(frozen=True)
class CarWash(RoomWorld):
    """A car, a sink, a bucket, a shelf, a rag and a piece of soap.

    *State.* `skills`: agent (x, y, dir), rag (x, y, soak, clean), soap (x, y), sink (x, y, on), car (x, y, stained),
    bucket (x, y). `primitives`: agent, car, bucket (x, y, soapy), soap, sink, rag. Soak and clean are 0..5. The shelf
    (x, y) blocks and carries items but is not observed.

    *Actions.* `skills`: goto_rag, goto_soap, goto_bucket, pick_soap, drop_soap, pick_rag, drop_rag, toggle, goto_car,
    goto_sink. `primitives`: left, right, forward, pick (the rag if it can, else the soap), toggle, drop_soap, drop_rag.

    *Step.* First, from the state before the action and in this order: a wet rag on the stained car cleans it and is
    dirty then; the rag in the running sink soaks up one level; the rag in the bucket gets one level cleaner if soap is
    in the bucket (`primitives`: if the bucket was soapy); `primitives`: soap in the bucket makes it soapy for good.
    Then the action is applied. With `car_clean_lag=0` the car is looked at once more after the action.

    *Success.* The car clean and the rag at cleanness 5, latched. Stages: rag carried, rag in sink, rag soaked, car
    clean, soap carried, rag clean again.
    """

    name: ClassVar[str] = "carwash"
    max_steps: int = 100
    car_clean_lag: int = 1
    """Steps between a wet rag landing on the car and the car being clean: 1, or 0 as in the original of `skills`."""
    reserved_actions: bool = False
    """Add the two actions of the original skill set that do nothing (12 instead of 10; `skills` only)."""

    smallest_size: ClassVar[int] = 7
    furniture: ClassVar[dict[str, tuple[int, int]]] = {
        "shelf": (2, 3),
        "car": (3, 2),
        "bucket": (1, 2),
        "sink": (2, 2),
    }
    items: ClassVar[tuple[str, ...]] = ("rag", "soap")
    targets: ClassVar[tuple[str, ...]] = ("rag", "soap", "bucket", "car", "sink")
    items_hide: ClassVar[tuple[str, ...]] = ("car", "shelf")

    def _check_options(self) -> None:
        super()._check_options()
        if self.car_clean_lag not in (0, 1):
            raise WorldOptionError(f"car_clean_lag={self.car_clean_lag} given; it is 0 or 1")
        if self.reserved_actions and not self.skilled:
            raise WorldOptionError("reserved_actions=True given; only profile='skills' has reserved actions")

    @cached_property
    def factors(self) -> Factors:
        """The observed entities."""
        agent, soap = self._entity("agent", dir=4), self._entity("soap")
        rag = self._entity("rag", soak=_FULL + 1, clean=_FULL + 1)
        sink, car = self._entity("sink", on=2), self._entity("car", stained=2)
        if self.skilled:
            return Factors((agent, rag, soap, sink, car, self._entity("bucket")))
        return Factors((agent, car, self._entity("bucket", soapy=2), soap, sink, rag))

    @cached_property
    def hidden(self) -> Factors:
        """The shelf."""
        return Factors((self._entity("shelf"),))

    @property
    def action_names(self) -> tuple[str, ...]:
        """The actions."""
        if not self.skilled:
            return _PRIMITIVES
        return (*_SKILLS, "reserved0", "reserved1") if self.reserved_actions else _SKILLS

    @property
    def stage_names(self) -> tuple[str, ...]:
        """The stages."""
        return ("rag carried", "rag in sink", "rag soaked", "car clean", "soap carried", "rag clean again")

    def _draw(self, key: Key[Array, ""]) -> tuple[View, Flag]:
        """Shelf, car, bucket and sink in this order, each uniform where it fits; rag and soap on two shelf cells."""
        *keys, items_key, agent_key = jax.random.split(key, len(self.furniture) + 2)
        view: View = {}
        taken: list[Rect] = []
        good = jnp.asarray(True)
        for name, place_key in zip(self.furniture, keys, strict=True):
            w, h = self.furniture[name]
            cell, fits = grid.place(place_key, grid.room_for(w, h, taken, self.size))
            view[f"{name}.x"], view[f"{name}.y"] = cell.x, cell.y
            taken.append(Rect(cell.x, cell.y, w, h))
            good = good & fits
        rag, soap = self._two_of(items_key, 6)
        for item, spot in (("rag", rag), ("soap", soap)):
            view[f"{item}.x"] = view["shelf.x"] + spot % 2
            view[f"{item}.y"] = view["shelf.y"] + spot // 2
        agent, agent_fits = grid.place_agent(agent_key, taken, self.size)
        view |= {"agent.x": agent.x, "agent.y": agent.y, "agent.dir": agent.dir, "car.stained": int32(1)}
        view |= {
            "rag.soak": int32(0),
            "rag.clean": int32(_FULL),
            "sink.on": int32(0),
            "bucket.soapy": int32(0),
        }
        return view, good & agent_fits

    @staticmethod
    def _two_of(key: Key[Array, ""], n: int) -> tuple[Scalar, Scalar]:
        """A uniform ordered pair of distinct numbers below n."""
        code = jax.random.randint(key, (), 0, n * (n - 1), jnp.int32)
        first, second = code // (n - 1), code % (n - 1)
        return first, second + int32(second >= first)

    def _advance(self, key: Key[Array, ""], view: View, action: Scalar) -> tuple[View, Fired]:
        passive, events = self._passive(view)
        if self.skilled:
            moved, move_events = self._goto_step(key, view, action)
        else:
            moved, move_events = self._walk_step(view, action)
        toggles = self.faces(view, "sink") & (action == self.action("toggle"))
        picks, drops = self._hands(view, action)
        hands, hand_events = self._hand_step({**view, **moved}, view, picks, drops)
        after = {
            **view,
            **hands,
            **passive,
            "sink.on": jnp.where(toggles, 1 - view["sink.on"], view["sink.on"]),
        }
        events |= move_events | hand_events | {"toggle": toggles}
        if self.skilled:
            events |= {f"drop_tried:{item}": action == self.action(f"drop_{item}") for item in self.items}
        if self.car_clean_lag == 0:
            after, events = self._clean_at_once(after, events)
        return after, events

    def _wet_on_car(self, view: View) -> Flag:
        """Whether the rag cleans the car now."""
        return (view["car.stained"] == 1) & (view["rag.soak"] >= 1) & self.lies_on(view, "rag", "car")

    def _passive(self, view: View) -> tuple[View, dict[str, Flag]]:
        """What happens by itself, from the state before the action."""
        cleans = self._wet_on_car(view)
        soaks = (view["sink.on"] == 1) & self.lies_on(view, "rag", "sink")
        in_bucket = self.lies_on(view, "rag", "bucket")
        soap_in_bucket = self.lies_on(view, "soap", "bucket")
        soapy = soap_in_bucket if self.skilled else view["bucket.soapy"] == 1
        soak = jnp.minimum(view["rag.soak"] + int32(soaks), _FULL)
        clean = jnp.where(cleans, 0, jnp.minimum(view["rag.clean"] + int32(in_bucket & soapy), _FULL))
        after = {
            "car.stained": jnp.where(cleans, 0, view["car.stained"]),
            "rag.soak": soak,
            "rag.clean": clean,
        }
        events = {
            "car_cleaned": cleans,
            "car_cleaned:rag": cleans & (view["rag.clean"] > 0),
            "soak_rose": soak > view["rag.soak"],
            "clean_rose": clean > view["rag.clean"],
            # The authors' labels of `skills` look at the state before, not at what changed.
            "soaping": in_bucket & soap_in_bucket & (view["rag.clean"] > 0),
        }
        if not self.skilled:
            after["bucket.soapy"] = jnp.where(soap_in_bucket, 1, view["bucket.soapy"])
            events["soapy_rose"] = after["bucket.soapy"] > view["bucket.soapy"]
        return after, events

    def _clean_at_once(self, after: View, events: dict[str, Flag]) -> tuple[View, dict[str, Flag]]:
        """The zero-lag rule: the wet rag acts in the very step in which it lands on the car."""
        cleans = self._wet_on_car(after)
        events = events | {
            "car_cleaned_at_once": cleans,
            "car_cleaned_at_once:rag": cleans & (after["rag.clean"] > 0),
        }
        stained = jnp.where(cleans, 0, after["car.stained"])
        return {
            **after,
            "car.stained": stained,
            "rag.clean": jnp.where(cleans, 0, after["rag.clean"]),
        }, events

    def _hands(self, view: View, action: Scalar) -> tuple[dict[str, Flag], dict[str, Flag]]:
        drops = {item: (action == self.action(f"drop_{item}")) & self._can_drop(view, item) for item in self.items}
        can = {item: self._can_pick(view, item) for item in self.items}
        if self.skilled:
            return {item: (action == self.action(f"pick_{item}")) & can[item] for item in self.items}, drops
        asked = action == self.action("pick")
        return {"rag": asked & can["rag"], "soap": asked & can["soap"] & ~can["rag"]}, drops

    def _can_drop(self, view: View, item: str) -> Flag:
        """A car cell takes one item; under `skills` a shelf cell too."""
        narrow = self.faces(view, "car")
        if self.skilled:
            narrow = narrow | self.faces(view, "shelf")
        return super()._can_drop(view, item) & ~(narrow & self._other_item_in_front(view, item))

    def _goal(self, view: View) -> Flag:
        return (view["car.stained"] == 0) & (view["rag.clean"] == _FULL)

    def _stages(self, view: View, fired: Fired | None) -> list[Flag]:
        return [
            self.carried(view, "rag"),
            self.lies_on(view, "rag", "sink"),
            view["rag.soak"] >= 1,
            view["car.stained"] == 0,
            self.carried(view, "soap"),
            self._goal(view),
        ]

    def _solvable(self, view: View) -> Flag:
        """Everything still needed can be had, or is in place already."""
        have = self._obtainable(view)
        cleared = self._without(view, have)
        sink, car, bucket = (self._reachable_sides(cleared, name) for name in ("sink", "car", "bucket"))
        on_sink = self.lies_on(view, "rag", "sink")
        wet = (view["rag.soak"] >= 1) | sink | (on_sink & (view["sink.on"] == 1))
        soap = self.lies_on(view, "soap", "bucket") | (have["soap"] & bucket)
        if not self.skilled:
            soap = soap | (view["bucket.soapy"] == 1)
        washed = soap & (self.lies_on(view, "rag", "bucket") | (have["rag"] & bucket))
        cleaned = wet & have["rag"] & (car | self._wet_on_car(view))
        stained = view["car.stained"] == 1
        return jnp.where(stained, cleaned & have["rag"] & bucket & soap, washed | (view["rag.clean"] == _FULL))

    @cached_property
    def book(self) -> RuleBook:
        """The rules of the true local graph."""
        rules = self._goto_rules() if self.skilled else self._walk_rules()
        rules.append(Rule("toggle", ("sink.on",), (ACTION, *AGENT, *xy("sink"))))
        if self.labels == "authors":
            rules += self._authors_rules()
        else:
            rules += self._fix_rules()
        return RuleBook(self.factors, tuple(rules))

    def _self_block(self, item: str) -> tuple[str, ...]:
        return xy(item) if self.labels == "authors" else ()

    def _fix_rules(self) -> list[Rule]:
        touching = (*xy("car"), *xy("rag"), "rag.soak")
        soapy = xy("soap") if self.skilled else ("bucket.soapy",)
        rules = [rule for item in self.items for rule in self._hand_rules(item)]
        rules += [
            Rule("soak_rose", ("rag.soak",), (*xy("rag"), *xy("sink"), "sink.on")),
            Rule("car_cleaned", ("car.stained",), touching),
            Rule("car_cleaned:rag", ("rag.clean",), (*touching, "car.stained")),
            Rule("clean_rose", ("rag.clean",), (*xy("rag"), *xy("bucket"), *soapy)),
        ]
        if not self.skilled:
            rules.append(Rule("soapy_rose", ("bucket.soapy",), (*xy("bucket"), *xy("soap"))))
        if self.car_clean_lag == 0:
            landing = (ACTION, *AGENT, *touching)
            rules.append(Rule("car_cleaned_at_once", ("car.stained",), landing))
            rules.append(Rule("car_cleaned_at_once:rag", ("rag.clean",), (*landing, "car.stained")))
        return rules

    def _authors_rules(self) -> list[Rule]:
        touching = (*xy("car"), *xy("rag"), "rag.soak")
        rules = [Rule("car_cleaned", ("car.stained", "rag.clean"), touching)]
        if not self.skilled:
            rules += [rule for item in self.items for rule in self._hand_rules(item)]
            return [
                *rules,
                Rule("soak_rose", ("rag.soak",), (*xy("sink"), *xy("rag"))),
                Rule("clean_rose", ("rag.clean",), (*xy("bucket"), "bucket.soapy", *xy("rag"))),
                Rule("soapy_rose", ("bucket.soapy",), (*xy("bucket"), *xy("soap"))),
            ]
        for item in self.items:
            rules.append(self._hand_rules(item)[0])
            rules.append(Rule(f"drop_tried:{item}", xy(item), (*AGENT, ACTION)))
        return [
            *rules,
            Rule("soak_rose", ("rag.soak",), (*xy("rag"), *xy("sink"), "sink.on")),
            Rule("soaping", ("rag.clean",), (*xy("rag"), *xy("soap"), *xy("bucket"))),
        ]

    def _plan(self, key: Key[Array, ""], view: View) -> Scalar:
        """Soak the rag to the full, clean the car, bring soap and rag to the bucket; then wait."""
        stained, on_car = view["car.stained"] == 1, self.lies_on(view, "rag", "car")
        on_sink, off, full = (
            self.lies_on(view, "rag", "sink"),
            view["sink.on"] == 0,
            view["rag.soak"] == _FULL,
        )
        holds = self.carried(view, "rag")
        idle = {name: self._idle(key, name) for name in ("sink", "car", "rag")}
        cases: list[tuple[Flag, Scalar | int]] = [
            (stained & holds & ~full, self._bring(view, "rag", "sink")),
            (stained & holds & full, self._bring(view, "rag", "car")),
            (
                stained & on_sink & off,
                self._then(self.faces(view, "sink"), self.action("toggle"), self._go_code("sink")),
            ),
            (stained & on_sink & ~full, idle["sink"]),
            (stained & on_car & (view["rag.soak"] >= 1), idle["car"]),
            (stained, self._pick_or_go(view, "rag")),
            (self.carried(view, "soap"), self._bring(view, "soap", "bucket")),
            (~self.lies_on(view, "soap", "bucket"), self._pick_or_go(view, "soap")),
            (holds, self._bring(view, "rag", "bucket")),
            (~self.lies_on(view, "rag", "bucket"), self._pick_or_go(view, "rag")),
        ]
        return pick_action(cases, idle["rag"])

    def _idle(self, key: Key[Array, ""], near: str) -> Scalar:
        """Pass the time: goTo again (`skills`), or turn and walk about."""
        if self.skilled:
            return int32(self.action(f"goto_{near}"))
        return jax.random.randint(key, (), 0, 3, jnp.int32)

    @staticmethod
    def _then(flag: Flag, yes: Scalar | int, no: Scalar | int) -> Scalar:
        return jnp.where(flag, int32(yes), int32(no))

    def _bring(self, view: View, item: str, to: str) -> Scalar:
        """Drop the item there; if the cell is taken, clear it first."""
        other = "soap" if item == "rag" else "rag"
        clear = self.action(f"pick_{other}" if self.skilled else "pick")
        drop = self._then(self._can_drop(view, item), self.action(f"drop_{item}"), clear)
        return self._then(self.faces(view, to), drop, self._go_code(to))

    def _scene(self, named: Named) -> Scene:
        on, stained = number(named, "sink", "on"), number(named, "car", "stained")
        soak, clean = number(named, "rag", "soak"), number(named, "rag", "clean")
        soapy = {} if self.skilled else {"soapy": number(named, "bucket", "soapy")}
        furniture = [
            self._sprite(named, "shelf"),
            self._sprite(named, "car", stained=stained),
            self._sprite(named, "bucket", **soapy),
            self._sprite(named, "sink", on=on),
        ]
        items = [self._sprite(named, "rag", soak=soak, clean=clean), self._sprite(named, "soap")]
        status = (
            ("soak", f"{soak}/{_FULL}"),
            ("rag clean", f"{clean}/{_FULL}"),
            ("car", "stained" if stained else "clean"),
            ("sink", "on" if on else "off"),
        )
        return self._room_scene(named, furniture, items, status)
