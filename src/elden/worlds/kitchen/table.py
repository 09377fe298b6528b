"""The kitchen's table: measures in metres, how positions are normalised, and what lies where.

Everything here is a function of the observed variables alone (what is held can be read from the gripper's width), never
of contacts, so that a simulation with physics can be judged by the same functions as the twin.

Frame: x away from the robot, y to its left, z up; the robot's base is at x = -0.56 and the table top at z = 0.8.

A product that is added to something may be rounded once or twice, as the compiler pleases. New positions are therefore
made of observed ones by sums alone, and what takes products (a turned handle, noise) is first rounded to a coarse grid:
one state or many at once then give the same bits.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from elden.worlds.base import View
from elden.worlds.grid import Flag, Scalar, int32

Vector: TypeAlias = Float[Array, "3"]
Quaternion: TypeAlias = Float[Array, "4"]
Layout: TypeAlias = Literal["narrow", "wide"]

FOOD: Final = ("butter", "meatball")
TARGETS: Final = ("butter", "meatball", "pot", "handle", "stove", "switch")
NOTHING, BUTTER, MEATBALL, POT = range(4)
"""What the gripper may hold."""
GRIPS: Final = np.array([0.040, 0.015, 0.020, 0.006], np.float32) / np.float32(0.04)
"""Width of the gripper around each of them, over that of the open gripper."""

TABLE: Final = 0.8
STOVE_TOP: Final = 0.82
"""Height of `stove.pos`: the middle of the hot plate, on which the pot stands."""
SWITCH_TOP: Final = 0.82
"""Height of `switch.pos`: the top of the button."""
REST: Final = {"butter": 0.015, "meatball": 0.020}
"""Height of the centre of each food above what it lies on."""
START_HEIGHT: Final = {
    "butter": TABLE + REST["butter"],
    "meatball": TABLE + REST["meatball"],
    "pot": TABLE,
    "stove": STOVE_TOP,
    "switch": SWITCH_TOP,
}
POT_INSIDE, POT_FLOOR = 0.055, 0.006
HANDLE: Final = (0.0, -0.067, 0.065)
"""Where the pot is grasped, in the pot's frame."""

GRASP_REACH, TOGGLE_REACH = 0.025, 0.05
TRAVEL: Final = 0.22
"""Height above the table at which the arm crosses it, and at which an episode starts."""
POT_HOVER, STOVE_HOVER, SWITCH_HOVER, POT_GAP = 0.11, 0.16, 0.10, 0.012
ON_STOVE, ON_STOVE_HEIGHT = 0.05, 0.026
IN_POT_LOW, IN_POT_HIGH = -0.005, 0.07
RATE: Final = 0.2
"""How far heat brings butter or meatball on its way from -1 to 1 in a step."""

MIDDLE: Final = np.array([0.0, 0.0, 0.95], np.float32)
SPAN: Final = np.array([0.5, 0.6, 0.25], np.float32)


_FINE: Final = 2**20
"""Steps of a unit in which starts are drawn: float32 holds each exactly."""
_COARSE: Final = 2**14
"""Steps of a unit to which products are rounded, about 30 micrometres."""
_TURNS: Final = 1025
"""Number of directions among which the start's is drawn."""


class Box(NamedTuple):
    """Where something may start: ranges of x and y, and how far it may be turned either way, in radians."""

    x: tuple[float, float]
    y: tuple[float, float]
    yaw: float = 0.0


START: Final = (-0.10, 0.0, TABLE + TRAVEL)
BOXES: Final[dict[Layout, dict[str, Box]]] = {
    "narrow": {
        "butter": Box((-0.22, -0.14), (-0.30, -0.22), 0.3),
        "meatball": Box((0.02, 0.12), (-0.30, -0.22)),
        "pot": Box((-0.12, -0.06), (-0.05, 0.03), 0.15),
        "stove": Box((0.06, 0.14), (0.17, 0.25)),
        "switch": Box((-0.24, -0.16), (0.22, 0.30)),
    },
    "wide": {
        "butter": Box((-0.25, -0.09), (-0.36, -0.21), 0.6),
        "meatball": Box((-0.02, 0.11), (-0.32, -0.21)),
        "pot": Box((-0.20, 0.06), (-0.055, 0.02), 0.3),
        "stove": Box((0.0, 0.14), (0.17, 0.27)),
        "switch": Box((-0.25, -0.13), (0.17, 0.33)),
    },
}


def to_metres(units: Vector) -> Vector:
    """A position as the world observes it, each axis from -1 to 1, in metres."""
    return units * SPAN + MIDDLE


def to_units(metres: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3"]:
    """The inverse of `to_metres`, on the host."""
    return (metres - MIDDLE) / SPAN


def shift(x: float, y: float, z: float) -> Float[np.ndarray, "3"]:
    """A way in metres, in units of the observation."""
    return np.array([x, y, z], np.float32) / SPAN


def coarse(units: Vector) -> Vector:
    """A way rounded so that it does not depend on how its products were rounded."""
    return jnp.round(units * _COARSE) / _COARSE


def draw_start(key: Key[Array, ""], layout: Layout) -> View:
    """Things in their boxes and raw food, all uniform. One call draws all numbers, for each takes long to compile."""
    boxes = BOXES[layout]
    corners = np.array([[[*ends, 0.0] for ends in zip(box.x, box.y, strict=True)] for box in boxes.values()])
    low, high = np.moveaxis(_FINE * ((corners - MIDDLE) / SPAN)[..., :2], 1, 0)
    turned = [name for name, box in boxes.items() if box.yaw]
    lowest = np.array([*np.ceil(low).ravel(), *[-_FINE] * len(FOOD), *[0] * len(turned)], np.int32)
    above = np.array([*np.floor(high).ravel() + 1, *[-_FINE // 2] * len(FOOD), *[_TURNS] * len(turned)], np.int32)
    drawn = jax.random.randint(key, lowest.shape, lowest, above, jnp.int32)
    numbers = drawn.astype(jnp.float32) / _FINE
    first_level, first_turn = 2 * len(boxes), 2 * len(boxes) + len(FOOD)
    view: View = {"butter.melt": numbers[first_level], "meatball.cook": numbers[first_level + 1]}
    for k, name in enumerate(boxes):
        height = to_units(np.array([0.0, 0.0, START_HEIGHT[name]], np.float32))[2:]
        view[f"{name}.pos"] = jnp.append(numbers[2 * k : 2 * k + 2], height)
    for k, name in enumerate(turned):
        view[f"{name}.quat"] = _turns(boxes[name].yaw)[drawn[first_turn + k]]
    return view


def _turns(yaw: float) -> Float[Array, "turn 4"]:
    """Quaternions (w, x, y, z) of turns about the vertical, up to `yaw` either way."""
    half = np.linspace(-yaw / 2, yaw / 2, _TURNS)
    zero = np.zeros_like(half)
    return jnp.asarray(np.stack([np.cos(half), zero, zero, np.sin(half)], axis=1), jnp.float32)


def place(view: View, name: str) -> Vector:
    """Where something is, in metres; the robot is where its gripper is."""
    return to_metres(view["robot.eef_pos" if name == "robot" else f"{name}.pos"])


def rotate(quat: Quaternion, v: Vector | Float[np.ndarray, "3"]) -> Vector:
    """A vector turned by a unit quaternion: v + 2w (u x v) + 2 u x (u x v)."""
    u = quat[1:]
    across = jnp.cross(u, v)
    return 2 * (quat[0] * across + jnp.cross(u, across)) + v


def held(view: View) -> Scalar:
    """What the gripper holds, read from its width."""
    return int32(jnp.argmin(jnp.abs(view["robot.grip"] - GRIPS)))


def in_pots_frame(view: View, position: Vector) -> Vector:
    """A place as seen from the pot's bottom."""
    mirror = np.array([1, -1, -1, -1], np.float32)
    return rotate(view["pot.quat"] * mirror, position - place(view, "pot"))


def handle(view: View) -> Vector:
    """Where the pot is grasped, in units of the observation."""
    return view["pot.pos"] + coarse(rotate(view["pot.quat"], np.array(HANDLE, np.float32)) / SPAN)


def pot_floor(view: View) -> Vector:
    """The middle of the pot's floor, where melted butter is, in units of the observation."""
    return view["pot.pos"] + rotate(view["pot.quat"], np.array([0.0, 0.0, POT_FLOOR], np.float32)) / SPAN


def over_pot(view: View, position: Vector) -> Flag:
    """Whether something let go there falls into the pot."""
    local = in_pots_frame(view, position)
    return jnp.all(jnp.abs(local[:2]) < POT_INSIDE) & (local[2] > IN_POT_LOW)


def melted(view: View) -> Flag:
    """Whether the butter has melted."""
    return view["butter.melt"] >= 1


def in_pot(view: View, food: str) -> Flag:
    """Whether the food lies in the pot; melted butter always does."""
    position = place(view, food)
    inside = over_pot(view, position) & (in_pots_frame(view, position)[2] < IN_POT_HIGH)
    lies = inside & (held(view) != _number(food))
    return lies | melted(view) if food == "butter" else lies


def over_stove(view: View) -> Flag:
    """Whether the pot is where it falls onto the stove when let go."""
    apart = place(view, "pot") - place(view, "stove")
    return jnp.all(jnp.abs(apart[:2]) < ON_STOVE)


def pot_on_stove(view: View) -> Flag:
    """Whether the pot stands on the stove."""
    low = place(view, "pot")[2] - place(view, "stove")[2] < ON_STOVE_HEIGHT
    return over_stove(view) & low & (held(view) != POT)


def heating(view: View) -> Flag:
    """Whether the pot is being heated."""
    return (view["switch.on"] == 1) & pot_on_stove(view)


def cooked(view: View) -> Flag:
    """Whether the meatball lies in the pot, done and not overcooked."""
    return in_pot(view, "meatball") & (view["meatball.cook"] >= 1) & (view["meatball.overcooked"] == 0)


def within_reach(view: View) -> Scalar:
    """What a grasp would take: the nearest of what can be grasped, if it is near enough. Not what is in the pot."""
    grasped = [place(view, "butter"), place(view, "meatball"), to_metres(handle(view))]
    away = jnp.stack([jnp.linalg.norm(point - place(view, "robot")) for point in grasped])
    free = jnp.stack([~in_pot(view, "butter"), ~in_pot(view, "meatball"), jnp.asarray(True)])
    away = jnp.where(free, away, jnp.inf)
    return jnp.where(jnp.min(away) <= GRASP_REACH, int32(jnp.argmin(away)) + 1, NOTHING)


def at_switch(view: View) -> Flag:
    """Whether the gripper is where it can press the switch."""
    apart = place(view, "robot")[:2] - place(view, "switch")[:2]
    near: Flag = jnp.linalg.norm(apart) <= TOGGLE_REACH
    return near


def falls(view: View) -> Bool[Array, "4"]:
    """Which of the things would fall, were it held and let go: food over the pot, the pot over the stove."""
    height = place(view, "pot")[2]
    lifted = [
        over_pot(view, place(view, food)) & (place(view, food)[2] > height + POT_FLOOR + REST[food] + 1e-3)
        for food in FOOD
    ]
    off = over_stove(view) & (height > place(view, "stove")[2] + 1e-3)
    return jnp.stack([jnp.asarray(False), *lifted, off])


def skill_events(
    view: View,
    done: Mapping[str, Flag],
    moving: Flag,
    taken: Scalar,
    turned: Mapping[str, Flag],
    falling: Bool[Array, "4"],
) -> dict[str, Flag]:
    """What happened in the skill of a step, by the names that the rules of the local graph know.

    Args:
        view: The state before the skill, after heat.
        done: For each skill, whether it was done.
        moving: Whether it moved the gripper, or what it held.
        taken: What a grasp took.
        turned: Whether butter and pot were turned by a grasp.
        falling: Which of the things fell when it was let go.
    """
    hand = held(view)
    carried = {name: moving & (hand == number) for number, name in enumerate(("robot", *FOOD, "pot"))}
    events = {f"move:{target}": done[f"to_{target}"] & carried["robot"] for target in TARGETS}
    events["carry:pot"] = carried["pot"]
    for number, name in enumerate((*FOOD, "pot"), start=1):
        events[f"grasp:{name}"] = done["grasp"] & (taken == number)
        events[f"drop:{name}"] = done["drop"] & (hand == number)
        events[f"drop:{name}:fall"] = events[f"drop:{name}"] & falling[number]
    for food in FOOD:
        inside = in_pot(view, food)
        events[f"move:{food}:in_pot"] = events[f"move:{food}"] & inside
        events[f"carry:{food}"] = carried[food]
        events[f"carry:pot:{food}"] = carried["pot"] & inside
        events[f"drop:pot:{food}"] = events["drop:pot:fall"] & inside
    for name, is_turned in turned.items():
        events[f"grasp:{name}:turn"] = events[f"grasp:{name}"] & is_turned
    return events | {"toggle": done["toggle"]}


def _number(food: str) -> int:
    return FOOD.index(food) + 1
