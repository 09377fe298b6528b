"""Kitchen: melt butter in a pot on the stove, cook a meatball in it, and turn the stove off."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from elden.factors import ACTION, Continuous, Discrete, Entity, Factors, Kind, Variable
from elden.worlds.base import Named, View, World, WorldOptionError
from elden.worlds.grid import Flag, Scalar
from elden.worlds.kitchen import table
from elden.worlds.kitchen.table import BUTTER, FOOD, MEATBALL, NOTHING, POT, TARGETS, Layout, Vector, place, shift
from elden.worlds.labels import Fired, Rule, RuleBook
from elden.worlds.rooms import pick_action
from elden.worlds.scene import Scene, Sprite

_ACTIONS = (*(f"to_{target}" for target in TARGETS), "grasp", "drop", "toggle")
_EEF, _GRIP = "robot.eef_pos", "robot.grip"
_HEAT = ("pot.pos", "stove.pos", "switch.on")
_ALMOST = 1e-4
_STRAIGHT = np.array([1.0, 0.0, 0.0, 0.0], np.float32)

_ARM_SPREAD = np.full(3, 0.0013, np.float32)
_LANDING: dict[str, tuple[Sequence[float], Sequence[float]]] = {
    "butter": ((0.0028, 0.0001), (0.0016, 0.0006)),
    "meatball": ((0.0050, 0.0001), (0.0003, 0.0)),
    "pot": ((0.0033, -0.0066), (0.0061, 0.0002)),
}
"""Mean and deviation, in metres, of where things land beside the middle, as measured in a simulation with physics."""
_MOST_NOISE = 2.0
_MOST_DEVIATIONS = 2.5
"""Chance beyond this many deviations is cut off: with `_MOST_NOISE`, nothing ever misses what it was meant for."""
_MOST_YAW = np.pi / 4
_REACH = (0.4, 0.5)
_LOOSE = 0.005

_Writes: TypeAlias = dict[str, tuple[Flag, Float[Array, "..."]]]
"""For some variables, whether they are written, and what."""


def _warmed(level: Float[Array, ""]) -> Float[Array, ""]:
    """Melt or cook after a step of heat; the top is reached exactly, however the steps are rounded."""
    after = level + table.RATE
    return jnp.where(after > 1 - _ALMOST, 1.0, after)


def _off(value: Float[Array, ""], wanted: float | Float[Array, ""], by: float = _ALMOST) -> Flag:
    """Whether a number is not what it should be."""
    return jnp.abs(value - wanted) > by


@dataclass(frozen=True)
class Kitchen(World):
    """A robot arm with skills at a table with butter, a meatball, a pot, a stove and its switch: a kinematic twin.

    *State.* robot (eef_pos, grip), butter (pos, quat, melt), meatball (pos, cook, overcooked), pot (pos, quat), stove
    (pos), switch (pos, on). Positions are normalised to [-1, 1] (`table.to_metres`), quaternions are (w, x, y,
    z) with w >= 0, melt and cook go from -1 to 1, overcooked and on are 0 or 1. The grip tells what is held: open 1,
    butter 0.375, meatball 0.5, the pot by its handle 0.15.

    *Actions.* to_butter, to_meatball, to_pot, to_handle, to_stove, to_switch, grasp, drop, toggle; a step is a whole
    skill. One that cannot be done does nothing. The empty hand can go anywhere (not to melted butter; to what is in
    the pot it goes as far as above the pot). With food in the hand it can only go above the pot, with the pot only
    above the stove. Grasp takes the nearest of butter, meatball and pot handle within 25 mm, unless it is in the pot,
    and turns it straight. Drop lets it fall into the pot, onto the stove, or leaves it where it was grasped. Toggle
    works with an empty hand within 50 mm of the switch. What is in the pot moves with it.

    *Step.* First heat, from the state before: if the switch is on and the pot on the stove, butter in the pot melts by
    0.2; a meatball in the pot is overcooked for good if the butter has not melted yet, else it cooks by 0.2. Then the
    skill. Melted butter is in the middle of the pot and stays there.

    *Success.* The meatball in the pot is cooked, not overcooked, and the switch is off. Stages: butter in the pot, pot
    on the stove, butter melted, meatball cooked, stove off.

    *Local graph.* A skill that is done writes what it moves or switches; what it writes depends on the action and on
    what it is done to (`book`). Heat writes melt, cook or overcooked, which depend on where food, pot and stove are, on
    the switch and, for the meatball, on melt. A skill that cannot be done, or that leads nowhere new, has no edges.

    That food in the pot cannot be taken out, that only the pot may go to the stove, that melted butter moves with the
    pot, and that stages may come in any order are our choices; the paper does not say.
    """

    name: ClassVar[str] = "kitchen"
    max_steps: int = 100
    layout: Layout = "narrow"
    """Where things start: "narrow" is the default, "wide" the largest boxes that are in reach and do not overlap."""
    skill_noise: float = 0.0
    """How far skills miss, as a multiple of what was measured in a simulation with physics; at most 2."""
    skill_failure: float = 0.0
    """Chance that a skill that could be done fails, and leaves everything as it was."""
    full_labels: bool = False
    """Count all that must hold for a skill or for heat among the parents: the grip, which way the pot is turned, what
    heat needs when the butter has melted, what is below a pot with something in it, whether the meatball is spoilt."""

    def _check_options(self) -> None:
        if self.labels == "authors":
            raise WorldOptionError(
                "labels='authors' given, but the authors' kitchen is not public: there is only 'fix'"
            )
        super()._check_options()
        self._check_choice("layout", self.layout, tuple(table.BOXES))
        if not 0 <= self.skill_noise <= _MOST_NOISE:
            raise WorldOptionError(f"skill_noise={self.skill_noise} given; it is between 0 and {_MOST_NOISE:g}")
        if not 0 <= self.skill_failure < 1:
            raise WorldOptionError(f"skill_failure={self.skill_failure} given; it is at least 0 and below 1")

    @cached_property
    def factors(self) -> Factors:
        """The robot, the food and the things on the table."""
        position, level, flag = Continuous(3, -1, 1), Continuous(1, -1, 1), Discrete(2)
        quat = Continuous(4, -1, 1)
        kinds: dict[str, dict[str, Kind]] = {
            "robot": {"eef_pos": position, "grip": Continuous(1, 0, 1)},
            "butter": {"pos": position, "quat": quat, "melt": level},
            "meatball": {"pos": position, "cook": level, "overcooked": flag},
            "pot": {"pos": position, "quat": quat},
            "stove": {"pos": position},
            "switch": {"pos": position, "on": flag},
        }
        return Factors(tuple(Entity(name, tuple(map(Variable, own, own.values()))) for name, own in kinds.items()))

    @property
    def action_names(self) -> tuple[str, ...]:
        """The skills."""
        return _ACTIONS

    @property
    def stage_names(self) -> tuple[str, ...]:
        """The stages."""
        return ("butter in pot", "pot on stove", "butter melted", "meatball cooked", "stove off")

    def _draw(self, key: Key[Array, ""]) -> tuple[View, Flag]:
        view = table.draw_start(key, self.layout) | {
            _EEF: jnp.asarray(table.to_units(np.array(table.START, np.float32))),
            _GRIP: jnp.asarray(table.GRIPS[NOTHING]),
            "meatball.overcooked": jnp.float32(0),
            "switch.on": jnp.float32(0),
        }
        return view, jnp.asarray(True)

    # A step: heat, then one skill. Only what an event writes is written, so that all else keeps its very bits.

    def _advance(self, key: Key[Array, ""], view: View, action: Scalar) -> tuple[View, Fired]:
        fail_key, arm_key, landing_key = jax.random.split(key, 3)
        warm, heat_events = self.heat(view)
        can = self.applicable(warm)[action]
        if self.skill_failure:
            can = can & ~jax.random.bernoulli(fail_key, self.skill_failure)
        chosen = {name: can & (action == k) for k, name in enumerate(_ACTIONS)}
        goal, way, moving = self._aim(arm_key, warm, chosen)
        turned = {name: jnp.any(warm[f"{name}.quat"] != _STRAIGHT) for name in ("butter", "pot")}
        events = table.skill_events(warm, chosen, moving, table.within_reach(warm), turned, table.falls(warm))
        after: View = dict(warm)
        for writes in (
            self._move(warm, events, goal, way, moving),
            self._grasp(warm, events, chosen["grasp"]),
            self._drop(landing_key, warm, events, chosen["drop"]),
            self._toggle(warm, chosen["toggle"]),
        ):
            for name, (flag, value) in writes.items():
                after[name] = jnp.where(flag, value, after[name])
        return after, heat_events | events

    def heat(self, view: View) -> tuple[View, dict[str, Flag]]:
        """Butter melts, and the meatball cooks or is spoilt, by where they were before the skill."""
        hot, liquid = table.heating(view), table.melted(view)
        spoilt = view["meatball.overcooked"] == 1
        inside = hot & table.in_pot(view, "meatball")
        melts = hot & table.in_pot(view, "butter") & ~liquid
        cooks = inside & liquid & ~spoilt & (view["meatball.cook"] < 1)
        overcooks = inside & ~liquid & ~spoilt
        melt = jnp.where(melts, _warmed(view["butter.melt"]), view["butter.melt"])
        done = melts & (melt >= 1)
        after = view | {
            "butter.melt": melt,
            "butter.pos": jnp.where(done, table.pot_floor(view), view["butter.pos"]),
            "butter.quat": jnp.where(done, view["pot.quat"], view["butter.quat"]),
            "meatball.cook": jnp.where(cooks, _warmed(view["meatball.cook"]), view["meatball.cook"]),
            "meatball.overcooked": jnp.where(overcooks, 1.0, view["meatball.overcooked"]),
        }
        return after, {"melt": melts, "melted": done, "cook": cooks, "overcook": overcooks}

    def applicable(self, view: View) -> Bool[Array, " action"]:
        """Which skills can be done."""
        hand = table.held(view)
        empty = hand == NOTHING
        can = {
            "to_butter": empty & ~table.melted(view),
            "to_meatball": empty,
            "to_pot": hand != POT,
            "to_handle": empty,
            "to_stove": empty | (hand == POT),
            "to_switch": empty,
            "grasp": empty & (table.within_reach(view) != NOTHING),
            "drop": ~empty,
            "toggle": empty & table.at_switch(view),
        }
        return jnp.stack([can[name] for name in _ACTIONS])

    def goals(self, view: View) -> dict[str, Vector]:
        """Where each target takes the empty gripper, or the middle of what it holds, in units of the observation."""
        above_pot = view["pot.pos"] + shift(0.0, 0.0, table.POT_HOVER)
        empty, carrying = (shift(0.0, 0.0, height) for height in (table.STOVE_HOVER, table.POT_GAP))
        return {
            **{food: jnp.where(table.in_pot(view, food), above_pot, view[f"{food}.pos"]) for food in FOOD},
            "pot": above_pot,
            "handle": table.handle(view),
            "stove": view["stove.pos"] + jnp.where(table.held(view) == POT, carrying, empty),
            "switch": view["switch.pos"] + shift(0.0, 0.0, table.SWITCH_HOVER),
        }

    def _aim(self, key: Key[Array, ""], view: View, chosen: dict[str, Flag]) -> tuple[Vector, Vector, Flag]:
        """Where a chosen move ends, the way there, and whether it leads anywhere."""
        moves = jnp.stack([chosen[f"to_{target}"] for target in TARGETS])
        goals = self.goals(view)
        goal = jnp.sum(jnp.where(moves[:, None], jnp.stack([goals[target] for target in TARGETS]), 0.0), axis=0)
        goal = goal + self._noise(key, np.zeros(3, np.float32), _ARM_SPREAD)
        points = jnp.stack([view[_EEF], *(view[f"{name}.pos"] for name in (*FOOD, "pot"))])
        way = goal - points[table.held(view)]
        return goal, way, jnp.any(moves) & jnp.any(way != 0)

    def _move(self, view: View, events: dict[str, Flag], goal: Vector, way: Vector, moving: Flag) -> _Writes:
        """The gripper, what it holds and what is in a held pot are all moved by the same way; who is there stays."""
        eef = jnp.where(table.held(view) == NOTHING, goal, view[_EEF] + way)
        writes: _Writes = {_EEF: (moving, eef), "pot.pos": (events["carry:pot"], goal)}
        for food in FOOD:
            carried = events[f"carry:{food}"]
            moved = jnp.where(carried, goal, view[f"{food}.pos"] + way)
            writes[f"{food}.pos"] = (carried | events[f"carry:pot:{food}"], moved)
        return writes

    def _grasp(self, view: View, events: dict[str, Flag], grasps: Flag) -> _Writes:
        """The gripper closes; what it holds is turned straight, if it was not."""
        writes: _Writes = {_GRIP: (grasps, jnp.asarray(table.GRIPS)[table.within_reach(view)])}
        for name in ("butter", "pot"):
            writes[f"{name}.quat"] = (events[f"grasp:{name}:turn"], jnp.asarray(_STRAIGHT))
        return writes

    def _drop(self, key: Key[Array, ""], view: View, events: dict[str, Flag], drops: Flag) -> _Writes:
        """The gripper opens; food falls to the pot's floor, the pot onto the stove with all that is in it."""
        keys = jax.random.split(key, 3)
        writes: _Writes = {_GRIP: (drops, jnp.asarray(table.GRIPS[NOTHING]))}
        for one_key, name in zip(keys, (*FOOD, "pot"), strict=True):
            floor = view["stove.pos"]
            if name != "pot":
                floor = view["pot.pos"] + shift(0.0, 0.0, table.POT_FLOOR + table.REST[name])
            mean, spread = (np.array([*part, 0.0], np.float32) for part in _LANDING[name])
            landed = jnp.append(view[f"{name}.pos"][:2], floor[2]) + self._noise(one_key, mean, spread)
            writes[f"{name}.pos"] = (events[f"drop:{name}:fall"], landed)
        # The last to be looked at was the pot.
        for food in FOOD:
            along = events[f"drop:pot:{food}"]
            flag, own = writes[f"{food}.pos"]
            moved = view[f"{food}.pos"] + (landed - view["pot.pos"])
            writes[f"{food}.pos"] = (flag | along, jnp.where(along, moved, own))
        return writes

    def _toggle(self, view: View, toggles: Flag) -> _Writes:
        above = view["switch.pos"] + shift(0.0, 0.0, table.SWITCH_HOVER)
        return {"switch.on": (toggles, 1 - view["switch.on"]), _EEF: (toggles, above)}

    def _noise(
        self, key: Key[Array, ""], mean: Float[np.ndarray, "3"], spread: Float[np.ndarray, "3"]
    ) -> Vector | float:
        """How far a skill misses, in units of the observation."""
        if not self.skill_noise:
            return 0.0
        most = _MOST_DEVIATIONS
        normal: Vector = jax.random.truncated_normal(key, -most, most, (3,), jnp.float32)
        return table.coarse(self.skill_noise * (mean + spread * normal) / table.SPAN)

    # What counts.

    def _goal(self, view: View) -> Flag:
        return table.cooked(view) & (view["switch.on"] == 0)

    def _stages(self, view: View, fired: Fired | None) -> list[Flag]:
        """A meatball that is cooked has been on the stove, also in a state made by hand."""
        cooked = table.cooked(view)
        return [
            table.in_pot(view, "butter"),
            table.pot_on_stove(view) | cooked,
            table.melted(view),
            cooked,
            self._goal(view),
        ]

    def _solvable(self, view: View) -> Flag:
        """All can still be done unless the meatball is spoilt, or is in the pot (or bound for it) before its time.

        A meatball held over the pot can only be dropped there; that is in time if the butter is melting by itself.
        """
        bound = (table.held(view) == MEATBALL) & table.falls(view)[MEATBALL]
        early = table.in_pot(view, "meatball") | (bound & ~self._melting(view))
        return (view["meatball.overcooked"] == 0) & (table.melted(view) | ~early)

    @cached_property
    def book(self) -> RuleBook:
        """The rules of the true local graph."""
        rules = [*self._move_rules(), *self._hand_rules(), *self._heat_rules()]
        return RuleBook(self.factors, tuple(rules))

    def _if_full(self, *parents: str) -> tuple[str, ...]:
        """Parents that count only where all preconditions do."""
        return parents if self.full_labels else ()

    @property
    def _free(self) -> tuple[str, ...]:
        return self._if_full(_GRIP)

    def _move_rules(self) -> list[Rule]:
        """The gripper goes where the target is; what it holds comes along, with what is in the pot.

        What is held gets to the goal, wherever the gripper has it: the gripper's own place depends on both.
        """
        aims: dict[str, tuple[str, ...]] = {target: (f"{target}.pos",) for target in TARGETS}
        aims |= {"handle": ("pot.pos", "pot.quat"), "butter": ("butter.pos", *self._if_full("butter.melt"))}
        cause = (ACTION, *self._free)
        rules = [Rule(f"move:{target}", (_EEF,), (*cause, *aim), cuts_self=True) for target, aim in aims.items()]
        for food in FOOD:
            rules.append(Rule(f"move:{food}:in_pot", (_EEF,), ("pot.pos",)))
            rules.append(Rule(f"carry:{food}", (_EEF,), (*cause, "pot.pos", f"{food}.pos")))
            rules.append(Rule(f"carry:{food}", (f"{food}.pos",), (*cause, "pot.pos"), cuts_self=True))
            rules.append(Rule(f"carry:pot:{food}", (f"{food}.pos",), (*cause, "stove.pos", "pot.pos")))
        rules.append(Rule("carry:pot", (_EEF,), (*cause, "stove.pos", "pot.pos")))
        rules.append(Rule("carry:pot", ("pot.pos",), (*cause, "stove.pos"), cuts_self=True))
        return rules

    def _hand_rules(self) -> list[Rule]:
        """Grasp, drop and toggle."""
        pot = (ACTION, _EEF, "pot.pos", "pot.quat")
        rules = [
            Rule("grasp:butter", (_GRIP,), (ACTION, _EEF, "butter.pos")),
            Rule("grasp:butter:turn", ("butter.quat",), (ACTION, _EEF, "butter.pos", *self._free), cuts_self=True),
            Rule("grasp:meatball", (_GRIP,), (ACTION, _EEF, "meatball.pos")),
            Rule("grasp:pot", (_GRIP,), pot),
            Rule("grasp:pot:turn", ("pot.quat",), (*pot, *self._free)),
            Rule("toggle", ("switch.on", _EEF), (ACTION, _EEF, "switch.pos", *self._free)),
        ]
        for name, below in (*((food, "pot.pos") for food in FOOD), ("pot", "stove.pos")):
            rules.append(Rule(f"drop:{name}", (_GRIP,), (ACTION,)))
            rules.append(Rule(f"drop:{name}:fall", (f"{name}.pos",), (ACTION, _GRIP, below)))
        along = (ACTION, "pot.pos", *self._if_full("stove.pos", _GRIP))
        rules += [Rule(f"drop:pot:{food}", (f"{food}.pos",), along) for food in FOOD]
        return rules

    def _heat_rules(self) -> list[Rule]:
        """Melting, cooking and overcooking."""
        where = (*_HEAT, *self._if_full("pot.quat", _GRIP))
        meatball = ("meatball.pos", "butter.melt", *where)
        liquid = ("butter.melt", "pot.pos", "pot.quat", *self._if_full("butter.pos", "stove.pos", "switch.on", _GRIP))
        return [
            Rule("melt", ("butter.melt",), ("butter.pos", *where)),
            Rule("melted", ("butter.pos", "butter.quat"), liquid, cuts_self=True),
            Rule("cook", ("meatball.cook",), (*meatball, *self._if_full("meatball.overcooked"))),
            Rule("overcook", ("meatball.overcooked",), meatball),
        ]

    def _violations(self, view: View) -> dict[str, Flag]:
        hand, pot = table.held(view), place(view, "pot")
        broken = {"robot.grip is none of 1, 0.375, 0.5 and 0.15": _off(view[_GRIP], jnp.asarray(table.GRIPS)[hand])}
        for name in ("butter", "pot"):
            quat = view[f"{name}.quat"]
            tilted = jnp.any(jnp.abs(quat[1:3]) > _LOOSE) | _off(jnp.linalg.norm(quat), 1.0)
            broken[f"{name} is tilted, turned by more than 45 degrees, or {name}.quat is not of length 1"] = (
                tilted | (jnp.abs(quat[3]) > np.sin(_MOST_YAW / 2) + _ALMOST) | (quat[0] < 0)
            )
        for name in (*FOOD, "pot", "stove", "switch"):
            away = jnp.abs(place(view, name)[:2]) > np.array(_REACH, np.float32)
            broken[f"{name} is out of reach"] = jnp.any(away)
        for name, height in (("stove", table.STOVE_TOP), ("switch", table.SWITCH_TOP)):
            broken[f"{name} is not at height {height}"] = _off(place(view, name)[2], height, _LOOSE)
        falling = table.falls(view)
        for number, food in enumerate(FOOD, start=1):
            rests = ~_off(place(view, food)[2], table.TABLE + table.REST[food], _LOOSE) | table.in_pot(view, food)
            flies = (hand == number) & falling[number]
            broken[f"{food} is neither on the table nor in the pot nor held over it"] = ~(rests | flies)
        stands = ~_off(pot[2], table.TABLE, _LOOSE) & ~table.over_stove(view)
        lifted = table.over_stove(view) & (pot[2] > table.STOVE_TOP - _LOOSE)
        lifted = lifted & ((hand == POT) | table.pot_on_stove(view))
        broken["the pot is neither on the table nor on the stove nor held over it"] = ~(stands | lifted)
        grips = jnp.stack(
            [place(view, "robot"), place(view, "butter"), place(view, "meatball"), table.to_metres(table.handle(view))]
        )
        far = jnp.linalg.norm(grips[hand] - place(view, "robot")) > 4 * table.GRASP_REACH
        broken["the gripper is not at what it holds"] = far
        spilt = jnp.linalg.norm(place(view, "butter") - table.to_metres(table.pot_floor(view))) > _LOOSE
        broken["the butter has melted but is not on the pot's floor"] = table.melted(view) & spilt
        broken["the butter has melted but is held"] = table.melted(view) & (hand == BUTTER)
        raw = (view["meatball.cook"] >= 1) & ~table.melted(view)
        broken["the meatball is cooked but the butter has not melted"] = raw
        return broken | self._overlaps(view)

    def _overlaps(self, view: View) -> dict[str, Flag]:
        """Things on the table need room; food that is held or in the pot takes none, nor does a pot off the table."""
        radius = {"butter": 0.02, "meatball": 0.02, "pot": 0.061, "stove": 0.061, "switch": 0.02}
        hand = table.held(view)
        away = {food: table.in_pot(view, food) | (hand == k) for k, food in enumerate(FOOD, start=1)}
        away["pot"] = table.over_stove(view)
        names = list(radius)
        broken = {}
        for i, first in enumerate(names):
            for second in names[i + 1 :]:
                near = jnp.linalg.norm((place(view, first) - place(view, second))[:2]) < radius[first] + radius[second]
                gone = away.get(first, jnp.asarray(False)) | away.get(second, jnp.asarray(False))
                broken[f"{first} and {second} overlap"] = near & ~gone
        return broken

    # The script.

    def _script(self, key: Key[Array, ""], view: View) -> Scalar:
        """Butter into the pot, pot onto the stove, switch on, meatball over the pot till the butter melts, switch off.

        Where nothing can be won any more it does at random what can be done.
        """
        hand, falling = table.held(view), table.falls(view)
        go = {name: self.action(name) for name in _ACTIONS}
        press = jnp.where(table.at_switch(view), go["toggle"], go["to_switch"])

        def fetch(thing: int, skill: str) -> Scalar:
            return jnp.where(table.within_reach(view) == thing, go["grasp"], go[skill])

        early = (hand == MEATBALL) & ~table.melted(view)
        cases: list[tuple[Flag, Scalar | int]] = [
            (~self._solvable(view), self._any_applicable(key, view)),
            (early & ~self._melting(view), go["drop"]),
            (early, go["to_pot"]),
            (hand == POT, jnp.where(falling[POT], go["drop"], go["to_stove"])),
            (hand != NOTHING, jnp.where(falling[hand], go["drop"], go["to_pot"])),
            (table.cooked(view), press),
            (~table.in_pot(view, "butter"), fetch(BUTTER, "to_butter")),
            (~table.pot_on_stove(view), fetch(POT, "to_handle")),
            (view["switch.on"] == 0, press),
            (~table.in_pot(view, "meatball"), fetch(MEATBALL, "to_meatball")),
        ]
        return pick_action(cases, go["to_switch"])

    def _melting(self, view: View) -> Flag:
        """Whether the butter melts by itself, so that the meatball may be held over it."""
        return table.heating(view) & table.in_pot(view, "butter")

    def _any_applicable(self, key: Key[Array, ""], view: View) -> Scalar:
        """One of the skills that can be done, at random. Some always can."""
        return jax.random.categorical(key, jnp.where(self.applicable(view), 0.0, -jnp.inf)).astype(jnp.int32)

    def _afterwards(self, key: Key[Array, ""], view: View, elapsed: Scalar, planned: Scalar) -> Scalar:
        """Do at random what can be done."""
        return self._any_applicable(key, view)

    # Pictures.

    def _scene(self, named: Named) -> Scene:
        """The table from above, the robot's side at the bottom."""
        melt, cook = (_tenths(named[food][level]) for food, level in (("butter", "melt"), ("meatball", "cook")))
        spoilt, on = int(bool(named["meatball"]["overcooked"])), int(bool(named["switch"]["on"]))
        hand = int(np.argmin(np.abs(np.asarray(named["robot"]["grip"]) - table.GRIPS)))
        stove, pot = _spot(named["stove"]["pos"]), _spot(named["pot"]["pos"])
        met = max(abs(stove[0] - pot[0]), abs(stove[1] - pot[1])) < 2
        things = (
            _sprite("stove", stove, 4, 4, "" if met else "stove", on=on),
            _sprite("switch", _spot(named["switch"]["pos"]), 2, 2, "switch", on=on),
            _sprite("pot", pot, 4, 4, "pot on stove" if met else "pot"),
            _sprite("butter", _spot(named["butter"]["pos"]), 2, 2, "butter" if melt < 10 else "", melt=melt),
            _sprite("meatball", _spot(named["meatball"]["pos"]), 2, 2, "meatball", cook=cook, overcooked=spoilt),
            _sprite("gripper", _spot(named["robot"]["eef_pos"], 0.7), 2, 3, closed=int(hand != NOTHING)),
        )
        status = (
            ("hand", ("empty", *FOOD, "pot")[hand]),
            ("stove", "on" if on else "off"),
            ("melt", "done" if melt == 10 else f"{melt}/10"),
            ("cook", "burnt" if spoilt else "done" if cook == 10 else f"{cook}/10"),
        )
        return Scene(*_SIZE, things, None, status=status, walls=False)


_CELL = 0.04
_SIZE = (21, 15)
_CORNER = (0.26, 0.42)
"""Size of a cell in metres, columns and rows of the picture, and x and y of its upper left corner."""


def _tenths(level: object) -> int:
    """Melt or cook, from -1 to 1, as 0 to 10; 10 is only what is done."""
    return int((float(np.asarray(level)) + 1) / 2 * 10 + _ALMOST)


def _spot(units: object, lower: float = 0.0) -> tuple[float, float]:
    """Column and row of a place, so many cells lower in the picture."""
    x, y, _ = (np.asarray(units, np.float32) * table.SPAN + table.MIDDLE).tolist()
    return (_CORNER[1] - y) / _CELL, (_CORNER[0] - x) / _CELL + lower


def _sprite(name: str, spot: tuple[float, float], w: int, h: int, label: str = "", **look: int) -> Sprite:
    """A thing drawn around a spot, kept inside the picture."""
    left = min(max(spot[0] - w / 2, 0), _SIZE[0] - w)
    top = min(max(spot[1] - h / 2, 0), _SIZE[1] - h)
    column, row = round(left), round(top)
    return Sprite(name, column, row, w, h, look, label, (left - column, top - row))
