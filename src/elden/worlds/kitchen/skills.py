"""What the robot's skills are in motion: rise, cross, descend; close, open, press.

Each skill is a loop around `KitchenSimulation.tick`, with the goal of the controller slid ahead of the tool. What comes
of it is read from the simulation: what is held is what both fingers touch, a thing has fallen if it is lower.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from elden.worlds.kitchen import table
from elden.worlds.kitchen.physics import OPEN, KitchenSimulation, Point, Turn
from elden.worlds.kitchen.table import FOOD, NOTHING

THINGS: Final = ("robot", *FOOD, "pot")
"""What the hand may hold, by number; for an empty hand the point between the fingers itself is meant."""

_PACE: Final = 0.04
"""Metres that the goal is slid in a tick."""
_NEAR, _SLOW = 0.0015, 0.01
"""A move is over within these, in metres and metres per second."""
_LIFT: Final = 0.02
"""How high a grasp lifts what it has taken, and sets it down: off the table it turns straight between the fingers."""
_TURNING: Final = 3e-4
"""What turns by less of a quaternion in a tick has come to rest."""
_PASSING: Final = 0.02
"""How near the tool must come to a corner of its way."""
_PATIENCE: Final = 25
"""Ticks that a move may take longer than its goal."""
_BESIDE: Final = 0.01
"""Nearer than this across the table, a move goes straight."""
_PRESS: Final = 0.02
"""How far below the button's top the tool is drawn at most."""

_MOVED: Final = 0.007
_FALLEN: Final = 0.003
_TURNED: Final = 0.002
"""From how many metres, or how much of a quaternion's z, something counts as moved, fallen or turned."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a skill.

    Attributes:
        held: What the hand holds afterwards.
        done: Whether the skill did what it is for.
        slipped: Whether something was not taken, not pressed, or lost on the way.
        moving: Whether the hand, or what it held, is somewhere else.
        turned: Whether butter and pot were turned.
        fallen: For each of `THINGS`, whether it fell.
    """

    held: int
    done: bool
    slipped: bool
    moving: bool
    turned: dict[str, bool]
    fallen: tuple[bool, bool, bool, bool]


class Hand:
    """The robot's hand: it remembers where it was sent, and what it holds."""

    def __init__(self, simulation: KitchenSimulation) -> None:
        self.simulation = simulation
        self.held = NOTHING
        self.ticks = 0
        self._goal: Point = np.array(table.START)

    def begin(self, goal: Point) -> None:
        """Bring the empty, open hand from its start to where an episode begins."""
        self._goal, self.held = np.array(table.START), NOTHING
        self._slide(goal, _NEAR)

    def hold(self, thing: int, place: Point, turn: Turn | None) -> None:
        """Close the fingers on a thing that is kept where it is."""
        name = THINGS[thing]
        self.simulation.float_freely(name)
        for _ in range(_PATIENCE):
            self.simulation.put(name, place, turn)
            self._tick(1)
        self.simulation.float_freely(None)
        self.held = thing

    def perform(self, skill: str, goal: Point | None, taken: int) -> Outcome:
        """Do a skill.

        Args:
            skill: Its name.
            goal: Where a move ends: the point between the fingers, or the middle of what is held.
            taken: What a grasp is to take.
        """
        self.ticks = 0
        self._tick(1 if self.held else -1)
        before = self._snapshot()
        hand = self.held
        if skill == "grasp":
            done = self._grasp(taken)
        elif skill == "drop":
            done = self._drop()
        elif skill == "toggle":
            done = self._toggle()
        elif goal is not None:
            done = self._move(goal)
        else:
            raise ValueError(f"{skill} needs a goal")
        return self._outcome(before, hand, done)

    def wait(self) -> None:
        """Let a tick pass."""
        self.ticks = 0
        self._tick(0)

    # Skills. Each returns whether it did what it is for.

    def _move(self, goal: Point) -> bool:
        """Rise, cross, descend; corrected at the end by how what is held lies in the hand."""
        start, end = self._goal.copy(), goal + self._offset()
        if np.linalg.norm(end[:2] - start[:2]) > _BESIDE:
            height = max(table.TABLE + table.TRAVEL, end[2])
            self._slide(np.array([*start[:2], height]), _PASSING)
            self._slide(np.array([*end[:2], height]), _PASSING)
        self._slide(goal + self._offset(), _NEAR)
        if self.held:
            self._slide(goal + self._offset(), _NEAR)
        return self._keeps_hold()

    def _grasp(self, taken: int) -> bool:
        """Close until nothing moves; where nothing is held, open again."""
        thing = THINGS[taken]
        self._fingers(1)
        if self.simulation.pinched(thing):
            self.held = taken
            low = self._goal.copy()
            self._slide(low + np.array([0.0, 0.0, _LIFT]), _NEAR)
            self._let_turn(thing)
            self._slide(low, _NEAR)
            return self._keeps_hold()
        self._fingers(-1)
        return False

    def _let_turn(self, thing: str) -> None:
        """Wait until what is held no longer turns."""
        before = self.simulation.turn(thing)
        for _ in range(_PATIENCE):
            self._tick(1)
            after = self.simulation.turn(thing)
            if np.abs(after - before).max() < _TURNING:
                break
            before = after

    def _drop(self) -> bool:
        """Open, and wait for what was held to lie still."""
        thing = THINGS[self.held]
        self.held = NOTHING
        self._fingers(-1)
        for _ in range(_PATIENCE):
            if self.simulation.speed(thing) < _SLOW:
                break
            self._tick(0)
        return True

    def _toggle(self) -> bool:
        """Press the button with closed fingers, from above and back."""
        simulation, before = self.simulation, self.simulation.switch_on
        top = simulation.place("switch")
        above = top + np.array([0.0, 0.0, table.SWITCH_HOVER])
        self._slide(above, _NEAR, 1)
        deepest = top[2] - _PRESS
        for _ in range(2 * _PATIENCE):
            if simulation.switch_on != before:
                break
            self._goal = np.array([*above[:2], max(self._goal[2] - _PACE / 4, deepest)])
            self._tick(1)
        self._slide(above, _NEAR, -1)
        self._fingers(-1)
        return simulation.switch_on != before

    # Their parts.

    def _tick(self, fingers: int) -> None:
        self.simulation.tick(self._goal, fingers)
        self.ticks += 1

    def _slide(self, goal: Point, near: float, fingers: int | None = None) -> None:
        """Bring the tool to a place, and wait until it is there; fingers stay as they are unless a grip is given."""
        closing = (1 if self.held else -1) if fingers is None else fingers
        while (left := float(np.linalg.norm(goal - self._goal))) > 0:
            self._goal = goal.copy() if left <= _PACE else self._goal + (goal - self._goal) * (_PACE / left)
            self._tick(closing)
        for _ in range(_PATIENCE):
            still = near >= _PASSING or self.simulation.eef_speed < _SLOW
            if still and np.linalg.norm(goal - self.simulation.eef) < near:
                break
            self._tick(closing)

    def _fingers(self, way: int) -> None:
        """Close or open until the fingers rest."""
        last = -1.0
        for number in range(2 * _PATIENCE):
            self._tick(way)
            now = self.simulation.fingers
            if (way < 0 and now > OPEN) or (way > 0 and number > 5 and abs(now - last) < 2e-4):
                break
            last = now

    def _offset(self) -> Point:
        """From the middle of what is held to the point that the controller moves."""
        if self.held == NOTHING:
            return np.zeros(3)
        offset: Point = self.simulation.eef - self.simulation.place(THINGS[self.held])
        return offset

    def _keeps_hold(self) -> bool:
        """Whether what was held still is; else the fingers open."""
        if self.held == NOTHING or self.simulation.pinched(THINGS[self.held]):
            return True
        self._drop()
        return False

    # What has come of it.

    def _snapshot(self) -> dict[str, np.ndarray]:
        simulation = self.simulation
        places = {name: simulation.place(name) for name in THINGS[1:]} | {"robot": simulation.eef}
        return places | {f"{name}.z": simulation.turn(name)[3:] for name in ("butter", "pot")}

    def _outcome(self, before: dict[str, np.ndarray], hand: int, done: bool) -> Outcome:
        after = self._snapshot()
        way = {name: after[name] - before[name] for name in THINGS}
        fallen = [bool(way[name][2] < -_FALLEN) for name in THINGS]
        return Outcome(
            held=self.held,
            done=done,
            slipped=not done,
            moving=bool(np.linalg.norm(way[THINGS[hand]]) > _MOVED),
            turned={name: bool(abs(after[f"{name}.z"] - before[f"{name}.z"]) > _TURNED) for name in ("butter", "pot")},
            fallen=(False, fallen[1], fallen[2], fallen[3]),
        )
