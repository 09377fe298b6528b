"""The kitchen in robosuite: a Panda at a table, with pot, stove, button, butter and meatball as bodies that touch.

Only this module imports robosuite and MuJoCo, which are optional: ask `elden.worlds.kitchen.robosuite` for it, which
says what is missing. Measures are those of `elden.worlds.kitchen.table`; everything here is in metres.
"""

import copy
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, TypeAlias

import mujoco
import numpy as np
from jaxtyping import Float, UInt8
from threadpoolctl import threadpool_limits

from elden.worlds.kitchen import table

_LOUDNESS = logging.root.manager.disable
logging.disable(logging.WARNING)  # robosuite warns on import of parts that are not used here
try:
    from robosuite.controllers import load_composite_controller_config
    from robosuite.environments.manipulation.manipulation_env import ManipulationEnv
    from robosuite.models.arenas import TableArena
    from robosuite.models.objects import MujocoGeneratedObject
    from robosuite.models.tasks import ManipulationTask
    from robosuite.utils.mjcf_utils import array_to_string, new_body, new_element, new_geom, new_joint, new_site
finally:
    logging.disable(_LOUDNESS)
logging.getLogger("robosuite_logs").setLevel(logging.ERROR)

Point: TypeAlias = Float[np.ndarray, "3"]
Turn: TypeAlias = Float[np.ndarray, "4"]

_STRAIGHT_DOWN: Final = np.pi * np.array([1.0, 1.0, 0.0]) / np.sqrt(2)
"""Rotation vector of the tool: it points down, and the fingers close along y."""
_TABLE_SIZE: Final = (0.8, 1.0, 0.05)
_WALL: Final = 0.006
_RIM: Final = 0.05
"""Height of the pot's walls."""
_PLATE: Final = (0.025, 0.006, 0.04)
"""Half sizes of the pot's handle, an upright plate."""
_BUTTER: Final = (0.02, 0.015, table.REST["butter"])
_PUDDLE: Final = (0.045, 0.045, 0.003)
_STOVE: Final = 0.061
_CAP: Final = 0.02
_TRAVEL: Final = 0.012
"""How deep the button goes."""
_PRESSED, _ARMED = -0.008, -0.004
"""Where the button flips the switch on its way down, and where it is ready for that again on its way up."""
_FINGERS: Final = ("gripper0_right_finger_joint1", "gripper0_right_finger_joint2")
_EEF: Final = "gripper0_right_grip_site"
OPEN: Final = 0.038
"""From here on a finger counts as open; its way is 40 mm."""
TICK_S: Final = 0.05
"""Seconds of a tick of the controller: 25 steps of the simulation."""

_COLORS: Final = {
    "butter": (0.98, 0.86, 0.35, 1.0),
    "melted": (0.98, 0.80, 0.20, 0.85),
    "raw": (0.85, 0.45, 0.42, 1.0),
    "cooked": (0.45, 0.24, 0.12, 1.0),
    "overcooked": (0.08, 0.07, 0.07, 1.0),
    "pot": (0.55, 0.60, 0.66, 1.0),
    "plate": (0.15, 0.16, 0.18, 1.0),
    "stove off": (0.22, 0.22, 0.25, 1.0),
    "stove on": (0.95, 0.25, 0.10, 1.0),
    "switch off": (0.75, 0.15, 0.15, 1.0),
    "switch on": (0.15, 0.75, 0.25, 1.0),
}


class Thing(MujocoGeneratedObject):  # type: ignore[misc, unused-ignore]
    """A body made of boxes, balls and cylinders, free or fixed to the world."""

    def __init__(
        self, name: str, geoms: Mapping[str, Mapping[str, Any]], joint: Mapping[str, Any] | None, mass: float = 0.0
    ) -> None:
        """Make it.

        Args:
            name: Its name.
            geoms: Attributes of the parts by name. Each collides, and is seen by a copy of itself.
            joint: Attributes of its joint; None fixes it to the world.
            mass: Its mass, where that does not follow from the density of its parts.
        """
        super().__init__()
        self._name = name
        body = new_body(name="main")
        if joint is not None:
            body.append(new_joint(name="joint", **joint))
        if mass:
            inertia = array_to_string([1e-5] * 3)
            body.append(new_element(tag="inertial", name=None, pos=[0, 0, 0], mass=mass, diaginertia=inertia))
        for part, attributes in geoms.items():
            body.append(new_geom(name=part, group=0, **attributes))
            seen = {key: value for key, value in attributes.items() if key in ("type", "size", "pos", "rgba")}
            body.append(new_geom(name=f"{part}_seen", group=1, contype=0, conaffinity=0, mass=1e-8, **seen))
        body.append(new_site(name="default_site", rgba=(0, 0, 0, 0), size=(0.001,)))
        self._obj = body
        self._get_object_properties()

    def exclude_from_prefixing(self, inp: object) -> bool:
        """Every name gets the thing's name before it."""
        return False

    @property
    def bottom_offset(self) -> Point:
        """Not used: things are put by their own frames."""
        return np.zeros(3)

    @property
    def top_offset(self) -> Point:
        """Not used."""
        return np.zeros(3)

    @property
    def horizontal_radius(self) -> float:
        """Not used."""
        return 0.0


_FREE: Final = {"type": "free"}
_SOFT: Final = {"solref": (0.02, 1.0), "friction": (1.0, 0.01, 0.001), "condim": 4}
_SMOOTH: Final = {**_SOFT, "friction": (0.4, 0.01, 0.001), "priority": 1}
"""Its own friction counts, not the rubber's on the fingers, where what is not straight would be stuck as it is."""


def make_pot() -> Thing:
    """A square pot with a floor, four walls and an upright plate outside the -y wall; its frame is at the bottom."""
    inside, outside = table.POT_INSIDE, table.POT_INSIDE + _WALL
    half, middle = _WALL / 2, inside + _WALL / 2
    shape: dict[str, Any] = {"type": "box", "density": 300, "rgba": _COLORS["pot"], **_SOFT, "priority": 2}
    high = _RIM / 2
    geoms: dict[str, dict[str, Any]] = {
        "floor": {"size": (outside, outside, table.POT_FLOOR / 2), "pos": (0, 0, table.POT_FLOOR / 2)},
        "left": {"size": (outside, half, high), "pos": (0, middle, high)},
        "right": {"size": (outside, half, high), "pos": (0, -middle, high)},
        "back": {"size": (half, inside, high), "pos": (middle, 0, high)},
        "front": {"size": (half, inside, high), "pos": (-middle, 0, high)},
        "handle": {"size": _PLATE, "pos": (*table.HANDLE[:2], _PLATE[2]), "rgba": _COLORS["plate"], "priority": 0},
    }
    return Thing("pot", {name: {**shape, **part} for name, part in geoms.items()}, _FREE)


def make_butter() -> Thing:
    """A small block."""
    shape = {"type": "box", "size": _BUTTER, "density": 900, "rgba": _COLORS["butter"], **_SMOOTH}
    return Thing("butter", {"block": shape}, _FREE)


def make_meatball() -> Thing:
    """A ball that does not roll far."""
    shape = {"type": "sphere", "size": (table.REST["meatball"],), "density": 900, "rgba": _COLORS["raw"]}
    rolling = {"solref": (0.02, 1.0), "friction": (1.0, 0.01, 0.003), "condim": 6, "priority": 2}
    return Thing("meatball", {"ball": {**shape, **rolling}}, _FREE)


def make_stove() -> Thing:
    """A plate that is fixed to the table; its frame is in the middle of its top."""
    half = (table.STOVE_TOP - table.TABLE) / 2
    shape = {"type": "box", "size": (_STOVE, _STOVE, half), "pos": (0, 0, -half), "rgba": _COLORS["stove off"]}
    return Thing("stove", {"plate": shape}, None)


def make_switch() -> Thing:
    """A round button on a spring; its frame is in the middle of its top when nothing presses it."""
    half = (table.SWITCH_TOP - table.TABLE - _TRAVEL) / 2
    shape = {"type": "cylinder", "size": (_CAP, half), "pos": (0, 0, -half), "rgba": _COLORS["switch off"]}
    spring = {"type": "slide", "axis": (0, 0, 1), "range": (-_TRAVEL, 0), "limited": True, "stiffness": 150}
    return Thing("switch", {"cap": shape}, {**spring, "springref": 0, "damping": 2}, mass=0.005)


def _controller() -> dict[str, Any]:
    """Operational space control of the whole pose of the tool, with goals in the frame of the world."""
    config: dict[str, Any] = copy.deepcopy(load_composite_controller_config(robot="Panda"))
    arm = config["body_parts"]["right"]
    arm |= {"type": "OSC_POSE", "input_type": "absolute", "input_ref_frame": "world"}
    arm |= {"kp": 300, "uncouple_pos_ori": False}
    return config


class KitchenSimulation(ManipulationEnv):  # type: ignore[misc, unused-ignore]
    """The scene and its controller. What skills there are, and what they mean, is not known here."""

    def __init__(self) -> None:
        self.switch_on = False
        self.melted = False
        self._armed = True
        self._start_joints: Float[np.ndarray, "7"] | None = None
        self._renderer: mujoco.Renderer | None = None
        super().__init__(
            robots="Panda",
            controller_configs=_controller(),
            initialization_noise=None,
            use_camera_obs=False,
            has_offscreen_renderer=False,
            control_freq=round(1 / TICK_S),
            ignore_done=True,
            hard_reset=False,
        )

    # What robosuite asks of an environment.

    def _load_model(self) -> None:
        super()._load_model()
        base = self.robots[0].robot_model
        base.set_base_xpos(base.base_xpos_offset["table"](_TABLE_SIZE[0]))
        arena = TableArena(table_full_size=_TABLE_SIZE, table_offset=(0, 0, table.TABLE))
        arena.set_origin([0, 0, 0])
        things = (make_pot(), make_stove(), make_switch(), make_butter(), make_meatball())
        self.things = {thing.name: thing for thing in things}
        self.model = ManipulationTask(arena, [base], list(things))

    def _setup_references(self) -> None:
        super()._setup_references()
        model = self.sim.model
        self._bodies = {name: model.body_name2id(thing.root_body) for name, thing in self.things.items()}
        self._seen = {
            geom: model.geom_name2id(geom)
            for geom in ("butter_block_seen", "meatball_ball_seen", "stove_plate_seen", "switch_cap_seen")
        }
        self._pads = [{model.geom_name2id(f"gripper0_right_finger{finger}_pad_collision")} for finger in (1, 2)]
        self._parts = {
            name: {model.geom_name2id(geom) for geom in thing.contact_geoms} for name, thing in self.things.items()
        }
        self._eef = model.site_name2id(_EEF)
        self._arm = self.robots[0]._ref_joint_pos_indexes

    def _setup_observables(self) -> dict[str, Any]:
        """None: they are computed in every step of the simulation, and nobody reads them."""
        super()._setup_observables()
        return {}

    def reward(self, action: object = None) -> float:
        """Nothing: what counts is judged by the rules of the kitchen."""
        return 0.0

    # Where things are.

    @property
    def eef(self) -> Point:
        """The point between the fingers."""
        return np.array(self.sim.data.site_xpos[self._eef])

    @property
    def eef_speed(self) -> float:
        """Speed of that point."""
        return float(np.linalg.norm(self.sim.data.get_site_xvelp(_EEF)))

    @property
    def fingers(self) -> float:
        """How far the finger that is less open is."""
        return min(abs(float(self.sim.data.get_joint_qpos(joint))) for joint in _FINGERS)

    def place(self, name: str) -> Point:
        """Where a thing is; the button is where its housing is, pressed or not."""
        fixed = name in ("stove", "switch")
        return np.array((self.sim.model.body_pos if fixed else self.sim.data.body_xpos)[self._bodies[name]])

    def turn(self, name: str) -> Turn:
        """How a thing is turned (w, x, y, z), with w >= 0."""
        quat = np.array(self.sim.data.body_xquat[self._bodies[name]])
        return quat if quat[0] >= 0 else -quat

    def speed(self, name: str) -> float:
        """Speed of a free thing."""
        return float(np.linalg.norm(self.sim.data.get_joint_qvel(f"{name}_joint")[:3]))

    def pinched(self, name: str) -> bool:
        """Whether both fingers touch a thing."""
        pairs = self.sim.data._data.contact.geom
        touched = [
            any((a in pad and b in parts) or (b in pad and a in parts) for a, b in pairs)
            for parts in (self._parts[name],)
            for pad in self._pads
        ]
        return all(touched)

    # Putting things somewhere.

    def put(self, name: str, position: Point, turn: Turn | None = None) -> None:
        """Put a thing somewhere, at rest."""
        if name in ("stove", "switch"):
            self.sim.model.body_pos[self._bodies[name]] = position
            return
        quat = np.array([1.0, 0.0, 0.0, 0.0]) if turn is None else turn
        self.sim.data.set_joint_qpos(f"{name}_joint", np.concatenate([position, quat]))
        self.sim.data.set_joint_qvel(f"{name}_joint", np.zeros(6))

    def clear(self) -> None:
        """The arm at its start with open fingers, things out of the way, butter solid, switch off."""
        self.reset()
        self.float_freely(None)
        self._set_melted(False)
        self.switch_on, self._armed = False, True
        for number, name in enumerate(("butter", "meatball", "pot")):
            self.put(name, np.array([3.0, number, 0.2]))
        self.put("switch", np.array([0.0, 0.0, 0.4]))
        self.put("stove", np.array([0.0, 0.0, 0.4]))
        goal = np.array(table.START)
        if self._start_joints is not None:
            self.sim.data.qpos[self._arm] = self._start_joints
            self.sim.data.qvel[:] = 0
            self.sim.forward()
        for _ in range(200):
            self.tick(goal, -1)
            if np.linalg.norm(self.eef - goal) < 1e-3 and self.eef_speed < 2e-3 and self.fingers > OPEN:
                break
        if self._start_joints is None:
            self._start_joints = np.array(self.sim.data.qpos[self._arm])

    def float_freely(self, name: str | None) -> None:
        """Take the weight off one thing, and give it back to the others."""
        for thing in ("butter", "meatball", "pot"):
            weightless = thing == name or (thing == "butter" and self.melted)
            self.sim.model._model.body_gravcomp[self._bodies[thing]] = float(weightless)

    def melt(self) -> None:
        """Let the butter be a puddle on the pot's floor."""
        self._set_melted(True)
        self.float_freely(None)
        self._follow()

    def _set_melted(self, melted: bool) -> None:
        self.melted = melted
        model = self.sim.model
        for geom in self._parts["butter"]:
            model.geom_contype[geom] = model.geom_conaffinity[geom] = int(not melted)
        model.geom_size[self._seen["butter_block_seen"]] = _PUDDLE if melted else _BUTTER

    def _follow(self) -> None:
        """Melted butter is in the middle of the pot's floor."""
        if self.melted:
            turn = self.turn("pot")
            inside = np.zeros(3)
            mujoco.mju_rotVecQuat(inside, np.array([0.0, 0.0, table.POT_FLOOR]), turn)
            self.put("butter", self.place("pot") + inside, turn)
            self.sim.forward()

    # Time.

    @staticmethod
    def one_core() -> AbstractContextManager[object]:
        """While in it, linear algebra keeps to one core: the controller's matrices are small, and waits cost most."""
        limits: AbstractContextManager[object] = threadpool_limits(limits=1, user_api="blas")
        return limits

    def tick(self, goal: Point, fingers: int) -> None:
        """A twentieth of a second, with the tool drawn to a goal; fingers close (1), open (-1) or stay (0)."""
        self.step(np.concatenate([goal, _STRAIGHT_DOWN, [fingers]]))
        self._follow()
        depth = float(self.sim.data.get_joint_qpos("switch_joint"))
        if self._armed and depth < _PRESSED:
            self.switch_on, self._armed = not self.switch_on, False
        elif depth > _ARMED:
            self._armed = True

    # Pictures.

    def picture(self, height: int, width: int, cook: float, overcooked: bool) -> UInt8[np.ndarray, "height width 3"]:
        """The scene from the far side of the table; the colours tell what is hot, melted and cooked."""
        if self._renderer is None or (self._renderer.height, self._renderer.width) != (height, width):
            self.close_pictures()
            self.sim.model._model.vis.global_.offheight = height
            self.sim.model._model.vis.global_.offwidth = width
            self._renderer = mujoco.Renderer(self.sim.model._model, height, width)
        self._paint(cook, overcooked)
        camera = mujoco.MjvCamera()
        camera.lookat[:] = (-0.10, -0.01, 0.92)
        camera.distance, camera.azimuth, camera.elevation = 1.05, 180, -38
        options = mujoco.MjvOption()
        options.geomgroup[0] = 0
        self._renderer.update_scene(self.sim.data._data, camera, options)
        return np.array(self._renderer.render())

    def close_pictures(self) -> None:
        """Let go of what pictures need."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _paint(self, cook: float, overcooked: bool) -> None:
        done = (cook + 1) / 2
        mixed = (1 - done) * np.array(_COLORS["raw"]) + done * np.array(_COLORS["cooked"])
        colors: dict[str, Sequence[float] | Float[np.ndarray, "4"]] = {
            "butter_block_seen": _COLORS["melted" if self.melted else "butter"],
            "meatball_ball_seen": _COLORS["overcooked"] if overcooked else mixed,
            "stove_plate_seen": _COLORS["stove on" if self.switch_on else "stove off"],
            "switch_cap_seen": _COLORS["switch on" if self.switch_on else "switch off"],
        }
        for geom, color in colors.items():
            self.sim.model.geom_rgba[self._seen[geom]] = color
